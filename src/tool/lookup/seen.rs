//! The target of a lookup, its matches, and the result that follows from them.

use std::time::Duration;

use crate::ledger::{ErrorKind, Found, LookupResult};
use crate::tool::{Call, Done, ToolError};

/// The target of a lookup, made from a [`Call`] or from a token alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupTarget<'a> {
    /// The token that the effect carries: [`Call::key`], unless you send a reference of your own.
    pub token: &'a str,
    /// The provider's id that an earlier attempt noted.
    pub noted: Option<&'a str>,
}

impl<'a> LookupTarget<'a> {
    /// Sets a reference of your own, in place of the call's key. Nobody else may be able to use it.
    #[must_use]
    pub const fn by(mut self, token: &'a str) -> Self {
        self.token = token;
        self
    }
}

impl<'a> From<&'a Call> for LookupTarget<'a> {
    fn from(call: &'a Call) -> Self {
        Self { token: call.key(), noted: call.external_ref() }
    }
}

impl<'a> From<&'a str> for LookupTarget<'a> {
    fn from(token: &'a str) -> Self {
        Self { token, noted: None }
    }
}

/// One thing that a lookup has found.
#[derive(Clone, Debug)]
pub enum Match<T> {
    /// The effect of this call, with the output of the call.
    Ours(Done<T>),
    /// The effect of this call, which the provider has accepted and not finished: see [`LookupResult::Pending`].
    Pending {
        /// The provider's id for the call.
        external_ref: String,
        /// The pause before the next lookup.
        look_again: Duration,
    },
    /// The request of this call, which had no effect: see [`LookupResult::Failed`].
    Failed {
        /// The kind of the failure.
        kind: ErrorKind,
        /// The provider's message, for people. It goes into the record: no secrets.
        message: String,
    },
    /// Something else that the search shows as well.
    Another,
    /// A thing with our token that is not what was sent: another amount, another recipient. Holds the difference in
    /// words, which the question to a person shows: see [`LookupResult::Foreign`].
    Conflict(String),
}

impl<T> Match<T> {
    /// The effect of this call, under the provider's id.
    pub fn ours(output: T, external_ref: impl Into<String>) -> Self {
        Self::Ours(Done::new(output).external_ref(external_ref))
    }
}

/// All matches of a lookup that carry our token, the first one first.
#[derive(Debug)]
pub(super) struct Tally<T> {
    effects: Vec<Found<T>>,
    /// The id and the pause of the first effect that is not finished.
    pending: Option<(String, Duration)>,
    /// The failure of the first request that had no effect.
    failed: Option<(ErrorKind, String)>,
    /// The differences of things that carry our token and are not what was sent.
    foreign: Vec<String>,
}

impl<T> Tally<T> {
    pub(super) const fn new() -> Self {
        Self { effects: Vec::new(), pending: None, failed: None, foreign: Vec::new() }
    }

    /// Counts one match. A thing that is shown twice under one id, as by a list that shifts while it is paged, counts
    /// once.
    pub(super) fn take(&mut self, seen: Match<T>) {
        let ours = match seen {
            Match::Another => return,
            Match::Conflict(difference) => return self.foreign.push(difference),
            Match::Pending { external_ref, look_again } => {
                self.count(Some(external_ref.clone()), None);
                self.pending.get_or_insert((external_ref, look_again));
                return;
            }
            Match::Failed { kind, message } => {
                self.failed.get_or_insert((kind, message));
                return;
            }
            Match::Ours(ours) => ours,
        };
        self.count(ours.external_ref, Some(ours.output));
    }

    fn count(&mut self, external_ref: Option<String>, output: Option<T>) {
        if external_ref.is_none() || !self.effects.iter().any(|known| known.external_ref == external_ref) {
            self.effects.push(Found { external_ref, output });
        }
    }

