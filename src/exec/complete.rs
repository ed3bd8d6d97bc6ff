//! Completions: a callback hands over the result of a call that its provider has finished by itself.

use std::sync::Arc;

use super::completion::{Completed, Completion, Ended, KIND, LONGEST, accepted, id, is_nameable};
use super::core::Core;
use super::escalate;
use super::executor::Executor;
use super::hand_over::{once_more, withdraw};
use super::outcome::{ExecError, failed};
use super::recorded::recorded;
use super::shield::to_the_end;
use crate::id::Tenant;
use crate::ledger::{Record, State};
use crate::payload::Payload;
use crate::store::{Document, Question, Refusal, Store as _, StoreError, Verdict};

impl Executor {
    /// Hands over the result of a call that its provider has [accepted](crate::tool::ToolError::accepted) and finished
    /// by itself. The call is settled with the result, and a run that waits for the call goes on. The tool's name and
    /// the provider's id identify the call: a second completion of the same call changes nothing, and a completion that
    /// arrives before the call's own answer is kept for the call.
    ///
    /// Acknowledge the callback when this method returns.
    ///
    /// ```
    /// # use counterfoil::{Completed, Completion, Executor, Tenant};
    /// # async fn callback(executor: Executor, tenant: Tenant, job: &str, url: &str) -> Result<(), counterfoil::exec::ExecError> {
    /// let rendered = Completion::done("render", job, serde_json::json!({ "url": url }));
    /// if executor.complete(&tenant, rendered).await? == Completed::Known {
    ///     println!("{job} was completed before");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RequestError::UnknownTool`](super::RequestError::UnknownTool) if no such tool is registered, and [`ExecError::Payload`] if the output is too
    /// large or is not what the tool returns. Nothing is kept then.
    ///
    /// # Crash
    /// The completion is durable before anything follows from it. If this process dies in between, the call is settled
    /// by the next lookup, by the callback's next delivery, by the worker that takes this one's work over, or when its run
    /// is resumed.
    pub async fn complete(&self, tenant: &Tenant, completion: Completion) -> Result<Completed, ExecError> {
        let (core, tenant) = (self.core.clone(), tenant.clone());
        to_the_end(&self.core.tracker, async move { complete(&core, &tenant, completion).await }).await
    }
}

async fn complete(core: &Arc<Core>, tenant: &Tenant, completion: Completion) -> Result<Completed, ExecError> {
    let Completion { tool, external_ref, ended } = completion;
    check(core, &tool, &external_ref, &ended)?;
    let id = id(&tool, &external_ref);
    let read = |source| ExecError::Store { key: id.clone(), source };
    let named = accepted(core, tenant, &id).await.map_err(read)?;
    let contradicts = named.as_ref().and_then(|record| contradiction(core, record, &external_ref, &ended));
    // Of a call that is recorded as done, no row but this one holds that its provider says that it failed.
    let is_recorded = named.is_some_and(|record| {
        record.state != State::Started && !(contradicts.is_some() && matches!(ended, Ended::Failed { .. }))
    });
    let ended = if is_recorded { Ended::Recorded } else { ended };
    let first = Document::first(tenant, KIND, id.clone(), &ended, core.now());
    let is_kept = keep(core, first, contradicts).await.map_err(read)?;
    // Read once more: the provider's id may have been stored since the first read.
    let is_taken = match accepted(core, tenant, &id).await.map_err(read)? {
        Some(record) if !is_late(&record, &external_ref) => hand_over(core, &record).await?,
        _ => false,
    };
    Ok(match (is_kept, is_taken) {
        (false, _) => Completed::Known,
        (true, true) => Completed::Taken,
        (true, false) => Completed::Kept,
    })
}

/// Refuses a completion that could not settle any call.
fn check(core: &Core, tool: &str, external_ref: &str, ended: &Ended) -> Result<(), ExecError> {
    let known = core.registry.known(tool).ok_or_else(|| core.unknown_tool(tool))?;
    if !is_nameable(external_ref) {
        let bytes = external_ref.len();
        let reason =
            format!("a provider's id of {bytes} bytes; 1 to {LONGEST} are taken, without control characters");
        return Err(ExecError::Incomplete { tool: tool.to_owned(), reason });
    }
    if let Ended::Done(output) = ended {
        known.check_output(&Payload::of(output)?.within(&core.limits)?)?;
    }
    Ok(())
}

/// Keeps the first completion under an id. `false` if the id has one already.
///
/// # Crash
/// The completion and the question about a completion that contradicts the record are one transaction.
async fn keep(core: &Core, first: Document, contradicts: Option<Question>) -> Result<bool, StoreError> {
    let mut change = core.change(None);
    change.documents.push(first);
    change.escalations.extend(contradicts);
    match core.group.commit_one(change).await? {
        Verdict::Admitted => Ok(true),
        Verdict::Refused(Refusal::Exists) => Ok(false),
        Verdict::Refused(refusal) => Err(StoreError::Io { detail: refusal.to_string() }),
    }
}

/// The question about a completion that contradicts the record of its call.
fn contradiction(core: &Core, record: &Record, external_ref: &str, ended: &Ended) -> Option<Question> {
    match ended {
        Ended::Done(_) if is_late(record, external_ref) => {
            Some(escalate::finished_late(core, record, external_ref))
        }
        Ended::Failed { kind, message } if is_done(record, external_ref) => {
            Some(escalate::failed_late(core, record, external_ref, *kind, message))
        }
        _ => None,
    }
}

/// True if the call is recorded as done by this request.
fn is_done(record: &Record, external_ref: &str) -> bool {
    matches!(record.state, State::Committed { .. }) && record.external_ref.as_deref() == Some(external_ref)
}

/// True if the call was settled as not done, or if the record names another request of the call.
fn is_late(record: &Record, external_ref: &str) -> bool {
    matches!(record.state, State::Failed { .. } | State::Abandoned { .. })
        || record.external_ref.as_deref() != Some(external_ref)
}

/// Ends the record's wait, so that its run or a background task settles the call with the completion. `false` if the
/// call is in flight. If the wait has ended and no worker handles the call, the call is settled now.
async fn hand_over(core: &Arc<Core>, record: &Record) -> Result<bool, ExecError> {
    let Some(question) = record.escalation else {
        let is_left = record.is_left();
        if is_left {
            once_more(core, record.clone());
        }
        return Ok(is_left);
    };
    let asked = core.group.escalation_find(&record.tenant, question).await;
    let asked = asked.map_err(|source| failed(&record.key, source))?;
    let Some(asked) = asked.filter(|asked| asked.answer.is_none() && asked.kind.is_about_call()) else {
        return Ok(false);
    };
    let Ok(op) = recorded(core, record).await? else { return Ok(false) };
    withdraw(core, &op, record, asked).await.map(|()| true)
}
