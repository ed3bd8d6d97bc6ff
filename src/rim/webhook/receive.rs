//! The path of a delivery: read, verify, identify, dedupe and order, react, answer.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Webhook;
use super::answer::{Details, WebhookProblem, receipt, unsigned};
use super::builder::{Identity, PREFIX, Source};
use super::event::{DIGEST, EventIdentity, Named, WebhookEvent};
use crate::exec::inbox::{InboxError, Message, Processed, ask, delivery, known as recorded};
use crate::id::Tenant;
use crate::payload::hex;
use crate::rim::body::{BoxError, Cut, collect};
use crate::rim::door::{Decided, DoorDecision};
use crate::rim::problem::TYPES;
use crate::rim::reaction::{Addressee, ReactionError};
#[cfg(feature = "fence")]
use {
    crate::exec::to_the_end,
    crate::rim::fence::{Fenced, FencedAnswer, LedgerDecision},
    std::convert::Infallible,
};

/// The note about the delivery with which an event was processed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// SHA-256 of the body, in hexadecimal. Absent if nothing was processed, and a window is closed.
    body: Option<String>,
    /// The time of the delivery, in microseconds since 1970 (UTC).
    at: i64,
    /// The id that the body is bound to. Present in the note of a binding only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

/// An event whose sender is verified.
#[derive(Clone)]
struct Known {
    tenant: Tenant,
    id: String,
    event: WebhookEvent,
}

impl Webhook {
    /// Receives a delivery, and returns the answer for its sender: 200 if the event is settled, now or before; 4xx if
    /// the delivery is not the sender's; 503 if the delivery must be repeated. The decision is a [`DoorDecision`]
    /// among the extensions of the response.
    ///
    /// # Crash
    /// Before the answer: the reaction and its record are both durable, or neither is, and the sender sends the event
    /// again.
    pub async fn receive<B>(&self, request: Request<B>) -> Response<Bytes>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let source = &self.0;
        let (decision, mut response) = match source.known(parts, body).await {
            Ok(known) => {
                let (tenant, key) = (known.tenant.clone(), known.id.clone());
                let (decided, response) = source.answer(known).await;
                (source.decision(decided, Some(tenant), Some(key)), response)
            }
            Err(refused) => (source.decision(Decided::Refused, None, None), refused.response(TYPES)),
        };
        decision.log(source.log);
        response.extensions_mut().insert(decision);
        response
    }
}

impl Source {
    fn decision(
        &self,
        decision: Decided,
        tenant: Option<Tenant>,
        idempotency_key: Option<String>,
    ) -> DoorDecision {
        let source_id = self.name.clone();
        DoorDecision { tenant, idempotency_key, decision, effect_id: None, source_type: "webhook", source_id }
    }

