//! One message, from its delivery to what the broker is told about it. The ledger decides; nothing is remembered here but the
//! length of the next pause.

use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::identity;
use super::incoming::Incoming;
use crate::clock::SharedClock;
use crate::exec::inbox::{InboxError, Message, Processed};
use crate::exec::{Executor, OwnConnection};
use crate::id::Tenant;
use crate::ledger::Backoff;
use crate::panics::caught;
use crate::rim::door::{Decided, DoorDecision, LogFields};
use crate::rim::reaction::{Addressee, Reaction, ReactionError, react};
use crate::store::Counting;

/// The largest message that is handled unless it is said otherwise, in bytes.
const LARGEST: usize = 16 << 20;
/// Messages whose failures are counted for their pauses. Beyond it the count begins anew, and pauses with it.
const REMEMBERED: usize = 10_000;

/// The host's handler: an error, a panic and a time that is over are one.
pub(super) type Handle<C> =
    Arc<dyn Fn(Incoming) -> BoxFuture<'static, Result<Reaction<C>, String>> + Send + Sync>;

pub(super) fn handle<C, E, F, Fut>(handler: F, limit: Duration, clock: SharedClock) -> Handle<C>
where
    E: Display + Send + 'static,
    F: Fn(Incoming) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reaction<C>, E>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |message| {
        let (handler, over) = (handler.clone(), clock.sleep(limit));
        let limited = async move {
            tokio::select! {
                biased;
                asked = caught(async move { handler(message).await }) => match asked {
                    Ok(reaction) => reaction.map_err(|error| error.to_string()),
                    Err(panic) => Err(format!("the handler panicked: {panic}")),
                },
                () = over => Err(format!("the handler took longer than {limit:?}")),
            }
        };
        limited.boxed()
    })
}

type OfMessage<T> = Option<Arc<dyn Fn(&Incoming) -> Option<T> + Send + Sync>>;

/// What holds for all messages of a consumer.
pub(super) struct Terms {
    pub(super) executor: Executor,
    /// Of the consumer itself, and of messages that are nobody else's.
    tenant: Tenant,
    pub(super) consumer: String,
    kind: &'static str,
    source: String,
    pub(super) in_hand: usize,
    pub(super) tries: u32,
    pub(super) backoff: Backoff,
    pub(super) largest: usize,
    pub(super) key: OfMessage<String>,
    pub(super) tenant_of: OfMessage<Tenant>,
    pub(super) version: OfMessage<(String, i64)>,
    pub(super) log: LogFields,
    failures: Failures,
}

/// What is to become of a delivery.
#[derive(Debug)]
pub(super) enum Fate {
    /// The message is settled in the ledger.
    Done,
    /// A question is open about it.
    SetAside(String),
    /// It is to be delivered again, after this pause.
    Again(Duration),
}

impl Fate {
    /// For a broker that cannot delay, when the pause is over.
    pub(super) fn at_once(self) -> Self {
        match self {
            Self::Again(_) => Self::Again(Duration::ZERO),
            settled => settled,
        }
    }
}

/// A message that the ledger can be asked about.
struct Known {
    tenant: Tenant,
    key: String,
}

impl Terms {
    pub(super) fn new(
        executor: &Executor,
        tenant: &Tenant,
        consumer: String,
        kind: &'static str,
        source: &str,
    ) -> Self {
        Self {
            executor: executor.clone(),
            tenant: tenant.clone(),
            consumer,
            kind,
            source: source.to_owned(),
            in_hand: 16,
            tries: 1,
            backoff: Backoff { base: Duration::ZERO, cap: Duration::ZERO },
            largest: LARGEST,
            key: None,
            tenant_of: None,
            version: None,
            log: LogFields::ALL,
            failures: Failures::default(),
        }
    }

    /// The key of a message, for logs.
    pub(super) fn described(&self, message: &Incoming) -> String {
        self.key_of(message).unwrap_or_else(|| identity::of_nameless(message))
    }

