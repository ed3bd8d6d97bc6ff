//! The configuration, start and end of a consumer.

use std::fmt::{self, Display};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::broker::{Broker, BrokerError, BrokerSession as _, OpenTerms};
use super::consume::{Opened, Place, consume, opened};
use super::handling::{Handle, Terms, handle};
use super::incoming::Incoming;
use super::limits::{BrokerLimits, LimitProblem, Needs};
use crate::clock::SharedClock;
use crate::exec::{Executor, OwnConnection};
use crate::id::{IdError, Tenant, checked};
use crate::ledger::Backoff;
use crate::rim::reaction::{Addressee, Reaction};

/// A consumer that is not running yet: each message of one place in a broker is processed once.
///
/// Defaults: 16 messages in hand; five minutes for a handler; a message is set aside after eight failed tries, with
/// pauses of full jitter between the tries, from half a second doubling to five minutes; at most 16 MiB in a message.
#[must_use = "a consumer does nothing until it is started"]
pub struct QueueConsumer<B> {
    broker: B,
    terms: Terms,
    needs: Needs,
}

impl<B: Broker> fmt::Debug for QueueConsumer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueConsumer")
            .field("kind", &B::KIND)
            .field("source", &self.broker.source())
            .finish_non_exhaustive()
    }
}

