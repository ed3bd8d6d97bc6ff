//! Records and runs whose retention is over, and the rest that is left of them.

use std::collections::BTreeSet;

use super::tables::{Tables, signal_key};
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::ledger::{Record, State};
use crate::payload::{Payload, PayloadDigest, Stored};
use crate::store::{ExpiredSignal, Retired, RetiredRun, Run, RunState, Signal};

impl Tables {
    pub(super) fn record_expired(&self, after: Timestamp, until: Timestamp, limit: u32) -> Vec<Record> {
        let expired = |record: &&Record| record.kept_until.is_some_and(|at| after <= at && at <= until);
        let mut all: Vec<_> =
            self.records.values().filter(expired).filter(|r| self.is_at_rest(r)).cloned().collect();
        all.sort_by_key(|record| (record.kept_until, record.id));
        all.truncate(limit as usize);
        all
    }

    pub(super) fn record_expiring(&self, after: Timestamp) -> Option<Timestamp> {
        self.records.values().filter_map(|record| record.kept_until).filter(|at| *at > after).min()
    }

    pub(super) fn retire(&mut self, retired: &Retired) {
        let stored = self.records.get(&retired.id);
        let Some(stored) = stored.filter(|r| r.tenant == retired.tenant && r.revision == retired.revision)
        else {
            return;
        };
        if !retired.is_kept() {
            if !self.is_at_rest(stored) {
                return;
            }
            let (tenant, id, key) = (&retired.tenant, retired.id, stored.key.clone());
            self.evidence.retain(|(owner, record, ..), _| (owner, *record) != (tenant, id));
            self.contacts.retain(|(owner, record, _), _| (owner, *record) != (tenant, id));
            self.record_labels.retain(|(owner, record, _), _| (owner, *record) != (tenant, id));
            self.escalations.retain(|_, q| (&q.tenant, q.record) != (tenant, Some(id)));
            self.release(tenant, &retired.payloads);
            if retired.left.is_none() {
                self.uses.retain(|_, used| (&used.tenant, used.record) != (tenant, id));
                self.record_keys.remove(&(tenant.clone(), key));
                self.records.remove(&id);
            }
        }
        if let Some((left, stored)) = retired.left.as_deref().zip(self.records.get_mut(&retired.id)) {
            stored.revision += 1;
            stored.kept_until = left.kept_until.filter(|_| retired.is_kept());
            if !retired.is_kept() {
                stored.state = left.state.clone();
                (stored.request, stored.request_hash) = (left.request.clone(), left.request_hash);
                (stored.owner.step, stored.owner.call_id) = (None, None);
                (stored.external_ref, stored.not_before) = (None, None);
                (stored.approval, stored.scopes) = (None, None);
            }
        }
    }

    pub(super) fn run_over(
        &self,
        workflow: &str,
        after: Timestamp,
        until: Timestamp,
        limit: u32,
    ) -> Vec<Run> {
        let over = |run: &&Run| {
            run.workflow.as_str() == workflow && after <= run.updated_at && run.updated_at <= until
        };
        let mut all: Vec<_> =
            self.runs.values().filter(over).filter(|run| self.is_run_at_rest(run)).cloned().collect();
        all.sort_by_key(|run| (run.updated_at, run.id));
        all.truncate(limit as usize);
        all
    }

    pub(super) fn run_over_next(&self, workflow: &str, after: Timestamp) -> Option<Timestamp> {
        let of =
            |run: &&Run| run.workflow.as_str() == workflow && run.state.is_final() && !run.state.is_expired();
        self.runs.values().filter(of).map(|run| run.updated_at).filter(|at| *at > after).min()
    }

    pub(super) fn signal_over(
        &self,
        workflow: &str,
        after: Timestamp,
        until: Timestamp,
        limit: u32,
    ) -> Vec<Signal> {
        let is_over = |signal: &Signal| {
            let run = self.run(&signal.tenant, signal.run);
            let asks = |q: &crate::store::Question| {
                q.tenant == signal.tenant && q.run == Some(signal.run) && q.answer.is_none()
            };
            (after..=until).contains(&signal.at)
                && !signal.name.starts_with('~')
                && !signal.is_expired()
                && run.is_some_and(|run| run.workflow.as_str() == workflow && !run.state.is_final())
                && !self.escalations.values().any(asks)
        };
        let received = self.signals.values().filter(|(_, received)| *received).map(|(signal, _)| signal);
        let mut all: Vec<_> = received.filter(|signal| is_over(signal)).cloned().collect();
        all.sort_by(|one, next| {
            let place = |signal: &Signal| (signal.at, signal.tenant.clone(), signal.run);
            place(one).cmp(&place(next)).then_with(|| (&one.name, &one.id).cmp(&(&next.name, &next.id)))
        });
        all.truncate(limit as usize);
        all
    }

    pub(super) fn expire_signal(&mut self, expired: &ExpiredSignal) {
        let ExpiredSignal { signal, left } = expired;
        let Some((stored, true)) = self.signals.get_mut(&signal_key(signal)) else { return };
        if stored.body == signal.body {
            stored.body = left.clone();
            self.release(&signal.tenant, &signal.body.address().into_iter().collect::<Vec<_>>());
        }
    }

