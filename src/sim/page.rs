//! The findings of an exploration as one page for a browser, in the look of the dashboard.

use std::io;
use std::path::Path;

use maud::{Markup, html};

use super::check::Rule;
use super::explore::Replay;
use super::report::{Class, Failing, Report, Tally};
use super::schedule::Stop;
use super::suite::{Explored, FailingSeed, Options, Results, SuiteError};
use super::table::boundaries;
use super::timeline::{Event, Happened};
use crate::page::alone::page;
use crate::page::pieces::{sign, table};

impl Report {
    /// The report as one page of HTML: the numbers, what became of the calls of each tool, and each failing schedule with
    /// its violations and its timeline. The page loads nothing, has no script, and shows the text of others as text.
    ///
    /// ```
    /// # use counterfoil::sim::Simulation;
    /// # use counterfoil::{Ctx, Failure};
    /// # async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
    /// #     ctx.step("greeting", &name, |name| format!("Hello, {name}!")).await
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let file = dir.path().join("findings.html");
    /// let report = Simulation::of(greet, "Ann".to_owned()).explore();
    /// std::fs::write(&file, report.html())?;
    /// # assert!(std::fs::read_to_string(file)?.contains("no rule is broken"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn html(&self) -> String {
        let replay = |failing: &FailingSeed| failing.replay("", None);
        page("Simulation", &html! { h1 { "Simulation" } h2 { "Findings" } (findings(self, replay)) })
    }
}

impl Results {
    /// The results as one page of HTML, as [`Report::html`] has them, with the seeds that fail and the commands that replay
    /// them.
    pub fn html(&self) -> String {
        let rows: Vec<_> =
            (1..).zip(&self.explored).map(|(place, explored)| summary(place, explored)).collect();
        let heads = ["Simulation", "Finding", "Schedules", "Seeds", "Left a question open"];
        let body = html! {
            h1 { "Simulations" }
            (table(&heads, &rows, "No simulation was named."))
            @for (place, explored) in (1..).zip(&self.explored) {
                h2 id=(anchor(place)) { (explored.name) }
                (of_simulation(explored, self.command.as_deref()))
            }
        };
        page("Simulations", &body)
    }
}

impl Replay {
    /// The schedule as one page of HTML, with its violations and its timeline.
    pub fn html(&self) -> String {
        let body = html! {
            h1 { "Schedule " code { (self.schedule) } }
            p.lead { (verdict(self.violations.is_empty())) }
            @for violation in &self.violations { p.trouble { (violation) } }
            (timeline(&self.events))
        };
        page(&format!("Schedule {}", self.schedule), &body)
    }
}

impl Options {
    /// Opens the file of the page, so that a path that cannot be written is told before the exploration, which may last for
    /// hours. What the file holds stays.
    pub(super) fn check_page(&self) -> Result<(), SuiteError> {
        let open = |file: &Path| std::fs::OpenOptions::new().create(true).append(true).open(file);
        self.on_page(|file| open(file).map(drop))
    }

    pub(super) fn write_page(&self, page: impl FnOnce() -> String) -> Result<(), SuiteError> {
        self.on_page(|file| std::fs::write(file, page()))
    }

    fn on_page(&self, act: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), SuiteError> {
        let Some(path) = &self.html else { return Ok(()) };
        let failed = |error: io::Error| {
            let (file, reason) = (path.display().to_string(), error.to_string());
            SuiteError::Page { file, reason }
        };
        act(path).map_err(failed)
    }
}

/// The id of the part of the page that a simulation has.
fn anchor(place: usize) -> String {
    format!("simulation-{place}")
}

fn summary(place: usize, explored: &Explored) -> Markup {
    let report = &explored.report;
    html! { tr {
        td { a href=(format!("#{}", anchor(place))) { (explored.name) } }
        td { (verdict(report.is_ok())) @if report.ended_early() { " " (early()) } }
        td.number { (report.schedules) }
        td.number { (explored.seeds) }
        td.number { (report.asked) }
    } }
}

