//! The check of a configuration: it collects all findings.

use std::time::Duration;

pub(super) use crate::rim::policy::findings::Findings as Check;

/// The longest window: records are kept whole for longer.
const LONGEST_WINDOW: Duration = Duration::from_hours(24 * 7);

/// The window, if records outlive it.
pub(super) fn checked_window(check: &mut Check, path: &str, window: Duration) -> Duration {
    if window > LONGEST_WINDOW {
        let why = "a window of more than 7 days may outlive the records";
        check.finding(path, why, "at most `7 days`, or a `key`");
    }
    window.min(LONGEST_WINDOW)
}
