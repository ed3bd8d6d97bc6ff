//! `cargo demo --postgres`: many workers on one PostgreSQL, killed and stopped at random.

use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

use counterfoil::id::{Entropy as _, SystemEntropy};

use super::Failed;
use super::harness::cluster::{Plan, Tally, storm};
use super::harness::process::Program;
use super::harness::role::Role;
use super::harness::worker::Ledger;
use super::table::{Tone, colours, paint};

/// What the command line asks for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// A server of the user's; else one is started.
    pub(super) url: Option<String>,
    pub(super) plan: Plan,
    pub(super) json: bool,
}

impl Asked {
    /// Reads `--postgres[=URL] [--workers N] [--runs N] [--seconds N] [--seed N] [--older PATH] [--json]`.
    pub(super) fn read(arguments: &[String]) -> Result<Self, String> {
        let mut asked = Self {
            url: None,
            plan: Plan {
                workers: 4,
                runs: 400,
                storm: Duration::from_secs(30),
                calm: Duration::from_mins(2),
                lease: Duration::from_secs(2),
                settle: Duration::from_secs(5),
                faults: false,
                older: None,
                seed: SystemEntropy.bits() % 1_000_000,
            },
            json: false,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "--older" {
                let path =
                    arguments.next().ok_or("--older needs the path of an older build of this program")?;
                asked.plan.older = Some(Program::other(path.into()));
                continue;
            }
            let mut number = || -> Result<u64, String> {
                let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
                text.parse().map_err(|error| format!("{argument} {text}: {error}"))
            };
            let size = |number: u64| usize::try_from(number).map_err(|error| error.to_string());
            match argument.as_str() {
                "--postgres" => {}
                "--json" => asked.json = true,
                "--workers" => asked.plan.workers = size(number()?)?.max(1),
                "--runs" => asked.plan.runs = size(number()?)?.max(1),
                "--seconds" => asked.plan.storm = Duration::from_secs(number()?),
                "--seed" => asked.plan.seed = number()?,
                other => match other.strip_prefix("--postgres=") {
                    Some(url) => asked.url = Some(url.to_owned()),
                    None => return Err(format!("{other} is not known")),
                },
            }
        }
        Ok(asked)
    }
}

pub(super) async fn demo(asked: Asked) -> Result<ExitCode, Failed> {
    let Asked { url, plan, json } = asked;
    let Some(url) = url else { return with_a_server_of_its_own() };
    let folder = tempfile::Builder::new().prefix("counterfoil-demo-").tempdir()?;
    let schema = format!("demo_{:x}", SystemEntropy.bits());
    eprintln!(
        "{} workers, {} runs, killed and stopped at random for {:?}; seed {}",
        plan.workers, plan.runs, plan.storm, plan.seed
    );
    let ledger = Ledger::Postgres { url, schema };
    match &plan.older {
        // The database is of the older build, until the first newer worker opens it.
        Some(older) => older.start(&Role::Prepare(ledger.clone()))?.death().await.map(drop)?,
        None => ledger.prepare().await?,
    }
    let tally = storm(&Program::this(&[])?, folder.path(), &ledger, &plan).await?;
    let mut out = std::io::stdout().lock();
    if json {
        let mut line = tally.json();
        line["seed"] = plan.seed.into();
        writeln!(out, "{line}")?;
    } else {
        write!(out, "{}", text(&tally, colours()))?;
    }
    Ok(if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts this program once more, beside a server that syncs its files as a real one does, and that is gone afterwards.
fn with_a_server_of_its_own() -> Result<ExitCode, Failed> {
    let status = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.ci/with-postgres"))
        .args(["--durable", "sh", "-c", "exec \"$0\" \"--postgres=$TEST_DATABASE_URL\" \"$@\""])
        .arg(std::env::current_exe()?)
        .args(std::env::args().skip(1).filter(|argument| argument != "--postgres"))
        .status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn text(tally: &Tally, colour: bool) -> String {
    let good = |is: bool, text: String| paint(if is { Tone::Good } else { Tone::Bad }, &text, colour);
    let silent = (tally.silent_duplicates, tally.silent_losses);
    format!(
        "notices expected {}, sent {}, sent twice {}, as the provider counts them\n{}\n{}\n\
         {} questions are open\n\
         {} kills, {} stops, {} retirements; {} workers were taken over, the longest {:.1} s after its death\n",
        tally.runs,
        tally.found,
        tally.duplicated,
        good(silent == (0, 0), format!("{} silent duplicates, {} silent losses", silent.0, silent.1)),
        good(
            tally.unfinished == 0,
            format!("{} runs succeeded, {} are unfinished", tally.succeeded, tally.unfinished)
        ),
        tally.escalated,
        tally.kills,
        tally.stops,
        tally.retirements,
        tally.takeovers,
        tally.longest_takeover.as_secs_f64(),
    )
}
