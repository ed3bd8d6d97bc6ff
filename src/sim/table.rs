//! The drawing of a report: in at most 100 columns, and in colour if wanted.

use std::fmt::{Arguments, Display, Write as _};
use std::io::{IsTerminal as _, Write as _};

use super::CrashPoint;
use super::report::{Failing, Report, Tally};

/// The minimum width of terminals and logs, in columns; timelines may be wider.
const COLUMNS: usize = 100;

/// True if standard output is a terminal, and `NO_COLOR` is not set (no-color.org).
fn in_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Prints a text on standard output. A reader that closes the pipe early (`| head`) is no failure.
pub(super) fn say(what: Arguments<'_>) {
    drop(writeln!(std::io::stdout(), "{what}"));
}

/// Prints a value on standard output, as `{:#}` if colour is shown.
pub(super) fn show(what: &impl Display) {
    if in_colour() {
        say(format_args!("{what:#}"));
    } else {
        say(format_args!("{what}"));
    }
}

#[derive(Clone, Copy)]
enum Tone {
    Plain,
    Good,
    Bad,
    Faint,
}

struct Pen {
    text: String,
    colour: bool,
}

impl Pen {
    fn put(&mut self, tone: Tone, text: &str) {
        let code = match tone {
            Tone::Plain => None,
            Tone::Good => Some(32),
            Tone::Bad => Some(31),
            Tone::Faint => Some(2),
        };
        match code.filter(|_| self.colour && !text.is_empty()) {
            Some(code) => drop(write!(self.text, "\x1b[{code}m{text}\x1b[0m")),
            None => self.text.push_str(text),
        }
    }

    fn line(&mut self, tone: Tone, text: &str) {
        self.put(tone, text.trim_end());
        self.text.push('\n');
    }

    /// Writes a list, in as many lines as necessary.
    fn list(&mut self, tone: Tone, what: &str, items: &[String]) {
        let mut line = format!("{what}: ");
        for (place, item) in items.iter().enumerate() {
            let comma = if place + 1 < items.len() { ", " } else { "" };
            if width(&line) + width(item) + comma.len() > COLUMNS {
                self.line(tone, &line);
                "  ".clone_into(&mut line);
            }
            line.push_str(item);
            line.push_str(comma);
        }
        self.line(tone, &line);
    }
}

pub(super) fn draw(report: &Report, colour: bool) -> String {
    let mut pen = Pen { text: String::new(), colour };
    draw_sums(report, &mut pen);
    draw_tools(report, &mut pen);
    let crashed: Vec<_> =
        report.crashed_at().iter().map(|(point, n)| format!("{point} {}", short(u64::from(*n)))).collect();
    if !crashed.is_empty() {
        pen.list(Tone::Faint, &format!("stopped at {} points", crashed.len()), &crashed);
    }
    let never = boundaries(&report.never_crossed());
    if !never.is_empty() {
        pen.list(Tone::Faint, "never crossed, so nothing is proven about them", &never);
    }
    let happened_not = report.never_happened();
    if !happened_not.is_empty() {
        pen.list(Tone::Faint, "tried, and happened in no schedule", &happened_not);
    }
    for failing in report.failures() {
        draw_failing(failing, &mut pen);
    }
    pen.text
}

fn draw_sums(report: &Report, pen: &mut Pen) {
    match &report.clean {
        Some(clean) => pen.line(Tone::Bad, clean),
        None if report.violated.is_empty() => pen.line(Tone::Good, "no rule is broken"),
        None => {}
    }
    for (rule, times) in &report.violated {
        pen.line(Tone::Bad, &format!("BROKEN in {times} schedules: {rule}"));
    }
    if report.ended_early() {
        let at_least = if report.more_planned { "at least " } else { "" };
        let what = format!("ENDED EARLY: of {at_least}{} planned schedules,", report.planned);
        pen.line(Tone::Bad, &format!("{what} {} were tried", report.schedules));
    } else {
        pen.line(Tone::Plain, &format!("{} schedules were tried, all that were planned", report.schedules));
    }
    let (succeeded, asked) = (report.succeeded, report.asked);
    pen.line(Tone::Plain, &format!("{succeeded} came to a result, {asked} left a question open"));
}

