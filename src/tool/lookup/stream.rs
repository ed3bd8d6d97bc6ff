//! Lookup of a message in a stream, by its id.

use std::future::Future;
use std::time::Duration;

use super::seen::{LookupTarget, Match, Tally, unclear};
use crate::ledger::{ErrorKind, LookupOffer, LookupResult, Sight};
use crate::tool::{Call, ToolError};

/// A log that can be read from an offset on: one partition of a stream, a topic's table, an HTTP feed.
pub trait Log: Send + Sync {
    /// The type of the log's messages.
    type Message: Send;

    /// The offset that the next message to be appended will get.
    ///
    /// # Errors
    /// [`ToolError`] if the end could not be read.
    fn end(&self) -> impl Future<Output = Result<u64, ToolError>> + Send;

    /// The offset of the first message that the log ever had: 0, unless the broker counts from another number.
    fn first(&self) -> u64 {
        0
    }

    /// Reads messages from offset `from` on, as many as suits the log.
    ///
    /// # Errors
    /// [`ToolError`] if the log could not be read.
    fn read(&self, from: u64) -> impl Future<Output = Result<Batch<Self::Message>, ToolError>> + Send;
}

/// A part of a log.
#[derive(Clone, Debug)]
pub struct Batch<M> {
    /// The messages with their offsets, in order. Offsets may be left out, as by markers of transactions.
    pub messages: Vec<(u64, M)>,
    /// The offset from which to read on. It grows unless the end is reached.
    pub next: u64,
    /// The offset of the oldest message that still exists, or the log's end: earlier messages have been dropped.
    pub oldest: u64,
}

/// Looks for a message, from an offset on that was remembered before the message was sent.
///
/// ```
/// use counterfoil::ledger::LookupResult;
/// use counterfoil::tool::lookup::{Batch, Log, Match, StreamFrom};
/// use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
/// # use counterfoil::Key;
/// # struct Topic;
/// # impl Topic { async fn append(&self, _id: &str, _text: &str) -> Result<u64, ToolError> { Ok(7) } }
/// # impl Log for Topic {
/// #     type Message = (String, String);
/// #     async fn end(&self) -> Result<u64, ToolError> { Ok(7) }
/// #     async fn read(&self, from: u64) -> Result<Batch<Self::Message>, ToolError> {
/// #         Ok(Batch { messages: vec![], next: from, oldest: 0 })
/// #     }
/// # }
/// struct Announce { topic: Topic, lookup: StreamFrom }
///
/// impl Tool for Announce {
///     # const NAME: &'static str = "announce";
///     # type Effect = effect::InternalMutation;
///     # type Contract = contract::Lookup;
///     # type Input = String;
///     # type Output = u64;
///     // …
///     fn contract(&self) -> counterfoil::ledger::Contract {
///         <Self::Contract as contract::Contract>::declaration().sight(&StreamFrom::SIGHT)
///     }
///
///     async fn call(&self, call: &Call, text: &String) -> Result<Done<u64>, ToolError> {
///         StreamFrom::remember(call, &self.topic).await?; // before anything is sent
///         Ok(Done::new(self.topic.append(call.key(), text).await?))
///     }
/// }
///
/// impl Reconcile for Announce {
///     async fn reconcile(&self, call: &Call, text: &String) -> Result<LookupResult<u64>, ToolError> {
///         let ours = |offset: u64, (id, said): (String, String)| match id == call.key() {
///             false => Match::Another,
///             true if said == *text => Match::ours(offset, offset.to_string()),
///             true => Match::Conflict(format!("it says {said:?}")),
///         };
///         self.lookup.find(call, &self.topic, ours).await
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFrom {
    at_most: u64,
}

impl Default for StreamFrom {
    /// A lookup that reads at most 100,000 messages.
    fn default() -> Self {
        Self { at_most: 100_000 }
    }
}

/// The prefix of a remembered offset in the note.
const NOTED: &str = "from:";

