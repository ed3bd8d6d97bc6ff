//! The mark of a ledger with a chain of evidence. Without it, a process without the chain would change rows whose links then
//! no longer fit.

use serde::{Deserialize, Serialize};

use super::digest::Digests;
use super::key::ChainKey;
use super::verify::older_rows;
use crate::clock::Timestamp;
use crate::id::{Entropy, Tenant};
use crate::payload::{DigestKey, hex, unhex};
use crate::store::mark::read;
use crate::store::{Document, LEDGER_KIND, OpenError, Store, StoreError};

/// The id of the row of the mark.
const ID: &str = "chain";

/// The mark of a ledger with a chain of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChainMark {
    /// The random key of all digests of rows.
    salt: String,
    /// A digest of the secret by which links are signed; absent if there is none.
    check: Option<String>,
    /// The instant at which the chain began, in microseconds: earlier rows are covered from their next change on.
    since: i64,
    /// The number of rows from before the chain. There are never more of them: one that changes is covered from then on.
    older: u64,
    /// The signature of all of these by the secret, in hexadecimal; empty if there is none.
    signature: String,
}

impl ChainMark {
    /// The mark of a chain that begins now, beside so many rows from before it.
    pub(crate) fn begin(key: &ChainKey, entropy: &dyn Entropy, at: Timestamp, older: u64) -> Self {
        let salt = hex(DigestKey::drawn(entropy).bytes());
        let unsigned = Self { salt, check: key.check(), since: at.0, older, signature: String::new() };
        Self { signature: unsigned.signed_by(key), ..unsigned }
    }

    fn signed_by(&self, key: &ChainKey) -> String {
        let Self { salt, check, since, older, signature: _ } = self;
        let check = check.as_deref().unwrap_or_default();
        key.sign_mark(&format!("{salt} {check} {since} {older}"))
    }

    /// The mark of the ledger, and true if it is a new one that is to be written.
    pub(crate) async fn compared(
        store: &dyn Store,
        key: &ChainKey,
        entropy: &dyn Entropy,
        now: Timestamp,
    ) -> Result<(Self, bool), StoreError> {
        match Self::of(store).await? {
            None if store.link_chain(0).await?.is_some() => Err(StoreError::Corrupt {
                row: format!("document {LEDGER_KIND} {ID}"),
                detail: "the ledger has links of a chain of evidence, and the mark of the chain was deleted"
                    .into(),
            }),
            None => {
                let older = older_rows(store).await?;
                tracing::info!(older, "chain of evidence begun");
                Ok((Self::begin(key, entropy, now, older), true))
            }
            Some(mark) if mark.check == key.check() => Ok((mark, false)),
            Some(_) => Err(OpenError::WrongChainSecret.into()),
        }
    }

    /// Refuses a ledger with a chain, because this process was not given one.
    pub(crate) async fn refused_without(store: &dyn Store) -> Result<(), StoreError> {
        match Self::of(store).await? {
            None => Ok(()),
            Some(_) => Err(OpenError::Chained.into()),
        }
    }

    /// The mark of the ledger, if it has a chain.
    pub(crate) async fn of(store: &dyn Store) -> Result<Option<Self>, StoreError> {
        read(store, ID).await
    }

    /// The row of the mark.
    pub(crate) fn row(&self, at: Timestamp) -> Document {
        Document::first(&Tenant::ledger(), LEDGER_KIND, ID.to_owned(), self, at)
    }

    pub(super) fn digests(&self) -> Digests {
        Digests::new(&DigestKey::new(unhex(&self.salt).unwrap_or_default()))
    }

    /// True if this is the secret by which the mark and the links are signed.
    pub(super) fn is_signed_by(&self, key: &ChainKey) -> bool {
        key.is_secret() && self.check == key.check() && self.signature == self.signed_by(key)
    }

    /// True if signatures can be checked: by this secret, or because there is none.
    pub(super) fn is_checked_by(&self, key: &ChainKey) -> bool {
        self.check == key.check()
    }

    pub(super) const fn since(&self) -> Timestamp {
        Timestamp(self.since)
    }

    pub(super) const fn older(&self) -> u64 {
        self.older
    }
}