    /// Has the message processed, unless it is known, and says what the broker is to be told.
    pub(super) async fn settle<C: OwnConnection + 'static>(
        &self,
        message: &Incoming,
        handler: &Handle<C>,
    ) -> Fate {
        let (known, refused) = match self.known(message) {
            Ok(known) => (known, None),
            Err((known, why)) => (known, Some(why)),
        };
        let inbox = self.inbox(&known, message, refused.is_some());
        let (handler, given) = (handler.clone(), message.clone());
        let reaction = async move {
            match refused {
                None => handler(given).await,
                Some(why) => Err(why),
            }
        };
        let to = Addressee { tenant: known.tenant.clone(), consumer: self.consumer.clone() };
        let reacted = react(&self.executor, to, inbox, String::new(), reaction).await;
        self.log(&known, decided(&reacted));
        match reacted {
            Ok(Processed::SetAside(question)) => {
                self.failures.forget(&known.key);
                Fate::SetAside(format!("set aside by counterfoil: question {question} is open"))
            }
            Ok(_) => {
                self.failures.forget(&known.key);
                Fate::Done
            }
            Err(error) => {
                let failures = self.failures.count(&known.key, message.deliveries());
                let pause = self.backoff.delay(failures.saturating_add(1), self.executor.entropy().bits());
                let Known { tenant, key } = known;
                let (consumer, source) = (&self.consumer, &self.source);
                tracing::warn!(%tenant, consumer, source, message = key, %error, ?pause, "message not processed, given back");
                Fate::Again(pause)
            }
        }
    }

    /// Whose message it is and what its key is; or else why it is not handled, under the key of the question about it.
    fn known(&self, message: &Incoming) -> Result<Known, (Known, String)> {
        let tenant = match &self.tenant_of {
            Some(tenant_of) => tenant_of(message),
            None => Some(self.tenant.clone()),
        };
        let size = message.payload().len();
        let (tenant, key) = match (tenant, self.key_of(message)) {
            (Some(tenant), Some(key)) if size <= self.largest => return Ok(Known { tenant, key }),
            found => found,
        };
        let why = match (&tenant, &key) {
            (_, None) => {
                "the message has no id, and the broker has no number for it that lasts: nobody can tell whether it comes a \
                 second time. It was not handled. Have its sender give it an id, or give the consumer a `key`"
                    .to_owned()
            }
            (None, _) => "`tenant_of` of the consumer names nobody for the message: it was not handled".to_owned(),
            _ => format!(
                "the message holds {size} bytes, {} at most: it was not handled. Raise `largest` of the consumer",
                self.largest
            ),
        };
        let key = key.unwrap_or_else(|| identity::of_nameless(message));
        Err((Known { tenant: tenant.unwrap_or_else(|| self.tenant.clone()), key }, why))
    }

    fn key_of(&self, message: &Incoming) -> Option<String> {
        let made = self.key.as_ref().and_then(|key| key(message));
        identity::key(message, made.as_deref())
    }

    /// The message as the inbox knows it. One that is refused is tried once, and no version is read out of it.
    fn inbox(&self, known: &Known, message: &Incoming, is_refused: bool) -> Message {
        let inbox = Message::new(&*known.key).counting(Counting::With);
        if is_refused {
            return inbox.tries(1);
        }
        let inbox = match self.version.as_ref().and_then(|version| version(message)) {
            Some((aggregate, version)) => inbox.version(aggregate, version),
            None => inbox,
        };
        // Perhaps a process has died of it. The first time there is nothing to count before.
        let inbox = if message.is_redelivered() { inbox.counting(Counting::First) } else { inbox };
        inbox.tries(self.tries)
    }

    fn log(&self, known: &Known, decision: Decided) {
        DoorDecision {
            tenant: Some(known.tenant.clone()),
            idempotency_key: Some(known.key.clone()),
            decision,
            effect_id: None,
            source_type: self.kind,
            source_id: self.source.clone(),
        }
        .log(self.log);
    }
}

fn decided(reacted: &Result<Processed<String>, ReactionError>) -> Decided {
    match reacted {
        Ok(Processed::Now(_)) => Decided::Executed,
        Ok(Processed::Before(_) | Processed::Expired) => Decided::Replayed,
        Ok(Processed::SetAside(_)) => Decided::SetAside,
        Ok(Processed::Outdated) => Decided::Outdated,
        Ok(Processed::Dropped) => Decided::Settled,
        Err(ReactionError::Inbox(InboxError::Failed(_))) => Decided::Freed,
        Err(_) => Decided::Failed,
    }
}

/// How often messages have failed of late, for the length of their pauses alone: that tries are counted is the ledger's business.
#[derive(Debug, Default)]
struct Failures(Mutex<HashMap<String, u32>>);

impl Failures {
    /// One more. The broker may know of failures in other processes.
    fn count(&self, key: &str, deliveries: Option<u64>) -> u32 {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= REMEMBERED {
            failures.clear();
        }
        let failed = failures.entry(key.to_owned()).or_default();
        *failed = failed
            .saturating_add(1)
            .max(deliveries.map_or(0, |times| u32::try_from(times).unwrap_or(u32::MAX)));
        *failed
    }

    fn forget(&self, key: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
