//! The values of labels, of which there is a bounded number: what a host or its callers choose must not fill the memory of a
//! monitoring system.

use std::collections::{HashMap, HashSet};

/// The maximum number of values of a label.
const LIMIT: usize = 200;
/// The value that stands for all values beyond the limit.
pub(super) const OTHER: &str = "other";

/// The values of each label that were seen.
#[derive(Debug, Default)]
pub(super) struct Bounded(HashMap<&'static str, HashSet<String>>);

impl Bounded {
    /// The value of a label: the given one if it is known or if there is room for it.
    pub(super) fn value<'v>(&mut self, label: &'static str, value: &'v str) -> &'v str {
        let known = self.0.entry(label).or_default();
        if known.contains(value) {
            return value;
        }
        if known.len() >= LIMIT {
            return OTHER;
        }
        known.insert(value.to_owned());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_two_hundred_values_and_all_others_are_one() {
        let mut bounded = Bounded::default();
        for n in 0..LIMIT {
            let value = format!("tool-{n}");
            assert_eq!(bounded.value("tool", &value), value);
        }
        assert_eq!(bounded.value("tool", "one more"), OTHER);
        assert_eq!(bounded.value("tool", "tool-7"), "tool-7");
        assert_eq!(bounded.value("tenant", "acme"), "acme");
    }
}
