//! When a confirming lookup that has no answer is made again, and when a person is asked instead (DESIGN 4.2).
//!
//! The pauses double from a minute up to half a day; the try that the longest one would follow is the last. With
//! the usual settle time these are ten tries in seventeen hours, and there are always at least three. A record
//! holds no counter for it: its present pause lies between its last change and the instant of the next lookup.

use std::time::Duration;

use super::record::Record;

/// The shortest pause before another try.
const SHORTEST: Duration = Duration::from_mins(1);
/// The longest one, or this many settle times if that is longer.
const LONGEST: Duration = Duration::from_hours(12);
const SETTLE_TIMES: u32 = 8;

impl Record {
    /// How long to pause before the confirming lookup is made once more, should the next one have no answer.
    pub fn next_confirm_pause(&self, settle: Duration) -> Duration {
        self.confirm_pause().saturating_mul(2).max(SHORTEST).min(longest(settle))
    }

    /// The confirming lookup that is made now is the last one: without an answer, a person is asked.
    pub fn is_last_confirm(&self, settle: Duration) -> bool {
        self.confirm_pause() >= longest(settle)
    }

    /// A confirming lookup was made, and had no answer: only the first one waits out the settle time.
    pub(crate) fn was_confirmed_in_vain(&self, settle: Duration) -> bool {
        self.confirm_pause() > settle
    }

    /// How long the record pauses before its next confirming lookup.
    fn confirm_pause(&self) -> Duration {
        self.confirm_at.map_or(Duration::ZERO, |at| self.updated_at.until(at))
    }
}

fn longest(settle: Duration) -> Duration {
    LONGEST.max(settle.saturating_mul(SETTLE_TIMES))
}
