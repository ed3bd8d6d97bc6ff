//! Encryption at rest: private values are encrypted before the store sees them, and decrypted after it has read them.
//!
//! Encrypted are payloads (requests, responses, inputs, outputs, the values of steps, signals, events and answers, the
//! bodies of guards' rows) and the texts of errors and questions; the digests of requests and of large payloads, by a
//! permutation. Readable are keys, names, labels, the ids of providers, states and times. Rows of the ledger as a whole
//! (its origin, the declarations of tools, the catalogue of workflows, tokens, of which only hashes are kept) are readable, too.
//!
//! The wrapper lies between the queue of changes and the store. A database thus needs no key for a backup or a move.

mod cipher;
mod codec;
mod key;
mod own;
mod private;
mod store;

use std::sync::Arc;

use codec::Codec;
pub(crate) use codec::encrypted_events;
#[cfg(feature = "cli")]
pub(crate) use key::OTHERS;
pub use key::{EncryptionKey, EncryptionKeys, Keyring, KeyringError, TenantKeys};
use own::EncryptedDatabase;
#[cfg(feature = "unstable-core")]
pub use store::EncryptedStore;
#[cfg(not(feature = "unstable-core"))]
use store::EncryptedStore;

use super::Store;
use super::own::OwnDatabase;

/// A store, and a database with the user's own tables, whose private values are encrypted.
pub(crate) fn encrypted(
    store: Arc<dyn Store>,
    database: Option<Arc<dyn OwnDatabase>>,
    keys: Arc<dyn EncryptionKeys>,
) -> (Arc<dyn Store>, Option<Arc<dyn OwnDatabase>>) {
    let own =
        |database| Arc::new(EncryptedDatabase { database, codec: Codec { keys: keys.clone() } }) as Arc<_>;
    let database = database.map(own);
    (Arc::new(EncryptedStore::new(store, keys)), database)
}
