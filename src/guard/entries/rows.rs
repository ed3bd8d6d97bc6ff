//! Where an account stands in the rows of guards: its balance, its entries in order, and where the entry of a
//! transaction is.

use serde::{Deserialize, Serialize};

use super::Entry;
use crate::exec::Core;
use crate::guard::rows::{part, read};
use crate::id::Tenant;
use crate::store::{Store as _, StoreError};

/// One for each account, under its name: the balance. Its revision is the number of the last entry.
pub(super) const ACCOUNT: &str = "account";
/// One for each entry, under account and number.
pub(super) const ENTRY: &str = "entry";
/// One for each entry, under account and transaction: its number.
pub(super) const TRANSACTION: &str = "entry_of";

#[derive(Serialize, Deserialize)]
pub(super) struct Numbered {
    pub(super) number: u32,
}

/// Numbers in the order of texts.
pub(super) fn line(account: &str, number: u32) -> String {
    format!("{}/{number:010}", part(account))
}

pub(super) fn transaction(account: &str, transaction: &str) -> String {
    format!("{}/{transaction}", part(account))
}

pub(super) async fn of_transaction(
    core: &Core,
    tenant: &Tenant,
    account: &str,
    id: &str,
) -> Result<Option<Entry>, StoreError> {
    let place = transaction(account, id);
    let Some(row) = core.group.document_find(tenant, TRANSACTION, &place).await? else { return Ok(None) };
    let Numbered { number } = read(&row)?;
    let line = line(account, number);
    let found = core.group.document_find(tenant, ENTRY, &line).await?;
    let missing =
        || StoreError::Corrupt { row: format!("document ({ENTRY} {line})"), detail: "it is missing".into() };
    found.as_ref().ok_or_else(missing).and_then(read).map(Some)
}
