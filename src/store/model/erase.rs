//! Erasing a tenant.

use super::tables::Tables;
use crate::id::Tenant;
use crate::ledger::State;
use crate::store::{ScheduleState, UnderWay};

impl Tables {
    /// The kind of row that prevents the erasure of the tenant, if there is one.
    pub(super) fn under_way(&self, tenant: &Tenant) -> Option<UnderWay> {
        let run = self.runs.values().any(|run| run.tenant == *tenant && !run.state.is_final());
        let operation = self
            .records
            .values()
            .filter(|record| record.tenant == *tenant)
            .any(|record| record.state == State::Started || record.escalation.is_some());
        let look = self.looks.keys().any(|(of, _)| of == tenant);
        let question = self.escalations.values().any(|q| q.tenant == *tenant && q.answer.is_none());
        let schedule =
            self.schedules.values().any(|s| s.tenant == *tenant && s.state != ScheduleState::Deleted);
        let event = self.aggregates.values().any(|a| a.tenant == *tenant && a.published < a.last);
        let found = [
            (run, UnderWay::Run),
            (operation || look, UnderWay::Operation),
            (question, UnderWay::Question),
            (schedule, UnderWay::Schedule),
            (event, UnderWay::Event),
        ];
        found.into_iter().find_map(|(found, what)| found.then_some(what))
    }

    /// Deletes all rows of the tenant but its key for digests.
    pub(super) fn erase(&mut self, tenant: &Tenant) {
        self.records.retain(|_, record| record.tenant != *tenant);
        self.record_keys.retain(|(of, ..), _| of != tenant);
        self.record_labels.retain(|(of, ..), _| of != tenant);
        self.looks.retain(|(of, _), _| of != tenant);
        self.evidence.retain(|(of, ..), _| of != tenant);
        self.contacts.retain(|(of, ..), _| of != tenant);
        self.payloads.retain(|(of, ..), _| of != tenant);
        self.escalations.retain(|(of, ..), _| of != tenant);
        self.runs.retain(|_, run| run.tenant != *tenant);
        self.run_keys.retain(|(of, ..), _| of != tenant);
        self.labels.retain(|(of, ..), _| of != tenant);
        self.steps.retain(|(of, ..), _| of != tenant);
        self.uses.retain(|(of, ..), _| of != tenant);
        self.signals.retain(|(of, ..), _| of != tenant);
        self.schedules.retain(|(of, ..), _| of != tenant);
        self.aggregates.retain(|(of, ..), _| of != tenant);
        self.events.retain(|(of, ..), _| of != tenant);
        self.documents.retain(|(of, ..), _| of != tenant);
        self.published.retain(|(of, ..), _| of != tenant);
    }
}
