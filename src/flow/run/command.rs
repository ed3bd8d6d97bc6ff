//! The effect of a command on an activation: the run is blocked, or cancelled.

use std::sync::Arc;

use super::activation::Activation;
use super::end::End;
use crate::exec::ExecError;
use crate::flow::command::{Command, Verb};
use crate::flow::live::Live;
use crate::flow::resume::{self, Asked};
use crate::payload::{Payload, Stored};
use crate::store::{QuestionKind, RunState, Signal, StepKind, Store as _, Turns};

impl Activation<'_> {
    /// Blocks a paused run with the question whether it may go on.
    pub(super) async fn pause(self, signal: Signal) -> End {
        let live = self.live;
        match command(live, Some(&signal.body)).await {
            Ok(command) => {
                let question = command.question(live.id);
                let (kind, command) = (QuestionKind::Paused, Some(signal));
                resume::block_on(live, Asked { command, ..Asked::of(kind, question) }).await
            }
            Err(error) => End::Failed(error),
        }
    }

    /// Cancels the run: it fails, after its children were cancelled.
    ///
    /// # Crash
    /// The command stays until the run has ended: a worker that takes the run over finds it, and does the same again.
    pub(super) async fn cancel(self) -> End {
        let live = self.live;
        let cancelled = async {
            let body = match live.cancel_pending() {
                Some(signal) => Some(signal.body),
                None => received_before(live).await?,
            };
            let command = command(live, body.as_ref()).await?;
            tracing::info!(tenant = %live.tenant, run = %live.id, by = command.by, "cancel command obeyed");
            live.flushed().await?; // the row of a child that the run has just begun must be durable to be found
            self.engine.cancel_children(&live.tenant, live.id, &command).await?;
            Ok(command)
        };
        match cancelled.await {
            Ok(command) => self.finish(Err(command.failure())).await,
            Err(error) => End::Failed(error),
        }
    }

    /// Handles a run without a place in its queue, which is active only to hear a command. Without a command the run
    /// queues up again: it has waited and given its place free, or was blocked and goes on.
    pub(super) async fn without_place(self) -> End {
        let live = self.live;
        live.end(); // a sender of a signal is told from here on that it came too late
        if live.cancel_pending().is_some() {
            return self.cancel().await;
        }
        if let Some(signal) = live.pause_pending() {
            return self.pause(signal).await;
        }
        let queue = live.run().queue;
        let ticket = live.change_run(|run| run.state = RunState::Queued);
        // A pause that the run is not to obey any more must not make it active again.
        self.engine.unwanted.note(&live.run(), live.unreceived());
        match live.written(ticket.durable().await) {
            Ok(()) => {
                if let Some(queue) = queue {
                    self.engine.admit_soon(queue.name.as_str());
                }
                End::Parked
            }
            Err(error) => End::Failed(error),
        }
    }
}

/// The command to cancel that the run has received, and did not obey in time.
async fn received_before(live: &Arc<Live>) -> Result<Option<Stored>, ExecError> {
    live.flushed().await?;
    let history = live.core.group.run_history(&live.tenant, live.id, Turns::ALL).await;
    let history = history.map_err(|source| ExecError::Store { key: live.id.to_string(), source })?;
    let name = Verb::Cancel.signal();
    let received = history.steps.into_iter().find(|step| step.kind == StepKind::Signal && step.name == name);
    Ok(received.and_then(|step| step.value))
}

/// Reads a command. A command with a damaged text is obeyed all the same.
async fn command(live: &Arc<Live>, body: Option<&Stored>) -> Result<Command, ExecError> {
    let body = match body {
        Some(body) => live.core.load(&live.tenant, body).await?,
        None => Payload::stored("null"),
    };
    Ok(Command::of(&body).unwrap_or_else(|_| Command::unreadable()))
}
