//! The table: the measured figures beside the ones that had to be reached.

use serde_json::json;

use crate::options::Options;

/// One line of the table.
pub(crate) struct Finding {
    pub(crate) row: &'static str,
    /// The measure that is compared with `must` and `aim`, in words.
    pub(crate) measure: String,
    /// The subject's value in each round.
    pub(crate) subject: Values,
    /// The raw line's value in each round.
    pub(crate) raw: Option<Values>,
    /// The compared figure in each round.
    pub(crate) figure: Vec<f64>,
    pub(crate) must: f64,
    pub(crate) aim: f64,
    pub(crate) better: Better,
}

/// A value per round, in one unit.
#[derive(Clone)]
pub(crate) struct Values {
    pub(crate) unit: &'static str,
    pub(crate) rounds: Vec<f64>,
}

/// The direction in which a figure is better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
}

impl Finding {
    /// A finding of the subject's value over the raw line's, pairwise.
    pub(crate) fn ratio(row: &'static str, measure: String, subject: Values, raw: Values) -> Self {
        let figure = subject.rounds.iter().zip(&raw.rounds).map(|(subject, raw)| subject / raw).collect();
        Self { row, measure, subject, raw: Some(raw), figure, must: 0.0, aim: 0.0, better: Better::Higher }
    }

    /// A finding of the subject's value itself.
    pub(crate) fn absolute(row: &'static str, measure: String, subject: Values, raw: Option<Values>) -> Self {
        let figure = subject.rounds.clone();
        Self { row, measure, subject, raw, figure, must: 0.0, aim: 0.0, better: Better::Lower }
    }

    pub(crate) fn at_least(self, must: f64, aim: f64) -> Self {
        Self { must, aim, better: Better::Higher, ..self }
    }

    pub(crate) fn at_most(self, must: f64, aim: f64) -> Self {
        Self { must, aim, better: Better::Lower, ..self }
    }

    fn reaches(&self, bound: f64) -> bool {
        self.is_within(median(&self.figure), bound)
    }

    fn is_within(&self, figure: f64, bound: f64) -> bool {
        match self.better {
            Better::Higher => figure >= bound,
            Better::Lower => figure <= bound,
        }
    }

    /// True if not one round has reached the `must`, so that a slow moment of the machine does not count.
    fn is_missed(&self) -> bool {
        !self.figure.iter().any(|figure| self.is_within(*figure, self.must))
    }

    fn mark(&self) -> &'static str {
        match (self.reaches(self.must), self.reaches(self.aim)) {
            (_, true) => "aim met",
            (true, false) => "must met",
            (false, false) if self.is_missed() => "MISSED",
            (false, false) => "missed, within its spread",
        }
    }
}

impl Values {
    pub(crate) fn new(unit: &'static str, rounds: Vec<f64>) -> Self {
        Self { unit, rounds }
    }

    fn text(&self) -> String {
        format!("{} {}", spread(&self.rounds), self.unit)
    }
}

pub(crate) struct Report {
    json: bool,
    head: String,
    findings: Vec<Finding>,
    failed: Vec<(&'static str, String)>,
}

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        let head =
            format!("{} rounds in {}, median (least–greatest)", options.rounds, options.dir().display());
        Self { json: options.json, head, findings: Vec::new(), failed: Vec::new() }
    }

    pub(crate) fn add(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
    }

    pub(crate) fn failed(&mut self, row: &'static str, error: String) {
        self.failed.push((row, error));
    }

    /// The failures: rows that could not be measured, and those that missed their `must` in every round.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let failed = self.failed.iter().map(|(row, _)| format!("{row} could not be measured"));
        let missed = self.findings.iter().filter(|finding| finding.is_missed());
        failed
            .chain(missed.map(|finding| format!("{} missed its must in every round", finding.row)))
            .collect()
    }

    pub(crate) fn print(&self) {
        if self.json { self.print_json() } else { self.print_table() }
    }

    fn print_table(&self) {
        let mut lines =
            vec![["measure", "counterfoil", "raw line", "figure", "must", "aim", ""].map(String::from)];
        for finding in &self.findings {
            lines.push([
                finding.measure.clone(),
                finding.subject.text(),
                finding.raw.as_ref().map_or("–".into(), Values::text),
                spread(&finding.figure),
                number(finding.must),
                number(finding.aim),
                finding.mark().into(),
            ]);
        }
        let mut widths = [0; 7];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        println!("{}", self.head);
        for line in &lines {
            let cells: Vec<_> =
                line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            println!("{}", cells.join("  ").trim_end());
        }
        for (row, error) in &self.failed {
            println!("{row}: error: {error}");
        }
    }

    fn print_json(&self) {
        let values = |values: &Values| json!({"unit": values.unit, "rounds": values.rounds});
        let findings: Vec<_> = self
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "row": finding.row,
                    "measure": finding.measure,
                    "subject": values(&finding.subject),
                    "raw": finding.raw.as_ref().map(values),
                    "figure": {"median": median(&finding.figure), "rounds": finding.figure},
                    "must": finding.must,
                    "aim": finding.aim,
                    "better": if finding.better == Better::Higher { "higher" } else { "lower" },
                    "must_met": finding.reaches(finding.must),
                    "missed_in_every_round": finding.is_missed(),
                    "aim_met": finding.reaches(finding.aim),
                })
            })
            .collect();
        let errors: Vec<_> =
            self.failed.iter().map(|(row, error)| json!({"row": row, "error": error})).collect();
        println!("{:#}", json!({"about": self.head, "findings": findings, "errors": errors}));
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The time below which 99 of 100 of these lie.
pub(crate) fn p99(mut took: Vec<f64>) -> f64 {
    took.sort_by(f64::total_cmp);
    took[took.len() * 99 / 100]
}

fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if values.len() < 2 {
        return number(median(values));
    }
    format!("{} ({}–{})", number(median(values)), number(least), number(greatest))
}

/// A number with three significant digits, more for large numbers.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if (0.995..1.1).contains(&v) => format!("{value:.3}"), // syncs per call: the third digit matters
        _ => format!("{value:.2}"),
    }
}
