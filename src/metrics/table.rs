//! The metrics, all of them: the name, the kind, the labels and the meaning of each. `docs/metrics.md` has the same table.

use super::{Kind, Metric};

macro_rules! table {
    ($($name:ident = $kind:ident $text:literal [$($label:literal)*] $meaning:literal;)+) => {
        $(pub(crate) static $name: Metric =
            Metric { name: $text, kind: Kind::$kind, labels: &[$($label),*], meaning: $meaning };)+

        /// All metrics, in the order of the table.
        pub(super) static ALL: &[&Metric] = &[$(&$name),+];
    };
}

table! {
    // Calls.
    DECISIONS = Counter "counterfoil_decisions_total" ["tool" "decision"]
        "Requests for a call, by what the record under their key meant for them.";
    CONFLICT_CHANGES = Sizes "counterfoil_conflict_changes" ["tool"]
        "Differences between the recorded request and one under the same key that was refused as a conflict.";
    ATTEMPTS = Counter "counterfoil_attempts_total" ["tool" "attempt" "result"]
        "Attempts that were sent: the first ones of their calls and those after them, by their results.";
    ATTEMPT_SECONDS = Seconds "counterfoil_attempt_seconds" ["tool" "attempt"]
        "Time that the tool took for an attempt.";
    ATTEMPT_COST = Counter "counterfoil_attempt_cost_total" ["tool" "attempt"]
        "Cost that the tool reported for an answered attempt.";
    RETRIES_EXHAUSTED = Counter "counterfoil_retries_exhausted_total" ["tool"]
        "Calls that failed because the tool's policy allowed no further attempt.";
    CALL_SECONDS = Seconds "counterfoil_call_seconds" ["tool" "basis"]
        "Time from the first request for a call to its durable result.";
    CALLS_FAILED = Counter "counterfoil_calls_failed_total" ["tool" "kind"]
        "Failures of calls that are durable: those that are tried again are not counted.";
    CALLS_WITHHELD = Counter "counterfoil_calls_withheld_total" ["tool" "why"]
        "Calls and attempts of which nothing was sent: by a policy, for a budget, or because a need had lapsed.";
    AMBIGUOUS = Counter "counterfoil_ambiguous_total" ["tool"]
        "Calls whose outcome was unknown and that were reconciled.";
    AMBIGUOUS_OPEN = Gauge "counterfoil_ambiguous_open" []
        "Calls of unknown outcome that this worker has not settled.";
    RECONCILED = Counter "counterfoil_reconciled_total" ["tool" "result" "basis"]
        "Ends of reconciliations, by the result and by what it rests on.";
    LOOKUPS = Counter "counterfoil_lookups_total" ["tool" "result"]
        "Lookups at providers, by what they showed.";
    DUPLICATES = Counter "counterfoil_duplicates_total" []
        "Effects that were found to have happened more than once.";
    COMPENSATIONS = Counter "counterfoil_compensations_total" ["tool" "result"]
        "Effects that were undone, wholly or in part.";
    BREAKER_OPEN = Gauge "counterfoil_breaker_open" ["gate"]
        "1 while the breaker of a tool or provider holds calls back, else 0.";

    // Runs.
    RUNS = Counter "counterfoil_runs_total" ["workflow" "event"]
        "Durable changes in the state of runs.";
    RUN_SECONDS = Seconds "counterfoil_run_seconds" ["workflow" "result"]
        "Time from the start of a run to its end.";
    QUEUE_RUNS = Gauge "counterfoil_queue_runs" ["queue" "state"]
        "Runs of a queue that wait for their turn, and that have a place.";

    // Questions.
    QUESTIONS = Counter "counterfoil_questions_total" ["kind" "event"]
        "Questions that were asked, answered and withdrawn.";
    QUESTIONS_OPEN = Gauge "counterfoil_questions_open" ["kind"]
        "Open questions of all tenants.";
    QUESTION_AGE = Gauge "counterfoil_question_oldest_seconds" ["kind"]
        "Age of the oldest open question of all tenants.";

    // The outbox.
    EVENTS = Counter "counterfoil_events_total" ["result"]
        "Events of the outbox: published, refused by the sink, or set aside.";

    // The database.
    WRITE_SECONDS = Seconds "counterfoil_write_seconds" []
        "Time of one transaction that writes the changes of many runs.";
    WRITE_CHANGES = Sizes "counterfoil_write_changes" []
        "Changes that one transaction writes.";
    WRITES_QUEUED = Gauge "counterfoil_writes_queued" []
        "Changes that wait to be written.";
    DATABASE_AWAY = Gauge "counterfoil_database_away_seconds" []
        "Time since which the database does not answer; 0 while it does.";
    LOG_BYTES = Gauge "counterfoil_database_log_bytes" []
        "Size of the write-ahead log of a SQLite file.";
    CONNECTIONS = Gauge "counterfoil_connections" ["state"]
        "Open connections for reading, in use and idle.";

    // Workers of a shared database.
    WORKERS = Gauge "counterfoil_workers" ["state"]
        "Workers of the database: live, and late, which means that the lease ran out and nobody has taken the work over yet.";
    HEARTBEATS = Counter "counterfoil_heartbeats_total" ["result"]
        "Heartbeats of this worker, renewed and failed.";
    HEARTBEAT_AGE = Gauge "counterfoil_heartbeat_age_seconds" []
        "Time since this worker last renewed its lease.";
    LEASES = Counter "counterfoil_leases_ended_total" ["whose"]
        "Leases that ended without the worker's sign-off: this worker's own, and others that it has ended.";
}