    /// Turns the matches into a lookup result. If an external id was noted and no longer resolves, this is not
    /// `NotFound`: the effect existed.
    pub(super) fn finding(mut self, noted: Option<&str>) -> Result<LookupResult<T>, ToolError> {
        if !self.foreign.is_empty() {
            return Ok(LookupResult::Foreign { what: self.foreign.join("; ") });
        }
        // An effect that is not finished counts: beside a finished one it is a duplicate.
        let is_finished = self.effects.iter().any(|effect| effect.output.is_some());
        match (is_finished, self.pending, self.failed) {
            (false, Some((id, look_again)), _) => {
                return Ok(LookupResult::Pending { external_ref: Some(id), look_again });
            }
            (false, None, Some((kind, message))) => return Ok(LookupResult::Failed { kind, message }),
            _ => {}
        }
        let one = if self.effects.len() == 1 { self.effects.pop() } else { None };
        Ok(match (one, noted) {
            (Some(Found { external_ref, output: Some(output) }), _) => {
                LookupResult::Committed { output, external_ref }
            }
            _ if is_finished => LookupResult::Duplicated { effects: self.effects },
            (_, None) => LookupResult::NotFound,
            (_, Some(id)) => {
                let gone = format!(
                    "the provider gave {id:?} to an earlier attempt, and shows nothing under the token"
                );
                return Err(ToolError::new(ErrorKind::VersionConflict, gone));
            }
        })
    }
}

/// The error of a lookup whose answer does not tell the outcome of the call.
pub(in crate::tool) fn unclear(message: impl Into<String>) -> ToolError {
    ToolError::new(ErrorKind::Unknown, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(ids: &[&str], noted: Option<&str>) -> Result<LookupResult<usize>, ToolError> {
        let mut tally = Tally::new();
        for (place, id) in ids.iter().enumerate() {
            tally.take(Match::ours(place, *id));
        }
        tally.take(Match::Another);
        tally.finding(noted)
    }

    #[test]
    fn one_is_committed_and_several_are_duplicated() {
        assert_eq!(finding(&[], None).unwrap(), LookupResult::NotFound);
        let one = LookupResult::Committed { output: 0, external_ref: Some("a".into()) };
        assert_eq!(finding(&["a"], None).unwrap(), one);
        assert_eq!(finding(&["a", "a"], Some("a")).unwrap(), one, "shown twice by a list that shifts");
        let two = LookupResult::duplicated([("a", 0), ("b", 1)]);
        assert_eq!(finding(&["a", "b", "a"], None).unwrap(), two);
    }

    #[test]
    fn what_was_there_once_is_no_miss() {
        assert_eq!(finding(&[], Some("a")).unwrap_err().kind, ErrorKind::VersionConflict);
    }

    #[test]
    fn what_is_not_finished_is_pending_and_beside_a_finished_one_a_duplicate() {
        let (b, pause) = ("b".to_owned(), Duration::from_secs(3));
        let pending = || Match::<usize>::Pending { external_ref: "b".into(), look_again: pause };
        let failed = || Match::Failed { kind: ErrorKind::Validation, message: "declined".into() };
        let finding = |seen: Vec<Match<usize>>| {
            let mut tally = Tally::new();
            for seen in seen {
                tally.take(seen);
            }
            tally.finding(Some("b")).unwrap()
        };
        let waits = LookupResult::Pending { external_ref: Some(b), look_again: pause };
        assert_eq!(
            finding(vec![Match::Another, failed(), pending()]),
            waits,
            "another request may have failed"
        );
        let declined = LookupResult::Failed { kind: ErrorKind::Validation, message: "declined".into() };
        assert_eq!(finding(vec![failed(), Match::Another]), declined);
        let [a, b] = [("a", Some(0)), ("b", None)]
            .map(|(id, output)| Found { external_ref: Some(id.to_owned()), output });
        let both = LookupResult::Duplicated { effects: vec![a, b] };
        assert_eq!(finding(vec![Match::ours(0, "a"), pending()]), both);
        let one = LookupResult::Committed { output: 0, external_ref: Some("a".into()) };
        assert_eq!(finding(vec![failed(), Match::ours(0, "a")]), one);
    }

    #[test]
    fn what_another_request_has_made_is_named() {
        let mut tally = Tally::new();
        tally.take(Match::ours(0, "a"));
        tally.take(Match::Conflict("/amount is 1, and 2 was sent".into()));
        let what = "/amount is 1, and 2 was sent".into();
        assert_eq!(tally.finding(None).unwrap(), LookupResult::Foreign { what });
    }

    #[test]
    fn what_has_no_id_is_counted_all_the_same() {
        let mut tally = Tally::new();
        for output in [1, 2] {
            tally.take(Match::Ours(Done::new(output)));
        }
        let effects = [1, 2].map(|output| Found { external_ref: None, output: Some(output) });
        assert_eq!(tally.finding(None).unwrap(), LookupResult::Duplicated { effects: effects.into() });
    }
}
