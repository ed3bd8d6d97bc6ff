//! Small charts of a number for each day: SVG, with a sentence that says the same, and a table of all numbers.

use maud::{Markup, html};

use super::pieces::table;
use crate::clock::Timestamp;
use crate::rim::figures::{Count, DAYS, Days, Figures, MOST, Series, date};

/// The sizes of a chart, in its own units.
const WIDTH: f64 = 312.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 76.0;
const HEIGHT: f64 = 92.0;
/// The distance between two bars, and the width of one.
const STEP: f64 = 10.4;
const BAR: f64 = 8.0;
/// The smallest height at which a number above zero can be seen.
const THIN: f64 = 2.0;

/// A chart: its name in ids, its title, the sentence below the title, and its numbers.
struct Chart<'f> {
    id: &'static str,
    title: &'static str,
    words: String,
    numbers: &'f Series,
}

/// The charts of the last days, with their numbers as a table.
pub(super) fn charts(figures: &Figures) -> Markup {
    let Figures { days, twice, conflicts, open, .. } = figures;
    let avoided = figures.avoided();
    let in_all = |numbers: &Series| {
        let all = numbers.iter().copied().reduce(|all, day| all + day);
        format!("{} in {DAYS} days", shown(all))
    };
    let today = format!("{} today", shown(open.last().copied()));
    let all = [
        ("avoided", "Duplicates avoided", in_all(&avoided), &avoided),
        ("twice", "Effects that happened twice", in_all(twice), twice),
        ("conflicts", "Conflicts", in_all(conflicts), conflicts),
        ("open", "Open questions", today, open),
    ];
    html! {
        div.charts {
            @for (id, title, words, numbers) in all { (drawn(&Chart { id, title, words, numbers }, *days)) }
        }
        details {
            summary { "The numbers of each day" }
            (numbers(figures))
        }
        (explained(figures))
    }
}

/// What is counted, and what is not.
fn explained(figures: &Figures) -> Markup {
    let Figures { found, conflicts, open, .. } = figures;
    let is_cut = [found, conflicts, open].into_iter().flatten().any(|count| !count.is_all);
    html! {
        p.more {
            "A duplicate was avoided where a lookup or a late answer showed the effect of a call of unknown outcome, and where a run was "
            "answered from the record of another one. A conflict is an operation that was requested with another content than before: such a "
            "request is refused. A question counts on each day on which it was open. Days are those of UTC. What retention has removed is "
            "not counted."
        }
        @if is_cut {
            p.more {
                "There are many rows: the newest " (MOST) " of each kind are counted. A day with more has a bar with a broken outline, and a day "
                "of which nothing is counted has a line in place of its bar."
            }
        }
    }
}

/// A number as an attribute has it.
fn number(number: f64) -> String {
    format!("{number:.1}")
}

/// A number as a text.
fn shown(count: Option<Count>) -> String {
    match count {
        Some(Count { number, is_all: true }) => number.to_string(),
        None | Some(Count { number: 0, .. }) => "not counted".to_owned(),
        Some(Count { number, .. }) => format!("at least {number}"),
    }
}

fn drawn(chart: &Chart<'_>, days: Days) -> Markup {
    let (title, text) = (format!("chart-{}-title", chart.id), format!("chart-{}-text", chart.id));
    let most = chart.numbers.iter().map(|count| count.number).max().unwrap_or(0);
    let bars = (0_u32..).zip(days.starts().zip(chart.numbers));
    html! {
        figure.chart {
            figcaption { strong { (chart.title) } " " (chart.words) }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-labelledby=(format!("{title} {text}")) {
                title id=(title) { (chart.title) " by day" }
                desc id=(text) { (chart.words) ". The highest number of a day is " (most) ". The table below has all numbers." }
                @if most > 0 { text x="0" y="11" { (most) } line.most x1="0" y1=(TOP) x2=(WIDTH) y2=(TOP) {} }
                @for (place, (start, count)) in bars { (bar(place, start, *count, most)) }
                line.ground x1="0" y1=(BOTTOM) x2=(WIDTH) y2=(BOTTOM) {}
                text x="0" y="89" { (date(days.since())) }
                text x=(WIDTH) y="89" text-anchor="end" { "today" }
            }
        }
    }
}

