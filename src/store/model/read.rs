//! The reads of the model's tables.

use std::collections::{BTreeMap, BTreeSet};

use super::tables::Tables;
use crate::clock::Timestamp;
use crate::id::{Fence, Name, QuestionId, RecordId, RunId, Tenant};
use crate::ledger::{Look, OperationKey, Record, State};
use crate::payload::{DigestKey, Payload, PayloadDigest};
use crate::store::chain::Link;
use crate::store::{
    CANCEL, COMMAND, Contact, DEADLINE, Evidence, History, HistoryPlace, PastCall, PastStep, PastUse,
    Question, QuestionCount, QuestionKind, QuestionLoad, RecordLabel, Run, RunCursor, RunFilter, RunLabel,
    RunPage, RunState, SharedEffect, Signal, Step, Turns, Worker,
};

impl Tables {
    pub(super) fn record_find(&self, tenant: &Tenant, key: &OperationKey) -> Option<Record> {
        let id = self.record_keys.get(&(tenant.clone(), key.clone()))?;
        self.records.get(id).cloned()
    }

    pub(super) fn record_at(&self, tenant: &Tenant, id: RecordId) -> Option<Record> {
        self.record(tenant, id).cloned()
    }

    pub(super) fn record(&self, tenant: &Tenant, id: RecordId) -> Option<&Record> {
        self.records.get(&id).filter(|record| record.tenant == *tenant)
    }

