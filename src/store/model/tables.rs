//! The model's rows and the rules for them. Plain maps: everything is read in the order of its key.

use std::collections::{BTreeMap, HashSet};

use crate::clock::Timestamp;
use crate::id::{EscalationId, Fence, Name, RecordId, RunId, Tenant};
use crate::ledger::{Look, OperationKey, Record, State};
use crate::payload::{DigestKey, Payload, PayloadDigest};
use crate::store::queue::Bucket;
use crate::store::{
    Aggregate, COMMAND, Change, Document, Escalation, EscalationKind, Evidence, History, OutboxEvent,
    PastCall, PastStep, PastUse, Refusal, Run, RunState, Schedule, Signal, Step, StepKind, Turns, Use,
    Verdict, Worker, WorkerChange,
};

type Steps = BTreeMap<(u32, StepKind, String, String), Step>;

#[derive(Debug, Default)]
pub(super) struct Tables {
    workers: BTreeMap<Fence, Worker>,
    tenant_keys: BTreeMap<Tenant, DigestKey>,
    /// Each with its uses.
    pub(super) payloads: BTreeMap<(Tenant, [u8; 32]), (Payload, u32)>,
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) run_keys: BTreeMap<(Tenant, Name, String), RunId>,
    pub(super) steps: BTreeMap<(Tenant, RunId), Steps>,
    pub(super) records: BTreeMap<RecordId, Record>,
    pub(super) record_keys: BTreeMap<(Tenant, OperationKey), RecordId>,
    pub(super) looks: BTreeMap<(Tenant, RecordId), Look>,
    pub(super) uses: BTreeMap<(Tenant, RunId, u32, RecordId), Use>,
    pub(super) evidence: BTreeMap<(Tenant, RecordId, Fence, u32), Evidence>,
    pub(super) escalations: BTreeMap<(Tenant, EscalationId), Escalation>,
    pub(super) queues: BTreeMap<String, Bucket>,
    pub(super) schedules: BTreeMap<(Tenant, String), Schedule>,
    pub(super) documents: BTreeMap<(Tenant, String, String), Document>,
    pub(super) events: BTreeMap<(Tenant, String), OutboxEvent>,
    pub(super) aggregates: BTreeMap<(Tenant, String), Aggregate>,
    /// Each with whether its run has received it.
    pub(super) signals: BTreeMap<(Tenant, RunId, String, String), (Signal, bool)>,
}

/// Writing.
impl Tables {
    /// Judges each change in the order of the batch, and writes those that are admitted.
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

    /// Writes all of a change, or nothing.
    pub(super) fn admit(&mut self, change: &Change) -> Result<(), Refusal> {
        match change.fence {
            Some(fence) if !self.is_alive(fence) => return Err(Refusal::Fenced),
            None if change.needs_fence() => return Err(Refusal::Invalid("no worker writes it".into())),
            _ => {}
        }
        match self.check(change) {
            Ok(()) => self.write(change),
            Err(_) if self.is_written(change) => {} // an earlier answer was lost
            Err(refusal) => return Err(refusal),
        }
        Ok(())
    }

