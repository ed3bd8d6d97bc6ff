//! The chain of evidence: each change of a row that evidence rests on carries a link with a digest of that row. Whoever
//! changes, adds or deletes such a row in the database leaves a row that fits no link, or a link that fits no row.
//!
//! Covered are records, attempts and lookups, late answers, answers of people about calls, and reviews. Each process writes
//! links of its own, numbered from 1 on without a gap, and signs each one by a secret that is not in the database. A link is
//! a row of the change that it is about: either both are durable, or neither. A link holds digests alone, so it stays when
//! retention or an erasure takes its rows away.
//!
//! The wrapper lies directly before the database, so digests are taken of rows as they are stored: an encrypted ledger is
//! verified without its keys, also after the keys of a tenant were dropped.

mod anchor;
mod covered;
mod digest;
mod key;
mod link;
mod mark;
mod own;
mod report;
mod standing;
mod store;
mod verify;
mod writer;

use std::sync::Arc;

pub use anchor::{Anchor, AnchorError, Head};
pub use key::{ChainKey, ChainKeyError};
#[cfg(feature = "unstable-core")]
pub use link::Link;
#[cfg(not(feature = "unstable-core"))]
pub(crate) use link::Link;
pub(crate) use mark::ChainMark;
pub use report::{ChainReport, Finding, FindingKind};
pub(crate) use verify::{Scope, verify};

use self::own::ChainedDatabase;
use self::store::ChainedStore;
use super::Store;
use super::own::OwnDatabase;
use crate::clock::SharedClock;
use crate::id::Entropy;

/// A store, and a database with the user's own tables, whose changes carry links.
pub(crate) fn chained(
    store: Arc<dyn Store>,
    database: Option<Arc<dyn OwnDatabase>>,
    mark: &ChainMark,
    key: &ChainKey,
    clock: SharedClock,
    entropy: &dyn Entropy,
) -> (Arc<dyn Store>, Option<Arc<dyn OwnDatabase>>) {
    let store = ChainedStore::new(store, mark, key, clock, entropy);
    let writer = &store.writer;
    let own = |database| Arc::new(ChainedDatabase { database, writer: writer.clone() }) as Arc<_>;
    let database = database.map(own);
    (Arc::new(store), database)
}
