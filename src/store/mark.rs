//! The mark of an encrypted ledger. Without it, a process without keys would write rows in the clear beside encrypted
//! ones, and take the encrypted digest of a request for that of another request.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[cfg(feature = "encryption")]
use super::document::part;
#[cfg(feature = "encryption")]
use super::encryption::{EncryptionKeys, TenantKeys};
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

    /// Compares the first key of a tenant with the mark of it. Returns the row of the mark if it is to be written.
    #[cfg(feature = "encryption")]
    pub(crate) async fn compared_of(
        store: &dyn Store,
        tenant: &Tenant,
        keys: &TenantKeys,
        now: Timestamp,
    ) -> Result<Option<Document>, StoreError> {
        let row = store.document_find(&Tenant::ledger(), LEDGER_KIND, &id_of(tenant)).await?;
        let marked: Option<Self> = row.as_ref().map(parsed).transpose()?;
        let check = keys.check();
        match marked.and_then(|mark| mark.check) {
            Some(marked) if marked == check => Ok(None),
            Some(_) => Err(StoreError::WrongKey { tenant: tenant.to_string() }),
            None => Ok(Some(Self { check: Some(check) }.row_of(tenant, row.as_ref(), now))),
        }
    }

    /// The row without the first key of a tenant that was erased, which may come back with other keys. `None` if it is not marked.
    #[cfg(feature = "encryption")]
    pub(crate) async fn without(
        store: &dyn Store,
        tenant: &Tenant,
        now: Timestamp,
    ) -> Result<Option<Document>, StoreError> {
        let row = store.document_find(&Tenant::ledger(), LEDGER_KIND, &id_of(tenant)).await?;
        Ok(row.map(|row| Self { check: None }.row_of(tenant, Some(&row), now)))
    }

    /// The row of the mark of a tenant's first key. The ledger owns it, so it can be read before the keys are known to be right.
    #[cfg(feature = "encryption")]
    fn row_of(&self, tenant: &Tenant, before: Option<&Document>, now: Timestamp) -> Document {
        let first = Document::first(&Tenant::ledger(), LEDGER_KIND, id_of(tenant), self, now);
        match before {
            None => first,
            Some(before) => {
                Document { revision: before.revision + 1, created_at: before.created_at, ..first }
            }
        }
    }

    /// The row of the mark.
    pub(crate) fn row(&self, at: Timestamp) -> Document {
        Document::first(&Tenant::ledger(), LEDGER_KIND, ENCRYPTION_ID.to_owned(), self, at)
    }
}

/// Reads one of the ledger's documents about itself.
pub(super) async fn read<M: DeserializeOwned>(store: &dyn Store, id: &str) -> Result<Option<M>, StoreError> {
    let row = store.document_find(&Tenant::ledger(), LEDGER_KIND, id).await?;
    row.as_ref().map(parsed).transpose()
}

fn parsed<M: DeserializeOwned>(row: &Document) -> Result<M, StoreError> {
    serde_json::from_str(&row.body).map_err(|error| StoreError::Corrupt {
        row: format!("document {LEDGER_KIND} {}", row.id),
        detail: error.to_string(),
    })
}

/// The id of the row that marks the first key of a tenant.
#[cfg(feature = "encryption")]
fn id_of(tenant: &Tenant) -> String {
    format!("{ENCRYPTION_ID}/{}", part(tenant.as_str()))
}