const HEAD: [&str; 9] = ["all", "lookup", "word", "failed", "asked", "effects", "marked", "silent", "lost"];

/// The words above groups of columns, each with the range of its columns.
const GROUPS: [(&str, std::ops::Range<usize>); 2] = [("committed", 0..3), ("duplicates", 6..8)];

fn numbers(tally: &Tally) -> [u64; 9] {
    let Tally { committed, by_lookup, on_declaration, failed, asked, effects, marked, silent, lost, .. } =
        tally;
    [committed, by_lookup, on_declaration, failed, asked, effects, marked, silent, lost].map(|n| *n)
}

fn draw_tools(report: &Report, pen: &mut Pen) {
    if report.tools.is_empty() {
        return;
    }
    let mut widths = HEAD.map(str::len);
    for tally in report.tools.values() {
        for (width, number) in widths.iter_mut().zip(numbers(tally)) {
            *width = (*width).max(short(number).len());
        }
    }
    let of_numbers: usize = widths.iter().map(|width| width + 1).sum();
    let classes = report.tools.keys().map(|(_, class)| width(class.contract));
    let of_class = classes.max().unwrap_or(0).max("class".len());
    let longest = report.tools.keys().map(|(tool, _)| width(tool)).max().unwrap_or(0).max("tool".len());
    let of_tool = longest.min(COLUMNS - of_numbers - of_class - 1);
    let names = |tool: &str, class: &str| format!("{:<of_tool$} {class:<of_class$}", cut(tool, of_tool));

    let mut over = " ".repeat(of_tool + 1 + of_class);
    for (word, columns) in GROUPS {
        let end = of_tool + 1 + of_class + widths[..columns.end].iter().map(|width| width + 1).sum::<usize>();
        over = format!("{over}{word:>width$}", width = end - width(&over));
    }
    pen.line(Tone::Faint, &over);
    let mut head = names("tool", "class");
    for (word, width) in HEAD.iter().zip(widths) {
        let _ = write!(head, " {word:>width$}");
    }
    pen.line(Tone::Faint, &head);
    for ((tool, class), tally) in &report.tools {
        pen.put(Tone::Plain, &names(tool, class.contract));
        for ((word, number), width) in HEAD.iter().zip(numbers(tally)).zip(widths) {
            let is_bad = number > 0 && matches!(*word, "silent" | "lost");
            let tone = if is_bad { Tone::Bad } else { Tone::Plain };
            pen.put(tone, &format!(" {:>width$}", short(number)));
        }
        pen.text.push('\n');
        let questions: Vec<_> =
            tally.questions.iter().map(|(kind, n)| format!("{kind} {}", short(*n))).collect();
        if !questions.is_empty() {
            pen.list(Tone::Faint, "  questions", &questions);
        }
    }
}

fn draw_failing(failing: &Failing, pen: &mut Pen) {
    pen.line(Tone::Bad, &format!("\nthe smallest that breaks it: {}", failing.schedule));
    for violation in &failing.violations {
        pen.line(Tone::Bad, &format!("  {violation}"));
    }
    pen.line(Tone::Plain, &failing.timeline);
    let Failing { seed, schedule, .. } = failing;
    pen.line(Tone::Plain, &format!("replay it: simulation.seed({seed}).replay(&\"{schedule}\".parse()?)"));
}

/// The names of the boundaries of these points: `seal` for `before-seal` and `after-seal`.
pub(super) fn boundaries(points: &[CrashPoint]) -> Vec<String> {
    let mut names = Vec::new();
    for point in points {
        let partner = |before: &str| points.iter().any(|other| other.name() == format!("after-{before}"));
        match (point.name().strip_prefix("before-"), point.name().strip_prefix("after-")) {
            (Some(boundary), _) if partner(boundary) => names.push(boundary.to_owned()),
            (_, Some(boundary)) if names.iter().any(|name| name == boundary) => {}
            _ => names.push(point.name().to_owned()),
        }
    }
    names
}

/// A number in at most seven characters.
fn short(number: u64) -> String {
    match number {
        0..10_000_000 => number.to_string(),
        10_000_000..10_000_000_000 => format!("{}M", number / 1_000_000),
        _ => format!("{}G", number / 1_000_000_000),
    }
}

fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

fn width(text: &str) -> usize {
    text.chars().count()
}