    /// Verifies a delivery, and identifies its event. Nothing is recorded before.
    async fn known<B>(&self, parts: Parts, body: B) -> Result<Known, Details>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let headers = parts.headers;
        let signed = self.scheme.read(&headers).map_err(|error| unsigned(&error))?;
        let body = collect(body, self.max_body).await.map_err(|cut| match cut {
            Cut::TooLong => {
                let detail = format!("The body is longer than {} bytes. Nothing was done.", self.max_body);
                Details::of(WebhookProblem::TooLarge, detail)
            }
            Cut::Broken(error) => {
                let detail = format!("The body broke off: {error}. Nothing was done.");
                Details::of(WebhookProblem::Incomplete, detail)
            }
        })?;
        let now = self.executor.clock().now();
        let verified = signed.verify(&self.secrets, &body, now.0.div_euclid(1_000_000), self.tolerance);
        verified.map_err(|error| unsigned(&error))?;
        let named = Named::of(&self.scheme, signed.id, &headers, &body).map_err(|error| unsigned(&error))?;
        let event = WebhookEvent::new(headers, body, named, now);
        let id = self.id(&event).ok_or_else(|| {
            let detail =
                "The delivery is signed, and has no id that its event could be known by. Nothing was done.";
            Details::of(WebhookProblem::NoIdentity, detail)
        })?;
        let tenant = (self.tenant)(&event).ok_or_else(|| {
            let detail = "The delivery is signed, and of no account that is known here. Nothing was done.";
            Details::of(WebhookProblem::UnknownTenant, detail)
        })?;
        Ok(Known { tenant, id, event })
    }

    fn id(&self, event: &WebhookEvent) -> Option<String> {
        match &self.identity {
            Identity::Sender => EventIdentity::new(event.id()?).text(),
            Identity::Host(identify) => identify(event)?.text(),
            Identity::Body(_) => Some(format!("{DIGEST}{}", event.digest())),
        }
    }

    /// Lets the fence answer, or the inbox decide.
    async fn answer(self: &Arc<Self>, known: Known) -> (Decided, Response<Bytes>) {
        #[cfg(feature = "fence")]
        if let Some(fence) = self.fence.clone()
            && !matches!(self.identity, Identity::Body(_))
        {
            // A sender that disconnects must not leave its claim at the fence, because others would wait for it.
            let (source, tracker) = (self.clone(), self.executor.core().tracker.clone());
            return to_the_end(&tracker, async move { source.behind(&fence, known).await }).await;
        }
        self.decide(known).await
    }

    /// Lets the fence answer for a settled event, with any body if the id is signed; the inbox decides about all other
    /// events.
    #[cfg(feature = "fence")]
    async fn behind(&self, fence: &Fenced, known: Known) -> (Decided, Response<Bytes>) {
        let mut key = vec![PREFIX, self.name.as_str(), known.tenant.as_str(), known.id.as_str()];
        if self.binds_bodies {
            key.push(known.event.digest()); // an id that is not signed is settled with this body alone
        }
        let key = serde_json::json!(key).to_string();
        let decide = || async {
            let (decided, response) = self.decide(known).await;
            let is_final = matches!(
                decided,
                Decided::Executed | Decided::Replayed | Decided::Outdated | Decided::Settled
            );
            let answer = (decided, response);
            Ok::<_, Infallible>(if is_final {
                LedgerDecision::settled(answer, [])
            } else {
                LedgerDecision::open(answer)
            })
        };
        match fence.through(&key, &[], decide).await {
            Ok(FencedAnswer::Ledger(answer)) => answer,
            Ok(FencedAnswer::Sealed(_)) => (Decided::Replayed, receipt()),
            Ok(FencedAnswer::InProgress) => {
                let detail = "Another delivery of this event is being processed. Deliver it again.";
                let details = Details::of(WebhookProblem::NotProcessed, detail);
                (Decided::InProgress, details.response(TYPES))
            }
        }
    }

    /// Lets the inbox decide about an event.
    async fn decide(&self, known: Known) -> (Decided, Response<Bytes>) {
        let (id, body) = (known.id.clone(), known.event.digest().to_owned());
        let processed = match self.identity {
            Identity::Body(window) => self.within(window.as_micros(), known).await,
            Identity::Sender | Identity::Host(_) if self.binds_bodies => self.bound(known).await,
            Identity::Sender | Identity::Host(_) => self.process(known, id.clone()).await,
        };
        match processed {
            Ok(Processed::Now(_)) => (Decided::Executed, receipt()),
            Ok(Processed::Before(note)) => {
                if note.body.is_some_and(|first| first != body) {
                    // Some senders build the event again for each try: its id is its identity.
                    tracing::info!(
                        source_id = self.name,
                        idempotency_key = id,
                        "event repeated with another body"
                    );
                }
                (Decided::Replayed, receipt())
            }
            Ok(Processed::Expired) => (Decided::Replayed, receipt()),
            Ok(Processed::Outdated) => (Decided::Outdated, receipt()),
            Ok(Processed::Dropped) => (Decided::Settled, receipt()),
            Ok(Processed::SetAside(question)) => {
                let detail = format!(
                    "The event is set aside. The question {question} is open; nothing is done about the event until it is \
                     answered. Deliver it again then."
                );
                (Decided::SetAside, Details::of(WebhookProblem::SetAside, detail).response(TYPES))
            }
            Err(error) => self.failed(&id, &error),
        }
    }

    /// The answer to a failure of ours: the delivery must be repeated. The sender does not get the reason, which may
    /// be secret.
    fn failed(&self, id: &str, error: &ReactionError) -> (Decided, Response<Bytes>) {
        let rolled_back = matches!(
            error,
            ReactionError::Inbox(InboxError::Failed(_) | InboxError::Transaction(_) | InboxError::Payload(_))
        );
        tracing::warn!(source_id = self.name, idempotency_key = id, %error, "webhook event not processed");
        let (decided, problem, detail) = if rolled_back {
            let detail = "What the event does has failed, and was rolled back. Deliver it again.";
            (Decided::Freed, WebhookProblem::NotProcessed, detail)
        } else {
            let detail = "The event is not recorded as processed. Deliver it again.";
            (Decided::Failed, WebhookProblem::Unavailable, detail)
        };
        (decided, Details::of(problem, detail).response(TYPES))
    }

    async fn process(&self, known: Known, id: String) -> Result<Processed<Note>, ReactionError> {
        let Known { tenant, event, .. } = known;
        let mut message = Message::new(id).tries(self.tries);
        if let Some((aggregate, version)) = self.version.as_ref().and_then(|version| version(&event)) {
            message = message.version(aggregate, version);
        }
        let note = Note { body: Some(event.digest().to_owned()), at: event.received_at().0, id: None };
        (self.reacts)(&self.executor, self.addressee(tenant), message, note, Some(event)).await
    }

    /// Closes an id, so that no event is processed under it any more.
    async fn close(&self, tenant: Tenant, id: String, at: i64) -> Result<Processed<Note>, ReactionError> {
        let note = Note { body: None, at, id: None };
        (self.reacts)(&self.executor, self.addressee(tenant), Message::new(id), note, None).await
    }

    /// Processes an event whose signature covers the body and not the id. The body is bound to the first id that it
    /// comes under: a captured body under a new id is not a new event, and does not take the id of another one.
    ///
    /// # Crash
    /// The body is bound before the event is processed. After a crash in between the next delivery finds the body bound
    /// to its own id, and is processed.
    async fn bound(&self, known: Known) -> Result<Processed<Note>, ReactionError> {
        let found = match self.recorded(&known.tenant, known.id.clone()).await? {
            Some(found) => found,
            None => match self.bind(&known).await? {
                Processed::Now(_) => self.process(known.clone(), known.id.clone()).await?,
                Processed::Before(note) if note.id.as_ref() == Some(&known.id) => {
                    self.process(known.clone(), known.id.clone()).await?
                }
                Processed::Before(note) => {
                    let first = note.id.unwrap_or_default();
                    return self.apart(known, &format!("the same body came before, as event {first}")).await;
                }
                Processed::Expired => return self.apart(known, "the same body came long before").await,
                aside @ (Processed::SetAside(_) | Processed::Dropped | Processed::Outdated) => {
                    return Ok(aside);
                }
            },
        };
        match found {
            Processed::Before(note) if note.body.as_deref() != Some(known.event.digest()) => {
                self.apart(known, "the same id came before, with another body").await
            }
            found => Ok(found),
        }
    }

    /// Binds the body of an event to its id, unless it is bound.
    async fn bind(&self, Known { tenant, id, event }: &Known) -> Result<Processed<Note>, ReactionError> {
        let digest = event.digest();
        let binding = Message::new(format!("{DIGEST}{digest}/id"));
        let note = Note { body: Some(digest.to_owned()), at: event.received_at().0, id: Some(id.clone()) };
        (self.reacts)(&self.executor, self.addressee(tenant.clone()), binding, note, None).await
    }

    /// Sets a body aside that came under an id which is not its own. After the answer `again` the event is processed
    /// under a name of its own.
    async fn apart(&self, known: Known, earlier: &str) -> Result<Processed<Note>, ReactionError> {
        let pair = serde_json::json!([known.id, known.event.digest()]).to_string();
        let id = format!("{DIGEST}{}/apart", hex(&Sha256::digest(&pair)));
        if let Some(found) = self.recorded(&known.tenant, id.clone()).await? {
            return Ok(found);
        }
        let text = format!(
            "event {} of {}: its body is signed and its id is not, and {earlier}. Somebody may have sent a captured \
             delivery again. Nothing was done. Answer `skip` to leave it out; if the sender has really sent this event, \
             answer `again` and have it delivered again",
            known.id, self.name
        );
        let Addressee { tenant, consumer } = self.addressee(known.tenant.clone());
        let core = self.executor.core();
        let aside = delivery(core, &tenant, &consumer, Message::new(id.clone())).map_err(InboxError::Name)?;
        match ask(core, &aside, text).await? {
            Some(aside) => Ok(aside),
            None => self.process(known, id).await,
        }
    }

    /// The recorded end of a message. `None` if it may be tried.
    async fn recorded(&self, tenant: &Tenant, id: String) -> Result<Option<Processed<Note>>, ReactionError> {
        let Addressee { tenant, consumer } = self.addressee(tenant.clone());
        let core = self.executor.core();
        let delivery = delivery(core, &tenant, &consumer, Message::new(id)).map_err(InboxError::Name)?;
        Ok(recorded(core, &delivery).await?)
    }

    fn addressee(&self, tenant: Tenant) -> Addressee {
        Addressee { tenant, consumer: format!("{PREFIX}{}", self.name) }
    }

    /// Processes an event that is known by its body, for a window in microseconds.
    ///
    /// Time is divided into windows, and the event is processed under its body and the present window. An earlier
    /// delivery may still be in progress under the previous window: that window is closed first, which waits for the
    /// delivery, and finds its outcome.
    async fn within(&self, window: u128, known: Known) -> Result<Processed<Note>, ReactionError> {
        let window = i64::try_from(window).unwrap_or(i64::MAX);
        let at = known.event.received_at().0;
        let present = at.div_euclid(window);
        for place in [present - 1, present, present + 1] {
            let id = format!("{}/{place}", known.id);
            let found = if place < present {
                self.close(known.tenant.clone(), id, at).await?
            } else {
                self.process(known.clone(), id).await?
            };
            match found {
                // Closed by a delivery with a later time on another clock: this delivery continues in the next
                // window.
                Processed::Now(Note { body: None, .. }) | Processed::Before(Note { body: None, .. }) => {}
                Processed::Before(note) if at.saturating_sub(note.at) >= window => {}
                found => return Ok(found),
            }
        }
        Err(ReactionError::Unsettled)
    }
}
