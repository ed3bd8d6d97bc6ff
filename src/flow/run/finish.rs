//! The ends of an activation that the run's own code brings about: it parks, or the run is over.

use std::collections::HashMap;

use super::activation::Activation;
use super::end::End;
use crate::clock::Timestamp;
use crate::flow::child::farewell::farewell;
use crate::flow::failure::Failure;
use crate::flow::resume::{self, Standing};
use crate::id::RecordId;
use crate::payload::Payload;
use crate::store::{RunState, WaitsOn};

impl Activation<'_> {
    /// Parks the run: it waits as a row, without a task and without memory.
    ///
    /// # Crash
    /// Before the row is durable the run is active, and is resumed at once. After that, the run is resumed when its
    /// time comes.
    pub(in crate::flow) async fn park(self, until: Option<Timestamp>, on: WaitsOn) -> End {
        let Self { engine, live } = self;
        let freed = live.run().queue.filter(|queue| engine.queues.frees(queue));
        let ticket = live.change_run(|run| {
            run.state = RunState::Waiting { until, on };
            run.deaths = 0;
            if freed.is_some() {
                run.give_place_free();
            }
        });
        // Before the row is durable: a heartbeat that finds it there would wake the run for these signals at once.
        engine.unwanted.note(&live.run(), live.unreceived());
        match live.written(ticket.durable().await) {
            Ok(()) => {
                if let Some(at) = until {
                    live.core.agenda.note(at);
                }
                if let Some(queue) = freed {
                    engine.admit_soon(queue.name.as_str());
                }
                End::Parked
            }
            Err(error) => End::Failed(error),
        }
    }

    /// Ends the run: its result, and the questions about every effect that is left without an owner, become durable
    /// together. `stands`: the effects that were not undone although they were to be.
    pub(in crate::flow) async fn finish_leaving(
        self,
        mut result: Result<Payload, Failure>,
        stands: &HashMap<RecordId, Standing>,
    ) -> End {
        let live = self.live;
        let left = match &mut result {
            Ok(_) => resume::left_unasked(live, resume::When::Succeeded).await,
            Err(failure) => Box::pin(resume::left_by_failed(live, failure, stands)).await,
        };
        let left = match left {
            Ok(left) => left,
            Err(error) => return End::Failed(error),
        };
        let core = &live.core;
        let farewell = farewell(core, &live.run(), result.as_ref());
        let (state, large) = match result {
            Ok(output) => {
                let (output, large) = core.storable(output);
                (RunState::Succeeded { output }, large)
            }
            Err(failure) => (RunState::Failed { failure: failure.payload() }, None),
        };
        let (signal, said) = farewell.unzip();
        let dropped = live.has_dropped_call();
        let run = live.next_run(|run| {
            run.state = state.clone();
            // A failed run has looked at all its calls before it failed.
            run.unsettled |= dropped && matches!(state, RunState::Succeeded { .. });
        });
        let mut change = core.change(Some(live.lane)).run(run);
        change.escalations = left;
        change.signal = signal.clone().map(Box::new);
        let large = large.into_iter().chain(said.flatten());
        change.payloads.extend(large.map(|payload: Payload| (live.tenant.clone(), payload)));
        match live.written(core.group.commit_one(change).await) {
            Ok(()) => {
                core.wake_sweeper();
                if let Some(signal) = signal {
                    Box::pin(self.engine.delivered(signal)).await;
                }
                End::Over(state)
            }
            Err(error) => End::Failed(error),
        }
    }
}