    fn check(&self, change: &Change) -> Result<(), Refusal> {
        match &change.worker {
            Some(WorkerChange::Enrol { name, .. }) if self.worker_find(name).is_some() => {
                return Err(Refusal::Exists);
            }
            Some(WorkerChange::End { fence, at }) if !self.is_expired(*fence, *at) => {
                return Err(Refusal::Stale);
            }
            Some(WorkerChange::Settle { fence }) if !self.is_fenced(*fence) => return Err(Refusal::Stale),
            Some(WorkerChange::Publish) if self.another_publishes(change.fence) => {
                return Err(Refusal::Exists);
            }
            _ => {}
        }
        if let Some(schedule) = &change.schedule {
            self.check_schedule(schedule)?;
        }
        for document in &change.documents {
            self.check_document(document)?;
        }
        if let Some(what) = change.erased.as_ref().and_then(|tenant| self.under_way(tenant)) {
            return Err(Refusal::UnderWay(what));
        }
        self.check_outbox(change)?;
        if let Some(run) = &change.run {
            match self.runs.get(&run.id) {
                Some(stored) if stored.tenant == run.tenant => follows(stored.revision, run.revision)?,
                Some(_) => return Err(Refusal::Stale),
                None if run_key(run).is_some_and(|key| self.run_keys.contains_key(&key)) => {
                    return Err(Refusal::Exists);
                }
                None => follows(0, run.revision)?,
            }
        }
        if let Some(record) = &change.record {
            match self.records.get(&record.id) {
                Some(stored) if record_key(stored) == record_key(record) => {
                    follows(stored.revision, record.revision)?;
                }
                Some(_) => return Err(Refusal::Stale),
                None if self.record_keys.contains_key(&record_key(record)) => return Err(Refusal::Exists),
                None => follows(0, record.revision)?,
            }
        }
        if let Some(look) = &change.look {
            let stored = self.look_find(&look.tenant, look.record);
            follows(stored.map_or(0, |stored| stored.revision), look.revision)?;
            if stored.is_none() && look.due_at.is_none() {
                return Err(Refusal::Stale);
            }
        }
        if change.steps.iter().any(|step| self.step(step).is_some()) {
            return Err(Refusal::Exists);
        }
        for escalation in &change.escalations {
            let stored = self.escalation_find(&escalation.tenant, escalation.id);
            let open = stored.map(|stored| stored.answer.is_none());
            match (open, escalation.is_new()) {
                (None, true) | (Some(true), false) => {}
                _ => return Err(Refusal::Stale), // the first answer stands
            }
        }
        if let Some(signal) = &change.signal
            && self.signals.contains_key(&signal_key(signal))
        {
            return Err(Refusal::Exists);
        }
        if let Some(signal) = &change.received
            && self.signals.get(&signal_key(signal)).is_none_or(|(_, received)| *received)
        {
            return Err(Refusal::Stale);
        }
        Ok(())
    }

    /// The rows that tell this change from another one's are there as it would have written them.
    fn is_written(&self, change: &Change) -> bool {
        let worker = match &change.worker {
            Some(WorkerChange::Enrol { name, at, .. }) => Some(
                self.worker_find(name)
                    .is_some_and(|stored| stored.enrolled_at == *at && stored.ended_at.is_none()),
            ),
            Some(WorkerChange::End { fence, at }) => {
                Some(self.worker_at(*fence).is_some_and(|stored| stored.ended_at == Some(*at)))
            }
            _ => None,
        };
        let schedule = change.schedule.as_deref().map(|schedule| self.has_schedule(schedule));
        let run = change.run.as_deref().map(|run| self.runs.get(&run.id) == Some(run));
        let record = change
            .record
            .as_deref()
            .map(|record| self.records.get(&record.id).is_some_and(|stored| stored.is_as_written(record)));
        let look = change.look.as_deref().map(|look| match self.look_find(&look.tenant, look.record) {
            Some(stored) => stored == look,
            None => look.due_at.is_none(),
        });
        let steps = change.steps.iter().map(|step| {
            self.step(step)
                .is_some_and(|stored| stored.input_hash == step.input_hash && stored.value == step.value)
        });
        let escalations = change
            .escalations
            .iter()
            .map(|escalation| self.escalation_find(&escalation.tenant, escalation.id) == Some(escalation));
        let stored = |signal: &Signal| self.signals.get(&signal_key(signal));
        let signal = change.signal.as_deref().map(|signal| stored(signal).is_some_and(|(s, _)| s == signal));
        let received = change.received.as_deref().map(|signal| stored(signal).is_some_and(|(_, r)| *r));
        let all: Vec<bool> = [worker, schedule, run, record, look, signal, received]
            .into_iter()
            .flatten()
            .chain(change.documents.iter().map(|document| self.has_document(document)))
            .chain(steps)
            .chain(escalations)
            .chain(change.events.iter().map(|event| self.has_event(event)))
            .chain(change.aggregates.iter().map(|mark| self.has_mark(mark)))
            .collect();
        !all.is_empty() && all.into_iter().all(|written| written)
    }