    pub(super) fn record_orphans(&self, after: RecordId, limit: u32) -> Vec<Record> {
        // A run that goes on resumes the steps outside of loops and those of its present turn.
        let left = |record: &Record, run| {
            let run = self.run(&record.tenant, run).filter(|run| run.unsettled);
            run.is_some_and(|run| run.state.code() >= 3 || !run.present().contains(record.owner.turn))
        };
        let lacks_its_tool = |record: &Record, question| {
            let question = self.question(&record.tenant, question);
            question.is_some_and(|q| q.kind == QuestionKind::UnknownTool && q.answer.is_none())
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

    pub(super) fn record_list(&self, tenant: &Tenant, prefix: &str, after: &str, limit: u32) -> Vec<Record> {
        let listed = |record: &&Record| {
            record.tenant == *tenant && record.key.as_str().starts_with(prefix) && record.key.as_str() > after
        };
        let mut all: Vec<_> = self.records.values().filter(listed).cloned().collect();
        all.sort_by(|a, b| a.key.as_str().cmp(b.key.as_str()));
        all.truncate(limit as usize);
        all
    }

    pub(super) fn record_labelled(
        &self,
        tenant: &Tenant,
        (name, value): (&str, &str),
        prefix: &str,
        after: &str,
        limit: u32,
    ) -> Vec<Record> {
        let mut all = self.record_list(tenant, prefix, after, u32::MAX);
        all.retain(|record| {
            let label = self.record_labels.get(&(tenant.clone(), record.id, name.to_owned()));
            label.is_some_and(|label| label.value == value)
        });
        all.truncate(limit as usize);
        all
    }

    pub(super) fn record_labels(&self, tenant: &Tenant, id: RecordId) -> Vec<RecordLabel> {
        let of_record = |label: &&RecordLabel| label.tenant == *tenant && label.record == id;
        self.record_labels.values().filter(of_record).cloned().collect()
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

    pub(super) fn look_due(&self, until: Timestamp, after: Option<&Look>, limit: u32) -> Vec<Look> {
        let place = |look: &Look| Some((look.due_at?, look.tenant.clone(), look.record));
        let last = after.and_then(place);
        let due = |look: &Look| look.due_at.filter(|at| *at <= until && place(look) > last);
        earliest(limit, self.looks.values().filter_map(|look| Some((due(look)?, look))))
    }

    pub(super) fn look_find(&self, tenant: &Tenant, record: RecordId) -> Option<Look> {
        self.look(tenant, record).cloned()
    }

    pub(super) fn look(&self, tenant: &Tenant, record: RecordId) -> Option<&Look> {
        self.looks.get(&(tenant.clone(), record))
    }

    pub(super) fn record_uses(&self, tenant: &Tenant, id: RecordId) -> Vec<SharedEffect> {
        self.uses.values().filter(|used| used.tenant == *tenant && used.record == id).cloned().collect()
    }

    pub(super) fn record_evidence(&self, tenant: &Tenant, id: RecordId) -> Vec<Evidence> {
        let of_record = self.evidence.values().filter(|e| e.tenant == *tenant && e.record == id);
        earliest(u32::MAX, of_record.map(|evidence| (evidence.at, evidence)))
    }

    pub(super) fn record_contacts(&self, tenant: &Tenant, id: RecordId) -> Vec<Contact> {
        let of_record = (tenant.clone(), id, i64::MIN)..=(tenant.clone(), id, i64::MAX);
        self.contacts.range(of_record).map(|(_, contact)| contact.clone()).collect()
    }

    pub(super) fn run_find(&self, tenant: &Tenant, id: RunId) -> Option<Run> {
        self.run(tenant, id).cloned()
    }

    pub(super) fn run(&self, tenant: &Tenant, id: RunId) -> Option<&Run> {
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
            uses: uses.filter_map(|used| Some(past_use(used, self.record(tenant, used.record)?))).collect(),
            signals: self.pending(tenant, id),
        }
    }

    pub(super) fn run_history_page(
        &self,
        tenant: &Tenant,
        id: RunId,
        after: &HistoryPlace,
        limit: u32,
    ) -> History {
        let History { mut steps, mut calls, mut uses, .. } = self.run_history(tenant, id, Turns::ALL);
        steps.retain(|step| (i64::from(step.turn), step.kind.code(), &*step.name, &*step.id) > after.step());
        steps.sort_by_cached_key(|step| (step.turn, step.kind.code(), step.name.clone(), step.id.clone()));
        steps.truncate(limit as usize);
        calls.retain(|call| (i64::from(call.turn), call.key.as_str()) > after.call());
        calls.sort_by_cached_key(|call| (call.turn, call.key.as_str().to_owned()));
        calls.truncate(limit as usize);
        uses.retain(|used| (i64::from(used.turn), used.key.as_str()) > after.used());
        uses.sort_by_cached_key(|used| (used.turn, used.key.as_str().to_owned()));
        uses.truncate(limit as usize);
        History { steps, calls, uses, signals: Vec::new() }
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

    pub(super) fn signal_last(&self, tenant: &Tenant, run: RunId) -> Option<i64> {
        self.pending(tenant, run).iter().map(|signal| signal.place).max()
    }

    pub(super) fn signal_pending(&self, runs: &[(Tenant, RunId)]) -> Vec<Signal> {
        runs.iter().flat_map(|(tenant, run)| self.pending(tenant, *run)).collect()
    }

    pub(super) fn pending(&self, tenant: &Tenant, run: RunId) -> Vec<Signal> {
        let of_run =
            self.signals.values().filter(|(s, received)| !received && s.tenant == *tenant && s.run == run);
        let mut pending: Vec<_> = of_run.map(|(signal, _)| signal.clone()).collect();
        pending.sort_by_key(|signal| signal.place); // stable sort: by name and id where positions are equal
        pending
    }

    pub(super) fn run_signalled(&self, after: RunId, limit: u32) -> Vec<Run> {
        let listens = |run: &Run| matches!(run.state, RunState::Waiting { on, .. } if on.signal);
        let wakes = |run: &Run| {
            let waits = matches!(run.state, RunState::Waiting { .. } | RunState::Queued);
            let pending = self.pending(&run.tenant, run.id);
            waits && pending.iter().any(|signal| listens(run) || signal.name.starts_with(COMMAND))
        };
        first(limit, self.runs.values().filter(|run| run.id > after && wakes(run)))
    }

    pub(super) fn run_cancelled(&self, after: RunId, limit: u32) -> Vec<Run> {
        let is_cancelled = |run: &&Run| {
            let mut pending = self.pending(&run.tenant, run.id).into_iter();
            matches!(run.state, RunState::Blocked { .. }) && pending.any(|signal| signal.name == CANCEL)
        };
        first(limit, self.runs.values().filter(|run| run.id > after).filter(is_cancelled))
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
                    && QuestionKind::PARKING.contains(&escalation.kind)
            })
        };
        // The run rests on the record of another run with an open question.
        let shares = |run: &Run| {
            let mut used = self.uses.values().filter(|used| used.tenant == run.tenant && used.run == run.id);
            used.any(|used| self.record(&run.tenant, used.record).is_some_and(|r| r.escalation.is_some()))
        };
        let waits = |run: &Run| matches!(run.state, RunState::Waiting { on, .. } if on.answer);
        let is_answered = |run: &&Run| run.id > after && waits(run) && !asks(run) && !shares(run);
        first(limit, self.runs.values().filter(is_answered))
    }

    pub(super) fn run_due(&self, until: Timestamp, after: Option<&Run>, limit: u32) -> Vec<Run> {
        let last = after.and_then(|run| Some((run.wake_at()?, run.id)));
        let due = |run: &Run| run.wake_at().filter(|at| *at <= until && Some((*at, run.id)) > last);
        earliest(limit, self.runs.values().filter_map(|run| Some((due(run)?, run))))
    }

    /// The instant at which the run is to be cancelled for its deadline, unless the command was sent already.
    fn cancelled_at(&self, run: &Run) -> Option<Timestamp> {
        let blocked = matches!(run.state, RunState::Blocked { .. });
        let mut commands = self.signals.values().filter(|(signal, _)| {
            signal.tenant == run.tenant
                && signal.run == run.id
                && (signal.name.as_str(), signal.id.as_str()) == (CANCEL, DEADLINE)
        });
        run.deadline.filter(|_| !run.state.is_final() && !commands.any(|(_, received)| *received || !blocked))
    }