impl StreamFrom {
    /// The sight of this lookup.
    pub const SIGHT: Sight = Sight {
        by: "a message id in a stream",
        offer: LookupOffer::Strong,
        settle: Duration::from_mins(1),
        outlives_sender: true,
        knows: &[
            "whether the message stands in the log between the remembered offset and the log's present end",
        ],
        blind_spots: &[
            "what retention has dropped: behind the remembered offset that is noticed, and asked",
            "what compaction has dropped: a later message under the same key hides ours",
            "another partition than the one that is read: choose it by the key",
            "messages of a transaction that is not committed yet, where the log shows committed ones only",
            "whether any consumer has acted on it",
        ],
    };

    /// Sets the maximum number of messages. If there are more, the call stays ambiguous.
    #[must_use]
    pub const fn at_most(mut self, messages: u64) -> Self {
        self.at_most = messages;
        self
    }

    /// Notes the end of the log, durably. Call this before anything is sent. The note of an earlier attempt is kept.
    ///
    /// # Errors
    /// [`ToolError`] if the log cannot be read or the note cannot be made. Nothing has been sent.
    pub async fn remember<L: Log>(call: &Call, log: &L) -> Result<(), ToolError> {
        if call.external_ref().is_some() {
            return Ok(());
        }
        let before = |message: String| ToolError::new(ErrorKind::TimeoutBeforeEffect, message);
        let end = log.end().await.map_err(|error| before(error.message))?;
        call.note(format!("{NOTED}{end}")).await.map_err(|error| before(error.to_string()))
    }

    /// Looks for the message, from the remembered offset on. Without a remembered offset a tool that remembers first
    /// has sent nothing. Since this is not certain, the log is then read from its beginning, if it still has its
    /// beginning.
    ///
    /// # Errors
    /// [`ToolError`] if the log cannot be read up to its end, or no longer has the messages that were to be read.
    pub async fn find<'a, L: Log, T: Send>(
        &self,
        sought: impl Into<LookupTarget<'a>> + Send,
        log: &L,
        judge: impl FnMut(u64, L::Message) -> Match<T> + Send,
    ) -> Result<LookupResult<T>, ToolError> {
        let sought = sought.into();
        let offset = sought.noted.and_then(|noted| noted.strip_prefix(NOTED)?.parse().ok());
        // Another note is the provider's id of the message. `Tally` decides about an id that no longer resolves.
        let id = sought.noted.filter(|_| offset.is_none());
        self.scan(log, offset.unwrap_or_else(|| log.first()), judge).await?.finding(id)
    }

    /// Looks for the message from an offset on that you have remembered elsewhere, for example in the input.
    ///
    /// # Errors
    /// The same as those of [`StreamFrom::find`].
    pub async fn find_from<L: Log, T: Send>(
        &self,
        log: &L,
        from: u64,
        judge: impl FnMut(u64, L::Message) -> Match<T> + Send,
    ) -> Result<LookupResult<T>, ToolError> {
        self.scan(log, from, judge).await?.finding(None)
    }

    /// Reads up to the end that the log had at first. Messages that are appended later are covered by the settle time.
    async fn scan<L: Log, T: Send>(
        &self,
        log: &L,
        from: u64,
        mut judge: impl FnMut(u64, L::Message) -> Match<T> + Send,
    ) -> Result<Tally<T>, ToolError> {
        let from = from.max(log.first()); // there was never anything before it
        let (mut tally, mut at, mut read) = (Tally::new(), from, 0);
        let end = log.end().await?;
        if end < from && from > log.first() {
            return Err(unclear(format!("the log ends at {end}, before {from}: it is another log")));
        }
        loop {
            let batch = log.read(at).await?;
            // Checked in each batch, because retention may overtake the reader.
            if batch.oldest > at {
                let oldest = batch.oldest;
                return Err(unclear(format!(
                    "the log begins at {oldest} by now, and had to be read from {at} on"
                )));
            }
            read += batch.messages.len() as u64;
            for (offset, message) in batch.messages {
                tally.take(judge(offset, message));
            }
            match batch.next {
                next if next >= end => return Ok(tally),
                next if next <= at => {
                    return Err(unclear(format!("the log does not go on at {at}, and ends at {end}")));
                }
                _ if read >= self.at_most => {
                    return Err(unclear(format!(
                        "{read} messages were read from {from} on, and there are more"
                    )));
                }
                next => at = next,
            }
        }
    }
}