fn of_simulation(explored: &Explored, command: Option<&str>) -> Markup {
    let Explored { name, report, first_seed, seeds, failing } = explored;
    let replay = |failing: &FailingSeed| failing.replay(name, command);
    let row = |failing: &FailingSeed| {
        html! { tr {
            td.number { (failing.seed) }
            td.text { (failing.what) }
            td.text { code { (replay(failing)) } }
        } }
    };
    let rows: Vec<_> = failing.iter().map(row).collect();
    html! {
        @match seeds {
            1 => { p { "Seed " (first_seed) } }
            _ => { p { "Seeds " (first_seed) " to " (first_seed + seeds - 1) } }
        }
        (findings(report, replay))
        @if !rows.is_empty() {
            h3 { "Seeds that fail" }
            (table(&["Seed", "What it breaks", "Replay it"], &rows, ""))
        }
    }
}

fn verdict(is_ok: bool) -> Markup {
    if is_ok { sign("good", "✓", "no rule is broken") } else { sign("bad", "✕", "rules are broken") }
}

fn early() -> Markup {
    sign("doubt", "!", "ended early")
}

fn findings(report: &Report, replay: impl Fn(&FailingSeed) -> String) -> Markup {
    let at_least = if report.more_planned { "at least " } else { "" };
    html! {
        p.lead { (verdict(report.is_ok())) }
        @if let Some(clean) = &report.clean { p.trouble { (clean) } }
        dl.facts {
            dt { "Schedules" }
            dd {
                @if report.ended_early() {
                    (early()) " Of " (at_least) (report.planned) " planned schedules, " (report.schedules) " were tried."
                } @else { (report.schedules) " were tried, all that were planned." }
            }
            dt { "Came to a result" } dd { (report.succeeded) }
            dt { "Left a question open" } dd { (report.asked) }
        }
        @if !report.violated.is_empty() { (broken(report)) }
        @if !report.tools.is_empty() { (calls(report)) }
        @for failing in &report.failures { (failed(failing, &replay(&FailingSeed::of(failing)))) }
        (points(report))
    }
}

fn broken(report: &Report) -> Markup {
    let row = |rule: &Rule, times: u32| html! { tr { td.text { (rule) } td.number { (times) } } };
    let rows: Vec<_> = report.violated.iter().map(|(rule, times)| row(rule, *times)).collect();
    html! { h3 { "Broken rules" } (table(&["Rule", "Schedules"], &rows, "")) }
}

fn calls(report: &Report) -> Markup {
    let heads = [
        "Tool",
        "Contract",
        "Effect",
        "Committed",
        "By lookup",
        "On the provider's word",
        "Failed",
        "Asked about",
        "Effects",
        "Duplicates marked",
        "Duplicates silent",
        "Lost",
        "Questions",
    ];
    let rows: Vec<_> =
        report.tools.iter().map(|((tool, class), tally)| tool_row(tool, *class, tally)).collect();
    html! {
        h3 { "What became of the calls" }
        div.numbers { (table(&heads, &rows, "")) }
        p.hint {
            "Each number is a sum over all schedules. A duplicate is marked if a record or a question reports it. "
            "A silent duplicate and a lost call break a rule."
        }
    }
}

fn tool_row(tool: &str, class: Class, tally: &Tally) -> Markup {
    let Tally {
        committed,
        by_lookup,
        on_declaration,
        failed,
        asked,
        effects,
        marked,
        silent,
        lost,
        questions,
    } = tally;
    let questions: Vec<_> = questions.iter().map(|(kind, times)| format!("{kind} {times}")).collect();
    let contract = if class.contract.is_empty() { "not declared" } else { class.contract };
    html! { tr {
        td { (tool) } td { (contract) } td { (class.effect) }
        @for number in [committed, by_lookup, on_declaration, failed, asked, effects, marked] { td.number { (number) } }
        @for number in [silent, lost] { td.number { (never(*number)) } }
        td { (questions.join(", ")) }
    } }
}

/// A number that must be 0.
fn never(number: u64) -> Markup {
    if number == 0 {
        html! { "0" }
    } else {
        sign("bad", "✕", &number.to_string())
    }
}

