//! Several simulations together, for a `main` of your own or a test, with a choice of simulations, seeds and time.
//! The real time of the machine is read here, and nowhere else in the simulator.

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;
#[cfg(feature = "html")]
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::explore::Replay;
use super::report::{Failing, Report};
use super::schedule::Schedule;
use super::simulation::Simulation;
use super::table;
use crate::clock::{Boot, Clock as _, SystemClock};
use crate::flow::Guarantees;

/// The default number of random schedules for each further seed.
const MIXTURES: u32 = 100;
/// The interval between updates of the progress line on a terminal.
const REFRESH: Duration = Duration::from_millis(100);

/// A set of named simulations.
///
/// ```
/// use std::process::ExitCode;
/// use counterfoil::sim::{Options, Simulation, Suite};
/// use counterfoil::{Ctx, Failure};
///
/// async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
///     ctx.step("greeting", &name, |name| format!("Hello, {name}!")).await
/// }
///
/// let suite = Suite::new().with("greet", || Simulation::of(greet, "Ann".to_owned()));
///
/// // In a test:
/// let results = suite.explore(&Options { seed: 7, random: Some(20), ..Options::default() })?;
/// assert!(results.is_ok(), "{results}");
///
/// // At the end of a `main`: draws the reports on standard output.
/// let code: ExitCode = suite.run(&Options::default());
/// # assert_eq!(code, ExitCode::SUCCESS);
/// # Ok::<(), counterfoil::sim::SuiteError>(())
/// ```
#[derive(Default)]
pub struct Suite {
    simulations: Vec<Named>,
    command: Option<String>,
}

type Named = (String, Box<dyn Fn() -> Simulation>);

/// The options of a suite.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct Options {
    /// The names of the simulations; all, if none is named
    pub names: Vec<String>,
    /// The seed of all random numbers; further seeds are counted up from it
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0))]
    pub seed: u64,
    /// The time limit in seconds of this machine: ends a longer exploration early, and continues a shorter one with
    /// new seeds. Without it, everything is tried once
    #[cfg_attr(feature = "cli", arg(long))]
    pub seconds: Option<u64>,
    /// The number of random mixtures of up to five incidents, for each seed; each simulation has its own number if
    /// this is absent
    #[cfg_attr(feature = "cli", arg(long, value_name = "MIXTURES"))]
    pub random: Option<u32>,
    /// Tries each pair of incidents, also in the simulations that leave pairs out because they are many
    #[cfg_attr(feature = "cli", arg(long))]
    pub pairs: bool,
    /// Tries this one schedule and draws its events, as in `--replay "crash@1.7 answer-lost@2"`
    #[cfg_attr(feature = "cli", arg(long, value_name = "SCHEDULE"))]
    pub replay: Option<Schedule>,
    /// Prints JSON
    #[cfg_attr(feature = "cli", arg(long))]
    pub json: bool,
    /// Writes the findings to this file, too, as one page of HTML
    #[cfg(feature = "html")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub html: Option<PathBuf>,
}

/// The reason why the options do not fit this suite. Nothing was tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuiteError {
    /// The suite has no simulation of this name.
    #[error("there is no simulation {name:?}: there are {known} [configuration]")]
    Unknown {
        /// The name as given.
        name: String,
        /// The names of all simulations.
        known: String,
    },
    /// A simulation's tools or workflow were refused.
    #[error("the simulation {name:?} cannot start: {reason} [configuration]")]
    Refused {
        /// The name of the simulation.
        name: String,
        /// The reason of the refusal.
        reason: String,
    },
    /// The page of the findings cannot be written.
    #[cfg(feature = "html")]
    #[error("the page {file} cannot be written: {reason} [configuration]")]
    Page {
        /// The path of the file as given.
        file: String,
        /// The reason of the operating system.
        reason: String,
    },
    /// A schedule needs exactly one simulation.
    #[error("a schedule is replayed in one simulation: name one of {known} [configuration]")]
    Replay {
        /// The names of all simulations.
        known: String,
    },
}