    fn write(&mut self, change: &Change) {
        if let Some(worker) = &change.worker {
            self.write_worker(worker, change.fence);
        }
        if let Some((admission, fence)) = change.admission.as_deref().zip(change.fence) {
            self.admit_queued(admission, fence);
        }
        if let Some(schedule) = &change.schedule {
            self.write_schedule(schedule);
        }
        for document in &change.documents {
            self.write_document(document);
        }
        self.write_outbox(change);
        for retired in &change.retired {
            self.retire(retired);
        }
        if let Some(tenant) = &change.erased {
            self.erase(tenant);
        }
        for (tenant, payload) in &change.payloads {
            let place = (tenant.clone(), payload.digest().0);
            self.payloads.entry(place).or_insert_with(|| (payload.clone(), 0)).1 += 1;
        }
        if let Some((tenant, key)) = &change.tenant_key {
            self.tenant_keys.entry(tenant.clone()).or_insert_with(|| key.clone());
        }
        if let Some(run) = change.run.as_deref().cloned() {
            if let Some(key) = run_key(&run) {
                self.run_keys.insert(key, run.id);
            }
            self.runs.insert(run.id, run);
        }
        if let Some(mut record) = change.record.as_deref().cloned() {
            if let Some(stored) = self.records.get(&record.id) {
                record.kept_until = stored.kept_until; // that is for retirement alone to change
            }
            debug_assert!(
                self.records.get(&record.id).is_none_or(|stored| is_same_operation(stored, &record)),
                "what was asked never changes, and other stores do not write it again: {record:?}"
            );
            self.record_keys.insert(record_key(&record), record.id);
            self.records.insert(record.id, record);
        }
        if let Some(look) = change.look.as_deref() {
            let place = (look.tenant.clone(), look.record);
            match look.due_at {
                Some(_) => drop(self.looks.insert(place, look.clone())),
                None => drop(self.looks.remove(&place)),
            }
        }
        for step in change.steps.iter().cloned() {
            let steps = self.steps.entry((step.tenant.clone(), step.run)).or_default();
            steps.insert(step_key(&step), step);
        }
        if let Some((run, last)) = change.run.as_deref().zip(change.prune)
            && let Some(steps) = self.steps.get_mut(&(run.tenant.clone(), run.id))
        {
            steps.retain(|(turn, ..), _| *turn <= run.base || *turn > last);
        }
        if let Some(used) = change.used.as_deref() {
            let key = (used.tenant.clone(), used.run, used.turn, used.record);
            self.uses.entry(key).or_insert_with(|| used.clone());
        }
        for escalation in &change.escalations {
            self.escalations.insert((escalation.tenant.clone(), escalation.id), escalation.clone());
        }
        if let Some(signal) = change.signal.as_deref() {
            self.signals.insert(signal_key(signal), (signal.clone(), false));
        }
        if let Some(signal) = change.received.as_deref()
            && let Some((_, received)) = self.signals.get_mut(&signal_key(signal))
        {
            *received = true;
        }
        if let Some(evidence) = change.evidence.as_deref() {
            let key = (evidence.tenant.clone(), evidence.record, evidence.fence, evidence.attempt);
            self.evidence.entry(key).or_insert_with(|| evidence.clone());
        }
        self.open_late_questions(change);
    }

    fn open_late_questions(&mut self, change: &Change) {
        let Some((tenant, id)) = change.compared() else { return };
        let Some(record) = self.record_at(tenant, id).cloned() else { return };
        let run = record.awaited_by().and_then(|run| self.run_find(tenant, run));
        let is_left = run.is_some_and(|run| run.state.is_final());
        for evidence in self.record_evidence(tenant, id) {
            let Some(question) = change.late_question(&record, is_left, &evidence) else { continue };
            self.each(|worker| worker.fence == evidence.fence, |worker| worker.settled = false);
            self.escalations.entry((question.tenant.clone(), question.id)).or_insert(question);
        }
    }

