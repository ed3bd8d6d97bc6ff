//! The rows of the model, and the rules by which they are written. They are plain maps: all rows are read in the
//! order of their keys.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::clock::Timestamp;
use crate::id::{Fence, Name, QuestionId, RecordId, RunId, Tenant};
use crate::ledger::queue::Bucket;
use crate::ledger::{Look, OperationKey, Record};
use crate::payload::{DigestKey, Payload};
use crate::store::chain::Link;
use crate::store::change::Written;
use crate::store::row::Row as _;
use crate::store::{
    Aggregate, Change, Contact, Document, Evidence, OutboxEvent, PublishedValue, Question, RecordLabel,
    Refusal, Run, RunLabel, Schedule, SharedEffect, Signal, Step, StepKind, Verdict, Worker, WorkerChange,
};

type Steps = BTreeMap<(u32, StepKind, String, String), Step>;

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) workers: BTreeMap<Fence, Worker>,
    pub(super) tenant_keys: BTreeMap<Tenant, DigestKey>,
    /// The payloads, each with its number of uses.
    pub(super) payloads: BTreeMap<(Tenant, [u8; 32]), (Payload, u32)>,
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) run_keys: BTreeMap<(Tenant, Name, String), RunId>,
    pub(super) labels: BTreeMap<(Tenant, RunId, String), RunLabel>,
    pub(super) steps: BTreeMap<(Tenant, RunId), Steps>,
    pub(super) records: BTreeMap<RecordId, Record>,
    pub(super) record_keys: BTreeMap<(Tenant, OperationKey), RecordId>,
    pub(super) record_labels: BTreeMap<(Tenant, RecordId, String), RecordLabel>,
    pub(super) looks: BTreeMap<(Tenant, RecordId), Look>,
    pub(super) contacts: BTreeMap<(Tenant, RecordId, i64), Contact>,
    pub(super) uses: BTreeMap<(Tenant, RunId, u32, RecordId), SharedEffect>,
    pub(super) evidence: BTreeMap<(Tenant, RecordId, Fence, u32), Evidence>,
    pub(super) links: BTreeMap<(i64, i64), Link>,
    pub(super) escalations: BTreeMap<(Tenant, QuestionId), Question>,
    pub(super) queues: BTreeMap<String, Bucket>,
    pub(super) schedules: BTreeMap<(Tenant, String), Schedule>,
    pub(super) documents: BTreeMap<(Tenant, String, String), Document>,
    pub(super) published: BTreeMap<(Tenant, RunId, String), PublishedValue>,
    pub(super) events: BTreeMap<(Tenant, String), OutboxEvent>,
    pub(super) aggregates: BTreeMap<(Tenant, String), Aggregate>,
    /// The signals, each with a flag that is true if its run has received it.
    pub(super) signals: BTreeMap<(Tenant, RunId, String, String), (Signal, bool)>,
}

/// The writes.
impl Tables {
    /// Judges each change in the order of the batch, and writes the admitted ones.
    pub(super) fn judge(&mut self, changes: &[Change]) -> Vec<Verdict> {
        let mut stopped = HashSet::new();
        let mut judge = |change: &Change| {
            if change.lane.is_some_and(|lane| stopped.contains(&lane)) {
                return Verdict::Refused(Refusal::Predecessor);
            }
            let verdict = self.admit(change).map_or_else(Verdict::Refused, |()| Verdict::Admitted);
            stopped.extend(change.lane.filter(|_| change.stops_lane(&verdict)));
            verdict
        };
        changes.iter().map(&mut judge).collect()
    }

    /// Writes the whole change, or nothing of it.
    pub(super) fn admit(&mut self, change: &Change) -> Result<(), Refusal> {
        if change.fence.is_some_and(|fence| !self.is_alive(fence)) {
            return Err(Refusal::Fenced);
        }
        change.unwritten().map_or(Ok(()), Err)?;
        match self.check(change) {
            Ok(()) => self.write(change),
            Err(_) if self.is_written(change) => {} // an earlier answer was lost
            Err(refusal) => return Err(refusal),
        }
        Ok(())
    }

