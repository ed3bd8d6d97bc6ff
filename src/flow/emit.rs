//! Events: messages of a run to the outside, written with the checkpoint that says so.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::ctx::Ctx;
use super::failure::Failure;
use super::identity::Kind;
use super::label::Label;
use super::live::{Live, Open};
use crate::id::checked;
use crate::ledger::RequestHash;
use crate::payload::Payload;
use crate::store::OutboxEvent;
use crate::tool::canonical;

/// The greatest length of an aggregate or a kind, in bytes.
const LONGEST: usize = 255;

impl Ctx {
    /// Emits an event about an aggregate. An engine that has a [sink](crate::flow::EngineBuilder::sink) publishes the
    /// event after all earlier events of that aggregate, and never loses it. Emitting waits for no disk.
    ///
    /// The label is the event's kind, with an id where several of one kind are emitted at once. The event's own id is made
    /// of the run and the event's place in the run: it is the same event however often the run resumes. An event may be
    /// published more than once. Consumers know it by its id, and its order by its sequence number: see
    /// [`outbox`](crate::outbox).
    ///
    /// The run is blocked if aggregate or kind is empty or longer than 255 bytes, or if the payload is too large.
    ///
    /// # Crash
    /// The event and the checkpoint are one change. If neither is durable, the resumed run emits the event.
    ///
    /// ```
    /// # use counterfoil::{Ctx, Failure};
    /// async fn order(ctx: Ctx, number: u32) -> Result<(), Failure> {
    ///     let total = ctx.step("price", &number, |number| number * 3).await?;
    ///     ctx.emit(format!("order/{number}"), "priced", &total).await
    /// }
    /// ```
    pub async fn emit<P: Serialize + Sync + ?Sized>(
        &self,
        aggregate: impl Into<String>,
        kind: impl Into<Label>,
        payload: &P,
    ) -> Result<(), Failure> {
        let (aggregate, kind) = (aggregate.into(), kind.into());
        let fits = checked("aggregate", &aggregate, LONGEST);
        let fits = fits.and_then(|_| checked("kind of an event", &kind.name, LONGEST));
        self.unless_mendable(fits.map_err(Failure::from)).await?;
        let open = self.open(Kind::Emitted, kind).await?;
        let past = self.live.recorded(&open).await?;
        let (open, payload) = self.live.fitting(open, past.is_some(), |key| canonical(payload, key)).await?;
        let hash = RequestHash::of(&aggregate, &payload);
        if let Some(past) = past {
            return self.replayed(open, Some(hash), past).await;
        }
        // The event is held back while the run replays: events that were emitted on another path are to be found first.
        self.live.released(&open, None).await;
        self.live.core.group.room().await;
        self.live.put_event(&open, aggregate, hash, payload);
        open.close();
        self.live.progressed();
        Ok(())
    }
}

impl Live {
    /// Queues the event with its checkpoint.
    fn put_event(&self, open: &Open, aggregate: String, hash: RequestHash, payload: Payload) {
        let (core, identity) = (&self.core, &open.identity);
        let null = crate::payload::Stored::Inline(Payload::stored("null"));
        let step = self.step(identity, identity.kind.checkpoint(), Some(hash), null);
        // The id is made of everything that distinguishes the event from any other event of any database: two databases
        // that have one consumer may both have a run of this id, but not of this number.
        let id = event_id(&[
            &core.namespace,
            self.tenant.as_str(),
            &self.name().to_string(),
            &identity.name,
            &identity.in_turn(),
            &aggregate,
            &crate::payload::hex(&payload.digest().0),
        ]);
        let (payload, large) = core.storable(payload);
        let event = OutboxEvent {
            tenant: self.tenant.clone(),
            id,
            aggregate,
            seq: 0,
            kind: identity.name.clone(),
            payload,
            created_at: core.now(),
        };
        let mut change = core.change(Some(self.lane)).step(step);
        change.events.push(event);
        change.payloads.extend(large.map(|payload| (self.tenant.clone(), payload)));
        drop(core.group.submit(change));
    }
}

/// A UUID made of these parts. Each part is hashed with its length, so that no two lists look alike.
fn event_id(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
}
