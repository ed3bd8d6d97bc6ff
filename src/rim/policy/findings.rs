//! All findings about a file that was read, in the order in which they were made.

use super::finding::Written;
use super::place::Places;
use super::{PolicyFinding, PolicyRule};

/// The findings about a file so far.
pub(in crate::rim) struct Findings {
    places: Places,
    findings: Vec<PolicyFinding>,
}

impl Findings {
    pub(in crate::rim) const fn new(places: Places) -> Self {
        Self { places, findings: Vec::new() }
    }

    /// Adds a finding about a value.
    pub(in crate::rim) fn finding(&mut self, path: &str, why: &str, instead: &str) {
        self.of_rule(PolicyRule::WrongValue, path, (why, instead));
    }

    pub(in crate::rim) fn of_rule(&mut self, rule: PolicyRule, path: &str, (why, instead): (&str, &str)) {
        let place = self.places.find(path);
        self.findings.push(PolicyFinding::new(rule, Written::at(place, path), why, instead));
    }

    pub(in crate::rim) fn into_findings(self) -> Vec<PolicyFinding> {
        self.findings
    }
}