    fn check(&self, change: &Change) -> Result<(), Refusal> {
        if is_any_twice(&change.events) {
            return Err(Refusal::Exists);
        }
        change.written().try_for_each(|row| self.check_row(row, change.fence))
    }

    fn check_row(&self, row: Written<'_>, by: Option<Fence>) -> Result<(), Refusal> {
        let exists = |taken| if taken { Err(Refusal::Exists) } else { Ok(()) };
        let stale = |not| if not { Err(Refusal::Stale) } else { Ok(()) };
        match row {
            Written::Worker(change) => self.check_worker(change, by),
            Written::Schedule(row) => self.check_schedule(row),
            Written::Document(row) => self.check_document(row),
            Written::Published(row) => self.check_published(row),
            Written::Erased(tenant) => {
                self.under_way(tenant).map_or(Ok(()), |what| Err(Refusal::UnderWay(what)))
            }
            Written::Event(row) => exists(self.is_event_taken(row)),
            Written::Mark(row) => self.check_mark(row),
            Written::Run(row) => match self.runs.get(&row.id) {
                Some(stored) if stored.tenant == row.tenant => follows(stored.revision, row.revision),
                Some(_) => Err(Refusal::Stale),
                None if run_key(row).is_some_and(|key| self.run_keys.contains_key(&key)) => {
                    Err(Refusal::Exists)
                }
                None => follows(0, row.revision),
            },
            Written::Record(row) => match self.records.get(&row.id) {
                Some(stored) if record_key(stored) == record_key(row) => {
                    follows(stored.revision, row.revision)
                }
                Some(_) => Err(Refusal::Stale),
                None if self.record_keys.contains_key(&record_key(row)) => Err(Refusal::Exists),
                None => follows(0, row.revision),
            },
            Written::Look(row) => {
                let stored = self.look(&row.tenant, row.record);
                follows(stored.map_or(0, |stored| stored.revision), row.revision)?;
                stale(stored.is_none() && row.due_at.is_none())
            }
            Written::Step(row) => exists(self.step(row).is_some()),
            // The first answer counts.
            Written::Question(row) => {
                let is_open = self.question(&row.tenant, row.id).map(|stored| stored.answer.is_none());
                stale(is_open != if row.is_new() { None } else { Some(true) })
            }
            Written::Signal(row) => exists(self.signals.contains_key(&signal_key(row))),
            Written::Received(row) => {
                stale(self.signals.get(&signal_key(row)).is_none_or(|(_, received)| *received))
            }
            Written::Admission(_)
            | Written::Forgotten(_)
            | Written::Retired(_)
            | Written::RetiredRun(_)
            | Written::ExpiredSignal(_)
            | Written::Payload(_)
            | Written::Key(_)
            | Written::Prune(_)
            | Written::SharedEffect(_)
            | Written::Label(_)
            | Written::RecordLabel(_)
            | Written::Contact(_)
            | Written::DroppedContact(_)
            | Written::Evidence(_)
            | Written::Link(_) => Ok(()),
        }
    }

    fn check_worker(&self, change: &WorkerChange, by: Option<Fence>) -> Result<(), Refusal> {
        match change {
            WorkerChange::Enrol { name, .. } | WorkerChange::Attach { name, .. }
                if self.worker_named(name).is_some() =>
            {
                Err(Refusal::Exists)
            }
            WorkerChange::End { fence, at } if !self.is_expired(*fence, *at) => Err(Refusal::Stale),
            WorkerChange::Settle { fence } if !self.is_fenced(*fence) => Err(Refusal::Stale),
            WorkerChange::Publish if self.another_publishes(by) => Err(Refusal::Exists),
            _ => Ok(()),
        }
    }