/// The results of a suite: a report for each simulation.
#[derive(Debug)]
pub struct Results {
    pub(super) explored: Vec<Explored>,
    pub(super) command: Option<String>,
}

/// The results of one simulation.
#[derive(Debug)]
pub struct Explored {
    pub(super) name: String,
    pub(super) report: Report,
    pub(super) first_seed: u64,
    pub(super) seeds: u64,
    pub(super) failing: Vec<FailingSeed>,
}

/// A seed under which a rule is broken.
#[derive(Clone, Debug)]
pub(super) struct FailingSeed {
    pub(super) seed: u64,
    schedule: Schedule,
    pub(super) what: String,
}

impl Suite {
    /// A suite without simulations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a simulation. The closure builds it again for each seed.
    #[must_use]
    pub fn with(mut self, name: &str, simulation: impl Fn() -> Simulation + 'static) -> Self {
        self.simulations.push((name.to_owned(), Box::new(simulation)));
        self
    }

    /// Sets the command line of this program, for the lines that replay a failure: `"counterfoil simulate"`.
    #[must_use]
    pub fn command(self, command: &str) -> Self {
        Self { command: Some(command.to_owned()), ..self }
    }

    /// Explores or replays as the options say, with progress on standard error and the results on standard output.
    ///
    /// The exit code is 0 if no rule was broken, 1 if one was, and 2 if the options do not fit the suite or the page of
    /// the findings cannot be written.
    pub fn run(&self, options: &Options) -> ExitCode {
        match self.ran(options) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::from(2)
            }
        }
    }

    /// True if no rule was broken.
    fn ran(&self, options: &Options) -> Result<bool, SuiteError> {
        #[cfg(feature = "html")]
        options.check_page()?;
        Ok(match &options.replay {
            Some(schedule) => {
                let replay = self.replay(schedule, options)?;
                tell_replay(&replay, options.json);
                #[cfg(feature = "html")]
                options.write_page(|| replay.html())?;
                replay.violations.is_empty()
            }
            None => {
                let results = self.explore(options)?;
                tell(&results, options.json);
                #[cfg(feature = "html")]
                options.write_page(|| results.html())?;
                results.is_ok()
            }
        })
    }

    /// Explores the named simulations, one after the other; then, if time is left, again and again under new seeds,
    /// with random schedules only. Progress goes to standard error.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn explore(&self, options: &Options) -> Result<Results, SuiteError> {
        let chosen = self.chosen(&options.names)?;
        let progress = Progress::new(options.seconds.map(Duration::from_secs));
        let mut explored = Vec::new();
        for (place, (name, simulation)) in chosen.iter().enumerate() {
            // Each simulation has an equal share of the remaining time, so that the last one gets its share.
            let until = progress.share(chosen.len() - place);
            let simulation = simulation().seed(options.seed).random_or(options.random, 0);
            let simulation = if options.pairs { simulation.with_pairs() } else { simulation };
            let report =
                simulation.explore_while(|report| progress.goes_on(name, options.seed, report, until));
            let mut first = Explored::new(name, options.seed);
            first.add(options.seed, report, self.command.as_deref());
            progress.ended(&first);
            explored.push(first);
        }
        if options.seconds.is_some() {
            let until = progress.share(1);
            'time: for seed in options.seed.saturating_add(1).. {
                for ((name, simulation), explored) in chosen.iter().zip(&mut explored) {
                    if !progress.goes_on(name, seed, &explored.report, until) {
                        break 'time;
                    }
                    let simulation =
                        simulation().seed(seed).random_or(options.random, MIXTURES).random_only();
                    let report = simulation.explore_while(|_| progress.is_before(until));
                    explored.add(seed, report, self.command.as_deref());
                }
            }
            explored
                .iter()
                .filter(|explored| explored.seeds > 1)
                .for_each(|explored| progress.ended(explored));
        }
        Ok(Results { explored, command: self.command.clone() })
    }

    /// Tries one schedule in the one simulation that is named.
    ///
    /// # Errors
    /// If none is named, or several, or a name is unknown.
    pub fn replay(&self, schedule: &Schedule, options: &Options) -> Result<Replay, SuiteError> {
        match self.chosen(&options.names)?.as_slice() {
            [(_, simulation)] => Ok(simulation().seed(options.seed).replay(schedule)),
            _ => Err(SuiteError::Replay { known: self.names() }),
        }
    }

    /// The guarantee reports for the tools of each simulation that is named, or of all.
    ///
    /// # Errors
    /// If a name is unknown, or a simulation's tools are refused.
    pub fn guarantees(&self, names: &[String]) -> Result<Vec<(String, Guarantees)>, SuiteError> {
        let report = |(name, simulation): &Named| match simulation().guarantees() {
            Ok(report) => Ok((name.clone(), report)),
            Err(error) => Err(SuiteError::Refused { name: name.clone(), reason: error.to_string() }),
        };
        self.chosen(names)?.into_iter().map(report).collect()
    }

    fn chosen(&self, names: &[String]) -> Result<Vec<&Named>, SuiteError> {
        if names.is_empty() {
            return Ok(self.simulations.iter().collect());
        }
        let find = |name: &String| {
            let found = self.simulations.iter().find(|(known, _)| known == name);
            found.ok_or_else(|| SuiteError::Unknown { name: name.clone(), known: self.names() })
        };
        names.iter().map(find).collect()
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.simulations.iter().map(|(name, _)| name.as_str()).collect();
        names.join(", ")
    }
}

