//! The outbox: events that are written in the transaction of the state they tell of, and published afterwards (GUARD-5).
//!
//! A workflow [emits](crate::Ctx::emit) them; a transaction of one's own [adds](add) them. An engine that has a [`Sink`]
//! publishes them, in batches, those of one aggregate in the order of their commits. Of all workers of a database one
//! publishes at a time, until it ends; the next one goes on where it is durable that the one before had come to.
//!
//! # What is promised
//!
//! Nothing is lost: an event is there if its state is, and it is published until the sink has taken it, or until somebody
//! has answered the question what is to become of it. It may be published **more than once**: a worker may die between
//! the sink's answer and the mark of it, and one that was taken for dead may publish what its successor has published.
//! So consumers drop what they know by its [id](Event::id); what is left is in the order of the [sequence](Event::seq).
//!
//! An event that is refused holds back its own aggregate and no other. After [so many](Publisher::tries) refusals it is set
//! aside, as an open question with the evidence: answered `again`, it is tried again; answered
//! `skip`, it is left out, and what follows it goes on. A sink that cannot be reached is tried again for ever.

mod add;
mod after;
mod publisher;
mod sink;
mod sweep;

use std::sync::atomic::{AtomicBool, Ordering};

pub use self::add::{AddError, NewEvent, OutboxConnection, add};
pub(super) use self::after::answered;
pub use self::publisher::Publisher;
pub(crate) use self::publisher::{announce, publish};
pub use self::sink::{Event, PublishResult, Sink, SinkError};

/// What a worker knows about who publishes.
#[derive(Debug, Default)]
pub(crate) struct Publishing {
    /// This process has a sink.
    able: AtomicBool,
    /// Another worker publishes, as far as this one has heard.
    elsewhere: AtomicBool,
}

impl Publishing {
    pub(crate) fn is_able(&self) -> bool {
        self.able.load(Ordering::Acquire)
    }

    pub(crate) fn becomes_able(&self) {
        self.able.store(true, Ordering::Release);
    }

    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere.load(Ordering::Acquire)
    }

    pub(super) fn note_elsewhere(&self, elsewhere: bool) {
        self.elsewhere.store(elsewhere, Ordering::Release);
    }
}
