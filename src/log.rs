//! Macros for the events of the log. Each event about a call has the same fields in the same order, wherever it is written.
//!
//! The fields of an event are put together only if somebody listens to its level. No event holds a payload, a secret or the text of
//! a question. `docs/observe.md` lists all events.

/// Logs an event about a call, by its operation.
macro_rules! log_call {
    ($level:ident, $op:expr, $($rest:tt)+) => {
        tracing::$level!(
            tenant = %$op.tenant,
            run = $op.owner.run.map(tracing::field::display),
            tool = %$op.tool.spec().name,
            key = %$op.key,
            $($rest)+
        )
    };
}

/// Logs an event about a call, by its record.
macro_rules! log_record {
    ($level:ident, $record:expr, $($rest:tt)+) => {
        tracing::$level!(
            tenant = %$record.tenant,
            run = $record.owner.run.map(tracing::field::display),
            tool = %$record.operation,
            key = %$record.key,
            $($rest)+
        )
    };
}

/// Logs an error of something that is tried again: at `debug` if the log has a report of its own about the cause, because the database
/// is away or the engine shuts down, and otherwise at `error`.
macro_rules! log_trouble {
    ($error:expr, $($rest:tt)+) => {
        if $error.is_reported() {
            tracing::debug!(error = %$error, $($rest)+);
        } else {
            tracing::error!(error = %$error, $($rest)+);
        }
    };
}
