//! Records whose time is over, and what is left of them.

use super::tables::Tables;
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::ledger::{Record, State};
use crate::store::Retired;

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
            self.escalations.retain(|_, q| (&q.tenant, q.record) != (tenant, Some(id)));
            for digest in &retired.payloads {
                let place = (tenant.clone(), digest.0);
                if let Some((_, uses)) = self.payloads.get_mut(&place) {
                    *uses -= 1;
                    if *uses == 0 {
                        self.payloads.remove(&place);
                    }
                }
            }
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

    /// Nobody rests on it or asks about it. A run that is under way rests on all that it did since it last went on as new.
    fn is_at_rest(&self, record: &Record) -> bool {
        let rests = |tenant: &Tenant, run: RunId, turn: u32| {
            self.run(tenant, run).is_some_and(|run| !run.state.is_final() && turn >= run.base)
        };
        let asks = |q: &crate::store::Escalation| {
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
