//! The mark of an encrypted ledger. Without it, a process without keys would write rows in the clear beside encrypted
//! ones, and take the encrypted digest of a request for that of another request.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[cfg(feature = "encryption")]
use super::encryption::EncryptionKeys;
use super::{Document, ENCRYPTION_ID, LEDGER_KIND, OpenError, Store, StoreError};
use crate::clock::Timestamp;
use crate::id::Tenant;

/// The mark of an encrypted ledger.
#[derive(Serialize, Deserialize)]
pub(crate) struct Mark {
    /// A digest of the first key of the ledger's own tenant, if there is one.
    check: Option<String>,
}

impl Mark {
    /// Compares the keys of a process with the mark of the ledger. Returns the mark that an empty ledger is to be given.
    #[cfg(feature = "encryption")]
    pub(crate) async fn compared(
        store: &dyn Store,
        keys: &dyn EncryptionKeys,
    ) -> Result<Option<Self>, StoreError> {
        let check = keys.of(&Tenant::ledger()).map(|keys| keys.check());
        match Self::of(store).await? {
            None => {
                let mut tenants = store.tenant_list("", 2).await?;
                tenants.retain(|tenant| *tenant != Tenant::ledger());
                if tenants.is_empty() { Ok(Some(Self { check })) } else { Err(OpenError::InTheClear.into()) }
            }
            Some(mark) if mark.check.is_some() && check.is_some() && mark.check != check => {
                Err(OpenError::WrongKey.into())
            }
            Some(_) => Ok(None),
        }
    }

    /// Refuses an encrypted ledger, because this process has no keys.
    pub(crate) async fn refused_without_keys(store: &dyn Store) -> Result<(), StoreError> {
        match Self::of(store).await? {
            None => Ok(()),
            Some(_) => Err(OpenError::Encrypted.into()),
        }
    }

    async fn of(store: &dyn Store) -> Result<Option<Self>, StoreError> {
        read(store, ENCRYPTION_ID).await
    }

    /// The row of the mark.
    pub(crate) fn row(&self, at: Timestamp) -> Document {
        Document::first(&Tenant::ledger(), LEDGER_KIND, ENCRYPTION_ID.to_owned(), self, at)
    }
}

/// Reads one of the ledger's documents about itself.
pub(super) async fn read<M: DeserializeOwned>(store: &dyn Store, id: &str) -> Result<Option<M>, StoreError> {
    let row = store.document_find(&Tenant::ledger(), LEDGER_KIND, id).await?;
    let mark = row.map(|row| serde_json::from_str(&row.body)).transpose();
    mark.map_err(|error| StoreError::Corrupt {
        row: format!("document {LEDGER_KIND} {id}"),
        detail: error.to_string(),
    })
}
