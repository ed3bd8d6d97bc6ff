//! The hand-over of a record that no longer waits to its run or to a background task.

use std::sync::Arc;

use super::carry::look_only;
use super::core::Core;
use super::escalate;
use super::operation::Operation;
use super::orphans;
use super::outcome::{ExecError, failed, unless_panicked};
use crate::ledger::{Record, State};
use crate::store::{Question, Store as _};

/// Withdraws the question, because the lookup has an answer, and hands the record over.
pub(super) async fn withdraw(
    core: &Arc<Core>,
    op: &Operation,
    record: &Record,
    asked: Question,
) -> Result<(), ExecError> {
    let question = asked.clone();
    if escalate::withdraw(core, op, record, asked).await? {
        let withdrawn = escalate::withdrawn(core, question);
        hand_over(core, record, withdrawn).await;
    }
    Ok(())
}

/// Hands over a record that is `started` again. A run that wants the call finds its outcome; without one, a background
/// task does. The withdrawal is durable: a store that is away now must not leave the record to nobody.
async fn hand_over(core: &Arc<Core>, record: &Record, question: Question) {
    core.quiet.forget(question.id);
    core.tell_answered(question).await;
    let record = Arc::new(record.clone());
    let left = record.clone();
    let attempt = move |core: Arc<Core>| {
        let record = record.clone();
        async move {
            if !is_awaited(&core, &record).await?
                && let Some(record) = at(&core, &record).await?
            {
                orphans::in_background(&core, record);
            }
            Ok::<_, ExecError>(())
        }
    };
    core.until_stored(attempt, move |error: ExecError| {
        log_record!(error, left, %error, "call not reconciled, next process does it");
    });
}

/// Settles a record in the background whose wait has ended, unless a run does: the worker that ended the wait may have
/// failed or died before it settled the call. Nothing is sent.
pub(super) fn once_more(core: &Arc<Core>, record: Record) {
    let record = Arc::new(record);
    let left = record.clone();
    let attempt = move |core: Arc<Core>| {
        let record = record.clone();
        async move {
            if is_awaited(&core, &record).await? {
                return Ok(());
            }
            unless_panicked(&record.key, Box::pin(look_only(&core, &record))).await
        }
    };
    core.until_stored(attempt, move |error: ExecError| {
        log_record!(error, left, %error, "call not reconciled, next process does it");
    });
}

/// True if the run that made the call goes on, and finds the outcome itself.
async fn is_awaited(core: &Core, record: &Record) -> Result<bool, ExecError> {
    let Some(run) = record.owner.run else { return Ok(false) };
    let run = core.group.run_find(&record.tenant, run).await;
    Ok(run.map_err(|source| failed(&record.key, source))?.is_some_and(|run| !run.state.is_final()))
}

async fn at(core: &Core, record: &Record) -> Result<Option<Record>, ExecError> {
    let found = core.group.record_at(&record.tenant, record.id).await;
    Ok(found.map_err(|source| failed(&record.key, source))?.filter(|record| record.state == State::Started))
}
