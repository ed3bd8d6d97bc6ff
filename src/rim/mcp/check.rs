//! The check of a configuration: it collects all findings.

use std::time::Duration;

use crate::rim::policy::place::Places;
use crate::rim::policy::{PolicyFinding, PolicyRule, Written};

/// The longest window: records are kept whole for longer.
const LONGEST_WINDOW: Duration = Duration::from_hours(24 * 7);

/// The findings about a file so far.
pub(super) struct Check {
    places: Places,
    findings: Vec<PolicyFinding>,
}

impl Check {
    pub(super) const fn new(places: Places) -> Self {
        Self { places, findings: Vec::new() }
    }

    pub(super) fn finding(&mut self, path: &str, why: &str, instead: &str) {
        let place = self.places.find(path);
        self.findings.push(PolicyFinding::new(
            PolicyRule::WrongValue,
            Written::at(place, path),
            why,
            instead,
        ));
    }

    /// The window, if records outlive it.
    pub(super) fn window(&mut self, path: &str, window: Duration) -> Duration {
        if window > LONGEST_WINDOW {
            self.finding(
                path,
                "a window of more than 7 days may outlive the records",
                "at most `7 days`, or a `key`",
            );
        }
        window.min(LONGEST_WINDOW)
    }

    pub(super) fn into_findings(self) -> Vec<PolicyFinding> {
        self.findings
    }
}
