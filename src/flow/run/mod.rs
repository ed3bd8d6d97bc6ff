//! One activation of a run: its body is polled until it ends, parks, or must stop.

mod activation;
mod anew;
mod begin;
mod command;
mod end;
mod finish;
mod poll;

use std::sync::Arc;

pub(super) use self::activation::Activation;
pub(super) use self::begin::unreadable;
use self::begin::{body, resumed};
pub(super) use self::end::End;
use self::poll::{Polled, poll};
use super::budget;
use super::inner::Inner;
use super::live::{Live, Stop};
use super::replay::Replay;
use super::resume::{self, Asked, When};
use super::saga;
use super::workflow::Body;
use crate::exec::follow_dropped;
use crate::store::{OrderingKey, QuestionKind, Run};

/// Carries out one activation.
///
/// The begin and the end of it are boxed: a run is in its body most of the time, and would need the room for both.
pub(super) async fn activate(engine: &Arc<Inner>, run: Box<Run>, fresh: Option<OrderingKey>) -> End {
    let is_fresh = fresh.is_some();
    let live = match fresh {
        Some(lane) => Live::new(engine.core.clone(), *run, lane, Replay::default()),
        None => match Box::pin(resumed(&engine.core, run)).await {
            Ok(live) => live,
            Err(end) => return end,
        },
    };
    match budget::purse(engine, &live.run(), is_fresh).await {
        Ok(purse) => _ = purse.map(|purse| live.purse.set(purse)),
        Err(error) => return End::Failed(error),
    }
    let _listed = engine.runs.list(&live);
    let this = Activation { engine, live: &live };
    let undoing = live.with_replay(|replay| replay.undoing(live.base, saga::UNDO));
    let end = match undoing.first().and_then(|begun| begun.value.as_ref()) {
        // A run that is being undone waits for no place: its effects hold up others until they are undone.
        Some(failure) => Box::pin(this.undo(failure)).await,
        None if live.run().lacks_place() => Box::pin(this.without_place()).await,
        None => this.carry().await,
    };
    live.end();
    engine.core.group.end_lane(live.lane);
    if matches!(end, End::Over(_)) && live.run().unsettled {
        follow_dropped(&engine.core, &live.tenant, live.id);
    }
    end
}

impl Activation<'_> {
    async fn carry(self) -> End {
        let live = self.live;
        let mut body = match Box::pin(body(self)).await {
            Ok(body) => body,
            Err(end) => return end,
        };
        loop {
            match poll(live, &mut body).await {
                // The run was cancelled before it was resumed: nothing new goes out, unless its code wants to be told.
                Polled::Quiescent if live.cancel_pending().is_some() && !live.awaits_end() => {
                    return self.stopped(body, Stop::Cancelled).await;
                }
                Polled::Quiescent => match Box::pin(resume::unasked(live, When::Replayed)).await {
                    Ok(None) => live.release(),
                    Ok(Some(stop)) => return self.stopped(body, stop).await,
                    Err(error) => return End::Failed(error),
                },
                Polled::Parkable(until, on) => {
                    if !live.end_to_park() {
                        continue;
                    }
                    drop(body); // a future that is dropped from here on is dropped by parking
                    return Box::pin(self.park(until, on)).await;
                }
                Polled::Finished(Err(failure)) if failure.code.blocks_run() => {
                    return self.stopped(body, Stop::Unmended(Box::new(failure))).await;
                }
                // The result comes too late: the run was not under way, or not at rest, when its deadline came.
                Polled::Finished(Ok(_)) if live.is_past_deadline() => {
                    return self.stopped(body, Stop::Cancelled).await;
                }
                Polled::Finished(result) => {
                    live.end();
                    drop(body);
                    return Box::pin(self.finish(result)).await;
                }
                Polled::Panicked(message) => {
                    live.end();
                    let question = format!(
                        "{}: its code panicked: {message}. Nothing after its last record is durable. \
                         Mend the code and go on, or abandon?",
                        live.id
                    );
                    return Box::pin(resume::block(live, QuestionKind::Quarantined, question)).await;
                }
                Polled::Stopped(stop) => return self.stopped(body, stop).await,
            }
        }
    }

    /// Ends the activation before its body has ended.
    async fn stopped(self, body: Body, stop: Stop) -> End {
        let live = self.live;
        if let Stop::Continue(input) = stop {
            return Box::pin(anew::continued(live, body, input)).await;
        }
        live.end();
        drop(body);
        match stop {
            Stop::Failed(error) => End::Failed(error),
            Stop::Bounce | Stop::Continue(_) => End::Again,
            Stop::Paused(signal) => Box::pin(self.pause(*signal)).await,
            Stop::Cancelled => Box::pin(self.cancel()).await,
            Stop::Unmended(failure) => {
                Box::pin(resume::block_on(live, Asked::unmended(live.id, &failure))).await
            }
            Stop::Block { kind, question, record, kept, detail } => {
                let asked = Asked { record, kept, detail, ..Asked::of(kind, question) };
                Box::pin(resume::block_on(live, asked)).await
            }
        }
    }
}