fn tell(results: &Results, json: bool) {
    if json {
        table::say(format_args!("{}", results.json()));
    } else {
        table::show(results);
    }
}

fn tell_replay(replay: &Replay, json: bool) {
    let violations: Vec<_> = replay.violations.iter().map(ToString::to_string).collect();
    let (schedule, timeline) = (replay.schedule.to_string(), replay.timeline());
    let never = &replay.never_happened;
    if json {
        let json = json!({
            "schedule": schedule, "violations": violations, "never_happened": never, "timeline": timeline,
        });
        table::say(format_args!("{json}"));
    } else {
        let found =
            if violations.is_empty() { "no rule is broken".to_owned() } else { violations.join("\n") };
        table::say(format_args!("{schedule}\n{timeline}\n{found}"));
        if !never.is_empty() {
            table::say(format_args!("did not happen: {}", never.join(" ")));
        }
    }
}

impl Explored {
    fn new(name: &str, first_seed: u64) -> Self {
        Self { name: name.to_owned(), report: Report::default(), first_seed, seeds: 0, failing: Vec::new() }
    }

    /// The name of the simulation.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The findings under all seeds.
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// The number of seeds that were tried.
    pub const fn seeds(&self) -> u64 {
        self.seeds
    }

    /// Adds the findings under a seed. A failure is printed at once, before the end of the exploration.
    fn add(&mut self, seed: u64, report: Report, command: Option<&str>) {
        let failing = FailingSeed::all(seed, &report);
        for failing in &failing {
            eprintln!("\r{}: {}", self.name, failing.line(&self.name, command));
        }
        self.failing.extend(failing);
        self.seeds += 1;
        self.report.add(report);
    }

    fn json(&self, command: Option<&str>) -> Value {
        let mut json = self.report.json();
        let failing: Vec<_> = self.failing.iter().map(|failing| failing.json(&self.name, command)).collect();
        json["name"] = json!(self.name);
        json["first_seed"] = json!(self.first_seed);
        json["seeds"] = json!(self.seeds);
        json["failing_seeds"] = json!(failing);
        json
    }
}

impl FailingSeed {
    fn all(seed: u64, report: &Report) -> Vec<Self> {
        let clean = report.clean.iter().map(|what| (Schedule::default(), what.clone()));
        let clean = clean.map(|(schedule, what)| Self { seed, schedule, what });
        clean.chain(report.failures().iter().map(Self::of)).collect()
    }

    pub(super) fn of(failing: &Failing) -> Self {
        let what = failing.violations.first().map(ToString::to_string).unwrap_or_default();
        Self { seed: failing.seed, schedule: failing.schedule.clone(), what }
    }

