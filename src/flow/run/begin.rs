//! The begin of an activation: the run's history is read, and its code is found.

use std::sync::Arc;

use super::activation::Activation;
use super::end::End;
use crate::clock::Timestamp;
use crate::exec::{Core, ExecError};
use crate::flow::again::{self, Again};
use crate::flow::command::Command;
use crate::flow::ctx::Ctx;
use crate::flow::live::Live;
use crate::flow::replay::Replay;
use crate::flow::resume;
use crate::flow::workflow::Body;
use crate::payload::Stored;
use crate::store::{QuestionKind, Run, Store as _, StoreError};

pub(super) async fn resumed(core: &Arc<Core>, run: Box<Run>) -> Result<Arc<Live>, End> {
    let history = match core.group.run_history(&run.tenant, run.id, run.present()).await {
        Ok(history) => history,
        Err(error) => return Err(unreadable(core, run, error).await),
    };
    let again = match again::marks(core, &run.tenant, &history).await {
        Ok(marks) => Again::of(marks),
        Err(ExecError::Store { source, .. }) => return Err(unreadable(core, run, source).await),
        Err(error) => return Err(End::Failed(error)),
    };
    let replay = Replay::of(history, again);
    let told = match told(core, &run, &replay).await {
        Ok(told) => told,
        Err(ExecError::Store { source, .. }) => return Err(unreadable(core, run, source).await),
        Err(error) => return Err(End::Failed(error)),
    };
    let live = Live::new(core.clone(), *run, core.new_lane(), replay);
    if let Some((until, command)) = told {
        live.cancelled(until, command);
    }
    Ok(live)
}

/// The command to cancel the run that the run received before its present turn, and the instant until which the run may
/// end by itself (UTC).
async fn told(
    core: &Arc<Core>,
    run: &Run,
    replay: &Replay,
) -> Result<Option<(Option<Timestamp>, Stored)>, ExecError> {
    let Some(stored) = replay.told(run.base) else { return Ok(None) };
    let command = Command::of(&core.load(&run.tenant, stored).await?);
    Ok(Some((command.ok().and_then(|command| command.until), stored.clone())))
}

/// Blocks a run that has a damaged row. Other runs go on.
pub(in crate::flow) async fn unreadable(core: &Arc<Core>, run: Box<Run>, error: StoreError) -> End {
    let StoreError::Corrupt { .. } = error else {
        return End::Failed(ExecError::Store { key: run.id.to_string(), source: error });
    };
    let question = format!("{}: {error}. Repair it and go on, or abandon the run?", run.id);
    let live = Live::unread(core, *run);
    resume::block(&live, QuestionKind::Damaged, question).await
}

/// The body of a run, to be polled. If the body cannot be started, the activation ends.
pub(super) async fn body(this: Activation<'_>) -> Result<Body, End> {
    let Activation { engine, live } = this;
    let run = live.run();
    let workflows = &engine.workflows;
    let Some(workflow) = workflows.find(run.workflow.as_str(), run.version) else {
        let question = workflows.unknown(&run);
        return Err(resume::block(live, QuestionKind::Unregistered, question).await);
    };
    if workflow.version != run.version {
        // Written in the run's lane, so that no record of the newer version is durable before the version is.
        tracing::info!(tenant = %run.tenant, run = %run.id, workflow = %run.workflow, from = run.version, to = workflow.version, "run moved to another version");
        drop(live.change_run(|run| run.version = workflow.version));
    }
    let continued = live.with_replay(|replay| replay.input(run.base).and_then(|step| step.value.clone()));
    let input = continued.as_ref().unwrap_or(&run.input);
    let input = live.core.load(&run.tenant, input).await.map_err(End::Failed)?;
    match (workflow.start)(Ctx::new(engine.clone(), live.clone()), &input) {
        Ok(body) => Ok(body),
        Err(error) => {
            let question = format!("{}: {error}. Restore the type and go on, or abandon?", run.id);
            Err(resume::block(live, QuestionKind::Damaged, question).await)
        }
    }
}
