//! The proof as one command, `cargo demo`: a workflow sends a notice, and its process is killed with SIGKILL at
//! every point where that makes a difference, for every kind of provider. It is started again each time, and in
//! the end the *provider* says how many notices it has sent. Beside it a naive retry loop dies the same deaths.
//!
//! Then the whole desk around the notice is killed at each point of its day, and an order service in a storm of duplicates: its rows
//! are counted, naive and behind counterfoil's doors. `COUNTERFOIL_SEED` repeats a storm.
//!
//! `cargo demo --postgres` shows many workers on one PostgreSQL, killed and stopped at random; with `--older PATH` half of them are an
//! older build of this program, as while an application is updated worker by worker.
//!
//! `cargo demo` prints a table; `cargo demo --json` a line of JSON per row, and one for the summary. The exit status is
//! 1 if counterfoil has let a notice go out twice, or not at all, without saying so, or has taken a request twice or not at all.

mod customer;
mod doors;
#[path = "harness.rs"]
mod harness;
mod many;
mod table;
mod whole;

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::id::{Entropy as _, SystemEntropy};
use counterfoil::{Clock as _, SystemClock};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use doors::doors;
use harness::Failed;
use harness::case_notice::classes::Class;
use harness::process::{Program, World};
use harness::role;
use harness::scenario::{self, Depth, Pace, Scenario};
use harness::trial::{Naive, Ours, Place};
use table::{Cell, Table, Tone, colours, paint};
use whole::desks;

/// So many trials are held at once: most of their time they wait.
pub(crate) const AT_ONCE: usize = 4;
const PACE: Pace = Pace { settle: Duration::from_millis(800), patience: Duration::from_millis(800) };

const LEGEND: &str = "\
One notice is to be sent. Its sender is killed with SIGKILL at a crash point and started again; the figures are the
notices sent, as the provider counts them. marked: the record says that it rests on the provider's word alone.
asked: the question is open and listed, and nothing goes on without an answer.
";

/// One line of the table.
struct Row {
    class: Class,
    scenario: Scenario,
    naive: Naive,
    ours: Ours,
}