    /// True if the rows that distinguish this change from another one are stored as the change would have written
    /// them.
    fn is_written(&self, change: &Change) -> bool {
        let mut rows = change.written().filter_map(|row| self.has(row)).peekable();
        rows.peek().is_some() && rows.all(|is_there| is_there)
    }

    /// True if the row is stored as it would have been written; `None` for a row that another change may have written
    /// alike.
    fn has(&self, row: Written<'_>) -> Option<bool> {
        let signal = |signal: &Signal| self.signals.get(&signal_key(signal));
        Some(match row {
            Written::Worker(WorkerChange::Enrol { name, at, .. } | WorkerChange::Attach { name, at }) => self
                .worker_named(name)
                .is_some_and(|stored| stored.enrolled_at == *at && stored.ended_at.is_none()),
            Written::Worker(WorkerChange::End { fence, at }) => {
                self.worker(*fence).is_some_and(|stored| stored.ended_at == Some(*at))
            }
            Written::Schedule(row) => self.has_schedule(row),
            Written::Document(row) => self.has_document(row),
            Written::Published(row) => self.has_published(row),
            Written::Event(row) => self.has_event(row),
            Written::Mark(row) => self.has_mark(row),
            Written::Run(row) => self.runs.get(&row.id) == Some(row),
            Written::Record(row) => self.records.get(&row.id).is_some_and(|stored| stored.is_as_written(row)),
            Written::Look(row) => {
                self.look(&row.tenant, row.record).map_or(row.due_at.is_none(), |stored| stored == row)
            }
            Written::Step(row) => self.step(row).is_some_and(|stored| stored.is_as_written(row)),
            Written::Question(row) => self.question(&row.tenant, row.id) == Some(row),
            Written::Signal(row) => signal(row).is_some_and(|(stored, _)| stored == row),
            Written::Received(row) => signal(row).is_some_and(|(_, received)| *received),
            Written::Worker(_)
            | Written::Admission(_)
            | Written::Erased(_)
            | Written::Forgotten(_)
            | Written::Retired(_)
            | Written::RetiredRun(_)
            | Written::ExpiredSignal(_)
            | Written::Payload(_)
            | Written::Key(_)
            | Written::Prune(_)
            | Written::SharedEffect(_)
            | Written::Label(_)
            | Written::RecordLabel(_)
            | Written::Contact(_)
            | Written::DroppedContact(_)
            | Written::Evidence(_)
            | Written::Link(_) => return None,
        })
    }

    fn write(&mut self, change: &Change) {
        for (tenant, digest) in change.copied() {
            self.payloads.entry((tenant.clone(), digest.0)).and_modify(|(_, uses)| *uses += 1);
        }
        for row in change.written() {
            self.write_row(row, change);
        }
        self.open_late_questions(change);
    }

