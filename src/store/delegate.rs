//! Wrapping a store: what a wrapper leaves as it is, in one line.

/// Passes reads on to the store behind a wrapper, by name, or all of them. A method that a wrapper names neither
/// here nor implements itself is a compile error, so that a new one cannot slip past it.
///
/// ```
/// use counterfoil::store::{Asked, Change, Model, Store, Verdict};
///
/// #[derive(Debug)]
/// struct Logged(Model);
///
/// impl Store for Logged {
///     fn commit<'a>(&'a self, changes: &'a [Change]) -> Asked<'a, Vec<Verdict>> {
///         println!("{} changes", changes.len());
///         self.0.commit(changes)
///     }
///     counterfoil::delegate_reads!(self => self.0; all);
/// }
/// ```
#[macro_export]
macro_rules! delegate_reads {
    ($self:ident => $store:expr; all) => {
        $crate::delegate_reads!($self => $store; record_find record_at record_orphans looks record_expired record_uses record_evidence run_find run_keyed run_history run_orphans run_answered run_signalled run_children run_due next_due run_list queues documents signal_find signal_pending escalation_find escalation_open escalation_about escalation_unknown_workflow worker_find worker_at sharing tenant_key payload_find);
    };
    ($self:ident => $store:expr; $($method:ident)+) => {
        $($crate::delegate_reads!(@$method $self => $store);)+
    };
    (@record_find $self:ident => $store:expr) => {
        fn record_find<'a>(&'a $self, tenant: &'a $crate::Tenant, key: &'a $crate::ledger::OperationKey) -> $crate::store::Asked<'a, Option<$crate::ledger::Record>> {
            $store.record_find(tenant, key)
        }
    };
    (@record_at $self:ident => $store:expr) => {
        fn record_at<'a>(&'a $self, tenant: &'a $crate::Tenant, id: $crate::RecordId) -> $crate::store::Asked<'a, Option<$crate::ledger::Record>> {
            $store.record_at(tenant, id)
        }
    };
    (@record_orphans $self:ident => $store:expr) => {
        fn record_orphans(&$self, after: $crate::RecordId, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::ledger::Record>> {
            $store.record_orphans(after, limit)
        }
    };
    (@looks $self:ident => $store:expr) => {
        fn record_committed<'a>(&'a $self, tenant: &'a $crate::Tenant, since: $crate::Timestamp, after: &'a str, limit: u32) -> $crate::store::Asked<'a, Vec<$crate::ledger::Record>> {
            $store.record_committed(tenant, since, after, limit)
        }
        fn record_removed<'a>(&'a $self, tenant: &'a $crate::Tenant, key: &'a str, since: $crate::Timestamp) -> $crate::store::Asked<'a, bool> {
            $store.record_removed(tenant, key, since)
        }
        fn look_due(&$self, until: $crate::Timestamp, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::ledger::Look>> {
            $store.look_due(until, limit)
        }
        fn look_find<'a>(&'a $self, tenant: &'a $crate::Tenant, record: $crate::RecordId) -> $crate::store::Asked<'a, Option<$crate::ledger::Look>> {
            $store.look_find(tenant, record)
        }
        fn escalation_of<'a>(&'a $self, tenant: &'a $crate::Tenant, record: $crate::RecordId) -> $crate::store::Asked<'a, Vec<$crate::store::Escalation>> {
            $store.escalation_of(tenant, record)
        }
    };
    (@record_expired $self:ident => $store:expr) => {
        fn record_expired(&$self, after: $crate::Timestamp, until: $crate::Timestamp, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::ledger::Record>> {
            $store.record_expired(after, until, limit)
        }
        fn record_expiring(&$self, after: $crate::Timestamp) -> $crate::store::Asked<'_, Option<$crate::Timestamp>> {
            $store.record_expiring(after)
        }
    };
    (@record_uses $self:ident => $store:expr) => {
        fn record_uses<'a>(&'a $self, tenant: &'a $crate::Tenant, id: $crate::RecordId) -> $crate::store::Asked<'a, Vec<$crate::store::Use>> {
            $store.record_uses(tenant, id)
        }
    };
    (@record_evidence $self:ident => $store:expr) => {
        fn record_evidence<'a>(&'a $self, tenant: &'a $crate::Tenant, id: $crate::RecordId) -> $crate::store::Asked<'a, Vec<$crate::store::Evidence>> {
            $store.record_evidence(tenant, id)
        }
    };
    (@run_find $self:ident => $store:expr) => {
        fn run_find<'a>(&'a $self, tenant: &'a $crate::Tenant, id: $crate::RunId) -> $crate::store::Asked<'a, Option<$crate::store::Run>> {
            $store.run_find(tenant, id)
        }
    };
    (@run_keyed $self:ident => $store:expr) => {
        fn run_keyed<'a>(&'a $self, tenant: &'a $crate::Tenant, workflow: &'a str, key: &'a str) -> $crate::store::Asked<'a, Option<$crate::store::Run>> {
            $store.run_keyed(tenant, workflow, key)
        }
    };
    (@run_history $self:ident => $store:expr) => {
        fn run_history<'a>(&'a $self, tenant: &'a $crate::Tenant, id: $crate::RunId, turns: $crate::store::Turns) -> $crate::store::Asked<'a, $crate::store::History> {
            $store.run_history(tenant, id, turns)
        }
    };
    (@run_orphans $self:ident => $store:expr) => {
        fn run_orphans(&$self, after: $crate::RunId, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::store::Run>> {
            $store.run_orphans(after, limit)
        }
    };
    (@run_answered $self:ident => $store:expr) => {
        fn run_answered(&$self, after: $crate::RunId, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::store::Run>> {
            $store.run_answered(after, limit)
        }
    };
    (@run_signalled $self:ident => $store:expr) => {
        fn run_signalled(&$self, after: $crate::RunId, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::store::Run>> {
            $store.run_signalled(after, limit)
        }
    };
    (@run_children $self:ident => $store:expr) => {
        fn run_children<'a>(&'a $self, tenant: &'a $crate::Tenant, parent: $crate::RunId, after: $crate::RunId, limit: u32) -> $crate::store::Asked<'a, Vec<$crate::store::Run>> {
            $store.run_children(tenant, parent, after, limit)
        }
    };
    (@run_due $self:ident => $store:expr) => {
        fn run_due(&$self, until: $crate::Timestamp, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::store::Run>> {
            $store.run_due(until, limit)
        }
    };
    (@next_due $self:ident => $store:expr) => {
        fn next_due(&$self, after: $crate::Timestamp) -> $crate::store::Asked<'_, Option<$crate::Timestamp>> {
            $store.next_due(after)
        }
    };
    (@run_list $self:ident => $store:expr) => {
        fn run_list<'a>(&'a $self, tenant: &'a $crate::Tenant, after: $crate::RunId, limit: u32) -> $crate::store::Asked<'a, Vec<$crate::store::Run>> {
            $store.run_list(tenant, after, limit)
        }
    };
    (@queues $self:ident => $store:expr) => {
        fn queue_waiting(&$self) -> $crate::store::Asked<'_, Vec<String>> {
            $store.queue_waiting()
        }
        fn queue_admitted<'a>(&'a $self, queue: &'a str, fence: $crate::Fence, since: $crate::Timestamp) -> $crate::store::Asked<'a, Vec<$crate::store::Run>> {
            $store.queue_admitted(queue, fence, since)
        }
        fn queue_load(&$self) -> $crate::store::Asked<'_, Vec<$crate::store::QueueLoad>> {
            $store.queue_load()
        }
        fn schedule_find<'a>(&'a $self, tenant: &'a $crate::Tenant, name: &'a str) -> $crate::store::Asked<'a, Option<$crate::store::Schedule>> {
            $store.schedule_find(tenant, name)
        }
        fn schedule_list<'a>(&'a $self, tenant: &'a $crate::Tenant, after: &'a str, limit: u32) -> $crate::store::Asked<'a, Vec<$crate::store::Schedule>> {
            $store.schedule_list(tenant, after, limit)
        }
        fn schedule_due(&$self, until: $crate::Timestamp, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::store::Schedule>> {
            $store.schedule_due(until, limit)
        }
        fn outbox_due(&$self, until: $crate::Timestamp, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::store::Due>> {
            $store.outbox_due(until, limit)
        }
        fn outbox_next(&$self, after: $crate::Timestamp) -> $crate::store::Asked<'_, Option<$crate::Timestamp>> {
            $store.outbox_next(after)
        }
        fn outbox_published(&$self, after: $crate::Timestamp, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::store::Published>> {
            $store.outbox_published(after, limit)
        }
        fn outbox_find<'a>(&'a $self, tenant: &'a $crate::Tenant, id: &'a str) -> $crate::store::Asked<'a, Option<$crate::store::OutboxEvent>> {
            $store.outbox_find(tenant, id)
        }
        fn outbox_aggregate<'a>(&'a $self, tenant: &'a $crate::Tenant, name: &'a str) -> $crate::store::Asked<'a, Option<$crate::store::Aggregate>> {
            $store.outbox_aggregate(tenant, name)
        }
        fn outbox_set_aside<'a>(&'a $self, tenant: &'a $crate::Tenant, question: $crate::EscalationId) -> $crate::store::Asked<'a, Option<$crate::store::Aggregate>> {
            $store.outbox_set_aside(tenant, question)
        }
    };
    (@documents $self:ident => $store:expr) => {
        fn document_find<'a>(&'a $self, tenant: &'a $crate::Tenant, kind: &'a str, id: &'a str) -> $crate::store::Asked<'a, Option<$crate::store::Document>> {
            $store.document_find(tenant, kind, id)
        }
        fn document_list<'a>(&'a $self, tenant: &'a $crate::Tenant, kind: &'a str, after: &'a str, limit: u32) -> $crate::store::Asked<'a, Vec<$crate::store::Document>> {
            $store.document_list(tenant, kind, after, limit)
        }
        fn document_open<'a>(&'a $self, tenant: &'a $crate::Tenant, kind: &'a str, after: &'a str, limit: u32) -> $crate::store::Asked<'a, Vec<$crate::store::Document>> {
            $store.document_open(tenant, kind, after, limit)
        }
    };
    (@signal_find $self:ident => $store:expr) => {
        fn signal_find<'a>(&'a $self, tenant: &'a $crate::Tenant, run: $crate::RunId, name: &'a str, id: &'a str) -> $crate::store::Asked<'a, Option<$crate::store::Signal>> {
            $store.signal_find(tenant, run, name, id)
        }
        fn signal_unreceived<'a>(&'a $self, tenant: &'a $crate::Tenant, run: $crate::RunId, name: &'a str, id: &'a str) -> $crate::store::Asked<'a, Option<$crate::store::Signal>> {
            $store.signal_unreceived(tenant, run, name, id)
        }
        fn signal_last<'a>(&'a $self, tenant: &'a $crate::Tenant, run: $crate::RunId) -> $crate::store::Asked<'a, Option<i64>> {
            $store.signal_last(tenant, run)
        }
    };
    (@signal_pending $self:ident => $store:expr) => {
        fn signal_pending<'a>(&'a $self, runs: &'a [($crate::Tenant, $crate::RunId)]) -> $crate::store::Asked<'a, Vec<$crate::store::Signal>> {
            $store.signal_pending(runs)
        }
    };
    (@escalation_find $self:ident => $store:expr) => {
        fn escalation_find<'a>(&'a $self, tenant: &'a $crate::Tenant, id: $crate::EscalationId) -> $crate::store::Asked<'a, Option<$crate::store::Escalation>> {
            $store.escalation_find(tenant, id)
        }
    };
    (@escalation_open $self:ident => $store:expr) => {
        fn escalation_open<'a>(&'a $self, tenant: &'a $crate::Tenant, after: $crate::EscalationId, limit: u32) -> $crate::store::Asked<'a, Vec<$crate::store::Escalation>> {
            $store.escalation_open(tenant, after, limit)
        }
    };
    (@escalation_about $self:ident => $store:expr) => {
        fn escalation_about<'a>(&'a $self, tenant: &'a $crate::Tenant, run: $crate::RunId) -> $crate::store::Asked<'a, Vec<$crate::store::Escalation>> {
            $store.escalation_about(tenant, run)
        }
    };
    (@escalation_unknown_workflow $self:ident => $store:expr) => {
        fn escalation_unknown_workflow(&$self, after: $crate::EscalationId, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::store::Escalation>> {
            $store.escalation_unknown_workflow(after, limit)
        }
        fn escalation_duplicated(&$self, after: $crate::EscalationId, limit: u32) -> $crate::store::Asked<'_, Vec<$crate::store::Escalation>> {
            $store.escalation_duplicated(after, limit)
        }
    };
    (@worker_find $self:ident => $store:expr) => {
        fn worker_find<'a>(&'a $self, name: &'a str) -> $crate::store::Asked<'a, Option<$crate::store::Worker>> {
            $store.worker_find(name)
        }
    };
    (@worker_at $self:ident => $store:expr) => {
        fn worker_at(&$self, fence: $crate::Fence) -> $crate::store::Asked<'_, Option<$crate::store::Worker>> {
            $store.worker_at(fence)
        }
    };
    (@sharing $self:ident => $store:expr) => {
        fn pulse(&$self) -> $crate::store::Asked<'_, $crate::store::Pulse> {
            $store.pulse()
        }
        fn in_place(&$self) -> ::std::result::Result<(), $crate::store::StoreError> {
            $store.in_place()
        }
        fn is_shared(&$self) -> bool {
            $store.is_shared()
        }
        fn wake_others(&$self) -> $crate::store::Asked<'_, ()> {
            $store.wake_others()
        }
        fn woken(&$self) -> $crate::store::Asked<'_, ()> {
            $store.woken()
        }
    };
    (@tenant_key $self:ident => $store:expr) => {
        fn tenant_key<'a>(&'a $self, tenant: &'a $crate::Tenant) -> $crate::store::Asked<'a, Option<$crate::payload::DigestKey>> {
            $store.tenant_key(tenant)
        }
    };
    (@payload_find $self:ident => $store:expr) => {
        fn payload_find<'a>(&'a $self, tenant: &'a $crate::Tenant, digest: $crate::payload::PayloadDigest) -> $crate::store::Asked<'a, Option<$crate::payload::Payload>> {
            $store.payload_find(tenant, digest)
        }
    };
}