    fn write_worker(&mut self, change: &WorkerChange, by: Option<Fence>) {
        match change {
            WorkerChange::Enrol { name, at, lease_until } => {
                let fence = Fence(self.workers.keys().next_back().map_or(1, |last| last.0 + 1));
                let worker = Worker {
                    fence,
                    name: name.clone(),
                    enrolled_at: *at,
                    lease_until: *lease_until,
                    ended_at: None,
                    retired: false,
                    settled: false,
                    publishes: false,
                    version: Some(Worker::VERSION.to_owned()),
                };
                self.workers.insert(fence, worker);
            }
            WorkerChange::Renew { until } => {
                self.each(|w| Some(w.fence) == by, |w| w.lease_until = Some(*until));
            }
            WorkerChange::End { fence, at } => self.end(*at, |worker| worker.fence == *fence),
            WorkerChange::Settle { fence } => self.each(|w| w.fence == *fence, |w| w.settled = true),
            WorkerChange::Publish => self.each(|w| Some(w.fence) == by, |w| w.publishes = true),
            WorkerChange::FenceOthers { at } => self.end(*at, |worker| Some(worker.fence) != by),
            WorkerChange::Retire { at } => {
                self.end(*at, |worker| Some(worker.fence) == by);
                self.each(|w| Some(w.fence) == by, |w| w.retired = true);
            }
        }
    }

    fn end(&mut self, at: Timestamp, which: impl Fn(&Worker) -> bool) {
        self.each(which, |worker| _ = worker.ended_at.get_or_insert(at));
    }

    fn each(&mut self, which: impl Fn(&Worker) -> bool, change: impl Fn(&mut Worker)) {
        self.workers.values_mut().filter(|worker| which(worker)).for_each(change);
    }
}

