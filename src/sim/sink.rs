//! The consumer of published events in a simulation.

use std::time::Duration;

use super::schedule::Fault;
use super::wire::WAY;
use super::world::World;
use crate::clock::Clock as _;
use crate::exec::outbox::{Event, PublishResult, Sink, SinkError};

/// The consumer of published events in a simulation, made by [`World::sink`]. It records each event, once for each
/// delivery.
#[derive(Clone, Debug)]
pub struct Listener {
    world: World,
}

impl World {
    /// A sink of this world, for an engine's [`sink`](crate::flow::EngineBuilder::sink). Its events are
    /// [checked](super::Rule) when nothing is left to do: no event is missing, none came before it was durable, and
    /// those of one aggregate came in their order.
    pub fn sink(&self) -> Listener {
        self.is_published_to();
        Listener { world: self.clone() }
    }
}

impl Listener {
    fn hears(&self, batch: &[Event]) {
        for event in batch {
            self.world.hears(event.clone());
        }
    }
}

impl Sink for Listener {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        let (world, clock) = (&self.world, self.world.clock());
        let fault = world.next_fault();
        clock.sleep(WAY).await;
        let reset = || SinkError::unavailable("connection reset");
        match fault {
            Some(Fault::Refused) => {
                let others = batch.iter().filter(|event| event.aggregate != batch[0].aggregate);
                others.for_each(|event| self.hears(std::slice::from_ref(event)));
                return Ok(PublishResult::all().except(0, SinkError::refused("422: simulated")));
            }
            Some(Fault::RateLimited) => {
                return Err(SinkError::unavailable("429: simulated").retry_after(Duration::from_secs(2)));
            }
            Some(Fault::Unauthorized | Fault::FailsBefore | Fault::RequestLost) => return Err(reset()),
            Some(late @ (Fault::Late | Fault::TooLate | Fault::Landing(_))) => {
                let (listener, batch) = (self.clone(), batch.to_vec());
                clock.arrives(late.dawdles().unwrap_or(WAY), move || listener.hears(&batch));
                return Err(reset());
            }
            Some(Fault::Doubled | Fault::Twice) => self.hears(batch),
            // A sink has no lookup: nobody could detect an event that it takes and forgets.
            Some(Fault::FailsAfter | Fault::AnswerLost | Fault::Hangs | Fault::Forgets) | None => {}
        }
        self.hears(batch);
        match fault {
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::FailsAfter | Fault::AnswerLost) => Err(reset()),
            _ => Ok(PublishResult::all()),
        }
    }
}
