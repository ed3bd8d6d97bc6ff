//! The figure of a timeline: SVG, drawn to scale.

use maud::{Markup, html};

use super::pieces::span;
use super::timeline::{Mark, Sort, Timeline};
use crate::clock::Timestamp;

/// The sizes of the figure, in its own units.
const WIDTH: f64 = 1000.0;
const LABELS: f64 = 190.0;
const RIGHT: f64 = 965.0;
const TOP: f64 = 34.0;
const ROW: f64 = 26.0;
/// The smallest width at which a length of time can be seen.
const THIN: f64 = 2.0;
/// The longest label that fits, in characters.
const LABEL: usize = 26;
/// The lengths between two ticks, in milliseconds: the first one of which there are few enough is taken.
const STEPS: [i64; 22] = [
    1,
    5,
    10,
    50,
    100,
    500,
    1000,
    5000,
    10_000,
    30_000,
    60_000,
    300_000,
    600_000,
    1_800_000,
    3_600_000,
    6 * 3_600_000,
    12 * 3_600_000,
    86_400_000,
    7 * 86_400_000,
    30 * 86_400_000,
    90 * 86_400_000,
    365 * 86_400_000,
];
const TICKS: i64 = 8;

/// Where an instant stands in the figure.
#[allow(
    clippy::cast_precision_loss,
    reason = "a figure has a thousand places, and microseconds have 53 bits"
)]
fn place(timeline: &Timeline, at: Timestamp) -> f64 {
    let whole = timeline.to.0.saturating_sub(timeline.from.0).max(1) as f64;
    let part = at.0.saturating_sub(timeline.from.0) as f64;
    LABELS + (RIGHT - LABELS) * (part / whole).clamp(0.0, 1.0)
}

/// The instants of the ticks.
fn ticks(timeline: &Timeline) -> Vec<Timestamp> {
    let millis = timeline.to.0.saturating_sub(timeline.from.0) / 1000;
    let step = STEPS.into_iter().find(|step| millis / step <= TICKS);
    let step = step.unwrap_or(millis / TICKS).max(1);
    (0..=millis / step).map(|tick| Timestamp(timeline.from.0 + tick * step * 1000)).collect()
}

/// A number as an attribute has it.
fn number(number: f64) -> String {
    format!("{number:.1}")
}

pub(super) fn figure(timeline: &Timeline) -> Markup {
    let rows = u32::try_from(timeline.lanes.len()).unwrap_or(u32::MAX);
    let bottom = TOP + ROW * f64::from(rows);
    html! {
        figure.timeline {
            div.wide tabindex="0" role="region" aria-label="Timeline" {
                svg viewBox=(format!("0 0 {WIDTH} {}", number(bottom + 8.0))) role="img" aria-labelledby="timeline-title timeline-text" {
                    title #timeline-title { "Timeline of the run" }
                    desc #timeline-text { "The table below the figure says the same in words." }
                    @for tick in ticks(timeline) {
                        @let x = number(place(timeline, tick));
                        line.tick x1=(x) y1="22" x2=(x) y2=(number(bottom)) {}
                        text.tick x=(x) y="16" text-anchor="middle" { "+" (span(tick.0 - timeline.from.0)) }
                    }
                    @for (row, lane) in (0_u32..).zip(&timeline.lanes) {
                        @let y = TOP + ROW * f64::from(row);
                        text.label x="4" y=(number(y + 16.0)) { (short(&lane.label)) title { (lane.label) } }
                        line.lane x1=(LABELS) y1=(number(y + ROW - 1.0)) x2=(RIGHT) y2=(number(y + ROW - 1.0)) {}
                        @for mark in &lane.marks { (drawn(timeline, mark, y, bottom)) }
                    }
                }
            }
            figcaption { (legend(timeline)) }
        }
    }
}

fn short(label: &str) -> String {
    match label.char_indices().nth(LABEL) {
        Some((end, _)) => format!("{}…", &label[..end]),
        None => label.to_owned(),
    }
}

/// A mark: a bar for a length of time, a sign for an instant.
fn drawn(timeline: &Timeline, mark: &Mark, y: f64, bottom: f64) -> Markup {
    let x = place(timeline, mark.from);
    let class = format!("mark {}", mark.sort.class());
    let (top, height) = match mark.sort {
        Sort::Wait | Sort::Question => (y + 15.0, 6.0),
        Sort::Lookup => (y + 9.0, 8.0),
        _ => (y + 5.0, 16.0),
    };
    html! {
        @match (mark.to, mark.sort) {
            (Some(to), _) => {
                @let width = (place(timeline, to) - x).max(THIN);
                rect class=(class) x=(number(x)) y=(number(top)) width=(number(width)) height=(number(height)) rx="1.5" {
                    title { (mark.words) }
                }
            }
            (None, Sort::Crash) => {
                g class=(class) {
                    title { (mark.words) }
                    line x1=(number(x)) y1="22" x2=(number(x)) y2=(number(bottom)) {}
                    path d=(format!("M{0} {1}l8 8m0 -8l-8 8", number(x - 4.0), number(y + 9.0))) {}
                }
            }
            (None, Sort::Takeover) => {
                path class=(class) d=(format!("M{} {}l9 5l-9 5z", number(x), number(y + 8.0))) { title { (mark.words) } }
            }
            (None, _) => {
                path class=(class) d=(format!("M{} {}l5 6l-5 6l-5 -6z", number(x), number(y + 7.0))) { title { (mark.words) } }
            }
        }
    }
}

/// The sorts of marks that the figure has, each with its sign.
fn legend(timeline: &Timeline) -> Markup {
    let has = |sort: Sort| timeline.lanes.iter().flat_map(|lane| &lane.marks).any(|mark| mark.sort == sort);
    html! {
        ul.legend {
            @for sort in Sort::ALL.into_iter().filter(|sort| has(*sort)) {
                li {
                    svg viewBox="0 0 16 16" aria-hidden="true" { (sign(sort)) }
                    " " (sort.name())
                }
            }
        }
    }
}

fn sign(sort: Sort) -> Markup {
    let class = format!("mark {}", sort.class());
    html! {
        @match sort {
            Sort::Crash => { path class=(class) d="M4 4l8 8m0 -8l-8 8" {} }
            Sort::Takeover => { path class=(class) d="M4 3l9 5l-9 5z" {} }
            Sort::Step | Sort::Signal | Sort::Child | Sort::Undone => { path class=(class) d="M8 2l5 6l-5 6l-5 -6z" {} }
            Sort::Wait | Sort::Question => { rect class=(class) x="1" y="6" width="14" height="5" {} }
            _ => { rect class=(class) x="1" y="2" width="14" height="12" rx="1.5" {} }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rim::dashboard::timeline::Lane;

    #[test]
    fn the_figure_is_to_scale() {
        let timeline =
            Timeline { from: Timestamp(1_000_000), to: Timestamp(11_000_000), lanes: Vec::<Lane>::new() };
        let at = |second: i64| place(&timeline, Timestamp(second * 1_000_000));
        assert!((at(1) - LABELS).abs() < 1e-9 && (at(11) - RIGHT).abs() < 1e-9);
        assert!((at(6) - f64::midpoint(LABELS, RIGHT)).abs() < 1e-9);
        assert!((at(99) - RIGHT).abs() < 1e-9, "nothing is drawn beside the figure");
        assert_eq!(ticks(&timeline).len(), 3, "at 0 s, 5 s and 10 s");
    }
}
