//! Times of what happened in a ledger, for charts: rows without their contents.

use super::QuestionKind;
use crate::clock::Timestamp;
use crate::id::RecordId;

/// The time for which a question was open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionSpan {
    /// The kind of the question.
    pub kind: QuestionKind,
    /// The instant at which the question was opened.
    pub opened_at: Timestamp,
    /// The instant of the answer, by a person or by the engine. `None`: the question is open.
    pub answered_at: Option<Timestamp>,
}

/// The duplicates that the ledger has avoided: effects that were not made again. The last ones come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvoidedDuplicates {
    /// The instants at which calls of unknown outcome were settled because a lookup, or the late answer of a worker that
    /// had lost its call, showed their effects.
    pub found: Vec<Timestamp>,
    /// The instants at which runs were answered from records that they do not own.
    pub shared: Vec<Timestamp>,
    /// The instant from which on these are all. It is later than the one asked for if there are more than the limit.
    pub from: Timestamp,
}

/// A sign of an effect: its instant, and the record of the effect.
pub(in crate::store) type Sign = (Timestamp, RecordId);

/// The instant from which on all signs were read. Each list has the last ones first, and `limit` at most.
pub(in crate::store) fn signs_from(lists: &[Vec<Sign>], since: Timestamp, limit: u32) -> Timestamp {
    let full = lists.iter().filter(|signs| signs.len() >= limit as usize);
    full.filter_map(|signs| signs.last()).map(|(at, _)| *at).fold(since, Timestamp::max)
}