/// The bar of a day.
fn bar(place: u32, start: Timestamp, count: Count, most: u64) -> Markup {
    let x = f64::from(place) * STEP + (STEP - BAR) / 2.0;
    let words = format!("{}: {}", date(start), shown(Some(count)));
    let height = height(count.number, most);
    html! {
        @match count {
            Count { number: 0, is_all: true } => {}
            Count { number: 0, .. } => {
                line.unknown x1=(number(x)) y1="46" x2=(number(x + BAR)) y2="46" { title { (words) } }
            }
            Count { is_all, .. } => {
                rect.part[!is_all] x=(number(x)) y=(number(BOTTOM - height)) width=(BAR) height=(number(height)) {
                    title { (words) }
                }
            }
        }
    }
}

/// The height of the bar of a number: the highest number fills the chart.
#[allow(clippy::cast_precision_loss, reason = "a chart has sixty places, and counts have 53 bits")]
fn height(count: u64, most: u64) -> f64 {
    ((BOTTOM - TOP) * (count as f64 / most.max(1) as f64)).max(THIN)
}

/// The days with numbers, the last one first.
fn numbers(figures: &Figures) -> Markup {
    let Figures { days, found, shared, twice, conflicts, open } = figures;
    let row = |(day, start): (usize, Timestamp)| {
        html! { tr {
            td { (date(start)) }
            @for series in [found, shared, twice, conflicts, open] { td.number { (shown(series.get(day).copied())) } }
        } }
    };
    let rows: Vec<_> = days.starts().enumerate().rev().map(row).collect();
    let heads = [
        "Day",
        "Avoided: the effect was found",
        "Avoided: another run's record",
        "Happened twice",
        "Conflicts",
        "Open questions",
    ];
    table(&heads, &rows, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rim::figures::Rows;
    use crate::store::AvoidedDuplicates;

    /// The charts of 2026-11-06, with effects that were found that day, if all rows from an instant on were read.
    fn shown_for(found: usize, from: Timestamp) -> String {
        let avoided = AvoidedDuplicates { found: vec![NOW; found], shared: Vec::new(), from };
        let rows = Rows { avoided, questions: Vec::new(), conflicts: Vec::new() };
        charts(&Figures::of(&rows, NOW)).into_string()
    }

    const NOW: Timestamp = Timestamp(1_793_923_200_000_001);

    #[test]
    fn the_highest_number_fills_the_chart_and_the_lowest_can_be_seen() {
        assert!((height(7, 7) - (BOTTOM - TOP)).abs() < 1e-9);
        assert!((height(1, 2) - (BOTTOM - TOP) / 2.0).abs() < 1e-9);
        assert!((height(1, u64::MAX) - THIN).abs() < 1e-9);
    }

    #[test]
    fn each_number_is_in_the_drawing_in_words_and_in_the_table() {
        let shown = shown_for(2, Timestamp::MIN);
        assert!(shown.contains("<title>2026-11-06: 2</title>"), "{shown}");
        assert!(shown.contains("2 in 30 days. The highest number of a day is 2."), "{shown}");
        assert!(shown.contains("<td>2026-11-06</td><td class=\"number\">2</td>"), "{shown}");
        assert!(!shown.contains("not counted<"), "{shown}");
    }

    #[test]
    fn a_day_that_was_not_counted_or_not_wholly_is_shown_as_such() {
        let shown = shown_for(2, NOW);
        assert!(shown.contains("class=\"unknown\"") && shown.contains("2026-11-05: not counted"), "{shown}");
        assert!(shown.contains("class=\"part\"") && shown.contains("2026-11-06: at least 2"), "{shown}");
        assert!(shown.contains("</strong> at least 2 in 30 days"), "{shown}");
        assert!(shown.contains("the newest 2000 of each kind"), "{shown}");
    }
}
