//! A call whose response is over the limit: its failure is given to the run's code, which may handle it.
//!
//! A failure that the code returns blocks the run. When the run goes on, the failure does not count any more: the call
//! is asked for again, and under a higher limit its lookup may have brought the response.

use super::failure::{Failure, FailureCode};
use super::identity::Identity;
use super::live::{Live, Open};
use crate::exec::ExecError;
use crate::id::RecordId;
use crate::store::{QuestionKind, Store as _};

/// The record of the call whose response is over the limit, if this is such a failure.
pub(super) fn record_of(failure: &Failure) -> Option<RecordId> {
    let is_oversized = failure.code == FailureCode::ResponseTooLarge;
    failure.detail.get("record").filter(|_| is_oversized)?.as_str()?.parse().ok()
}

/// The identity of the checkpoint by which the code is given the failure from now on. It is another one after each
/// block.
pub(super) async fn given_as(
    live: &Live,
    identity: &Identity,
    record: RecordId,
) -> Result<Identity, ExecError> {
    let asked = live.core.group.escalation_of(&live.tenant, record).await;
    let asked = asked.map_err(|source| ExecError::Store { key: live.id.to_string(), source })?;
    let blocked =
        asked.iter().filter(|asked| asked.run == Some(live.id) && asked.kind == QuestionKind::Quarantined);
    Ok(identity.after_blocks(blocked.count()))
}

/// The failure that the code was given in an earlier life, where `first` was the first time. `None` if the run was
/// blocked by it since, and the call is asked for again.
pub(super) async fn given(live: &Live, open: &Open, first: Failure) -> Result<Option<Failure>, ExecError> {
    let Some(record) = record_of(&first) else { return Ok(Some(first)) };
    let identity = given_as(live, &open.identity, record).await?;
    if identity == open.identity {
        return Ok(Some(first));
    }
    let past = live.with_replay(|replay| {
        replay.ask(&identity);
        replay.step(&identity)?.value.clone()
    });
    let Some(past) = past else { return Ok(None) };
    let failure = live.core.load(&live.tenant, &past).await?;
    Ok(Some(Failure::recorded(&failure)))
}
