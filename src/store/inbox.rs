//! The rows that a database keeps about messages to consumers.

use crate::clock::Timestamp;
use crate::id::{QuestionId, Tenant};
use crate::payload::Payload;
use crate::store::{Change, StoreFuture};

/// The rows about messages. A message is processed in a [transaction](super::own::TransactionsOn::process) with the
/// user's own tables.
pub trait Inbox {
    /// The recorded end of a message that is not to be processed any more. No attempt is counted.
    fn inbox_known<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>>;

    /// Counts an attempt. Returns the recorded end of a message that is not to be tried.
    fn inbox_count<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>>;

    /// Takes the count of an attempt back.
    fn inbox_uncount<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, ()>;

    /// Records the reason why the attempt failed. Returns the number of attempts.
    fn inbox_failed<'a>(&'a self, delivery: &'a Delivery, detail: &'a str) -> StoreFuture<'a, i64>;

    /// Sets the message aside, and names the question about it, unless it has one.
    /// Returns the question; `None` if another delivery of the message has been processed meanwhile.
    fn inbox_set_aside<'a>(
        &'a self,
        delivery: &'a Delivery,
        aside: &'a Aside,
        question: QuestionId,
    ) -> StoreFuture<'a, Option<QuestionId>>;

    /// Lets the message be tried again, counted from the first attempt on, because this question was answered.
    fn inbox_again<'a>(&'a self, delivery: &'a Delivery, question: QuestionId) -> StoreFuture<'a, ()>;

    /// Retires a few of a consumer's messages that were processed until then. Returns true if there may be more. A
    /// simulation keeps all.
    fn inbox_retire<'a>(
        &'a self,
        consumer: &'a str,
        until: Timestamp,
        is_left: bool,
    ) -> StoreFuture<'a, bool> {
        let _ = (consumer, until, is_left);
        Box::pin(async { Ok(false) })
    }

    /// The earliest instant after `after` at which a message of the consumer was processed that can be retired.
    fn inbox_next_over<'a>(
        &'a self,
        consumer: &'a str,
        after: Timestamp,
        is_left: bool,
    ) -> StoreFuture<'a, Option<Timestamp>> {
        let _ = (consumer, after, is_left);
        Box::pin(async { Ok(None) })
    }
}

/// A message as it is delivered to a consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub(crate) tenant: Tenant,
    pub(crate) consumer: String,
    pub(crate) message: String,
    /// The aggregate and its version that the message brings.
    pub(crate) version: Option<(String, i64)>,
    /// The number of failed attempts after which the message is set aside.
    pub(crate) tries: u32,
    /// The ledger's own change in the transaction that processes the message.
    pub(crate) along: Option<Box<Change>>,
    pub(crate) counting: Counting,
    /// The present instant.
    pub(crate) at: Timestamp,
    /// The worker that delivers: in a simulation, the events that are written with the message belong to a worker.
    #[cfg(feature = "sim")]
    pub(crate) by: crate::id::Fence,
}

/// The moment at which an attempt of a message is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "_queue"),
    allow(dead_code, reason = "only a broker says that a message comes again")
)]
pub(crate) enum Counting {
    /// Before the message is parsed, because its process may have died of that.
    First,
    /// Before the message is processed.
    Before,
    /// After the failure of the attempt, or in the transaction that processes the message: the broker says when it
    /// delivers a message again.
    With,
    /// The attempt is counted already.
    Done,
}

/// The recorded end of a message that is not to be processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// The message was processed, with this result.
    Processed(Payload),
    /// The message was processed, and its result is no longer kept.
    Expired,
    /// A newer version of the aggregate, or the same one, was processed before.
    Outdated,
    /// The message is not tried again before a person has answered.
    SetAside(Aside),
}

/// A message that is set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The number of attempts since the last answer.
    pub tries: i64,
    /// The reason why the message is set aside.
    pub why: SetAside,
}

impl Known {
    /// True if no answer changes the end.
    pub(super) const fn is_final(&self) -> bool {
        matches!(self, Self::Processed(_) | Self::Expired | Self::Outdated)
    }
}

/// The reason why a message is set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetAside {
    /// Every attempt failed. The value is the reason of the last failure, if that attempt came to its end.
    TriedTooOften(Option<String>),
    /// The closure ended the transaction by itself: its changes may be durable, and another attempt would make them
    /// again.
    EndedInside,
}

impl SetAside {
    /// The state code of a row that is set aside for this reason.
    pub(super) const fn state(&self) -> i64 {
        match self {
            Self::TriedTooOften(_) => TRIED_TOO_OFTEN,
            Self::EndedInside => ENDED_INSIDE,
        }
    }

    /// The reason of the last failure.
    pub(super) fn detail(&self) -> Option<&str> {
        match self {
            Self::TriedTooOften(detail) => detail.as_deref(),
            Self::EndedInside => None,
        }
    }
}

/// The state of a message whose row only counts attempts.
const TRIED: i64 = 1;
// The states of a row with the end of a message.
pub(super) const PROCESSED: i64 = 2;
/// The result text of a message whose result is no longer kept. It is not JSON.
pub(super) const EXPIRED: &str = "#";
pub(super) const OUTDATED: i64 = 3;
const TRIED_TOO_OFTEN: i64 = 4;
/// The state that is written in the transaction before its closure runs, and overwritten in it by [`PROCESSED`]: a
/// COMMIT of the closure makes this state durable together with the closure's changes, and no crash comes in between.
pub(super) const ENDED_INSIDE: i64 = 5;

/// The end of a message; for a message without an end, its attempts including the one that is about to be made.
pub(super) struct Counted {
    pub(super) state: i64,
    pub(super) tries: i64,
    pub(super) result: Option<String>,
    pub(super) detail: Option<String>,
}

impl Counted {
    /// The recorded end of the message; `None` if it may be tried.
    pub(super) fn known(self, limit: u32) -> Option<Known> {
        match self.state {
            PROCESSED if self.result.as_deref() == Some(EXPIRED) => Some(Known::Expired),
            PROCESSED => {
                Some(Known::Processed(Payload::stored(self.result.unwrap_or_else(|| "null".into()))))
            }
            OUTDATED => Some(Known::Outdated),
            ENDED_INSIDE => Some(Known::SetAside(Aside { tries: self.tries, why: SetAside::EndedInside })),
            TRIED if self.tries <= i64::from(limit) => None,
            // The attempt over the limit was counted and is not made.
            state => Some(Known::SetAside(Aside {
                tries: self.tries - i64::from(state == TRIED),
                why: SetAside::TriedTooOften(self.detail),
            })),
        }
    }
}
