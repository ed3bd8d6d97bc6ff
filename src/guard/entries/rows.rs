//! The rows of an account: its balance, its entries in order, and the number of each transaction's entry.

use serde::{Deserialize, Serialize};

use super::Entry;
use crate::exec::Core;
use crate::guard::rows::{part, read};
use crate::id::Tenant;
use crate::store::{Store as _, StoreError};

/// One row for each account, under its name: the balance. The row's revision is the number of the last entry.
pub(super) const ACCOUNT: &str = "account";
/// One row for each entry, under account and number.
pub(super) const ENTRY: &str = "entry";
/// One row for each entry, under account and transaction: the entry's number.
pub(super) const TRANSACTION: &str = "entry_of";

#[derive(Serialize, Deserialize)]
pub(super) struct Numbered {
    pub(super) number: u32,
}

/// The id of an entry's row. The ids sort in the order of the numbers.
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
