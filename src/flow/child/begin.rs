//! A child is begun: its row, and its parent's record of it, in one change.

use super::lineage::ENDED;
use crate::exec::{ExecError, to_the_end};
use crate::flow::again::{Mark, Place, checkpoint, child_begun_again};
use crate::flow::identity::Identity;
use crate::flow::live::{Live, Open};
use crate::flow::workflow::Registered;
use crate::id::{RunId, RunNumber};
use crate::ledger::RequestHash;
use crate::payload::{Payload, Stored};
use crate::store::{InQueue, Run, RunState, Verdict};

impl Live {
    /// The run that was begun here before this one was begun again, and how that was done.
    fn former(&self, identity: &Identity) -> Option<(RunId, Vec<Mark>)> {
        self.with_replay(|replay| {
            let Identity { turn, kind, name, id } = identity;
            let place: Place = (*turn, kind.checkpoint().code(), name.clone(), id.clone());
            Some((replay.again.former(&place)?, replay.again.marks().to_vec()))
        })
    }

    pub(super) async fn begin_child(
        &self,
        open: &Open,
        workflow: &Registered,
        input: Payload,
        input_hash: RequestHash,
        parent: Option<RunId>,
        queue: Option<Box<InQueue>>,
    ) -> Result<RunId, ExecError> {
        let core = &self.engine.core;
        let failed = |source| ExecError::Store { key: open.identity.to_string(), source };
        // Boxed because it is rare.
        let (number, mark) = match self.former(&open.identity) {
            None => (None, None),
            Some((former, marks)) => {
                Box::pin(child_begun_again(core, &self.tenant, former, marks)).await?.unzip()
            }
        };
        core.group.room().await;
        let (input, large) = core.storable(input);
        let now = core.now();
        let run = Run {
            id: RunId(core.ids.next()),
            tenant: self.tenant.clone(),
            number: number.unwrap_or_else(|| RunNumber::draw(&*core.entropy)),
            workflow: workflow.name.clone(),
            version: workflow.version,
            // Its parent's checkpoint tells it apart; this is for people, and for a store that is looked at by hand.
            key: Some(format!("{ENDED}/{}/{}", self.id, self.recorded_as(&open.identity).place())),
            parent,
            input,
            input_hash,
            state: if queue.is_some() { RunState::Queued } else { RunState::Active },
            queue: queue.clone(),
            fence: core.fence,
            revision: 1,
            deaths: 0,
            unsettled: false,
            base: 0,
            turn: 1,
            created_at: now,
            updated_at: now,
        };
        let id = run.id;
        let value = Payload::of(&id).unwrap_or_else(|_| Payload::stored(id.0.to_string()));
        let identity = &open.identity;
        let step = self.step(identity, identity.kind.checkpoint(), Some(input_hash), Stored::Inline(value));
        let mut change = core.change(Some(self.lane)).step(step).run(run.clone());
        change.payloads.extend(large.map(|payload| (self.tenant.clone(), payload)));
        if let Some(mark) = mark {
            let (step, large) = checkpoint(core, (&run.tenant, run.id, run.base), "begun again", &mark)?;
            change.steps.push(step);
            change.payloads.extend(large.map(|payload| (self.tenant.clone(), payload)));
        }
        let engine = self.engine.clone();
        // Dropped between the row and the task, as what loses a select is, this would leave a child that nobody has.
        let begun = to_the_end(&core.tracker, async move {
            let verdict = engine.core.group.commit_one(change).await;
            match (&verdict, queue) {
                (Ok(Verdict::Admitted), Some(queue)) => engine.queued(queue.name.as_str()).await,
                (Ok(Verdict::Admitted), None) => engine.spawn(Box::new(run), None),
                _ => engine.perhaps_ours(&run.tenant, run.id),
            }
            verdict
        });
        match begun.await.map_err(failed)? {
            Verdict::Admitted => Ok(id),
            Verdict::Refused(refusal) => Err(ExecError::Refused { key: open.identity.to_string(), refusal }),
        }
    }
}