    fn write_row(&mut self, row: Written<'_>, change: &Change) {
        match row {
            Written::Worker(of) => self.write_worker(of, change.fence),
            Written::Admission(admission) => {
                if let Some(fence) = change.fence {
                    self.admit_queued(admission, fence);
                }
            }
            Written::Schedule(row) => self.write_schedule(row),
            Written::Document(row) => self.write_document(row),
            Written::Published(row) => self.write_published(row),
            Written::Erased(tenant) => self.erase(tenant),
            Written::Event(row) => self.add_event(row),
            Written::Mark(row) => self.mark(row),
            Written::Forgotten(row) => self.forget(row),
            Written::Retired(row) => self.retire(row),
            Written::RetiredRun(row) => self.retire_run(row),
            Written::ExpiredSignal(row) => self.expire_signal(row),
            Written::Payload((tenant, payload)) => {
                let place = (tenant.clone(), payload.digest().0);
                self.payloads.entry(place).or_insert_with(|| (payload.clone(), 0)).1 += 1;
            }
            Written::Key((tenant, key)) => {
                self.tenant_keys.entry(tenant.clone()).or_insert_with(|| key.clone());
            }
            Written::Run(row) => {
                self.run_keys.extend(run_key(row).map(|key| (key, row.id)));
                self.runs.insert(row.id, row.clone());
            }
            Written::Label(row) => {
                let place = (row.tenant.clone(), row.run, row.name.clone());
                self.labels.entry(place).or_insert_with(|| row.clone());
            }
            Written::Record(row) => self.write_record(row.clone()),
            Written::RecordLabel(row) => {
                let place = (row.tenant.clone(), row.record, row.name.clone());
                self.record_labels.entry(place).or_insert_with(|| row.clone());
            }
            Written::Look(row) if row.due_at.is_none() => {
                self.looks.remove(&(row.tenant.clone(), row.record));
            }
            Written::Look(row) => drop(self.looks.insert((row.tenant.clone(), row.record), row.clone())),
            Written::Contact(row) => {
                let place = (row.tenant.clone(), row.record, row.id);
                self.contacts.entry(place).or_insert_with(|| row.clone());
            }
            Written::Link(row) => {
                self.links.entry((row.chain, row.number)).or_insert_with(|| row.clone());
            }
            Written::DroppedContact(row) => {
                self.contacts.remove(&(row.tenant.clone(), row.record, row.id));
            }
            Written::Step(row) => {
                let steps = self.steps.entry((row.tenant.clone(), row.run)).or_default();
                steps.insert(step_key(row), row.clone());
            }
            Written::Prune(last) => {
                if let Some(run) = &change.run
                    && let Some(steps) = self.steps.get_mut(&(run.tenant.clone(), run.id))
                {
                    steps.retain(|(turn, ..), _| *turn <= run.base || turn > last);
                }
            }
            Written::SharedEffect(row) => {
                let key = (row.tenant.clone(), row.run, row.turn, row.record);
                self.uses.entry(key).or_insert_with(|| row.clone());
            }
            Written::Question(row) => {
                self.escalations.insert((row.tenant.clone(), row.id), row.clone());
            }
            Written::Signal(row) => drop(self.signals.insert(signal_key(row), (row.clone(), false))),
            Written::Received(row) => {
                self.signals.entry(signal_key(row)).and_modify(|(_, received)| *received = true);
            }
            Written::Evidence(row) => {
                let key = (row.tenant.clone(), row.record, row.fence, row.attempt);
                self.evidence.entry(key).or_insert_with(|| row.clone());
            }
        }
    }

    fn write_record(&mut self, mut record: Record) {
        if let Some(stored) = self.records.get(&record.id) {
            record.kept_until = stored.kept_until; // only retirement changes it
        }
        debug_assert!(
            self.records.get(&record.id).is_none_or(|stored| is_same_operation(stored, &record)),
            "what was asked never changes, and other stores do not write it again: {record:?}"
        );
        self.record_keys.insert(record_key(&record), record.id);
        self.records.insert(record.id, record);
    }

    fn open_late_questions(&mut self, change: &Change) {
        let Some((tenant, id)) = change.compared() else { return };
        let Some(record) = self.record(tenant, id).cloned() else { return };
        let run = record.awaited_by().and_then(|run| self.run(tenant, run));
        let is_left = run.is_some_and(|run| run.state.is_final());
        for evidence in self.record_evidence(tenant, id) {
            let Some(question) = change.late_question(&record, is_left, &evidence) else { continue };
            self.each(|worker| worker.fence == evidence.fence, |worker| worker.settled = false);
            self.escalations.entry((question.tenant.clone(), question.id)).or_insert(question);
        }
    }

    fn write_worker(&mut self, change: &WorkerChange, by: Option<Fence>) {
        match change {
            WorkerChange::Enrol { name, at, lease_until } => self.enrol(name, *at, *lease_until, false),
            WorkerChange::Attach { name, at } => self.enrol(name, *at, None, true),
            WorkerChange::Renew { until } => {
                self.each(|w| Some(w.fence) == by, |w| w.lease_until = Some(*until));
            }
            WorkerChange::End { fence, at } => self.end(*at, |worker| worker.fence == *fence),
            WorkerChange::Settle { fence } => self.each(|w| w.fence == *fence, |w| w.settled = true),
            WorkerChange::Publish => self.each(|w| Some(w.fence) == by, |w| w.publishes = true),
            WorkerChange::FenceOthers { at } => {
                self.end(*at, |worker| Some(worker.fence) != by && !worker.settled);
            }
            WorkerChange::Retire { at } => {
                self.end(*at, |worker| Some(worker.fence) == by);
                self.each(|w| Some(w.fence) == by, |w| w.retired = true);
            }
        }
    }

