//! What a retry or a fork leaves in the history of the run that is begun again, and what a resume makes of it. Pure.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::id::{RecordId, RunId};
use crate::ledger::{REVISION, unrevised};
use crate::store::{PastStep, StepKind};

/// Between the id of a checkpoint and how often it was made void before. Users' ids do not hold it.
pub(in crate::flow) const AGAIN: &str = ":~again:";

/// How a run was begun again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::flow) struct Mark {
    /// Who.
    pub(in crate::flow) by: String,
    /// Why.
    pub(in crate::flow) reason: String,
    /// From which step on; from what failed last if absent.
    pub(in crate::flow) from: Option<String>,
    /// Checkpoints that count no more.
    pub(super) void: Vec<Place>,
    /// What stands and was done from there on: that it is not asked for at once is no other path.
    pub(super) later: Vec<String>,
    /// Operations that are to be done again, under another revision of their keys.
    pub(super) anew: Vec<Anew>,
    /// The keys of effects that were undone before it was begun again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) undone: Vec<String>,
    /// Of a fork, or of a child that is begun again: the run after which calls without a key of their own are named, so that
    /// what it did is not done again.
    pub(super) origin: Option<RunId>,
    /// Of a fork: it may have been given something of all turns up to this one.
    pub(super) until: u32,
    /// Of a child that is begun again: the runs that were begun in its place before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) before: Vec<RunId>,
    /// Children that are begun again: where, and which run was begun there before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) former: Vec<(Place, RunId)>,
}

/// Turn, kind, name and id.
pub(in crate::flow) type Place = (u32, i64, String, String);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Anew {
    /// The key as the run's code gives it.
    pub(super) key: String,
    pub(super) revision: u32,
    /// What stands of it.
    pub(super) record: RecordId,
}

impl Mark {
    /// The same without what it says of checkpoints: for a run that goes on as new, and for a fork.
    pub(in crate::flow) fn carried_on(&self) -> Self {
        Self { void: Vec::new(), former: Vec::new(), ..self.clone() }
    }
}

/// How a run was begun again, all in all. Nearly all runs never were.
#[derive(Debug, Default)]
pub(in crate::flow) struct Again {
    marks: Vec<Mark>,
    void: HashMap<Place, u32>,
}

impl Again {
    pub(in crate::flow) fn of(marks: Vec<Mark>) -> Self {
        let mut void = HashMap::new();
        for place in marks.iter().flat_map(|mark| &mark.void) {
            *void.entry(place.clone()).or_default() += 1;
        }
        Self { marks, void }
    }

    pub(in crate::flow) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    fn times_void(&self, place: &Place) -> u32 {
        self.void.get(place).copied().unwrap_or(0)
    }

    /// The id under which a checkpoint is recorded.
    pub(in crate::flow) fn recorded_id(&self, turn: u32, kind: StepKind, name: &str, id: &str) -> String {
        if self.void.is_empty() {
            return id.to_owned();
        }
        match self.times_void(&(turn, kind.code(), name.to_owned(), id.to_owned())) {
            0 => id.to_owned(),
            times => format!("{id}{AGAIN}{times}"),
        }
    }

    /// The id that a recorded checkpoint has in the run's code; nothing if it is void.
    pub(in crate::flow) fn standing(&self, step: &PastStep) -> Option<String> {
        if self.void.is_empty() {
            return Some(step.id.clone());
        }
        let (id, times) = match step.id.rsplit_once(AGAIN) {
            Some((id, times)) => (id, times.parse().ok()?),
            None => (step.id.as_str(), 0),
        };
        let place = (step.turn, step.kind.code(), step.name.clone(), id.to_owned());
        (self.times_void(&place) == times).then_some(place.3)
    }

    /// The revision under which an operation is a new one, by the key that the run's code gives.
    pub(in crate::flow) fn revision(&self, key: &str) -> Option<u32> {
        self.anew().filter(|anew| anew.key == key).map(|anew| anew.revision).max()
    }

    /// Records of operations that are done anew: that they stand was decided.
    pub(in crate::flow) fn kept(&self) -> impl Iterator<Item = RecordId> {
        self.anew().map(|anew| anew.record)
    }

