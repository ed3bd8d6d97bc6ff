//! What a resumed run has recorded of a call.

use std::sync::Arc;

use super::failure::Failure;
use super::live::{HeldCall, Live, Open, Stop};
use super::oversized;
use super::replay::Recorded;
use crate::exec::{Answer, ExecError, Operation, look_only};
use crate::id::RecordId;
use crate::ledger::{Decision, Record, State};
use crate::payload::Stored;
use crate::store::{QuestionKind, Store as _};

/// What an earlier activation has left of a call.
pub(super) enum Past {
    /// Nothing.
    None,
    /// A record without a result, or another's: to be looked at.
    Unsettled,
    /// This is what became of it.
    Over(Result<Answer, Failure>),
}

/// What a resumed run has recorded of a call. If that is nothing, this waits until new effects may go out.
pub(super) async fn past(live: &Arc<Live>, open: &Open, op: &Operation) -> Result<Past, Failure> {
    // Before the future may turn out to be abandoned: a call that lost a select was asked for all the same, and
    // its effect needs no decision.
    let recorded = live.with_replay(|replay| replay.call(&op.key));
    if let Some(Recorded::Own { record, response: None, .. }) = &recorded
        && live.check.is_none()
        && live.with_replay(|replay| replay.is_abandoned(&open.identity))
    {
        settle_dropped(live, *record);
    }
    // A failure that was shown to the run stays what it was, even if the operation could be tried again.
    if let Some(past) = live.recorded(open).await? {
        if let Some(then) = past.input_hash
            && then != op.hash
            && !is_recorded_request(live, op).await?
        {
            // Carried out, it would be a conflict, which cannot be recorded beside the first failure: the run would
            // be started over again and again, and nobody would be asked.
            let question = format!(
                "{}: the {} has another input than when its failure was recorded ({then:?} then, {:?} now): \
                 the code or its input changed. Restore it and go on, or abandon?",
                live.id, open.identity, op.hash
            );
            let kind = QuestionKind::Diverged;
            return live.stop(Stop::Block { kind, question, record: None, kept: Vec::new() }).await;
        }
        if let Some(stored) = past.value {
            let given = match live.core.load(&live.tenant, &stored).await {
                Ok(failure) => {
                    oversized::given(live, open, failure.decode().unwrap_or_else(Failure::from)).await
                }
                Err(error) => Err(error),
            };
            match given {
                Ok(Some(failure)) => return Ok(Past::Over(Err(failure))),
                Ok(None) => {} // it blocked the run, and is asked again
                Err(error) => return Err(live.failure(error).await),
            }
        }
    }
    match recorded {
        Some(Recorded::Own { record, request_hash, response: Some(response) })
            if request_hash == op.hash && !matches!(response, Stored::Oversized(_)) =>
        {
            match live.core.load(&live.tenant, &response).await {
                Ok(response) => Ok(Past::Over(Ok(Answer::replayed(response, record)))),
                Err(error) => Err(live.failure(error).await),
            }
        }
        Some(recorded) => read_back(live, op, &recorded).await,
        None => {
            let tool = op.tool.spec().name.to_string();
            let held = HeldCall { tool, key: op.key.as_str().to_owned(), hash: op.hash };
            live.released(open, Some(held)).await;
            Ok(Past::None)
        }
    }
}

/// What is recorded under the key is this request, although its hash is another one: the input's type or the rule of what is bound has
/// another version.
async fn is_recorded_request(live: &Live, op: &Operation) -> Result<bool, Failure> {
    let decided = async {
        let found = live.core.find(&op.tenant, &op.key).await?;
        Ok::<_, ExecError>(match found {
            Some(record) => op.decide(&live.core, Some(&record)).await? != Decision::Conflict,
            None => false,
        })
    };
    match decided.await {
        Ok(is_it) => Ok(is_it),
        Err(error) => Err(live.failure(error).await),
    }
}

/// What the record of another says, if that is over. Read at work, and not at rest: or the replay would be taken for
/// quiescent, and what the run asked for behind this call for something that it does not ask for again.
async fn read_back(live: &Arc<Live>, op: &Operation, recorded: &Recorded) -> Result<Past, Failure> {
    let Recorded::SharedEffect = recorded else { return Ok(Past::Unsettled) };
    let (core, key) = (&live.core, &op.key);
    let found = core.group.record_find(&live.tenant, key).await;
    let read = match found {
        Ok(Some(Record { id, state: State::Committed { response }, request_hash, .. }))
            if request_hash == op.hash && !matches!(response, Stored::Oversized(_)) =>
        {
            core.load(&live.tenant, &response)
                .await
                .map(|response| Past::Over(Ok(Answer::replayed(response, id))))
        }
        Ok(_) => Ok(Past::Unsettled),
        Err(source) => Err(ExecError::Store { key: key.to_string(), source }),
    };
    match read {
        Ok(past) => Ok(past),
        Err(error) => Err(live.failure(error).await),
    }
}

/// A call that was dropped, and whose process died before its outcome was recorded: nobody waits for it, but its
/// effect must not be forgotten.
pub(super) fn settle_dropped(live: &Live, id: RecordId) {
    let (core, tenant) = (live.core.clone(), live.tenant.clone());
    core.tracker.clone().spawn(async move {
        let settled = match core.group.record_at(&tenant, id).await {
            Ok(Some(record)) if record.state == State::Started => look_only(&core, &record).await,
            _ => Ok(()),
        };
        if let Err(error) = settled {
            tracing::error!(%tenant, record = %id, %error, "a dropped call is not settled");
        }
    });
}