/// A row that is not there yet is at revision 0.
pub(super) fn follows(stored: u32, revision: u32) -> Result<(), Refusal> {
    if stored.checked_add(1) == Some(revision) { Ok(()) } else { Err(Refusal::Stale) }
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

fn signal_key(signal: &Signal) -> (Tenant, RunId, String, String) {
    (signal.tenant.clone(), signal.run, signal.name.clone(), signal.id.clone())
}

fn step_key(step: &Step) -> (u32, StepKind, String, String) {
    (step.turn, step.kind, step.name.clone(), step.id.clone())
}

/// Reading.
impl Tables {
    fn is_alive(&self, fence: Fence) -> bool {
        self.workers.get(&fence).is_some_and(|worker| worker.ended_at.is_none())
    }

    /// Its lease had run out at that time, and it has not ended yet.
    fn is_expired(&self, fence: Fence, at: Timestamp) -> bool {
        let expired = |worker: &Worker| worker.lease_until.is_some_and(|until| until < at);
        self.worker_at(fence).is_some_and(|worker| worker.ended_at.is_none() && expired(worker))
    }

    fn another_publishes(&self, by: Option<Fence>) -> bool {
        let other =
            |worker: &Worker| worker.publishes && worker.ended_at.is_none() && Some(worker.fence) != by;
        self.workers.values().any(other)
    }

    fn is_fenced(&self, fence: Fence) -> bool {
        self.workers.get(&fence).is_some_and(|worker| worker.ended_at.is_some())
    }

    fn step(&self, step: &Step) -> Option<&Step> {
        self.steps.get(&(step.tenant.clone(), step.run))?.get(&step_key(step))
    }

    pub(super) fn record_find(&self, tenant: &Tenant, key: &OperationKey) -> Option<Record> {
        let id = self.record_keys.get(&(tenant.clone(), key.clone()))?;
        self.records.get(id).cloned()
    }

    pub(super) fn record_at(&self, tenant: &Tenant, id: RecordId) -> Option<&Record> {
        self.records.get(&id).filter(|record| record.tenant == *tenant)
    }

    pub(super) fn record_orphans(&self, after: RecordId, limit: u32) -> Vec<Record> {
        // A run that goes on resumes what it did outside of loops and in its present turn.
        let left = |record: &Record, run| {
            let run = self.run_find(&record.tenant, run).filter(|run| run.unsettled);
            run.is_some_and(|run| run.state.code() >= 3 || !run.present().contains(record.owner.turn))
        };
        let lacks_its_tool = |record: &Record, question| {
            let question = self.escalation_find(&record.tenant, question);
            question.is_some_and(|q| q.kind == EscalationKind::UnknownTool && q.answer.is_none())
        };
        let orphan = |record: &&Record| {
            record.id > after
                && record.state == State::Started
                && record.owner.run.is_none_or(|run| left(record, run))
                && record.escalation.is_none_or(|question| lacks_its_tool(record, question))
                && self.is_fenced(record.fence)
        };
        first(limit, self.records.values().filter(orphan))
    }

    pub(super) fn record_committed(
        &self,
        tenant: &Tenant,
        since: Timestamp,
        after: &str,
        limit: u32,
    ) -> Vec<Record> {
        let committed = |record: &&Record| {
            record.tenant == *tenant
                && matches!(record.state, State::Committed { .. })
                && record.key.as_str() > after
                && record.updated_at >= since
        };
        let mut all: Vec<_> = self.records.values().filter(committed).cloned().collect();
        all.sort_by(|a, b| a.key.as_str().cmp(b.key.as_str()));
        all.truncate(limit as usize);
        all
    }

    pub(super) fn record_removed(&self, tenant: &Tenant, key: &str, since: Timestamp) -> bool {
        self.records.values().any(|record| {
            let rest = record.key.as_str().strip_prefix(key);
            record.tenant == *tenant
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
                && !matches!(record.state, State::Failed { .. } | State::Abandoned { .. })
                && record.updated_at >= since
        })
    }

    pub(super) fn look_due(&self, until: Timestamp, limit: u32) -> Vec<Look> {
        let due = |look: &Look| look.due_at.filter(|at| *at <= until);
        earliest(limit, self.looks.values().filter_map(|look| Some((due(look)?, look))))
    }

    pub(super) fn look_find(&self, tenant: &Tenant, record: RecordId) -> Option<&Look> {
        self.looks.get(&(tenant.clone(), record))
    }

    pub(super) fn record_uses(&self, tenant: &Tenant, id: RecordId) -> Vec<Use> {
        self.uses.values().filter(|used| used.tenant == *tenant && used.record == id).cloned().collect()
    }

    pub(super) fn record_evidence(&self, tenant: &Tenant, id: RecordId) -> Vec<Evidence> {
        let of_record = self.evidence.values().filter(|e| e.tenant == *tenant && e.record == id);
        earliest(u32::MAX, of_record.map(|evidence| (evidence.at, evidence)))
    }

    pub(super) fn run_find(&self, tenant: &Tenant, id: RunId) -> Option<&Run> {
        self.runs.get(&id).filter(|run| run.tenant == *tenant)
    }

    pub(super) fn run_keyed(&self, tenant: &Tenant, workflow: &str, key: &str) -> Option<Run> {
        let workflow = Name::new(workflow).ok()?; // nothing else names a workflow
        let id = self.run_keys.get(&(tenant.clone(), workflow, key.to_owned()))?;
        self.runs.get(id).cloned()
    }

    pub(super) fn run_history(&self, tenant: &Tenant, id: RunId, turns: Turns) -> History {
        let steps = self.steps.get(&(tenant.clone(), id)).into_iter().flat_map(BTreeMap::values);
        let calls = self.records.values().filter(|r| r.tenant == *tenant && r.owner.run == Some(id));
        let uses = self.uses.values().filter(|used| used.tenant == *tenant && used.run == id);
        let uses = uses.filter(|used| turns.contains(used.turn));
        History {
            steps: steps.filter(|step| turns.contains(step.turn)).map(past_step).collect(),
            calls: calls.filter(|record| turns.contains(record.owner.turn)).map(past_call).collect(),
            uses: uses
                .filter_map(|used| Some(past_use(used, self.record_at(tenant, used.record)?)))
                .collect(),
            signals: self.signal_pending(tenant, id),
        }
    }

    pub(super) fn signal_find(&self, tenant: &Tenant, run: RunId, name: &str, id: &str) -> Option<Signal> {
        let key = (tenant.clone(), run, name.to_owned(), id.to_owned());
        self.signals.get(&key).map(|(signal, _)| signal.clone())
    }

    pub(super) fn signal_unreceived(
        &self,
        tenant: &Tenant,
        run: RunId,
        name: &str,
        id: &str,
    ) -> Option<Signal> {
        let key = (tenant.clone(), run, name.to_owned(), id.to_owned());
        self.signals.get(&key).filter(|(_, received)| !received).map(|(signal, _)| signal.clone())
    }

    pub(super) fn signal_pending(&self, tenant: &Tenant, run: RunId) -> Vec<Signal> {
        let of_run =
            self.signals.values().filter(|(s, received)| !received && s.tenant == *tenant && s.run == run);
        let mut pending: Vec<_> = of_run.map(|(signal, _)| signal.clone()).collect();
        pending.sort_by_key(|signal| signal.place); // stable: by name and id where places are the same
        pending
    }

    pub(super) fn run_signalled(&self, after: RunId, limit: u32) -> Vec<Run> {
        let listens = |run: &Run| matches!(run.state, RunState::Waiting { on, .. } if on.signal);
        let wakes = |run: &Run| {
            let waits = matches!(run.state, RunState::Waiting { .. } | RunState::Queued);
            let pending = self.signal_pending(&run.tenant, run.id);
            waits && pending.iter().any(|signal| listens(run) || signal.name.starts_with(COMMAND))
        };
        first(limit, self.runs.values().filter(|run| run.id > after && wakes(run)))
    }

    pub(super) fn run_children(&self, tenant: &Tenant, parent: RunId, after: RunId, limit: u32) -> Vec<Run> {
        let child = |run: &&Run| run.tenant == *tenant && run.parent == Some(parent) && run.id > after;
        first(limit, self.runs.values().filter(child))
    }

    pub(super) fn run_orphans(&self, after: RunId, limit: u32) -> Vec<Run> {
        let orphan =
            |run: &&Run| run.id > after && run.state == RunState::Active && self.is_fenced(run.fence);
        first(limit, self.runs.values().filter(orphan))
    }

    pub(super) fn run_answered(&self, after: RunId, limit: u32) -> Vec<Run> {
        let asks = |run: &Run| {
            let open = self.escalations.values().filter(|escalation| escalation.answer.is_none());
            open.into_iter().any(|escalation| {
                escalation.run == Some(run.id)
                    && escalation.tenant == run.tenant
                    && EscalationKind::PARKING.contains(&escalation.kind)
            })
        };
        let waits = |run: &Run| matches!(run.state, RunState::Waiting { on, .. } if on.answer);
        first(limit, self.runs.values().filter(|run| run.id > after && waits(run) && !asks(run)))
    }

    pub(super) fn run_due(&self, until: Timestamp, limit: u32) -> Vec<Run> {
        let due = |run: &Run| wake_at(run).filter(|at| *at <= until);
        earliest(limit, self.runs.values().filter_map(|run| Some((due(run)?, run))))
    }

    pub(super) fn next_due(&self, after: Timestamp) -> Option<Timestamp> {
        let timers = self.runs.values().filter_map(wake_at);
        let lookups = self.looks.values().filter_map(|look| look.due_at);
        let queues = self.queues.values().filter_map(|queue| queue.due_at);
        let schedules = self.schedules.values().filter_map(|schedule| schedule.next_at);
        timers.chain(queues).chain(schedules).chain(lookups).filter(|at| *at > after).min()
    }

    pub(super) fn run_list(&self, tenant: &Tenant, after: RunId, limit: u32) -> Vec<Run> {
        first(limit, self.runs.values().filter(|run| run.tenant == *tenant && run.id > after))
    }

    pub(super) fn escalation_find(&self, tenant: &Tenant, id: EscalationId) -> Option<&Escalation> {
        self.escalations.get(&(tenant.clone(), id))
    }

    pub(super) fn escalation_open(
        &self,
        tenant: &Tenant,
        after: EscalationId,
        limit: u32,
    ) -> Vec<Escalation> {
        let open = |e: &&Escalation| e.tenant == *tenant && e.answer.is_none() && e.id > after;
        first(limit, self.escalations.values().filter(open))
    }

    pub(super) fn escalation_of(&self, tenant: &Tenant, record: RecordId) -> Vec<Escalation> {
        let about = |e: &&Escalation| e.tenant == *tenant && e.record == Some(record);
        self.escalations.values().filter(about).cloned().collect()
    }

    pub(super) fn escalation_about(&self, tenant: &Tenant, run: RunId) -> Vec<Escalation> {
        let asks = |e: &&Escalation| e.tenant == *tenant && e.run == Some(run) && e.answer.is_none();
        self.escalations.values().filter(asks).cloned().collect()
    }

    pub(super) fn escalation_unknown_workflow(&self, after: EscalationId, limit: u32) -> Vec<Escalation> {
        let asks = |e: &&Escalation| e.kind == EscalationKind::UnknownWorkflow && e.answer.is_none();
        let mut open: Vec<_> = self.escalations.values().filter(|e| asks(e) && e.id > after).collect();
        open.sort_by_key(|escalation| escalation.id);
        first(limit, open.into_iter())
    }

    pub(super) fn escalation_duplicated(&self, after: EscalationId, limit: u32) -> Vec<Escalation> {
        let asks = |e: &&Escalation| e.kind == EscalationKind::Duplicated && e.answer.is_none();
        let mut open: Vec<_> = self.escalations.values().filter(|e| asks(e) && e.id > after).collect();
        open.sort_by_key(|escalation| escalation.id);
        first(limit, open.into_iter())
    }

    pub(super) fn worker_find(&self, name: &str) -> Option<&Worker> {
        self.workers.values().find(|worker| worker.name == name)
    }

    pub(super) fn worker_at(&self, fence: Fence) -> Option<&Worker> {
        self.workers.get(&fence)
    }

    pub(super) fn workers(&self) -> Vec<Worker> {
        self.workers.values().filter(|worker| worker.ended_at.is_none() || !worker.settled).cloned().collect()
    }

    pub(super) fn tenant_key(&self, tenant: &Tenant) -> Option<DigestKey> {
        self.tenant_keys.get(tenant).cloned()
    }

    pub(super) fn payload_find(&self, tenant: &Tenant, digest: PayloadDigest) -> Option<Payload> {
        self.payloads.get(&(tenant.clone(), digest.0)).map(|(payload, _)| payload.clone())
    }
}

fn first<'a, T: Clone + 'a>(limit: u32, rows: impl Iterator<Item = &'a T>) -> Vec<T> {
    rows.take(limit as usize).cloned().collect()
}

fn earliest<'a, T: Clone + 'a>(limit: u32, rows: impl Iterator<Item = (Timestamp, &'a T)>) -> Vec<T> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|(at, _)| *at);
    first(limit, rows.into_iter().map(|(_, row)| row))
}

fn wake_at(run: &Run) -> Option<Timestamp> {
    if let RunState::Waiting { until, .. } = run.state { until } else { None }
}

fn past_step(step: &Step) -> PastStep {
    PastStep {
        turn: step.turn,
        kind: step.kind,
        name: step.name.clone(),
        id: step.id.clone(),
        input_hash: step.input_hash,
        value: step.value.clone(),
        at: step.at,
    }
}

fn past_call(record: &Record) -> PastCall {
    PastCall {
        record: record.id,
        key: record.key.clone(),
        operation: record.operation.as_str().to_owned(),
        turn: record.owner.turn,
        step: record.owner.step.as_deref().unwrap_or_default().to_owned(),
        request_hash: record.request_hash,
        attempts: record.attempts,
        response: if let State::Committed { response } = &record.state {
            Some(response.clone())
        } else {
            None
        },
    }
}

fn past_use(used: &Use, record: &Record) -> PastUse {
    PastUse {
        record: record.id,
        key: record.key.clone(),
        operation: record.operation.as_str().to_owned(),
        turn: used.turn,
        step: used.step.clone(),
    }
}
