//! The handling of one message, from its delivery to the report to the broker. The ledger decides; this file
//! remembers only the length of the next pause.

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
use crate::rim::reaction::{Addressee, Noted, Reaction, ReactionError, react};
use crate::store::Counting;

/// The default maximum size of a message, in bytes.
const LARGEST: usize = 16 << 20;
/// The maximum number of messages whose failures are counted for their pauses. Beyond it all counts, and so the
/// pauses, begin again.
const REMEMBERED: usize = 10_000;

/// The host's handler, for which an error, a panic and an exceeded time limit are the same.
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

/// The settings for all messages of a consumer.
pub(super) struct Terms {
    pub(super) executor: Executor,
    /// The tenant of the consumer itself, and of messages without another tenant.
    tenant: Tenant,
    pub(super) consumer: String,
    kind: &'static str,
    source: String,
    pub(super) in_hand: usize,
    pub(super) tries: u32,
    pub(super) backoff: Backoff,
    pub(super) largest: usize,
    pub(super) key: OfMessage<String>,
    /// True if a message without the host's key is set aside.
    pub(super) needs_key: bool,
    pub(super) tenant_of: OfMessage<Tenant>,
    pub(super) version: OfMessage<(String, i64)>,
    pub(super) log: LogFields,
    failures: Failures,
}

/// The report to the broker about a delivery.
#[derive(Debug)]
pub(super) enum Fate {
    /// The message is settled in the ledger.
    Done,
    /// The message is set aside: a question about it is open, as this text says.
    SetAside(String),
    /// The message is to be delivered again, after this pause.
    Again(Duration),
}

impl Fate {
    /// The same report without a pause, for a broker that cannot delay, after the consumer has waited for the pause.
    pub(super) fn at_once(self) -> Self {
        match self {
            Self::Again(_) => Self::Again(Duration::ZERO),
            settled => settled,
        }
    }
}

/// A message with its tenant and its key in the ledger.
struct Known {
    tenant: Tenant,
    key: String,
}

impl Terms {
    pub(super) fn new(
        executor: &Executor,
        Addressee { tenant, consumer }: Addressee,
        kind: &'static str,
        source: &str,
    ) -> Self {
        Self {
            executor: executor.clone(),
            tenant,
            consumer,
            kind,
            source: source.to_owned(),
            in_hand: 16,
            tries: 1,
            backoff: Backoff { base: Duration::ZERO, cap: Duration::ZERO },
            largest: LARGEST,
            key: None,
            needs_key: false,
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

    /// Processes the message, unless it is known, and returns the report to the broker.
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
        let reacted =
            react(&self.executor, to, Noted { message: inbox, note: String::new() }, reaction).await;
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
                tracing::warn!(%tenant, consumer, source, message_id = key, %error, ?pause, "message not processed, given back");
                Fate::Again(pause)
            }
        }
    }

    /// The tenant and the key of a message; or else the reason why it is not handled, with the key of the question
    /// about it.
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
            (_, None) if self.needs_key => {
                "the message lacks a part of the consumer's `key`: nobody can tell whether it comes a second time. It was not \
                 handled. Have its sender give it that part, or change the key"
                    .to_owned()
            }
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
        if made.is_none() && self.needs_key {
            return None;
        }
        identity::key(message, made.as_deref())
    }

    /// The message for the inbox. A refused message is tried once, and its version is not read.
    fn inbox(&self, known: &Known, message: &Incoming, is_refused: bool) -> Message {
        let inbox = Message::new(&*known.key).counting(Counting::With);
        if is_refused {
            return inbox.tries(1);
        }
        let inbox = match self.version.as_ref().and_then(|version| version(message)) {
            Some((aggregate, version)) => inbox.version(aggregate, version),
            None => inbox,
        };
        // A process may have died of a redelivered message, so the try is counted first. A first delivery needs no
        // count.
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

/// The numbers of recent failures of messages, for the length of their pauses only: the ledger counts the tries.
#[derive(Debug, Default)]
struct Failures(Mutex<HashMap<String, u32>>);

impl Failures {
    /// Counts one more failure. The broker may know of failures in other processes.
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
