//! The wrappers between the queue of changes and the database: a chain of evidence, and encryption. The ledger is marked
//! with each of them, so that no process works on it without.

use std::sync::Arc;

use crate::clock::SharedClock;
use crate::id::Entropy;
use crate::store::chain::{ChainKey, ChainMark, chained};
#[cfg(feature = "encryption")]
use crate::store::encryption::{EncryptionKeys, encrypted};
use crate::store::own::OwnDatabase;
use crate::store::{Document, Mark, Store, StoreError};

/// The wrappers that a builder was asked for.
#[derive(Default)]
pub(super) struct Protection {
    pub(super) chain: Option<ChainKey>,
    #[cfg(feature = "encryption")]
    pub(super) keys: Option<Arc<dyn EncryptionKeys>>,
}

/// How far a process works on the rows of a ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// It reads and writes all rows.
    Whole,
    /// It only reads, also from older tables, which may lack the row of a mark.
    Examined,
    /// It reads and writes rows about the ledger as a whole.
    About,
}

/// A store with its wrappers.
pub(super) struct Protected {
    pub(super) store: Arc<dyn Store>,
    pub(super) database: Option<Arc<dyn OwnDatabase>>,
    /// The marks that the ledger is to be given before anything else is written.
    pub(super) marks: Vec<Document>,
    /// The secret of the chain of evidence, for a verification.
    pub(super) chain: ChainKey,
}

impl Protected {
    /// A store without wrappers.
    pub(super) fn none(store: Arc<dyn Store>, database: Option<Arc<dyn OwnDatabase>>) -> Self {
        Self { store, database, marks: Vec::new(), chain: ChainKey::none() }
    }

    /// Wraps the store as the builder was asked for. A ledger with another mark is refused.
    ///
    /// The chain is nearer to the database than encryption: its digests are of rows as they are stored.
    pub(super) async fn by(
        self,
        protection: Protection,
        extent: Extent,
        clock: &SharedClock,
        entropy: &dyn Entropy,
    ) -> Result<Self, StoreError> {
        #[cfg(feature = "encryption")]
        let Protection { chain, keys } = protection;
        #[cfg(not(feature = "encryption"))]
        let Protection { chain } = protection;
        // Both marks are compared before either wrapper writes.
        #[cfg(feature = "encryption")]
        let encryption = match &keys {
            Some(keys) => Mark::compared(&*self.store, &**keys).await?,
            None => refused_without_keys(&*self.store, extent).await?,
        };
        #[cfg(not(feature = "encryption"))]
        let encryption = refused_without_keys(&*self.store, extent).await?;
        let mut protected = self.chained(chain, extent, clock, entropy).await?;
        protected.marks.extend(encryption.map(|mark| mark.row(clock.now())));
        #[cfg(feature = "encryption")]
        if let Some(keys) = keys {
            (protected.store, protected.database) = encrypted(protected.store, protected.database, keys);
        }
        Ok(protected)
    }

    async fn chained(
        self,
        key: Option<ChainKey>,
        extent: Extent,
        clock: &SharedClock,
        entropy: &dyn Entropy,
    ) -> Result<Self, StoreError> {
        let Some(key) = key else {
            if extent == Extent::Whole {
                ChainMark::refused_without(&*self.store).await?;
            }
            return Ok(self);
        };
        if extent == Extent::Examined {
            return Ok(Self { chain: key, ..self });
        }
        let (mark, is_new) = ChainMark::compared(&*self.store, &key, entropy, clock.now()).await?;
        let (store, database) = chained(self.store, self.database, &mark, &key, clock.clone(), entropy);
        let marks = if is_new { vec![mark.row(clock.now())] } else { Vec::new() };
        Ok(Self { store, database, marks, chain: key })
    }
}

/// Refuses an encrypted ledger; there is then no mark to be given.
async fn refused_without_keys(store: &dyn Store, extent: Extent) -> Result<Option<Mark>, StoreError> {
    if extent == Extent::Whole {
        Mark::refused_without_keys(store).await?;
    }
    Ok(None)
}