/// The reason why a consumer was not started. Nothing was consumed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The broker cannot be reached, or has no such place.
    #[error("{0}: no message was consumed [broker]")]
    Broker(#[from] BrokerError),
    /// Limits of the broker are stricter than those of the consumer.
    #[error("{source_name}: no message was consumed:\n- {} [configuration]", listed(problems))]
    Limits {
        /// The kind of broker and the name of the stream or queue.
        source_name: String,
        /// The faults, each with the setting to write instead.
        problems: Vec<LimitProblem>,
    },
    /// The name of the consumer is empty or too long.
    #[error(transparent)]
    Name(#[from] IdError),
}

fn listed(problems: &[LimitProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n- ")
}

impl<B: Broker> QueueConsumer<B> {
    /// A consumer of `broker`, with the name `name` in the tenant's inbox. Two consumers of the same name process
    /// each message once between them; two of different names each process all messages.
    pub fn new(executor: &Executor, tenant: &Tenant, name: impl Into<String>, broker: B) -> Self {
        let backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_mins(5) };
        let to = Addressee { tenant: tenant.clone(), consumer: name.into() };
        let terms = Terms::new(executor, to, B::KIND, broker.source());
        let needs = Needs {
            tries: 8,
            backoff,
            try_limit: Duration::from_mins(5),
            in_order: false,
            may_drop_when_full: false,
        };
        Self { broker, terms, needs }
    }

    /// Sets the number of messages that are handled concurrently; at least one. Default: 16.
    pub fn in_hand(mut self, messages: usize) -> Self {
        self.terms.in_hand = messages.max(1);
        self
    }

    /// Sets the number of failed tries after which a message is set aside, as an open question with the evidence; at
    /// least one. Default: eight. A failed write to the ledger is not the message's fault, and is not counted.
    pub fn tries(mut self, tries: u32) -> Self {
        self.needs.tries = tries.max(1);
        self
    }

    /// Sets the pauses between the tries of a message, and between attempts to reach an unreachable broker.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.needs.backoff = backoff;
        self
    }

    /// Sets the time limit of a handler for one message. Default: five minutes. Then the handler is dropped, and the
    /// try has failed.
    pub fn handler_limit(mut self, limit: Duration) -> Self {
        self.needs.try_limit = limit;
        self
    }

    /// Sets the maximum size of a message for the handler, in bytes. Default: 16 MiB. A larger message is set aside
    /// at once.
    pub fn largest(mut self, bytes: usize) -> Self {
        self.terms.largest = bytes;
        self
    }

    /// Processes messages in the order of the place, one at a time: a failed message holds back the later ones until
    /// it is processed or set aside. A broker that does not deliver in order is refused.
    pub fn in_order(mut self) -> Self {
        (self.needs.in_order, self.terms.in_hand) = (true, 1);
        self
    }

    /// Accepts a broker that deletes unprocessed messages when there are too many of them.
    pub fn may_drop_when_full(mut self) -> Self {
        self.needs.may_drop_when_full = true;
        self
    }

    /// Sets the function that makes the key of a message, which must be unique in its stream or queue. If the
    /// function returns `None`, the key is the id of the message, or else the broker's sequence.
    pub fn key(mut self, key: impl Fn(&Incoming) -> Option<String> + Send + Sync + 'static) -> Self {
        self.terms.key = Some(Arc::new(key));
        self
    }

    /// Sets the function that makes the key of a message. If the function returns `None`, the message is set aside at
    /// once.
    #[cfg(feature = "policy")]
    pub(in crate::rim) fn key_or_aside(
        self,
        key: impl Fn(&Incoming) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let mut consumer = self.key(key);
        consumer.terms.needs_key = true;
        consumer
    }

    /// Sets the function that finds the tenant of a message. If the function returns `None`, the message is set aside
    /// at once, as a question of the consumer's own tenant.
    pub fn tenant_of(mut self, tenant: impl Fn(&Incoming) -> Option<Tenant> + Send + Sync + 'static) -> Self {
        self.terms.tenant_of = Some(Arc::new(tenant));
        self
    }

    /// Sets the function that finds the aggregate of a message, and the version of that aggregate. A message that is
    /// not newer than the last processed one of its aggregate is acknowledged, and not handled.
    pub fn version(
        mut self,
        version: impl Fn(&Incoming) -> Option<(String, i64)> + Send + Sync + 'static,
    ) -> Self {
        self.terms.version = Some(Arc::new(version));
        self
    }

    /// Sets the fields that are logged.
    #[cfg(feature = "policy")]
    pub(in crate::rim) fn logging(mut self, fields: crate::rim::door::LogFields) -> Self {
        self.terms.log = fields;
        self
    }

    /// Compares the limits of the broker, as they are now, with those of this consumer. [`start`](Self::start) does
    /// so, too.
    ///
    /// # Errors
    /// If a limit is stricter than ours, with the setting to write instead; or if the broker cannot be asked.
    pub async fn check(&self) -> Result<(), QueueError> {
        let mut session = opened(&self.broker, &self.open_terms()).await?;
        let checked = accepted(&self.broker, &self.needs, session.limits());
        session.stop().await;
        session.close().await;
        checked
    }

    /// Starts to consume, in a separate task.
    ///
    /// The handler returns the [`Reaction`] to a message, which is carried out in one transaction with the record of
    /// the message. The handler is not called for a known message. Its error or panic is a failed try. It may be
    /// called more than once for a message, after an error or a crash: guard its effects outside of the reaction by a
    /// key of their own.
    ///
    /// # Errors
    /// If the broker cannot be reached, or its limits are stricter than those of the consumer.
    pub async fn start<C, E, F, Fut>(mut self, handler: F) -> Result<Consuming, QueueError>
    where
        C: OwnConnection + 'static,
        E: Display + Send + 'static,
        F: Fn(Incoming) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reaction<C>, E>> + Send + 'static,
    {
        checked("consumer", &self.terms.consumer, 255)?;
        (self.terms.tries, self.terms.backoff) = (self.needs.tries, self.needs.backoff);
        let session = opened(&self.broker, &self.open_terms()).await?;
        accepted(&self.broker, &self.needs, session.limits())?;
        let clock = self.terms.executor.clock().clone();
        let handler: Handle<C> = handle(handler, self.needs.try_limit, clock.clone());
        let stop = CancellationToken::new();
        let place = Place { open: self.open_terms(), broker: self.broker, needs: self.needs };
        let running = consume(Opened { place, session }, Arc::new(self.terms), handler, stop.clone());
        Ok(Consuming { running: tokio::spawn(running), stop: stop.drop_guard(), clock })
    }

    fn open_terms(&self) -> OpenTerms {
        OpenTerms::new(self.terms.in_hand, self.terms.executor.clock().clone())
    }
}

/// Refuses limits that are stricter than the consumer allows.
pub(super) fn accepted<B: Broker>(
    broker: &B,
    needs: &Needs,
    limits: &BrokerLimits,
) -> Result<(), QueueError> {
    let problems = needs.problems(limits, |limit| broker.setting(limit));
    if problems.is_empty() {
        return Ok(());
    }
    Err(QueueError::Limits { source_name: format!("{} {}", B::KIND, broker.source()), problems })
}

/// A running consumer. When this is dropped, the consumer receives no more messages, and finishes those in hand.
#[derive(Debug)]
#[must_use = "a consumer stops when this is dropped"]
pub struct Consuming {
    running: JoinHandle<()>,
    stop: DropGuard,
    clock: SharedClock,
}

impl Consuming {
    /// Stops receiving, and waits until the messages in hand are settled, at most for `limit`. False if some were
    /// still in hand then: their handling continues, and they may be delivered again meanwhile.
    pub async fn shutdown(self, limit: Duration) -> bool {
        drop(self.stop);
        let over = self.clock.sleep(limit);
        tokio::select! {
            biased;
            _ = self.running => true,
            () = over => false,
        }
    }
}
