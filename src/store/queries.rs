//! What both databases are asked in the same words, as a store.

use std::fmt::Debug;

use super::ask::{Queries, Reader};
use super::run::reads;
use super::{
    Aggregate, Asked, Change, Document, Due, Escalation, Evidence, OutboxEvent, Published, QueueLoad, Run,
    Schedule, Signal, Store, StoreError, Use, Verdict, Worker, queued,
};
use crate::clock::Timestamp;
use crate::id::{EscalationId, Fence, RecordId, RunId, Tenant};
use crate::ledger::{Look, OperationKey, Record};
use crate::payload::{DigestKey, Payload, PayloadDigest};

impl<D: Reader + Debug + 'static> Store for Queries<D> {
    /// It reads alone.
    fn commit<'a>(&'a self, _: &'a [Change]) -> Asked<'a, Vec<Verdict>> {
        Box::pin(async { Err(StoreError::Closed) })
    }

    fn record_find<'a>(&'a self, tenant: &'a Tenant, key: &'a OperationKey) -> Asked<'a, Option<Record>> {
        Box::pin(super::record::find(self, tenant, key))
    }

    fn record_at<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Option<Record>> {
        Box::pin(super::record::at(self, tenant, id))
    }

    fn record_orphans(&self, after: RecordId, limit: u32) -> Asked<'_, Vec<Record>> {
        Box::pin(super::record::orphans(self, after, limit))
    }

    fn record_committed<'a>(
        &'a self,
        tenant: &'a Tenant,
        since: Timestamp,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Record>> {
        Box::pin(super::record::committed(self, tenant, since, after, limit))
    }

    fn record_removed<'a>(&'a self, tenant: &'a Tenant, key: &'a str, since: Timestamp) -> Asked<'a, bool> {
        Box::pin(super::record::is_removed(self, tenant, key, since))
    }

    fn look_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Look>> {
        Box::pin(super::look::due(self, until, limit))
    }

    fn look_find<'a>(&'a self, tenant: &'a Tenant, record: RecordId) -> Asked<'a, Option<Look>> {
        Box::pin(super::look::find(self, tenant, record))
    }

    fn record_expired(&self, after: Timestamp, until: Timestamp, limit: u32) -> Asked<'_, Vec<Record>> {
        Box::pin(super::retention::expired(self, after, until, limit))
    }

    fn record_expiring(&self, after: Timestamp) -> Asked<'_, Option<Timestamp>> {
        Box::pin(super::retention::expiring(self, after))
    }

    fn record_uses<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Vec<Use>> {
        Box::pin(Use::of(self, tenant, id))
    }

    fn record_evidence<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Vec<Evidence>> {
        Box::pin(Evidence::of(self, tenant, id))
    }

    fn run_find<'a>(&'a self, tenant: &'a Tenant, id: RunId) -> Asked<'a, Option<Run>> {
        Box::pin(reads::find(self, tenant, id))
    }

    fn run_keyed<'a>(
        &'a self,
        tenant: &'a Tenant,
        workflow: &'a str,
        key: &'a str,
    ) -> Asked<'a, Option<Run>> {
        Box::pin(reads::keyed(self, tenant, workflow, key))
    }

    fn run_orphans(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        Box::pin(reads::orphans(self, after, limit))
    }

    fn run_answered(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        Box::pin(reads::answered(self, after, limit))
    }

    fn run_signalled(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        Box::pin(reads::signalled(self, after, limit))
    }

    fn run_children<'a>(
        &'a self,
        tenant: &'a Tenant,
        parent: RunId,
        after: RunId,
        limit: u32,
    ) -> Asked<'a, Vec<Run>> {
        Box::pin(reads::children(self, tenant, parent, after, limit))
    }

    fn run_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Run>> {
        Box::pin(reads::due(self, until, limit))
    }

    fn next_due(&self, after: Timestamp) -> Asked<'_, Option<Timestamp>> {
        Box::pin(reads::next_due(self, after))
    }

    fn run_list<'a>(&'a self, tenant: &'a Tenant, after: RunId, limit: u32) -> Asked<'a, Vec<Run>> {
        Box::pin(reads::list(self, tenant, after, limit))
    }

    fn queue_admitted<'a>(&'a self, queue: &'a str, fence: Fence, since: Timestamp) -> Asked<'a, Vec<Run>> {
        Box::pin(reads::admitted(self, queue, fence, since))
    }

    fn queue_waiting(&self) -> Asked<'_, Vec<String>> {
        Box::pin(queued::waiting(self))
    }

    fn queue_load(&self) -> Asked<'_, Vec<QueueLoad>> {
        Box::pin(queued::load(self))
    }

    fn schedule_find<'a>(&'a self, tenant: &'a Tenant, name: &'a str) -> Asked<'a, Option<Schedule>> {
        Box::pin(Schedule::find(self, tenant, name))
    }

    fn schedule_list<'a>(
        &'a self,
        tenant: &'a Tenant,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Schedule>> {
        Box::pin(Schedule::list(self, tenant, after, limit))
    }

    fn schedule_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Schedule>> {
        Box::pin(Schedule::due(self, until, limit))
    }

    fn document_find<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        id: &'a str,
    ) -> Asked<'a, Option<Document>> {
        Box::pin(Document::find(self, tenant, kind, id))
    }

    fn document_list<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Document>> {
        Box::pin(Document::list(self, tenant, kind, after, limit))
    }

    fn document_open<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Document>> {
        Box::pin(Document::list_open(self, tenant, kind, after, limit))
    }

    fn outbox_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Due>> {
        Box::pin(Due::until(self, until, limit))
    }

    fn outbox_next(&self, after: Timestamp) -> Asked<'_, Option<Timestamp>> {
        Box::pin(Aggregate::next(self, after))
    }

    fn outbox_published(&self, after: Timestamp, limit: u32) -> Asked<'_, Vec<Published>> {
        Box::pin(Published::since(self, after, limit))
    }

    fn outbox_find<'a>(&'a self, tenant: &'a Tenant, id: &'a str) -> Asked<'a, Option<OutboxEvent>> {
        Box::pin(OutboxEvent::find(self, tenant, id))
    }

    fn outbox_aggregate<'a>(&'a self, tenant: &'a Tenant, name: &'a str) -> Asked<'a, Option<Aggregate>> {
        Box::pin(Aggregate::find(self, tenant, name))
    }

    fn outbox_set_aside<'a>(
        &'a self,
        tenant: &'a Tenant,
        question: EscalationId,
    ) -> Asked<'a, Option<Aggregate>> {
        Box::pin(Aggregate::set_aside(self, tenant, question))
    }

    fn signal_find<'a>(
        &'a self,
        tenant: &'a Tenant,
        run: RunId,
        name: &'a str,
        id: &'a str,
    ) -> Asked<'a, Option<Signal>> {
        Box::pin(Signal::find(self, tenant, run, name, id))
    }

    fn signal_unreceived<'a>(
        &'a self,
        tenant: &'a Tenant,
        run: RunId,
        name: &'a str,
        id: &'a str,
    ) -> Asked<'a, Option<Signal>> {
        Box::pin(Signal::unreceived(self, tenant, run, name, id))
    }

    fn signal_last<'a>(&'a self, tenant: &'a Tenant, run: RunId) -> Asked<'a, Option<i64>> {
        Box::pin(Signal::last(self, tenant, run))
    }

    fn escalation_find<'a>(&'a self, tenant: &'a Tenant, id: EscalationId) -> Asked<'a, Option<Escalation>> {
        Box::pin(Escalation::find(self, tenant, id))
    }

    fn escalation_open<'a>(
        &'a self,
        tenant: &'a Tenant,
        after: EscalationId,
        limit: u32,
    ) -> Asked<'a, Vec<Escalation>> {
        Box::pin(Escalation::open(self, tenant, after, limit))
    }

    fn escalation_about<'a>(&'a self, tenant: &'a Tenant, run: RunId) -> Asked<'a, Vec<Escalation>> {
        Box::pin(Escalation::about(self, tenant, run))
    }

    fn escalation_of<'a>(&'a self, tenant: &'a Tenant, record: RecordId) -> Asked<'a, Vec<Escalation>> {
        Box::pin(Escalation::of(self, tenant, record))
    }

    fn escalation_unknown_workflow(&self, after: EscalationId, limit: u32) -> Asked<'_, Vec<Escalation>> {
        Box::pin(Escalation::unknown_workflow(self, after, limit))
    }

    fn escalation_duplicated(&self, after: EscalationId, limit: u32) -> Asked<'_, Vec<Escalation>> {
        Box::pin(Escalation::duplicated(self, after, limit))
    }

    fn worker_find<'a>(&'a self, name: &'a str) -> Asked<'a, Option<Worker>> {
        Box::pin(Worker::find(self, name))
    }

    fn worker_at(&self, fence: Fence) -> Asked<'_, Option<Worker>> {
        Box::pin(Worker::at(self, fence))
    }

    fn tenant_key<'a>(&'a self, tenant: &'a Tenant) -> Asked<'a, Option<DigestKey>> {
        Box::pin(super::payload::tenant_key(self, tenant))
    }

    fn payload_find<'a>(&'a self, tenant: &'a Tenant, digest: PayloadDigest) -> Asked<'a, Option<Payload>> {
        Box::pin(super::payload::find(self, tenant, digest))
    }
}