    /// Not yet asked for, for all that is known: the run was begun again from before it.
    pub(in crate::flow) fn is_later(&self, done: &str) -> bool {
        self.marks.iter().any(|mark| mark.later.iter().any(|later| later == done))
    }

    /// The key that the run's code gives for the operation of a record.
    pub(super) fn given_key<'a>(&'a self, recorded: &'a str) -> &'a str {
        let revised = |anew: &&Anew| recorded == format!("{}{REVISION}{}", bare(&anew.key), anew.revision);
        self.anew().find(revised).map_or(recorded, |anew| &anew.key)
    }

    /// The child that was begun last where one is begun now.
    pub(in crate::flow) fn former(&self, place: &Place) -> Option<RunId> {
        let all = self.marks.iter().rev().flat_map(|mark| &mark.former);
        all.filter(|(at, _)| at == place).map(|(_, child)| *child).next()
    }

    /// The runs that were begun in its place before.
    pub(super) fn before(&self) -> impl Iterator<Item = RunId> {
        self.marks.iter().flat_map(|mark| mark.before.iter().copied())
    }

    /// Every place at which a child is begun again, and which was begun there last.
    pub(super) fn all_former(&self) -> HashMap<Place, RunId> {
        self.marks.iter().flat_map(|mark| mark.former.iter().cloned()).collect()
    }

    pub(super) fn anew(&self) -> impl Iterator<Item = &Anew> {
        self.marks.iter().flat_map(|mark| &mark.anew)
    }

    /// The run after which calls without a key of their own are named.
    pub(in crate::flow) fn origin(&self) -> Option<RunId> {
        self.marks.iter().find_map(|mark| mark.origin)
    }

    /// Something of this turn may be recorded although the run has not been in it.
    pub(in crate::flow) fn may_know(&self, turn: u32) -> bool {
        self.marks.iter().any(|mark| turn <= mark.until)
    }
}

/// A key without its revision.
pub(super) fn bare(key: &str) -> &str {
    unrevised(key).0
}

/// The next revision of a key.
pub(super) fn next_revision(key: &str) -> u32 {
    unrevised(key).1.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    fn step(id: &str) -> PastStep {
        let (kind, name) = (StepKind::Step, "s".to_owned());
        PastStep { turn: 0, kind, name, id: id.into(), input_hash: None, value: None, at: Timestamp(0) }
    }

    fn void(id: &str) -> Mark {
        Mark { void: vec![(0, StepKind::Step.code(), "s".into(), id.into())], ..Mark::default() }
    }

    #[test]
    fn what_was_made_void_is_recorded_anew_beside_what_was_recorded_before() {
        let recorded = |again: &Again, id: &str| again.recorded_id(0, StepKind::Step, "s", id);
        let plain = Again::default();
        assert_eq!((recorded(&plain, "0"), plain.standing(&step("0"))), ("0".into(), Some("0".into())));
        let once = Again::of(vec![void("0")]);
        assert_eq!(recorded(&once, "0"), "0:~again:1");
        assert_eq!((once.standing(&step("0")), once.standing(&step("1"))), (None, Some("1".into())));
        assert_eq!(once.standing(&step("0:~again:1")), Some("0".into()));
        let twice = Again::of(vec![void("0"), void("0")]);
        assert_eq!(recorded(&twice, "0"), "0:~again:2");
        assert_eq!(
            (twice.standing(&step("0:~again:1")), twice.standing(&step("0:~again:2"))),
            (None, Some("0".into()))
        );
    }

    #[test]
    fn a_key_is_revised_from_where_it_stands() {
        let anew = |key: &str, revision| Anew { key: key.into(), revision, record: RecordId(1) };
        let again = Again::of(vec![Mark { anew: vec![anew("a:b", 1)], ..Mark::default() }]);
        assert_eq!((again.revision("a:b"), again.revision("a:c")), (Some(1), None));
        assert_eq!((again.given_key("a:b:~revision:1"), again.given_key("a:b")), ("a:b", "a:b"));
        assert_eq!((next_revision("a:b"), next_revision("a:b:~revision:1")), (1, 2));
    }
}
