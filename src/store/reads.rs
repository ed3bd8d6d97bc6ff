//! The read questions of a store: each declared once, with its meaning, its arguments and its answer.

/// Hands all questions to a macro, which generates the code for its place: the trait passes each question on, both
/// databases answer it in SQL (`sql/reads`), and the model answers it from its tables.
macro_rules! reads {
    ($answer:ident) => {
        $answer! {
            /// The record of an operation.
            record_find(tenant: &'a Tenant, key: &'a OperationKey) -> Option<Record>;
            /// A record by its id, for rows that refer to it.
            record_at(tenant: &'a Tenant, id: RecordId) -> Option<Record>;
            /// Started records of fenced workers that no run will resume, from `after` on: outside any run, or of a
            /// run that ended [`unsettled`](Run::unsettled). Records with an open question are left out, unless it is
            /// an [`UnknownTool`](crate::store::QuestionKind::UnknownTool): the tool may be registered by now.
            record_orphans(after: RecordId, limit: u32) -> Vec<Record>;
            /// Committed records of a tenant that were written at `since` or later, in key order from behind `after`
            /// on.
            record_committed(tenant: &'a Tenant, since: Timestamp, after: &'a str, limit: u32) -> Vec<Record>;
            /// The records of a tenant whose keys begin with `prefix`, in key order from behind `after` on.
            record_list(tenant: &'a Tenant, prefix: &'a str, after: &'a str, limit: u32) -> Vec<Record>;
            /// The records of a tenant that have a label, as its name and value, and whose keys begin with `prefix`, in key
            /// order from behind `after` on.
            record_labelled(tenant: &'a Tenant, label: (&'a str, &'a str), prefix: &'a str, after: &'a str, limit: u32) -> Vec<Record>;
            /// The labels of a record, by their names.
            record_labels(tenant: &'a Tenant, id: RecordId) -> Vec<RecordLabel>;
            /// True if a record with this key, or with this key and a further part, was written at `since` or later
            /// and was neither failed nor abandoned.
            record_removed(tenant: &'a Tenant, key: &'a str, since: Timestamp) -> bool;

            /// Looks that are due at `until` or before, the earliest first, from behind the look `after` on. A page that is
            /// shorter than `limit` is the last one.
            look_due(until: Timestamp, after: Option<&'a Look>, limit: u32) -> Vec<Look>;
            /// The scheduled look at a record.
            look_find(tenant: &'a Tenant, record: RecordId) -> Option<Look>;

            /// Records whose time was over between `after` and `until` and which nothing rests on: they are not under
            /// way, they have no open question and no look to come, and the runs that requested them have ended or
            /// gone on as new. On an effect of a child that ended well the runs above the child rest, too: they undo it
            /// if they fail. The first to be over come first.
            record_expired(after: Timestamp, until: Timestamp, limit: u32) -> Vec<Record>;
            /// The earliest instant after `after` at which the time of a record is over.
            record_expiring(after: Timestamp) -> Option<Timestamp>;
            /// Runs of a workflow that ended between `after` and `until`, that are more than a tombstone, and that
            /// are at rest: their calls are settled, they have no open question, and their parent runs are expired.
            /// The first to end come first.
            run_over(workflow: &'a str, after: Timestamp, until: Timestamp, limit: u32) -> Vec<Run>;
            /// The earliest instant after `after` at which a run of a workflow ended that is more than a tombstone.
            run_over_next(workflow: &'a str, after: Timestamp) -> Option<Timestamp>;
            /// Signals that runs of a workflow have received, that were sent between `after` and `until`, and whose
            /// content is still there: of runs that have not ended and about which no question is open. The first to be
            /// sent come first. The engine's own signals are left out.
            signal_over(workflow: &'a str, after: Timestamp, until: Timestamp, limit: u32) -> Vec<Signal>;
            /// The runs that were answered from a record that another run owns.
            record_uses(tenant: &'a Tenant, id: RecordId) -> Vec<SharedEffect>;
            /// The late answers of fenced workers about a record, the earliest first.
            record_evidence(tenant: &'a Tenant, id: RecordId) -> Vec<Evidence>;
            /// The duplicates that were avoided at `since` or later: the signs of effects and the uses of records, the last
            /// `limit` of each.
            record_avoided(tenant: &'a Tenant, since: Timestamp, limit: u32) -> AvoidedDuplicates;
            /// The attempts and lookups of a record that it does not tell of itself, by their ids: first the attempts.
            record_contacts(tenant: &'a Tenant, id: RecordId) -> Vec<Contact>;

            /// A run by its id.
            run_find(tenant: &'a Tenant, id: RunId) -> Option<Run>;
            /// The run that was started under a key.
            run_keyed(tenant: &'a Tenant, workflow: &'a str, key: &'a str) -> Option<Run>;
            /// The history of a run in these turns.
            run_history(tenant: &'a Tenant, id: RunId, turns: Turns) -> History;
            /// The history of a run from behind a place on: the first `limit` checkpoints, calls and uses, each in the order of
            /// the [places](crate::store::HistoryPlace), without signals.
            run_history_page(tenant: &'a Tenant, id: RunId, after: &'a HistoryPlace, limit: u32) -> History;
            /// Active runs whose worker has been fenced, from `after` on: a restart takes them over.
            run_orphans(after: RunId, limit: u32) -> Vec<Run>;
            /// Runs that wait for an answer although none of their questions is open, from `after` on: the answer
            /// came, and the process died before it could wake them.
            run_answered(after: RunId, limit: u32) -> Vec<Run>;
            /// Runs that wait for a signal and have one that they have not received, from `after` on: the signal
            /// came, and the process died before it could wake them; or the signal is not the one that they wait for.
            /// A command wakes a queued run, too.
            run_signalled(after: RunId, limit: u32) -> Vec<Run>;
            /// Blocked runs that have a command to cancel them which they have not received, from `after` on: a process
            /// died before it could obey the command.
            run_cancelled(after: RunId, limit: u32) -> Vec<Run>;
            /// The child runs of a run that end with it, from `after` on.
            run_children(tenant: &'a Tenant, parent: RunId, after: RunId, limit: u32) -> Vec<Run>;
            /// Waiting runs whose timer is due, the earliest first, from behind the run `after` on. A page that is shorter
            /// than `limit` is the last one.
            run_due(until: Timestamp, after: Option<&'a Run>, limit: u32) -> Vec<Run>;

            /// Runs whose deadline has passed, the earliest first, and that must be [cancelled](crate::store::DEADLINE) for it. A
            /// run that has received that command is left out. So is a run that will receive it, unless the run is
            /// blocked: a blocked run receives nothing by itself. The list goes on from behind the run `after`. A page that is
            /// shorter than `limit` is the last one.
            run_overdue(until: Timestamp, after: Option<&'a Run>, limit: u32) -> Vec<Run>;

            /// The earliest instant after `after` that anything waits for: the timer or deadline of a run, a
            /// schedule, a queue or a confirming lookup.
            next_due(after: Timestamp) -> Option<Timestamp>;

            /// The runs of a tenant, from `after` on.
            run_list(tenant: &'a Tenant, after: RunId, limit: u32) -> Vec<Run>;
            /// The labels of a run, by their names.
            run_labels(tenant: &'a Tenant, id: RunId) -> Vec<RunLabel>;
            /// A page of the runs that a filter takes, from behind a cursor on, in the order of the filter.
            run_page(tenant: &'a Tenant, filter: &'a RunFilter, after: Option<&'a RunCursor>, limit: u32) -> RunPage<Run>;

            /// The queues in which runs of any tenant wait, by name.
            queue_waiting() -> Vec<String>;
            /// The active runs of a queue that were [admitted](crate::store::Admission) to a worker at `since` or later.
            queue_admitted(queue: &'a str, fence: Fence, since: Timestamp) -> Vec<Run>;
            /// The number of runs of each queue that wait, and the number that have a place, by the name of the
            /// queue.
            queue_load() -> Vec<QueueLoad>;

            /// A schedule, deleted or not.
            schedule_find(tenant: &'a Tenant, name: &'a str) -> Option<Schedule>;
            /// The schedules of a tenant by their names, from behind `after` on, including deleted ones.
            schedule_list(tenant: &'a Tenant, after: &'a str, limit: u32) -> Vec<Schedule>;
            /// The schedules of all tenants that are due at `until` or before, the earliest first, from behind the schedule
            /// `after` on. A page that is shorter than `limit` is the last one.
            schedule_due(until: Timestamp, after: Option<&'a Schedule>, limit: u32) -> Vec<Schedule>;

            /// The last value that a run has published under this name.
            published_find(tenant: &'a Tenant, run: RunId, name: &'a str) -> Option<PublishedValue>;

            /// A document (a guard's row).
            document_find(tenant: &'a Tenant, kind: &'a str, id: &'a str) -> Option<Document>;
            /// The documents of a kind by their ids, from behind `after` on.
            document_list(tenant: &'a Tenant, kind: &'a str, after: &'a str, limit: u32) -> Vec<Document>;
            /// The open documents of a kind by their ids, from behind `after` on.
            document_open(tenant: &'a Tenant, kind: &'a str, after: &'a str, limit: u32) -> Vec<Document>;

            /// The events to publish of aggregates that are due at `until` and not set aside: the longest due first,
            /// then by tenant and name; `limit` events in all, those of each aggregate in their order.
            outbox_due(until: Timestamp, limit: u32) -> Vec<Due>;
            /// The earliest instant after `after` at which an aggregate is due.
            outbox_next(after: Timestamp) -> Option<Timestamp>;
            /// Published events that were written at `after` or later, the earliest first.
            outbox_published(after: Timestamp, limit: u32) -> Vec<Published>;
            /// An event, published or not.
            outbox_find(tenant: &'a Tenant, id: &'a str) -> Option<OutboxEvent>;
            /// The position up to which the events of an aggregate are published.
            outbox_aggregate(tenant: &'a Tenant, name: &'a str) -> Option<Aggregate>;
            /// The aggregate that is set aside until this question is answered.
            outbox_set_aside(tenant: &'a Tenant, question: QuestionId) -> Option<Aggregate>;
            /// The aggregates of a tenant that are set aside, in the order of their questions from behind `after` on.
            outbox_all_set_aside(tenant: &'a Tenant, after: QuestionId, limit: u32) -> Vec<Aggregate>;
            /// The event of an aggregate at a position, published or not.
            outbox_at(tenant: &'a Tenant, aggregate: &'a str, seq: i64) -> Option<OutboxEvent>;

            /// A signal, received or not.
            signal_find(tenant: &'a Tenant, run: RunId, name: &'a str, id: &'a str) -> Option<Signal>;
            /// A signal that its run has not received.
            signal_unreceived(tenant: &'a Tenant, run: RunId, name: &'a str, id: &'a str) -> Option<Signal>;
            /// The last position among the signals that a run has not received.
            signal_last(tenant: &'a Tenant, run: RunId) -> Option<i64>;
            /// The signals that these runs have not received, those of each run in the order of receipt.
            signal_pending(runs: &'a [(Tenant, RunId)]) -> Vec<Signal>;

            /// A question by its id.
            escalation_find(tenant: &'a Tenant, id: QuestionId) -> Option<Question>;
            /// The open questions of a tenant, the oldest first, from behind `after` on. An empty page is the end. A
            /// row by which a call [waits](crate::store::QuestionKind::Pending) for its provider does not count as a question.
            escalation_open(tenant: &'a Tenant, after: QuestionId, limit: u32) -> Vec<Question>;
            /// The answered questions of a tenant, the oldest first, from behind `after` on, answered by people or by
            /// the engine.
            escalation_answered(tenant: &'a Tenant, after: QuestionId, limit: u32) -> Vec<Question>;
            /// The number of questions of a tenant for each kind, in the order of the kinds' codes.
            escalation_count(tenant: &'a Tenant) -> Vec<QuestionCount>;
            /// The times of the questions of a tenant, open or answered, those that were opened last first.
            escalation_spans(tenant: &'a Tenant, limit: u32) -> Vec<QuestionSpan>;
            /// The number of open questions of all tenants for each kind, and the instant of the oldest one, in the order of
            /// the kinds' codes.
            escalation_load() -> Vec<QuestionLoad>;
            /// The open questions about a run and its operations, the oldest first.
            escalation_about(tenant: &'a Tenant, run: RunId) -> Vec<Question>;
            /// The same for people: the oldest `limit` of them, without the rows by which calls
            /// [wait](crate::store::QuestionKind::Pending) for their providers.
            escalation_open_about(tenant: &'a Tenant, run: RunId, limit: u32) -> Vec<Question>;
            /// All questions, open or answered, about a record.
            escalation_of(tenant: &'a Tenant, record: RecordId) -> Vec<Question>;
            /// The open questions, of all tenants, about a tool or workflow that a run needs and that is [not
            /// registered](crate::store::QuestionKind::Unregistered), from `after` on: it may be registered by now.
            escalation_unknown_workflow(after: QuestionId, limit: u32) -> Vec<Question>;
            /// The open questions about effects that [happened more than once](crate::store::QuestionKind::Duplicated), of all
            /// tenants, from `after` on.
            escalation_duplicated(after: QuestionId, limit: u32) -> Vec<Question>;

            /// The open questions of all tenants, the oldest first, from behind `after` on, without the rows by which calls
            /// [wait](crate::store::QuestionKind::Pending) for their providers.
            escalation_open_everywhere(after: QuestionId, limit: u32) -> Vec<Question>;

            /// The links of a chain of evidence, from behind the number `after` on.
            link_list(chain: i64, after: i64, limit: u32) -> Vec<Link>;
            /// The next chain of evidence behind this one, in the order of their numbers.
            link_chain(after: i64) -> Option<i64>;

            /// A worker by the name under which it enrolled.
            worker_find(name: &'a str) -> Option<Worker>;
            /// A worker by its fence.
            worker_at(fence: Fence) -> Option<Worker>;

            /// The names of the tenants that have rows, from behind `after` on, in the order of their bytes. A tenant of which
            /// only the [key](Store::tenant_key) is left is not among them.
            tenant_list(after: &'a str, limit: u32) -> Vec<Tenant>;
            /// The key of a tenant for digests of secrets.
            tenant_key(tenant: &'a Tenant) -> Option<DigestKey>;

            /// A large payload by its digest.
            payload_find(tenant: &'a Tenant, digest: PayloadDigest) -> Option<Payload>;
        }
    };
}

pub(in crate::store) use reads;