    fn enrol(&mut self, name: &str, at: Timestamp, lease_until: Option<Timestamp>, settled: bool) {
        let fence = Fence(self.workers.keys().next_back().map_or(1, |last| last.0 + 1));
        let worker = Worker {
            fence,
            name: name.to_owned(),
            enrolled_at: at,
            lease_until,
            ended_at: None,
            retired: false,
            settled,
            publishes: false,
            version: Some(Worker::VERSION.to_owned()),
        };
        self.workers.insert(fence, worker);
    }

    fn end(&mut self, at: Timestamp, which: impl Fn(&Worker) -> bool) {
        self.each(which, |worker| _ = worker.ended_at.get_or_insert(at));
    }

    fn each(&mut self, which: impl Fn(&Worker) -> bool, change: impl Fn(&mut Worker)) {
        self.workers.values_mut().filter(|worker| which(worker)).for_each(change);
    }
}

/// Checks the revision of a row; a row that does not exist yet is at revision 0.
pub(super) fn follows(stored: u32, revision: u32) -> Result<(), Refusal> {
    if stored.checked_add(1) == Some(revision) { Ok(()) } else { Err(Refusal::Stale) }
}

fn is_any_twice(events: &[OutboxEvent]) -> bool {
    let ids: BTreeSet<_> = events.iter().map(|event| (&event.tenant, &event.id)).collect();
    ids.len() < events.len()
}

fn run_key(run: &Run) -> Option<(Tenant, Name, String)> {
    Some((run.tenant.clone(), run.workflow.clone(), run.key.clone()?))
}

fn record_key(record: &Record) -> (Tenant, OperationKey) {
    (record.tenant.clone(), record.key.clone())
}

fn is_same_operation(a: &Record, b: &Record) -> bool {
    let asked = |r: &Record| (r.operation.clone(), r.class, r.request.clone(), r.request_hash);
    asked(a) == asked(b) && (&a.owner, a.created_at) == (&b.owner, b.created_at)
}

pub(super) fn signal_key(signal: &Signal) -> (Tenant, RunId, String, String) {
    (signal.tenant.clone(), signal.run, signal.name.clone(), signal.id.clone())
}

fn step_key(step: &Step) -> (u32, StepKind, String, String) {
    (step.turn, step.kind, step.name.clone(), step.id.clone())
}

/// The state that the rules refer to.
impl Tables {
    fn is_alive(&self, fence: Fence) -> bool {
        self.workers.get(&fence).is_some_and(|worker| worker.ended_at.is_none())
    }

    /// True if the lease of the worker had run out at that time, and the worker has not ended yet.
    fn is_expired(&self, fence: Fence, at: Timestamp) -> bool {
        let expired = |worker: &Worker| worker.lease_until.is_some_and(|until| until < at);
        self.worker(fence).is_some_and(|worker| worker.ended_at.is_none() && expired(worker))
    }

    fn another_publishes(&self, by: Option<Fence>) -> bool {
        let other =
            |worker: &Worker| worker.publishes && worker.ended_at.is_none() && Some(worker.fence) != by;
        self.workers.values().any(other)
    }

    pub(super) fn is_fenced(&self, fence: Fence) -> bool {
        self.workers.get(&fence).is_some_and(|worker| worker.ended_at.is_some())
    }

    fn step(&self, step: &Step) -> Option<&Step> {
        self.steps.get(&(step.tenant.clone(), step.run))?.get(&step_key(step))
    }
}