fn failed(failing: &Failing, replay: &str) -> Markup {
    html! {
        h3 { "Failing schedule " code { (failing.schedule) } }
        @for violation in &failing.violations { p.trouble { (violation) } }
        p { "Replay it: " code { (replay) } }
        (timeline(&failing.events))
        details { summary { "The timeline as text" } pre tabindex="0" { (failing.timeline) } }
    }
}

fn points(report: &Report) -> Markup {
    let stopped = report.crashed_at();
    let row = |point: &str, times: u32| html! { tr { td { code { (point) } } td.number { (times) } } };
    let rows: Vec<_> = stopped.iter().map(|(point, times)| row(point.name(), *times)).collect();
    let never = boundaries(&report.never_crossed()).join(", ");
    html! {
        details {
            summary { "Crash points" }
            (table(&["A process was stopped at", "Times"], &rows, "No process was stopped."))
            @if !never.is_empty() { p { "Never crossed, so nothing is proven about them: " (never) } }
        }
    }
}

/// The events in their order: the process and its records on the left, the world on the right. They are not drawn to scale,
/// because hours pass between events of one millisecond.
fn timeline(events: &[Event]) -> Markup {
    let is_shown = |event: &&Event| !matches!(event.what, Happened::Crossed(_)); // the records show the crossings
    let rows: Vec<_> = events.iter().filter(is_shown).map(row).collect();
    let heads = ["Time", "Life", "Event", "Process and records", "World"];
    html! { div.events { (table(&heads, &rows, "Nothing happened.")) } }
}

fn row(event: &Event) -> Markup {
    let (kind, mark, word) = look(&event.what);
    let text = event.what.to_string();
    let text = text.trim_start_matches(['✗', '●', ' ']);
    let (inside, outside) = if event.what.is_outside() { ("", text) } else { (text, "") };
    html! { tr.(kind) {
        td.number { (format!("{:.3} s", event.at.as_secs_f64())) }
        td.number { (event.life) }
        td { (sign(kind, mark, word)) }
        td.text { (inside) }
        td.text { (outside) }
    } }
}

/// The kind of an event in the style sheet, its sign and its word.
const fn look(what: &Happened) -> (&'static str, &'static str, &'static str) {
    match what {
        Happened::Started => ("calm", "▸", "start"),
        Happened::Restored { .. } => ("bad", "✕", "restored"),
        Happened::Crossed(_) => ("calm", "·", "crossing"),
        Happened::Stopped { stop: Stop::Crash, .. } => ("bad", "✕", "crash"),
        Happened::Stopped { stop: Stop::Torn { .. }, .. } => ("bad", "✕", "crash in a write"),
        Happened::Stopped { stop: Stop::Kill, .. } => ("bad", "✕", "death"),
        Happened::Stopped { stop: Stop::Pause | Stop::PauseFor { .. }, .. } => ("doubt", "‖", "pause"),
        Happened::GoesOn => ("doubt", "▸", "end of the pause"),
        Happened::Refused { .. } => ("doubt", "!", "refused write"),
        Happened::Recorded { .. } => ("calm", "○", "record"),
        Happened::Run { .. } => ("calm", "○", "run"),
        Happened::Asked { .. } => ("doubt", "?", "question"),
        Happened::Answered { .. } => ("calm", "✓", "answer"),
        Happened::Sent { fault: None, .. } => ("calm", "→", "request"),
        Happened::Sent { fault: Some(_), .. } => ("doubt", "!", "request with a fault"),
        Happened::Effect { number: 0 | 1, .. } => ("good", "●", "effect"),
        Happened::Effect { .. } => ("bad", "●●", "duplicate"),
        Happened::LookedUp { .. } => ("busy", "◇", "lookup"),
        Happened::NotLookedUp => ("doubt", "◇", "lookup without an answer"),
        Happened::StoreFailed { .. } => ("doubt", "!", "fault of the store"),
        Happened::Told { .. } => ("calm", "○", "told"),
        Happened::Audited => ("calm", "○", "audit"),
        Happened::AtRest => ("calm", "■", "end"),
    }
}
