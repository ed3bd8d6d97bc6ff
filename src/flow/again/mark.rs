//! Marks: the checkpoints by which a run that is begun again knows of the retry or the fork. Pure.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::id::{RecordId, RunId};
use crate::ledger::{REVISION, Record, RequestHash, unrevised};
use crate::payload::hex;
use crate::store::{PastStep, StepKind};

/// The separator between the id of a checkpoint and the number of times that it was made void. Ids of users lack it.
pub(in crate::flow) const AGAIN: &str = ":~again:";

/// The content of one mark: a command that began a run again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::flow) struct Mark {
    /// The name of the person who began the run again.
    pub(in crate::flow) by: String,
    /// The reason that this person gave.
    pub(in crate::flow) reason: String,
    /// The name of the step from which the run goes on. `None` for the last failure.
    pub(in crate::flow) from: Option<String>,
    /// The places of checkpoints that no longer count.
    pub(super) void: Vec<Place>,
    /// The ids of records, children, signals and events from that step on, which are kept. A replay that does not ask
    /// for them at once has not diverged.
    pub(super) later: Vec<String>,
    /// Operations that are done again, under another revision of their keys.
    pub(super) anew: Vec<Anew>,
    /// The keys of effects that were undone before the run was begun again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) undone: Vec<String>,
    /// The run after which calls without a key of their own are named, so that its effects are not repeated. Set for a
    /// fork, and for a child that is begun again.
    pub(super) origin: Option<RunId>,
    /// The start key of the run from which the fork was begun, if a tick of a schedule had begun that run: keys may be
    /// made of the tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tick: Option<String>,
    /// The last turn of which a fork may have been given checkpoints. Set for a fork.
    pub(super) until: u32,
    /// The former runs of this child. Set for a child that is begun again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) before: Vec<RunId>,
    /// The children that are begun again: the place of each, and its former run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) former: Vec<(Place, RunId)>,
    /// The records of the run from which this one was begun that answer the same request under any key. Set for a fork,
    /// and for a child that is begun again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unstable: Vec<Unstable>,
    /// The command as it was given, by which a repeated one is told from another one under the same key. `None` in the
    /// marks of earlier versions, and in marks that are carried on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) order: Option<Order>,
}

/// A command to begin a run again, or to let it go on, as it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) verb: Verb,
    /// The name and the id of the step to go on from.
    pub(super) from: Option<(String, Option<String>)>,
    /// The keys of operations that are done again.
    pub(super) anew: Vec<String>,
    /// The keys of effects that are undone first.
    pub(super) undone: Vec<String>,
    pub(super) explores: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verb {
    Resume,
    Retry,
    Fork,
}

/// The place of a checkpoint: turn, kind, name and id.
pub(in crate::flow) type Place = (u32, i64, String, String);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Anew {
    /// The key as the run's code gives it.
    pub(super) key: String,
    pub(super) revision: u32,
    /// The record under the earlier revision, which is kept.
    pub(super) record: RecordId,
}

/// A recorded call whose key was not stable, and which a person let answer its request under any key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::flow) struct Unstable {
    pub(in crate::flow) record: RecordId,
    pub(in crate::flow) key: String,
    operation: String,
    /// The request hash in hexadecimal digits.
    request: String,
}

impl Unstable {
    pub(super) fn of(record: &Record) -> Self {
        let (key, operation) = (record.key.as_str().to_owned(), record.operation.as_str().to_owned());
        Self { record: record.id, key, operation, request: hex(&record.request_hash.column()) }
    }

    /// True if the call answers this request of this tool.
    pub(in crate::flow) fn answers(&self, tool: &str, request: RequestHash) -> bool {
        self.operation == tool && self.request == hex(&request.column())
    }
}

impl Mark {
    /// The mark without its statements about checkpoints: for a run that goes on as new, and for a fork.
    pub(in crate::flow) fn carried_on(&self) -> Self {
        Self { void: Vec::new(), former: Vec::new(), order: None, ..self.clone() }
    }
}

/// All marks of a run. Nearly all runs have none.
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

    /// The id that a recorded checkpoint has in the run's code. `None` if the checkpoint is void.
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

    /// The revision under which an operation is done again, by the key that the run's code gives.
    pub(in crate::flow) fn revision(&self, key: &str) -> Option<u32> {
        self.anew().filter(|anew| anew.key == key).map(|anew| anew.revision).max()
    }

    /// The records of operations that are done again. A person decided to keep these records.
    pub(in crate::flow) fn kept(&self) -> impl Iterator<Item = RecordId> {
        self.anew().map(|anew| anew.record)
    }

    /// True while the code may still ask for this record, child, signal or event, because the run was begun again from
    /// an earlier step.
    pub(in crate::flow) fn is_later(&self, done: &str) -> bool {
        self.marks.iter().any(|mark| mark.later.iter().any(|later| later == done))
    }

    /// The key that the run's code gives for the operation of a record.
    pub(super) fn given_key<'a>(&'a self, recorded: &'a str) -> &'a str {
        let revised = |anew: &&Anew| recorded == format!("{}{REVISION}{}", bare(&anew.key), anew.revision);
        self.anew().find(revised).map_or(recorded, |anew| &anew.key)
    }

    /// The former run of the child at this place: the run that was begun there last.
    pub(in crate::flow) fn former(&self, place: &Place) -> Option<RunId> {
        let all = self.marks.iter().rev().flat_map(|mark| &mark.former);
        all.filter(|(at, _)| at == place).map(|(_, child)| *child).next()
    }

    /// The former runs of this child.
    pub(super) fn before(&self) -> impl Iterator<Item = RunId> {
        self.marks.iter().flat_map(|mark| mark.before.iter().copied())
    }

    /// The places at which a child is begun again, each with the run that was begun there last.
    pub(super) fn all_former(&self) -> HashMap<Place, RunId> {
        self.marks.iter().flat_map(|mark| mark.former.iter().cloned()).collect()
    }

    /// The records of the run from which this one was begun that answer the same request under any key.
    pub(in crate::flow) fn unstable(&self) -> impl Iterator<Item = &Unstable> {
        self.marks.iter().flat_map(|mark| &mark.unstable)
    }

    pub(super) fn anew(&self) -> impl Iterator<Item = &Anew> {
        self.marks.iter().flat_map(|mark| &mark.anew)
    }

    /// The run after which calls without a key of their own are named.
    pub(in crate::flow) fn origin(&self) -> Option<RunId> {
        self.marks.iter().find_map(|mark| mark.origin)
    }

    /// The start key of the tick of a schedule that began the origin of this fork.
    #[cfg(feature = "schedule")]
    pub(in crate::flow) fn tick(&self) -> Option<&str> {
        self.marks.iter().find_map(|mark| mark.tick.as_deref())
    }

    /// True if something of this turn may be recorded although the run has not been in the turn.
    pub(in crate::flow) fn may_know(&self, turn: u32) -> bool {
        self.marks.iter().any(|mark| turn <= mark.until)
    }
}

/// The key without its revision.
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
