//! The records of a resumed run about a call.

use std::sync::Arc;

use super::failure::Failure;
use super::live::{HeldCall, Live, Open, Stop};
use super::oversized;
use super::replay::Recorded;
use crate::exec::{Answer, Core, ExecError, Operation, look_only, unless_panicked};
use crate::id::RecordId;
use crate::ledger::{Decision, Record, State};
use crate::payload::Stored;
use crate::store::{QuestionKind, Store as _};

/// The record that an earlier activation left of a call.
pub(super) enum Past {
    /// There is no record of the call.
    None,
    /// A record without a result, or another run's record, which is to be read.
    Unsettled,
    /// The recorded outcome of the call.
    Over(Result<Answer, Failure>),
}

/// Reads the record of a resumed run about a call. If there is none, this waits until new effects may go out.
pub(super) async fn past(live: &Arc<Live>, open: &Open, op: &Operation) -> Result<Past, Failure> {
    // Asked before the future may turn out to be abandoned: a call that lost a select was asked for all the same, and
    // its effect needs no decision.
    let recorded = live.with_replay(|replay| replay.call(&op.key));
    if let Some(Recorded::Own { record, response: None, .. }) = &recorded
        && live.check.is_none()
        && live.with_replay(|replay| replay.is_abandoned(&open.identity))
    {
        settle_dropped(live, *record);
    }
    // A failure that the run's code was given stays the same, even if the operation could be tried again.
    if let Some(past) = live.recorded(open).await? {
        if let Some(then) = past.input_hash
            && then != op.hash
            && !is_recorded_request(live, op).await?
        {
            // Carried out, the call would be a conflict, which cannot be recorded beside the first failure: the run
            // would be started over again and again, and nobody would be asked.
            let question = format!(
                "{}: the {} has another input than when its failure was recorded ({then:?} then, {:?} now): \
                 the code or its input changed. Restore it and go on, or abandon?",
                live.id, open.identity, op.hash
            );
            return live.stop(Stop::block(QuestionKind::Diverged, question)).await;
        }
        if let Some(stored) = past.value {
            let given = match live.core.load(&live.tenant, &stored).await {
                Ok(failure) => oversized::given(live, open, Failure::recorded(&failure)).await,
                Err(error) => Err(error),
            };
            match given {
                Ok(Some(failure)) => return Ok(Past::Over(Err(failure))),
                Ok(None) => {} // the failure blocked the run, and the call is asked for again
                Err(error) => return Err(live.failure(error).await),
            }
        }
    }
    match recorded {
        Some(Recorded::Own { record, request_hash, response: Some(response) })
            if request_hash == op.hash && !matches!(response, Stored::Oversized(_)) =>
        {
            match live.core.load(&live.tenant, &response).await {
                Ok(response) => Ok(Past::Over(Ok(Answer::replayed(response, op.key.clone(), record)))),
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

/// True if the record under the key is of this request, although its hash is another one: the input's type or the rule
/// of the bound fields has another version.
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

/// Reads another run's record, if it has an outcome. The read counts as work, and not as rest: otherwise the replay
/// would be taken for quiescent, and everything that the code asks for behind this call for something that it no longer
/// asks for.
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
                .map(|response| Past::Over(Ok(Answer::replayed(response, key.clone(), id))))
        }
        Ok(_) => Ok(Past::Unsettled),
        Err(source) => Err(ExecError::Store { key: key.to_string(), source }),
    };
    match read {
        Ok(past) => Ok(past),
        Err(error) => Err(live.failure(error).await),
    }
}

/// Finds out the outcome of a call that was dropped, and whose process died before the outcome was recorded. No future
/// waits for the outcome, but the effect must not be forgotten.
pub(super) fn settle_dropped(live: &Live, id: RecordId) {
    let (tenant, of) = (live.tenant.clone(), live.tenant.clone());
    let attempt = move |core: Arc<Core>| {
        let tenant = tenant.clone();
        async move {
            let found = core.group.record_at(&tenant, id).await;
            let found = found.map_err(|source| ExecError::Store { key: id.to_string(), source })?;
            let Some(record) = found.filter(|record| record.state == State::Started) else { return Ok(()) };
            unless_panicked(&record.key, Box::pin(look_only(&core, &record))).await
        }
    };
    live.core.until_stored(attempt, move |error: ExecError| {
        log_trouble!(error, tenant = %of, record = %id, "dropped call not reconciled, next process does it");
    });
}