    fn line(&self, name: &str, command: Option<&str>) -> String {
        format!("seed {}: {}\n  replay it: {}", self.seed, self.what, self.replay(name, command))
    }

    /// The command or the code that replays the schedule.
    pub(super) fn replay(&self, name: &str, command: Option<&str>) -> String {
        let incidents: Vec<_> = self.schedule.incidents().iter().map(ToString::to_string).collect();
        let (seed, schedule) = (self.seed, incidents.join(" "));
        match command {
            Some(command) => format!("{command} {name} --seed {seed} --replay \"{schedule}\""),
            None => format!("simulation.seed({seed}).replay(&\"{schedule}\".parse()?)"),
        }
    }

    fn json(&self, name: &str, command: Option<&str>) -> Value {
        json!({ "seed": self.seed, "what": self.what, "replay": self.replay(name, command) })
    }
}

impl Results {
    /// The results of each simulation, in order.
    pub fn explored(&self) -> &[Explored] {
        &self.explored
    }

    /// True if no rule was broken in any simulation.
    pub fn is_ok(&self) -> bool {
        self.explored.iter().all(|explored| explored.report.is_ok())
    }

    /// The results as JSON.
    pub fn json(&self) -> Value {
        let simulations: Vec<_> =
            self.explored.iter().map(|explored| explored.json(self.command.as_deref())).collect();
        json!({ "ok": self.is_ok(), "simulations": simulations })
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Explored { name, report, first_seed, seeds, failing } in &self.explored {
            writeln!(f, "── {name} {}", "─".repeat(96_usize.saturating_sub(name.chars().count())))?;
            match seeds {
                1 => writeln!(f, "seed {first_seed}")?,
                _ => writeln!(f, "seeds {first_seed} to {}", first_seed + seeds - 1)?,
            }
            let report = if f.alternate() { format!("{report:#}") } else { report.to_string() };
            writeln!(f, "{report}")?;
            for failing in failing {
                writeln!(f, "{}", failing.line(name, self.command.as_deref()))?;
            }
        }
        Ok(())
    }
}

/// The progress of an exploration, and its time limit.
struct Progress {
    began: Boot,
    budget: Option<Duration>,
    on_terminal: bool,
    shown: Cell<Option<Boot>>,
}

impl Progress {
    fn new(budget: Option<Duration>) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        Self { began: SystemClock.boot(), budget, on_terminal, shown: Cell::new(None) }
    }

    fn elapsed(&self) -> Duration {
        self.began.until(SystemClock.boot())
    }

    /// The end of a share of the remaining time, which is one of `of` equal shares.
    fn share(&self, of: usize) -> Option<Duration> {
        let elapsed = self.elapsed();
        let left = self.budget?.saturating_sub(elapsed);
        Some(elapsed + left / u32::try_from(of).unwrap_or(u32::MAX))
    }

    fn is_before(&self, until: Option<Duration>) -> bool {
        until.is_none_or(|until| self.elapsed() < until)
    }

    /// Shows the progress. True if time is left.
    fn goes_on(&self, name: &str, seed: u64, report: &Report, until: Option<Duration>) -> bool {
        let now = SystemClock.boot();
        if self.on_terminal && self.shown.get().is_none_or(|shown| shown.until(now) >= REFRESH) {
            self.shown.set(Some(now));
            let mut line = format!("{name}, seed {seed}: {} of {}", report.schedules(), report.planned());
            let _ = write!(line, " schedules, {} s", self.elapsed().as_secs());
            eprint!("\r{line}\x1b[K");
        }
        self.is_before(until)
    }

    fn ended(&self, explored: &Explored) {
        let line_begins = if self.on_terminal { "\r\x1b[K" } else { "" };
        let Explored { name, report, seeds, .. } = explored;
        let what = if report.is_ok() { "no rule is broken" } else { "RULES ARE BROKEN" };
        let early = if report.ended_early() { ", ended early" } else { "" };
        let (schedules, elapsed) = (report.schedules(), self.elapsed().as_secs_f64());
        eprintln!("{line_begins}{name}: {schedules} schedules, {seeds} seeds{early}, {elapsed:.1} s: {what}");
    }
}
