//! The begin of a child: its row, and its parent's record of it, in one change.

use std::sync::Arc;

use super::lineage::ENDED;
use crate::exec::{ExecError, to_the_end};
use crate::flow::again::{Mark, Place, checkpoint, child_begun_again};
use crate::flow::ctx::Ctx;
use crate::flow::identity::Identity;
use crate::flow::inner::Inner;
use crate::flow::live::{Live, Open};
use crate::flow::row::NewRow;
use crate::flow::workflow::Registered;
use crate::id::{RunId, RunNumber};
use crate::ledger::RequestHash;
use crate::payload::{Payload, Stored};
use crate::store::{Change, InQueue, Run, StoreError, Verdict};
/// A child that is to be begun.
pub(super) struct NewChild {
    pub(super) workflow: Registered,
    pub(super) input: Payload,
    pub(super) input_hash: RequestHash,
    /// True if the child ends with its parent, which it tells of its end.
    pub(super) attached: bool,
    pub(super) queue: Option<Box<InQueue>>,
}

impl Ctx {
    pub(super) async fn begin_child(&self, open: &Open, child: NewChild) -> Result<RunId, ExecError> {
        let (live, identity) = (&self.live, &open.identity);
        let core = &live.core;
        // Boxed because a former run is rare.
        let former = match former(live, identity) {
            None => None,
            Some((former, marks)) => Box::pin(child_begun_again(core, &live.tenant, former, marks)).await?,
        };
        core.group.room().await;
        let (run, change) = to_be_written(live, identity, child, former)?;
        let id = run.id;
        // A future dropped between the row and the task, as by a lost select, would leave a child that no worker
        // carries out.
        match to_the_end(&core.tracker, begin(self.engine.clone(), run, change)).await {
            Ok(Verdict::Admitted) => Ok(id),
            Ok(Verdict::Refused(refusal)) => Err(ExecError::Refused { key: identity.to_string(), refusal }),
            Err(source) => Err(ExecError::Store { key: identity.to_string(), source }),
        }
    }
}

/// The child's former run, which was begun here before the parent was begun again, and the parent's marks.
fn former(live: &Live, identity: &Identity) -> Option<(RunId, Vec<Mark>)> {
    live.with_replay(|replay| {
        let Identity { turn, kind, name, id } = identity;
        let place: Place = (*turn, kind.checkpoint().code(), name.clone(), id.clone());
        Some((replay.again.former(&place)?, replay.again.marks().to_vec()))
    })
}

/// The child's row, and the change that writes it together with its parent's record of it. `former`: the number and the
/// mark that the child takes over from its former run.
fn to_be_written(
    live: &Live,
    identity: &Identity,
    child: NewChild,
    former: Option<(RunNumber, Mark)>,
) -> Result<(Run, Change), ExecError> {
    let core = &live.core;
    let NewChild { workflow, input, input_hash, attached, queue } = child;
    let (number, mark) = former.unzip();
    let (input, large) = core.storable(input);
    // The parent's checkpoint identifies the child. The key is for people, and tells `Run::begun_in` the turn.
    let key = format!("{ENDED}/{}/{}", live.id, live.recorded_as(identity).place());
    let now = core.now();
    let row = NewRow {
        tenant: &live.tenant,
        workflow: &workflow,
        number,
        key: Some(key),
        parent: attached.then_some(live.id),
        queue,
        deadline: workflow.deadline,
        input,
        input_hash,
        traceparent: Some(*live.trace),
    };
    let run = row.at(core, now);
    let value = Payload::of(&run.id).unwrap_or_else(|_| Payload::stored(run.id.0.to_string()));
    let step = live.step(identity, identity.kind.checkpoint(), Some(input_hash), Stored::Inline(value));
    let mut change = core.change(Some(live.lane)).step(step).run(run.clone());
    change.payloads.extend(large.map(|payload| (live.tenant.clone(), payload)));
    if let Some(mark) = mark {
        let (step, large) = checkpoint(core, (&run.tenant, run.id, run.base), "begun again", &mark)?;
        change.steps.push(step);
        change.payloads.extend(large.map(|payload| (live.tenant.clone(), payload)));
    }
    Ok((run, change))
}

/// Writes the child, and gives it a task or a place in its queue.
async fn begin(engine: Arc<Inner>, run: Run, change: Change) -> Result<Verdict, StoreError> {
    let verdict = engine.core.group.commit_one(change).await;
    match &verdict {
        Ok(Verdict::Admitted) => engine.go_on(Box::new(run)).await,
        _ => engine.perhaps_ours(&run.tenant, run.id),
    }
    verdict
}