    pub(super) fn run_overdue(&self, until: Timestamp, after: Option<&Run>, limit: u32) -> Vec<Run> {
        let last = after.and_then(|run| Some((run.deadline?, run.id)));
        let due = |run: &Run| self.cancelled_at(run).filter(|at| *at <= until && Some((*at, run.id)) > last);
        earliest(limit, self.runs.values().filter_map(|run| Some((due(run)?, run))))
    }

    pub(super) fn next_due(&self, after: Timestamp) -> Option<Timestamp> {
        let timers = self.runs.values().filter_map(Run::wake_at);
        let deadlines = self.runs.values().filter_map(|run| self.cancelled_at(run));
        let lookups = self.looks.values().filter_map(|look| look.due_at);
        let queues = self.queues.values().filter_map(|queue| queue.due_at);
        let schedules = self.schedules.values().filter_map(|schedule| schedule.next_at);
        timers.chain(deadlines).chain(queues).chain(schedules).chain(lookups).filter(|at| *at > after).min()
    }

    pub(super) fn run_list(&self, tenant: &Tenant, after: RunId, limit: u32) -> Vec<Run> {
        first(limit, self.runs.values().filter(|run| run.tenant == *tenant && run.id > after))
    }

    pub(super) fn run_page(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        after: Option<&RunCursor>,
        limit: u32,
    ) -> RunPage<Run> {
        let own = self
            .runs
            .values()
            .filter(|run| run.tenant == *tenant && filter.takes(run) && self.has_label(run, filter));
        let mut runs: Vec<_> = own.cloned().map(|run| (RunCursor::at(filter, &run), run)).collect();
        runs.sort_by(|(one, _), (other, _)| filter.order(one, other));
        runs.retain(|(at, _)| after.is_none_or(|after| filter.order(after, at).is_lt()));
        let is_more = runs.len() >= limit as usize;
        runs.truncate(limit as usize);
        let next = runs.last().filter(|_| is_more).map(|(at, _)| at.clone());
        RunPage { runs: runs.into_iter().map(|(_, run)| run).collect(), next }
    }

    fn has_label(&self, run: &Run, filter: &RunFilter) -> bool {
        filter.label.as_ref().is_none_or(|(name, value)| {
            let label = self.labels.get(&(run.tenant.clone(), run.id, name.clone()));
            label.is_some_and(|label| label.value == *value)
        })
    }

    pub(super) fn run_labels(&self, tenant: &Tenant, id: RunId) -> Vec<RunLabel> {
        let of_run = self.labels.values().filter(|label| label.tenant == *tenant && label.run == id);
        of_run.cloned().collect()
    }

    pub(super) fn escalation_find(&self, tenant: &Tenant, id: QuestionId) -> Option<Question> {
        self.question(tenant, id).cloned()
    }

    pub(super) fn question(&self, tenant: &Tenant, id: QuestionId) -> Option<&Question> {
        self.escalations.get(&(tenant.clone(), id))
    }

    pub(super) fn escalation_open(&self, tenant: &Tenant, after: QuestionId, limit: u32) -> Vec<Question> {
        let open = |e: &&Question| {
            e.tenant == *tenant && e.answer.is_none() && e.id > after && e.kind != QuestionKind::Pending
        };
        first(limit, self.escalations.values().filter(open))
    }

    pub(super) fn escalation_answered(
        &self,
        tenant: &Tenant,
        after: QuestionId,
        limit: u32,
    ) -> Vec<Question> {
        let answered = |e: &&Question| {
            e.tenant == *tenant && e.answer.is_some() && e.id > after && e.kind != QuestionKind::Pending
        };
        first(limit, self.escalations.values().filter(answered))
    }

    pub(super) fn escalation_count(&self, tenant: &Tenant) -> Vec<QuestionCount> {
        let mut counts: BTreeMap<i64, QuestionCount> = BTreeMap::new();
        let asks = |e: &&Question| e.tenant == *tenant && e.kind != QuestionKind::Pending;
        for question in self.escalations.values().filter(asks) {
            let kind = question.kind;
            let count = counts.entry(kind.code()).or_insert(QuestionCount { kind, open: 0, answered: 0 });
            *(if question.answer.is_some() { &mut count.answered } else { &mut count.open }) += 1;
        }
        counts.into_values().collect()
    }

