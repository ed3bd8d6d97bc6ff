//! The hand-over of a record that no longer waits to its run or to a background task.

use std::sync::Arc;

use super::core::Core;
use super::escalate;
use super::operation::Operation;
use super::orphans;
use super::outcome::{ExecError, failed};
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
        hand_over(core, record, withdrawn).await?;
    }
    Ok(())
}

/// Hands over a record that is `started` again. A run that wants the call finds its outcome; without one, a background
/// task does.
async fn hand_over(core: &Arc<Core>, record: &Record, question: Question) -> Result<(), ExecError> {
    core.quiet.forget(question.id);
    core.tell_answered(question).await;
    let is_left = match record.owner.run {
        None => true,
        Some(run) => {
            let run = core.group.run_find(&record.tenant, run).await;
            run.map_err(|source| failed(&record.key, source))?.is_none_or(|run| run.state.is_final())
        }
    };
    if is_left && let Some(record) = at(core, record).await? {
        orphans::in_background(core, record);
    }
    Ok(())
}

async fn at(core: &Core, record: &Record) -> Result<Option<Record>, ExecError> {
    let found = core.group.record_at(&record.tenant, record.id).await;
    Ok(found.map_err(|source| failed(&record.key, source))?.filter(|record| record.state == State::Started))
}