    pub(super) fn retire_run(&mut self, retired: &RetiredRun) {
        let RetiredRun { run, is_left, input_hash, outcome } = retired;
        let stored = self.run(&run.tenant, run.id).filter(|stored| stored.revision == run.revision);
        let Some(stored) = stored.filter(|stored| self.is_run_at_rest(stored)).cloned() else { return };
        let of_run = |tenant: &Tenant, id: RunId| *tenant == run.tenant && id == run.id;
        let mut payloads = retired.payloads();
        let steps = self.steps.remove(&(run.tenant.clone(), run.id)).unwrap_or_default();
        payloads.extend(steps.values().filter_map(|step| step.value.as_ref()?.address()));
        let signals = self.signals.extract_if(.., |(tenant, id, ..), _| of_run(tenant, *id));
        payloads.extend(signals.filter_map(|(_, (signal, _))| signal.body.address()));
        self.uses.retain(|(tenant, id, ..), _| !of_run(tenant, *id));
        self.published.retain(|(tenant, id, _), _| !of_run(tenant, *id));
        self.labels.retain(|(tenant, id, _), _| !of_run(tenant, *id));
        self.escalations.retain(|_, q| {
            q.record.is_some() || q.answer.is_none() || !q.run.is_some_and(|id| of_run(&q.tenant, id))
        });
        self.release(&run.tenant, &payloads);
        if *is_left {
            let expired = RunState::Expired {
                succeeded: matches!(stored.state, RunState::Succeeded { .. }),
                outcome: outcome.clone(),
            };
            let input = Stored::Inline(Payload::stored("null"));
            let (input_hash, revision) = (*input_hash, stored.revision + 1);
            self.runs.insert(run.id, Run { state: expired, input, input_hash, revision, ..stored });
        } else {
            self.run_keys.extract_if(.., |_, id| *id == run.id).for_each(drop);
            self.runs.remove(&run.id);
        }
    }

    fn release(&mut self, tenant: &Tenant, payloads: &[PayloadDigest]) {
        for digest in payloads {
            let place = (tenant.clone(), digest.0);
            if let Some((_, uses)) = self.payloads.get_mut(&place) {
                *uses -= 1;
                if *uses == 0 {
                    self.payloads.remove(&place);
                }
            }
        }
    }

    /// True if the run has ended, no question is open about it or its operations, and no run goes on from it.
    fn is_run_at_rest(&self, run: &Run) -> bool {
        let parent = run.parent.and_then(|parent| self.run(&run.tenant, parent));
        let about = |q: &crate::store::Question| {
            q.tenant == run.tenant && q.run == Some(run.id) && q.answer.is_none()
        };
        let unsettled = |record: &Record| {
            record.tenant == run.tenant
                && record.owner.run == Some(run.id)
                && (record.state == State::Started || record.escalation.is_some())
        };
        run.state.is_final()
            && !run.state.is_expired()
            && !run.unsettled
            && parent.is_none_or(|parent| parent.state.is_expired())
            && !self.escalations.values().any(about)
            && !self.records.values().any(unsettled)
    }

    /// True if the run ended well and a run above it, which undoes its effects if it fails, is under way. A run that
    /// failed has undone them, and one that has gone on as new is done with its earlier children.
    fn is_below_a_living_run<'r>(&'r self, mut run: &'r Run) -> bool {
        let ended_well = |run: &Run| {
            matches!(run.state, RunState::Succeeded { .. } | RunState::Expired { succeeded: true, .. })
        };
        let mut line = BTreeSet::new();
        while ended_well(run) && line.insert(run.id) {
            let parent = run.parent.and_then(|parent| self.run(&run.tenant, parent));
            match parent.filter(|parent| run.begun_in() >= parent.base) {
                Some(parent) => run = parent,
                None => return false,
            }
        }
        !run.state.is_final()
    }

    /// True if no run rests on the record and no question is open about it. A run that is under way rests on all that
    /// it did since it last went on as new, and on what its children did since that ended well: it may undo that.
    fn is_at_rest(&self, record: &Record) -> bool {
        let may_be_undone = matches!(record.state, State::Committed { .. }) && record.class.needs_owner();
        let rests = |tenant: &Tenant, run: RunId, turn: u32| {
            let run = self.run(tenant, run).filter(|run| turn >= run.base);
            run.is_some_and(|run| !run.state.is_final() || may_be_undone && self.is_below_a_living_run(run))
        };
        let asks = |q: &crate::store::Question| {
            q.tenant == record.tenant && q.record == Some(record.id) && q.answer.is_none()
        };
        record.state != State::Started
            && record.escalation.is_none()
            && self.look(&record.tenant, record.id).is_none()
            && !self.escalations.values().any(asks)
            && !record.owner.run.is_some_and(|run| rests(&record.tenant, run, record.owner.turn))
            && !self.record_uses(&record.tenant, record.id).iter().any(|u| rests(&u.tenant, u.run, u.turn))
    }
}