    pub(super) fn escalation_load(&self) -> Vec<QuestionLoad> {
        let mut loads: BTreeMap<i64, QuestionLoad> = BTreeMap::new();
        let asks = |e: &&Question| e.answer.is_none() && e.kind != QuestionKind::Pending;
        for Question { kind, opened_at, .. } in self.escalations.values().filter(asks) {
            let load = QuestionLoad { kind: *kind, open: 0, oldest: *opened_at };
            let load = loads.entry(kind.code()).or_insert(load);
            (load.open, load.oldest) = (load.open + 1, load.oldest.min(*opened_at));
        }
        loads.into_values().collect()
    }

    pub(super) fn escalation_open_everywhere(&self, after: QuestionId, limit: u32) -> Vec<Question> {
        let open = |e: &&Question| e.answer.is_none() && e.id > after && e.kind != QuestionKind::Pending;
        let mut all: Vec<_> = self.escalations.values().filter(open).cloned().collect();
        all.sort_by_key(|question| question.id);
        all.truncate(limit as usize);
        all
    }

    pub(super) fn tenant_list(&self, after: &str, limit: u32) -> Vec<Tenant> {
        let runs = self.runs.values().map(|run| &run.tenant);
        let records = self.records.values().map(|record| &record.tenant);
        let documents = self.documents.keys().map(|(tenant, ..)| tenant);
        let schedules = self.schedules.keys().map(|(tenant, _)| tenant);
        let aggregates = self.aggregates.keys().map(|(tenant, _)| tenant);
        let questions = self.escalations.keys().map(|(tenant, _)| tenant);
        let all = runs.chain(records).chain(documents).chain(schedules).chain(aggregates).chain(questions);
        let all: BTreeSet<_> = all.filter(|tenant| tenant.as_str() > after).collect();
        all.into_iter().take(limit as usize).cloned().collect()
    }

    pub(super) fn link_list(&self, chain: i64, after: i64, limit: u32) -> Vec<Link> {
        first(
            limit,
            self.links.range((chain, after.saturating_add(1))..=(chain, i64::MAX)).map(|(_, link)| link),
        )
    }

    pub(super) fn link_chain(&self, after: i64) -> Option<i64> {
        self.links.range((after.checked_add(1)?, i64::MIN)..).next().map(|((chain, _), _)| *chain)
    }

    pub(super) fn escalation_of(&self, tenant: &Tenant, record: RecordId) -> Vec<Question> {
        let about = |e: &&Question| e.tenant == *tenant && e.record == Some(record);
        self.escalations.values().filter(about).cloned().collect()
    }

    pub(super) fn escalation_about(&self, tenant: &Tenant, run: RunId) -> Vec<Question> {
        let asks = |e: &&Question| e.tenant == *tenant && e.run == Some(run) && e.answer.is_none();
        self.escalations.values().filter(asks).cloned().collect()
    }

    pub(super) fn escalation_open_about(&self, tenant: &Tenant, run: RunId, limit: u32) -> Vec<Question> {
        let mut open = self.escalation_about(tenant, run);
        open.retain(|question| question.kind != QuestionKind::Pending);
        open.truncate(limit as usize);
        open
    }

    pub(super) fn escalation_unknown_workflow(&self, after: QuestionId, limit: u32) -> Vec<Question> {
        let asks = |e: &&Question| e.kind == QuestionKind::Unregistered && e.answer.is_none();
        let mut open: Vec<_> = self.escalations.values().filter(|e| asks(e) && e.id > after).collect();
        open.sort_by_key(|escalation| escalation.id);
        first(limit, open.into_iter())
    }

    pub(super) fn escalation_duplicated(&self, after: QuestionId, limit: u32) -> Vec<Question> {
        let asks = |e: &&Question| e.kind == QuestionKind::Duplicated && e.answer.is_none();
        let mut open: Vec<_> = self.escalations.values().filter(|e| asks(e) && e.id > after).collect();
        open.sort_by_key(|escalation| escalation.id);
        first(limit, open.into_iter())
    }

    pub(super) fn worker_find(&self, name: &str) -> Option<Worker> {
        self.worker_named(name).cloned()
    }

    pub(super) fn worker_named(&self, name: &str) -> Option<&Worker> {
        self.workers.values().find(|worker| worker.name == name)
    }

    pub(super) fn worker_at(&self, fence: Fence) -> Option<Worker> {
        self.worker(fence).cloned()
    }

    pub(super) fn worker(&self, fence: Fence) -> Option<&Worker> {
        self.workers.get(&fence)
    }

    pub(super) fn workers(&self) -> Vec<Worker> {
        self.workers.values().filter(|worker| !worker.settled).cloned().collect()
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
        cost: record.cost,
        response: if let State::Committed { response } = &record.state {
            Some(response.clone())
        } else {
            None
        },
    }
}

fn past_use(used: &SharedEffect, record: &Record) -> PastUse {
    PastUse {
        record: record.id,
        key: record.key.clone(),
        operation: record.operation.as_str().to_owned(),
        turn: used.turn,
        step: used.step.clone(),
    }
}