fn main() -> ExitCode {
    role::play_if_child();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = |why: &str| {
        eprintln!(
            "{why}usage: cargo demo [--json]\n       cargo demo --postgres[=URL] [--workers N] [--runs N] [--seconds N] [--seed N] [--older PATH] [--json]"
        );
        ExitCode::from(2)
    };
    let shown: BoxFuture<'static, Result<ExitCode, Failed>> = match arguments.as_slice() {
        [] => Box::pin(demo(false)),
        [flag] if flag == "--json" => Box::pin(demo(true)),
        [first, ..] if first.starts_with("--postgres") => match many::Asked::read(&arguments) {
            Ok(asked) => Box::pin(many::demo(asked)),
            Err(why) => return usage(&format!("{why}\n")),
        },
        _ => return usage(""),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime.map_err(Failed::from).and_then(|runtime| runtime.block_on(shown)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("the demo failed: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn demo(json: bool) -> Result<ExitCode, Failed> {
    let started = SystemClock.boot();
    let folder = tempfile::Builder::new().prefix("counterfoil-demo-").tempdir()?;
    let place = Place { program: Program::this(&[])?, folder: folder.path().to_owned(), pace: PACE };
    let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // Whichever ends first: the processes that are still alive die with what held them, and the folder goes last.
    let rows = tokio::select! {
        rows = rows(&place) => rows?,
        _ = int.recv() => return Ok(ExitCode::from(130)),
        _ = term.recv() => return Ok(ExitCode::from(143)),
    };
    let took = started.until(SystemClock.boot());
    let desk = desks(&place).await?;
    let doors = Box::pin(doors(&place, seed())).await?;
    folder.close()?;
    let summary = Summary::of(&rows, took);
    let mut out = std::io::stdout().lock();
    if json {
        for row in &rows {
            writeln!(out, "{}", row.json())?;
        }
        writeln!(out, "{}", summary.json())?;
        writeln!(out, "{}", desk.json())?;
        writeln!(out, "{}", doors.json())?;
    } else {
        writeln!(out, "{LEGEND}")?;
        write!(out, "{}\n{}\n{}", as_table(&rows), summary.text(colours()), desk.text(colours()))?;
        write!(out, "\n{}", doors.text(colours()))?;
    }
    let well = summary.ours == (0, 0) && desk.is_well() && doors.is_well();
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The storm that is to be repeated, or another one.
fn seed() -> u64 {
    let seed = std::env::var("COUNTERFOIL_SEED").ok().and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(|| SystemEntropy.bits() % 1_000_000)
}

/// Holds all trials.
async fn rows(place: &Place) -> Result<Vec<Row>, Failed> {
    let mut progress = Progress::new();
    let mut worlds = BTreeMap::new();
    let mut planned = Vec::new();
    for class in Class::ALL {
        progress.show(&format!("numbering the crash points of {}", class.name()));
        let healthy = Scenario::Crash(Vec::new()).behaviour(class, PACE);
        let db = place.folder.join(format!("provider-{}.db", class.name()));
        let world = Arc::new(World::start(&place.program, &db, &healthy).await?);
        for scenario in scenario::of_class(place, &world, class, Depth::First).await? {
            planned.push((class, scenario));
        }
        worlds.insert(class, world);
    }

    let total = planned.len();
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut trials = JoinSet::new();
    for (number, (class, scenario)) in planned.into_iter().enumerate() {
        let (place, slots, world) = (place.clone(), slots.clone(), worlds[&class].clone());
        trials.spawn(async move {
            let _slot = slots.acquire_owned().await?;
            let row = trial(&place, world, number, class, scenario).await?;
            Ok::<_, Failed>((number, row))
        });
    }
    let mut rows = BTreeMap::new();
    while let Some(held) = trials.join_next().await {
        let (number, row) = held??;
        rows.insert(number, row);
        progress.show(&format!("{} of {total} trials", rows.len()));
    }
    Ok(rows.into_values().collect())
}

/// One scenario, on both sides.
async fn trial(
    place: &Place,
    shared: Arc<World>,
    number: usize,
    class: Class,
    scenario: Scenario,
) -> Result<Row, Failed> {
    let case = format!("case-{number}");
    let world = async |side: &str| {
        if !scenario.needs_own_world() {
            return Ok::<_, Failed>(shared.clone());
        }
        let db = place.folder.join(format!("provider-{number}-{side}.db"));
        Ok(Arc::new(World::start(&place.program, &db, &scenario.behaviour(class, place.pace)).await?))
    };
    let ours = place.ours(&*world("ours").await?, class, &scenario, &case).await?;
    let naive = place.naive(&*world("naive").await?, class, &scenario, &format!("{case}-naive")).await?;
    Ok(Row { class, scenario, naive, ours })
}

impl Row {
    fn json(&self) -> serde_json::Value {
        json!({
            "provider": self.class.name(),
            "scenario": self.scenario.to_string(),
            "naive": {
                "effects": self.naive.effects,
                "silent_duplicate": self.naive.is_silent_duplicate(),
                "silent_loss": self.naive.is_silent_loss(),
            },
            "counterfoil": {
                "effects": self.ours.effects,
                "silent_duplicate": self.ours.is_silent_duplicate(),
                "silent_loss": self.ours.is_silent_loss(),
                "marked": self.ours.is_marked(),
                "asked": self.ours.is_asked(),
                "decision": self.ours.decision(),
                "ended": self.ours.report.ended,
                "record": self.ours.report.record,
                "resumed_ms": self.ours.resumed.map(|took| took.as_millis()),
            },
        })
    }

    fn cells(&self) -> Vec<Cell> {
        let Self { naive, ours, .. } = self;
        vec![
            Cell::plain(self.class.name()),
            Cell::plain(self.scenario.to_string()),
            match naive.effects {
                n if naive.is_silent_duplicate() => Cell::new(Tone::Bad, format!("{n} duplicate")),
                n if naive.is_silent_loss() => Cell::new(Tone::Bad, format!("{n} lost")),
                n => Cell::plain(n.to_string()),
            },
            match ours.effects {
                n if ours.is_silent_duplicate() => Cell::new(Tone::Bad, format!("{n} duplicate")),
                n if ours.is_silent_loss() => Cell::new(Tone::Bad, format!("{n} lost")),
                n if ours.is_asked() => Cell::new(Tone::Told, format!("{n} asked")),
                n if n > 1 => Cell::new(Tone::Told, format!("{n} marked")),
                n => Cell::new(Tone::Good, n.to_string()),
            },
            Cell::plain(ours.decision()),
            Cell::plain(
                ours.resumed.map_or_else(|| "-".into(), |took| format!("{:>5} ms", took.as_millis())),
            ),
        ]
    }
}

fn as_table(rows: &[Row]) -> String {
    let mut table = Table::new([
        "provider",
        "the process died at, or",
        "naive loop",
        "counterfoil",
        "decision",
        "resumed in",
    ]);
    for (at, row) in rows.iter().enumerate() {
        if at > 0 && rows[at - 1].class != row.class {
            table.row(Vec::new());
        }
        table.row(row.cells());
    }
    table.render(colours())
}

/// What all rows come to. Duplicates and losses are the silent ones.
struct Summary {
    trials: usize,
    took: Duration,
    naive: (usize, usize),
    ours: (usize, usize),
    marked: usize,
    asked: usize,
}

impl Summary {
    fn of(rows: &[Row], took: Duration) -> Self {
        let count = |is: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| is(row)).count();
        Self {
            trials: rows.len(),
            took,
            naive: (count(&|row| row.naive.is_silent_duplicate()), count(&|row| row.naive.is_silent_loss())),
            ours: (count(&|row| row.ours.is_silent_duplicate()), count(&|row| row.ours.is_silent_loss())),
            marked: count(&|row| row.ours.effects > 1 && row.ours.is_marked()),
            asked: count(&|row| row.ours.is_asked()),
        }
    }

    fn json(&self) -> serde_json::Value {
        let side = |(duplicates, losses): (usize, usize)| json!({ "silent_duplicates": duplicates, "silent_losses": losses });
        json!({ "summary": {
            "trials": self.trials,
            "took_ms": self.took.as_millis(),
            "naive": side(self.naive),
            "counterfoil": side(self.ours),
            "duplicates_marked": self.marked,
            "persons_asked": self.asked,
        }})
    }

    fn text(&self, colour: bool) -> String {
        let side = |name: &str, (duplicates, losses): (usize, usize)| {
            let tone = if (duplicates, losses) == (0, 0) { Tone::Good } else { Tone::Bad };
            let counts = format!("{duplicates:>3} silent duplicates, {losses} silent losses");
            format!("{name:<12} {}", paint(tone, &counts, colour))
        };
        format!(
            "{} trials in {:.0} s, counted by the provider:\n{}\n{} ({} duplicates marked as resting on the provider's \
             word, a person asked {} times)\n",
            self.trials,
            self.took.as_secs_f64(),
            side("naive loop", self.naive),
            side("counterfoil", self.ours),
            self.marked,
            self.asked,
        )
    }
}

/// One line that says how far things are, for whoever watches.
pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { shown: std::io::stderr().is_terminal() }
    }

    pub(crate) fn show(&mut self, text: &str) {
        if self.shown {
            eprint!("\r\x1b[2K{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}
