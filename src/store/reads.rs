//! What a store is asked: each question once, with its meaning, what it names and what is answered.

/// Hands all of them to a macro, which makes of each what is needed where it stands: the trait passes it on, both databases answer it in
/// SQL (`sql/reads`), and the model out of its tables.
macro_rules! reads {
    ($answer:ident) => {
        $answer! {
            /// The record of an operation.
            record_find(tenant: &'a Tenant, key: &'a OperationKey) -> Option<Record>;
            /// A record by its place, for what refers to it.
            record_at(tenant: &'a Tenant, id: RecordId) -> Option<Record>;
            /// Started records of fenced workers that nobody will resume, from `after` on: outside any run, or of a run
            /// that ended [`unsettled`](Run::unsettled). Not those with an open question, unless it is an [`UnknownTool`](QuestionKind::UnknownTool):
            /// the tool may be here by now.
            record_orphans(after: RecordId, limit: u32) -> Vec<Record>;
            /// Committed records of a tenant that were written at `since` or later, in the order of their keys from behind `after` on.
            record_committed(tenant: &'a Tenant, since: Timestamp, after: &'a str, limit: u32) -> Vec<Record>;
            /// A record with this key, or with one that goes on behind it with a further part, was written at `since` or later, and
            /// neither failed nor was abandoned.
            record_removed(tenant: &'a Tenant, key: &'a str, since: Timestamp) -> bool;

            /// Looks that are due at `until` or before, the earliest first.
            look_due(until: Timestamp, limit: u32) -> Vec<Look>;
            /// The look at a record that is to come.
            look_find(tenant: &'a Tenant, record: RecordId) -> Option<Look>;

            /// Records whose time was over between `after` and `until` and which nothing rests on: they are not under way, no question
            /// about them is open and no lookup to come, and the runs that asked for them have ended or gone on as new. Those whose
            /// time was over first come first.
            record_expired(after: Timestamp, until: Timestamp, limit: u32) -> Vec<Record>;
            /// The earliest instant after `after` at which a record's time is over.
            record_expiring(after: Timestamp) -> Option<Timestamp>;
            /// Runs of a workflow that ended between `after` and `until`, of which more than a tombstone is left, and that are at rest: their
            /// calls are settled, no question about them is open, and the runs that began them are expired. The first to end come first.
            run_over(workflow: &'a str, after: Timestamp, until: Timestamp, limit: u32) -> Vec<Run>;
            /// The earliest instant after `after` at which a run of a workflow ended, of which more than a tombstone is left.
            run_over_next(workflow: &'a str, after: Timestamp) -> Option<Timestamp>;
            /// The runs that were answered from a record which another run owns.
            record_uses(tenant: &'a Tenant, id: RecordId) -> Vec<SharedEffect>;
            /// What fenced workers learned about a record too late, the earliest first.
            record_evidence(tenant: &'a Tenant, id: RecordId) -> Vec<Evidence>;

            /// A run.
            run_find(tenant: &'a Tenant, id: RunId) -> Option<Run>;
            /// The run that was started under a key.
            run_keyed(tenant: &'a Tenant, workflow: &'a str, key: &'a str) -> Option<Run>;
            /// What a run has recorded in these turns.
            run_history(tenant: &'a Tenant, id: RunId, turns: Turns) -> History;
            /// Active runs whose worker has been fenced, from `after` on: what a restart takes over.
            run_orphans(after: RunId, limit: u32) -> Vec<Run>;
            /// Runs that wait for an answer although none of their questions is open, from `after` on: the answer came, and
            /// the process died before it could wake them.
            run_answered(after: RunId, limit: u32) -> Vec<Run>;
            /// Runs that wait for a signal and have one that they have not received, from `after` on: it came, and the process
            /// died before it could wake them; or it is not the one that they wait for. A command wakes a queued one, too.
            run_signalled(after: RunId, limit: u32) -> Vec<Run>;
            /// The runs that a run began and that are to go down with it, from `after` on.
            run_children(tenant: &'a Tenant, parent: RunId, after: RunId, limit: u32) -> Vec<Run>;
            /// Waiting runs whose time has come, the earliest first.
            run_due(until: Timestamp, limit: u32) -> Vec<Run>;

            /// Runs whose deadline has passed, the earliest first, that are to be [cancelled](DEADLINE) for it. One that has received that
            /// command is not among them, nor is one that is to receive it, unless it is blocked: that one receives nothing by itself.
            run_overdue(until: Timestamp, limit: u32) -> Vec<Run>;

            /// The earliest instant after `after` that anything waits for: a run's timer or deadline, a schedule, a queue or a
            /// confirming lookup.
            next_due(after: Timestamp) -> Option<Timestamp>;

            /// The runs of a tenant, from `after` on.
            run_list(tenant: &'a Tenant, after: RunId, limit: u32) -> Vec<Run>;

            /// The queues in which runs of any tenant wait, by name.
            queue_waiting() -> Vec<String>;
            /// The active runs of a queue that were [admitted](Admission) to a worker at `since` or later.
            queue_admitted(queue: &'a str, fence: Fence, since: Timestamp) -> Vec<Run>;
            /// How many runs of each queue wait, and how many have a place, by the queue's name.
            queue_load() -> Vec<QueueLoad>;

            /// A schedule, deleted or not.
            schedule_find(tenant: &'a Tenant, name: &'a str) -> Option<Schedule>;
            /// The schedules of a tenant by their names, from behind `after` on, deleted ones among them.
            schedule_list(tenant: &'a Tenant, after: &'a str, limit: u32) -> Vec<Schedule>;
            /// The schedules of all tenants that are due at `until` or before, the earliest first.
            schedule_due(until: Timestamp, limit: u32) -> Vec<Schedule>;

            /// A guard's row.
            document_find(tenant: &'a Tenant, kind: &'a str, id: &'a str) -> Option<Document>;
            /// The rows of a guard by their ids, from behind `after` on.
            document_list(tenant: &'a Tenant, kind: &'a str, after: &'a str, limit: u32) -> Vec<Document>;
            /// The same of those that are open.
            document_open(tenant: &'a Tenant, kind: &'a str, after: &'a str, limit: u32) -> Vec<Document>;

            /// What is to be published of aggregates that are due at `until` and not set aside: the longest due first, then by tenant
            /// and name; so many events in all, those of each in their order.
            outbox_due(until: Timestamp, limit: u32) -> Vec<Due>;
            /// The earliest instant after `after` at which an aggregate is due.
            outbox_next(after: Timestamp) -> Option<Timestamp>;
            /// Published events that were written at `after` or later, the earliest first.
            outbox_published(after: Timestamp, limit: u32) -> Vec<Published>;
            /// An event, published or not.
            outbox_find(tenant: &'a Tenant, id: &'a str) -> Option<OutboxEvent>;
            /// How far the events of an aggregate are published.
            outbox_aggregate(tenant: &'a Tenant, name: &'a str) -> Option<Aggregate>;
            /// The aggregate that is set aside until this question is answered.
            outbox_set_aside(tenant: &'a Tenant, question: QuestionId) -> Option<Aggregate>;

            /// A signal, received or not.
            signal_find(tenant: &'a Tenant, run: RunId, name: &'a str, id: &'a str) -> Option<Signal>;
            /// The same if its run has not received it.
            signal_unreceived(tenant: &'a Tenant, run: RunId, name: &'a str, id: &'a str) -> Option<Signal>;
            /// The last place among the signals that a run has not received.
            signal_last(tenant: &'a Tenant, run: RunId) -> Option<i64>;
            /// The signals that these runs have not received, those of each in the order in which it is to receive them.
            signal_pending(runs: &'a [(Tenant, RunId)]) -> Vec<Signal>;

            /// A question.
            escalation_find(tenant: &'a Tenant, id: QuestionId) -> Option<Question>;
            /// The open questions of a tenant, the oldest first, from behind `after` on. An empty page is the end. A row by which a
            /// call [waits](QuestionKind::Pending) for its provider is none.
            escalation_open(tenant: &'a Tenant, after: QuestionId, limit: u32) -> Vec<Question>;
            /// The same of those that were answered, by people or by the engine.
            escalation_answered(tenant: &'a Tenant, after: QuestionId, limit: u32) -> Vec<Question>;
            /// How many questions a tenant has, by their kind, in the order of the kinds' numbers.
            escalation_count(tenant: &'a Tenant) -> Vec<QuestionCount>;
            /// The open questions about a run and what it owns, the oldest first.
            escalation_about(tenant: &'a Tenant, run: RunId) -> Vec<Question>;
            /// What was ever asked about a record.
            escalation_of(tenant: &'a Tenant, record: RecordId) -> Vec<Question>;
            /// The open questions about [what is not registered](QuestionKind::Unregistered) and a run needs, of all tenants,
            /// from `after` on: it may be here by now.
            escalation_unknown_workflow(after: QuestionId, limit: u32) -> Vec<Question>;
            /// Open questions about effects that [happened more than once](QuestionKind::Duplicated), of all tenants, from
            /// `after` on.
            escalation_duplicated(after: QuestionId, limit: u32) -> Vec<Question>;

            /// A worker by the name it enrolled under.
            worker_find(name: &'a str) -> Option<Worker>;
            /// A worker by its fence.
            worker_at(fence: Fence) -> Option<Worker>;

            /// A tenant's key for digests of secrets.
            tenant_key(tenant: &'a Tenant) -> Option<DigestKey>;

            /// A large payload.
            payload_find(tenant: &'a Tenant, digest: PayloadDigest) -> Option<Payload>;
        }
    };
}

pub(in crate::store) use reads;
