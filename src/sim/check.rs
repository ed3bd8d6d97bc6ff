//! The invariants of the design, by number, checked during a simulation and after it has come to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::SimClock;
use super::family::{did, family};
use super::history::Attempts;
use super::machine::{Caller, Told};
use crate::clock::{Clock as _, Timestamp};
use crate::id::{QuestionId, RecordId, RunId, Tenant};
use crate::ledger::{ContractClass, FinalState, OperationKey, Record, State};
use crate::payload::Stored;
use crate::store::change::Written;
use crate::store::{Change, Model, Question, QuestionKind, Resolution, Retired, Run, RunState, WorkerChange};
use crate::tool::{Call, ToolSpec, Touch};

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that was violated.
    pub rule: Rule,
    /// Description of the event, with the key or the run.
    pub what: String,
}

/// The rules. The numbers are those of the invariants in the design.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// 1: no attempt is dispatched before its intent is durable.
    IntentBeforeEffect,
    /// 2: no result leaves the engine before it is durable.
    NothingPromisedEarly,
    /// 3: a call that may have happened is not sent again, unless the repeat is harmless.
    NoBlindRepeat,
    /// 4: the first result wins.
    FirstResultWins,
    /// 5: a record and its consequences are one transaction.
    OneTransaction,
    /// 6: a fenced worker changes nothing.
    ZombieChangesNothing,
    /// 7: no effect of a run that did not end well is forgotten.
    NoEffectForgotten,
    /// 8: a call that cannot be resolved has an open question.
    NothingDropped,
    /// 9: keys are known for longer than retries may come.
    WindowOutlivesRetries,
    /// 10: no tenant sees another tenant's rows.
    TenantsApart,
    /// An effect happened twice, and no record or question reports it.
    SilentDuplicate,
    /// A late answer proves an effect that its record does not contain, and no question asks about it.
    EvidenceIgnored,
    /// An effect is recorded and did not happen.
    SilentLoss,
    /// An effect happened, and is recorded as one that did not.
    WrongFailure,
    /// An effect that was undone had happened and is recorded as undone, and an effect recorded as undone was undone.
    UndoneTruly,
    /// A call that needs an approval goes out under one that is recorded: of a person or of a policy.
    ApprovalRecorded,
    /// The events of an aggregate are published in their order.
    EventsInOrder,
    /// The history tells of each attempt.
    HistoryWhole,
    /// A caller who asks for a run that has ended is told the result, or an error.
    CallerTold,
    /// A check that the user has added.
    Own(String),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IntentBeforeEffect => f.write_str("invariant 1, intent before effect"),
            Self::NothingPromisedEarly => f.write_str("invariant 2, nothing promised before it is durable"),
            Self::NoBlindRepeat => f.write_str("invariant 3, no blind repeat"),
            Self::FirstResultWins => f.write_str("invariant 4, the first result wins"),
            Self::OneTransaction => {
                f.write_str("invariant 5, a record and its consequences are one transaction")
            }
            Self::UndoneTruly => f.write_str("what is undone had happened, and is recorded as undone"),
            Self::ApprovalRecorded => f.write_str("no call without its recorded approval"),
            Self::EventsInOrder => f.write_str("the events of an aggregate are published in their order"),
            Self::WindowOutlivesRetries => {
                f.write_str("invariant 9, the dedupe window outlives the retry horizon")
            }
            Self::TenantsApart => f.write_str("invariant 10, one tenant never sees another's"),
            Self::ZombieChangesNothing => f.write_str("invariant 6, a zombie changes nothing"),
            Self::NoEffectForgotten => f.write_str("invariant 7, no effect is forgotten"),
            Self::NothingDropped => f.write_str("invariant 8, nothing is dropped silently"),
            Self::SilentDuplicate => f.write_str("no silent duplicate"),
            Self::EvidenceIgnored => f.write_str("what a late answer proves is asked about"),
            Self::SilentLoss => f.write_str("no silent loss"),
            Self::WrongFailure => f.write_str("what is recorded as failed did not happen"),
            Self::HistoryWhole => f.write_str("the history tells of each attempt"),
            Self::CallerTold => f.write_str("a caller is told how its run has ended"),
            Self::Own(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// Watches a simulation from the disk and from the tools, and trusts no report of the engine.
pub(super) struct Checker {
    clock: SimClock,
    state: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// True if several processes share the ledger, and each is alive until its lease expires.
    is_shared: bool,
    /// The time at which each life began.
    began: BTreeMap<u32, Duration>,
    /// In a shared ledger: the life of each fence, and the time at which another life fenced each. Fences count from
    /// 1.
    fences: Vec<u32>,
    ended: BTreeMap<u32, Duration>,
    /// The records as they are durable.
    records: BTreeMap<RecordId, Record>,
    places: BTreeMap<(Tenant, OperationKey), RecordId>,
    /// The operations that may happen twice, as their tools declare.
    repeatable: BTreeSet<(Tenant, OperationKey)>,
    /// The attempts with a durable intent, each with the life that wrote it.
    intents: BTreeSet<(u32, RecordId, u32)>,
    runs: BTreeMap<RunId, Run>,
    /// The runs that have failed.
    failed: BTreeSet<RunId>,
    questions: BTreeMap<QuestionId, Question>,
    /// The lives that have enrolled, and that no other life has fenced since.
    enrolled: BTreeSet<u32>,
    sent: BTreeMap<(Tenant, OperationKey), Vec<Sent>>,
    /// The attempts that the tools have seen.
    attempts: Attempts,
    /// The operations of which a lookup has shown nothing since they were last sent.
    missing: BTreeSet<(Tenant, OperationKey)>,
    /// The number of transactions that were more than a run looking again.
    progress: u32,
    violations: Vec<Violation>,
}

/// An attempt that may have reached the world.
struct Sent {
    life: u32,
    at: Duration,
    /// The time by the wall clock, by which a key ages.
    wall: Timestamp,
    /// The time at which a lookup last showed nothing.
    nothing_at: Option<Duration>,
}

impl Checker {
    pub(super) fn new(clock: SimClock, is_shared: bool) -> Self {
        Self { clock, state: Mutex::new(Seen { is_shared, ..Seen::default() }) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin_life(&self, life: u32) {
        self.seen().began.insert(life, self.clock.elapsed());
    }

    /// Resets the checker to a restored ledger, which holds no more than this. The record of sent calls stays.
    pub(super) fn restored(&self, ledger: &Model) {
        let mut seen = self.seen();
        seen.records = ledger.records().into_iter().map(|record| (record.id, record)).collect();
        let place = |record: &Record| ((record.tenant.clone(), record.key.clone()), record.id);
        seen.places = seen.records.values().map(place).collect();
        seen.runs = ledger.runs().into_iter().map(|run| (run.id, run)).collect();
        let failed = seen.runs.values().filter(|run| matches!(run.state, RunState::Failed { .. }));
        seen.failed = failed.map(|run| run.id).collect();
        seen.questions = ledger.escalations().into_iter().map(|question| (question.id, question)).collect();
        seen.enrolled.clear();
    }

    pub(super) fn take(&self) -> Vec<Violation> {
        std::mem::take(&mut self.seen().violations)
    }

    /// Checks a result that a caller was given: the result of its own run, which must be durable by now.
    pub(super) fn told(&self, store: &Model, caller: &Caller, told: &Told) {
        let durable = |run: &Run| match (&run.state, told) {
            (RunState::Succeeded { output: Stored::Inline(output) }, Told::Succeeded(answer)) => {
                output.value().is_ok_and(|output| output == *answer)
            }
            // The output is too large for its row, or the run failed: its existence is sufficient.
            (RunState::Succeeded { output: Stored::At(_) }, Told::Succeeded(_))
            | (RunState::Failed { .. }, Told::Failed(_)) => true,
            _ => false,
        };
        if !store.runs().iter().filter(|run| caller.asks_for(run)).any(durable) {
            self.seen()
                .violated(Rule::NothingPromisedEarly, format!("a caller was told {told}: it is not durable"));
        }
    }

    /// True if the operation may happen twice, as its tool declares.
    pub(super) fn may_repeat(&self, place: &(Tenant, OperationKey)) -> bool {
        self.seen().repeatable.contains(place)
    }

    /// The records whose calls a process sent after it was taken for dead.
    pub(super) fn sent_late(&self, life: u32) -> Vec<RecordId> {
        let seen = self.seen();
        let Some(taken_over) = seen.taken_over(life) else { return Vec::new() };
        let is_late = |sent: &Sent| sent.life == life && sent.at >= taken_over;
        let late = seen.sent.iter().filter(|(_, sent)| sent.iter().any(is_late));
        late.filter_map(|(place, _)| seen.places.get(place).copied()).collect()
    }

    /// True if a lookup of this record has shown nothing since the last send.
    pub(super) fn is_missing(&self, record: &Record) -> bool {
        self.seen().missing.contains(&(record.tenant.clone(), record.key.clone()))
    }

    pub(super) fn attempts(&self) -> Attempts {
        self.seen().attempts.clone()
    }

    /// Reports a simulation that does not come to rest.
    pub(super) fn is_restless(&self) {
        self.seen().violated(Rule::NothingDropped, "it is busy for ever and gets nowhere".to_owned());
    }

    /// Reports a simulation whose last process died.
    pub(super) fn dies_for_ever(&self) {
        self.seen().violated(Rule::NothingDropped, "its processes die one after another".to_owned());
    }

    /// The number of transactions that were more than a run looking again.
    pub(super) fn progress(&self) -> u32 {
        self.seen().progress
    }

    /// Checks the changes of one transaction, which became durable together.
    pub(super) fn wrote<'a>(&self, life: u32, changes: impl Iterator<Item = &'a Change> + Clone) {
        let mut seen = self.seen();
        seen.progress += u32::from(changes.clone().any(|change| !only_looks_again(change)));
        for change in changes.clone() {
            seen.wrote(life, &self.clock, change);
        }
        for change in changes {
            seen.is_whole(change);
        }
    }

    /// Checks a call or a lookup of a tool.
    pub(super) fn touched(&self, life: u32, touch: Touch, call: &Call, tool: &ToolSpec) {
        let now = self.clock.elapsed();
        let mut seen = self.seen();
        let place = (call.tenant().clone(), call.operation_key().clone());
        match touch {
            Touch::Call => {
                // A repeatable call is sent before anything is recorded of it.
                if tool.effect.may_repeat(tool.contract.class) {
                    seen.repeatable.insert(place.clone());
                } else {
                    seen.intent_is_durable(life, &place, call);
                }
                let sent = Sent { life, at: now, wall: self.clock.now(), nothing_at: None };
                seen.repeat_is_safe(&sent, &place, tool);
                seen.window_outlives_retries(tool);
                seen.approval_is_recorded(&place, tool);
                seen.missing.remove(&place);
                seen.attempts.insert((place.clone(), call.attempt()));
                seen.sent.entry(place).or_default().push(sent);
            }
            Touch::NothingHappened => drop(seen.sent.get_mut(&place).and_then(Vec::pop)),
            Touch::FoundNothing => {
                seen.missing.insert(place.clone());
                for sent in seen.sent.entry(place).or_default() {
                    sent.nothing_at = Some(now);
                }
            }
            Touch::Looked => {}
        }
    }
}

/// True if the change says no more than that a worker is alive, and that a run was looked at and waits on.
fn only_looks_again(change: &Change) -> bool {
    change.written().all(|row| match row {
        Written::Run(run) => matches!(run.state, RunState::Active | RunState::Waiting { .. }),
        Written::Worker(worker) => matches!(worker, WorkerChange::Renew { .. }),
        _ => false,
    })
}

impl Seen {
    fn violated(&mut self, rule: Rule, what: String) {
        self.violations.push(Violation { rule, what });
    }

    /// The time at which another life took this life over.
    fn taken_over(&self, life: u32) -> Option<Duration> {
        if self.is_shared { self.ended.get(&life) } else { self.began.get(&(life + 1)) }.copied()
    }

    fn wrote(&mut self, life: u32, clock: &SimClock, change: &Change) {
        match change.worker {
            Some(WorkerChange::Enrol { .. } | WorkerChange::Attach { .. }) => {
                self.enrolled.insert(life);
                self.fences.push(life);
            }
            Some(WorkerChange::End { fence, .. }) => {
                let place = usize::try_from(fence.0 - 1);
                if let Some(ended) = place.ok().and_then(|place| self.fences.get(place)).copied() {
                    self.enrolled.remove(&ended);
                    self.ended.insert(ended, clock.elapsed());
                }
            }
            Some(WorkerChange::FenceOthers { .. }) => self.enrolled = BTreeSet::from([life]),
            _ if change.needs_fence() && !self.enrolled.contains(&life) => {
                self.violated(Rule::ZombieChangesNothing, format!("life {life} wrote after it was fenced"));
            }
            _ => {}
        }
        for retired in change.retired.iter().filter(|retired| !retired.is_kept()) {
            self.retired(retired, clock.now());
        }
        for retired in &change.retired_runs {
            self.retired_run(&retired.run);
        }
        self.questions.extend(change.escalations.iter().map(|question| (question.id, question.clone())));
        if let Some(run) = &change.run {
            self.runs.insert(run.id, Run::clone(run));
        }
        if let Some(record) = &change.record {
            if record.state == State::Started {
                self.intents.insert((life, record.id, record.attempts));
            }
            self.recorded(record);
        }
    }

    /// Checks that a change and its consequences are in one transaction, and that all rows belong to its tenant.
    fn is_whole(&mut self, change: &Change) {
        if let Some(record) = &change.record {
            if record.escalation.is_some_and(|id| !self.questions.contains_key(&id)) {
                let what = format!("{} waits for a question that is not durable", record.key);
                self.violated(Rule::OneTransaction, what);
            }
            let run = record.owner.run.and_then(|run| self.runs.get(&run));
            if run.is_some_and(|run| run.tenant != record.tenant) {
                self.violated(Rule::TenantsApart, format!("{} is another tenant's run's", record.key));
            }
        }
        if let Some(used) = &change.used {
            let record = self.records.get(&used.record).map(|record| &record.tenant);
            let run = self.runs.get(&used.run).map(|run| &run.tenant);
            if record != Some(&used.tenant) || run != Some(&used.tenant) {
                let what = format!("a run of {} was answered by a record of {record:?}", used.tenant);
                self.violated(Rule::TenantsApart, what);
            }
        }
        // The check applies when the run fails, and not when the settling of its dropped calls is written afterwards.
        // A retried run may fail again.
        if let Some(run) = change.run.as_deref().filter(|run| run.state == RunState::Active) {
            self.failed.remove(&run.id);
        }
        let fails =
            |run: &&Run| matches!(run.state, RunState::Failed { .. }) && !self.failed.contains(&run.id);
        if let Some(run) = change.run.as_deref().filter(fails) {
            self.failed.insert(run.id);
            // Nobody is asked again about an effect that a person has decided to keep.
            let is_kept = |record: &Record| {
                let keeps = |question: &Question| {
                    let answer = question.answer.as_ref().map(|answer| &answer.resolution);
                    answer == Some(&Resolution::Keep) && question.kind == QuestionKind::Compensation
                };
                let about = (Some(record.id), Some(run.id));
                self.questions
                    .values()
                    .any(|question| (question.record, question.run) == about && keeps(question))
            };
            let asks = |record: &Record| {
                change.escalations.iter().any(|question| question.record == Some(record.id))
                    || record.escalation.is_some()
                    || is_kept(record)
            };
            let family = family(run, &self.runs.values());
            let stands = |record: &Record| {
                use State::{Committed, Gone};
                matches!(record.state, Committed { .. } | Gone { was: FinalState::Committed, .. })
            };
            let done = self.records.values().filter(|record| did(&family, record) && stands(record));
            let forgotten = done.filter(|record| !asks(record)).map(|record| record.key.to_string());
            if let Some(key) = forgotten.reduce(|all, key| format!("{all}, {key}")) {
                let what = format!("run {} failed, and nothing in that transaction asks about {key}", run.id);
                self.violated(Rule::OneTransaction, what);
            }
        }
    }

    fn recorded(&mut self, record: &Record) {
        let before = self.records.get(&record.id);
        // Of several workers, an earlier one may take over the work of a later one: the others decide if it is alive.
        let adopted = !self.is_shared && before.is_some_and(|before| before.fence > record.fence);
        let first = before.and_then(|before| before.response().cloned());
        if adopted {
            let what = format!("{} was adopted by a later worker, and an earlier one wrote", record.key);
            self.violated(Rule::ZombieChangesNothing, what);
        }
        // A response over the size limit may be looked up again under a higher limit.
        if let Some(first) = first
            && !matches!(first, Stored::Oversized(_))
            && record.response() != Some(&first)
        {
            self.violated(Rule::FirstResultWins, format!("{} had a result and has another one", record.key));
        }
        let place = (record.tenant.clone(), record.key.clone());
        if matches!(record.state, State::Failed { .. }) {
            self.sent.remove(&place); // the record says that nothing happened, on sufficient grounds
        }
        self.places.insert(place, record.id);
        self.records.insert(record.id, record.clone());
    }

    /// Checks the retirement of a record, whole or up to its digests.
    fn retired(&mut self, retired: &Retired, now: Timestamp) {
        let Some(record) = self.records.get(&retired.id) else { return };
        let early = record.kept_until.is_none_or(|until| now < until);
        if early || record.state == State::Started || record.escalation.is_some() {
            let what = format!("{} is {}, and is retired before its time", record.key, record.state.name());
            self.violated(Rule::WindowOutlivesRetries, what);
        }
        if let Some(left) = &retired.left {
            self.records.insert(retired.id, Record::clone(left));
        }
    }

    /// Checks the retirement of a run's input, history and output.
    fn retired_run(&mut self, run: &Run) {
        let is_over = |id: &RunId| self.runs.get(id).is_none_or(|run| run.state.is_final());
        let owed = |record: &Record| {
            record.owner.run == Some(run.id)
                && (record.state == State::Started || record.escalation.is_some())
        };
        let is_needed = !is_over(&run.id) || run.parent.is_some_and(|parent| !is_over(&parent));
        if is_needed || self.records.values().any(owed) {
            let what = format!("{} is {}, and is retired before its time", run.id, run.state.name());
            self.violated(Rule::WindowOutlivesRetries, what);
        }
    }

    fn window_outlives_retries(&mut self, tool: &ToolSpec) {
        if tool.retention.shortest().is_some_and(|window| window < tool.retry.horizon()) {
            let what = format!("{} forgets its keys before it ceases to retry", tool.name);
            self.violated(Rule::WindowOutlivesRetries, what);
        }
    }

    fn intent_is_durable(&mut self, life: u32, place: &(Tenant, OperationKey), call: &Call) {
        let durable = self.places.get(place).and_then(|id| self.records.get(id));
        let intended = durable.is_some_and(|record| {
            let is_zombie = self.taken_over(life).is_some(); // others may have continued the record since
            self.intents.contains(&(life, record.id, call.attempt()))
                && (is_zombie || record.state == State::Started && record.attempts == call.attempt())
        });
        if !intended {
            let what = format!(
                "{} is dispatched, attempt {}, and its intent is not durable",
                place.1,
                call.attempt()
            );
            self.violated(Rule::IntentBeforeEffect, what);
        }
    }

    fn approval_is_recorded(&mut self, place: &(Tenant, OperationKey), tool: &ToolSpec) {
        let durable = self.places.get(place).and_then(|id| self.records.get(id));
        let is_recorded = durable.is_some_and(|record| record.approval.is_some());
        if !tool.approval.is_none() && !is_recorded {
            let what = format!("{} is dispatched, and the approval that it needs is not durable", place.1);
            self.violated(Rule::ApprovalRecorded, what);
        }
    }

    fn repeat_is_safe(&mut self, now: &Sent, place: &(Tenant, OperationKey), tool: &ToolSpec) {
        let (life, contract) = (now.life, &tool.contract);
        if tool.effect.may_repeat(tool.contract.class) {
            return;
        }
        let collides = |sent: &Sent| {
            contract.class.collides()
                && contract.key_window.is_none_or(|window| now.wall < sent.wall.after(window))
        };
        let is_safe = |sent: &Sent| {
            // The service tables show a duplicate for these contracts.
            if collides(sent) || contract.sealed_with_effect {
                return true;
            }
            // A process that was taken for dead cannot know of later sends by others.
            if sent.life != life && self.taken_over(life).is_some_and(|at| sent.at >= at) {
                return true;
            }
            // An earlier process stopped sending when this one began. For an attempt of this process, or of one that
            // runs beside it, the settle time counts from the send.
            let cut = match self.began.get(&life) {
                Some(began) if sent.life < life && !self.is_shared => *began,
                _ => sent.at,
            };
            match contract.class {
                ContractClass::Blind => contract.repeat_blindly,
                _ => sent.nothing_at.is_some_and(|at| at >= cut + contract.settle_time()),
            }
        };
        let safe = self.sent.get(place).is_none_or(|sent| sent.iter().all(is_safe));
        if !safe {
            self.violated(
                Rule::NoBlindRepeat,
                format!("{} is sent again although it may have happened", place.1),
            );
        }
    }
}
