//! The outbox: events that are written in one transaction with the state that they tell of, and published afterwards.
//!
//! A workflow [emits](crate::Ctx::emit) events; a transaction of your own [adds](add) them. An engine with a [`Sink`]
//! publishes them in batches, the events of one aggregate in the order of their commits. Of all workers of a database
//! one publishes at a time, until it ends; the next one goes on from the last durable mark.
//!
//! # What is promised
//!
//! No event is lost: an event exists if its state does, and it is published until the sink has taken it, or until a
//! person has answered the question about it. An event may be published **more than once**: a worker may die between
//! the sink's answer and the mark of it, and a worker that was taken for dead may publish events that its successor has
//! published. So consumers drop events of a tenant with a known [id](Event::id); the rest is in the order of the
//! [sequence](Event::seq).
//!
//! A refused event holds back its own aggregate and no other. After [its maximum number](Publisher::tries) of refusals
//! it is set aside, as an open question with the evidence. After the answer `again` it is tried again; after `skip` it
//! is left out, and the later events go on. A sink that cannot be reached is tried again for ever.

mod add;
mod after;
mod publisher;
mod sink;
mod sweep;

use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "encryption")]
pub use self::add::add_encrypted;
pub use self::add::{AddError, NewEvent, OutboxConnection, add, add_within};
pub(super) use self::after::answered;
pub use self::publisher::Publisher;
pub(crate) use self::publisher::{announce, publish};
pub use self::sink::{Event, PublishResult, Sink, SinkError};

/// This worker's knowledge of the worker that publishes.
#[derive(Debug, Default)]
pub(crate) struct Publishing {
    /// True if this process has a sink.
    able: AtomicBool,
    /// True if another worker publishes, as far as this worker knows.
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
