//! Ledger entries: the balance of an account is the sum of its entries, each under the id of its transaction. No
//! counter is ever incremented: a retry finds the existing entry, and a mistake is corrected by another entry.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use counterfoil::guard::entries::Amount;
//! use counterfoil::{Ctx, Engine, Failure};
//!
//! async fn refund(ctx: Ctx, invoice: u32) -> Result<Amount, Failure> {
//!     let account = ctx.account("refunds of July");
//!     let entry = account.post(format!("refund/{invoice}"), Amount::of(-4900, "EUR cent")).memo("broken").await?;
//!     Ok(entry.balance)
//! }
//!
//! let engine = Engine::sqlite(dir.path().join("agents.db")).workflow("refund", 1, refund).start().await?;
//! let acme = engine.tenant("acme")?;
//! acme.run(refund, 17).await?;
//! let balance = acme.run(refund, 17).await?; // the same refund, asked for again: no second entry
//! assert_eq!(balance, Amount::of(-4900, "EUR cent"));
//!
//! let account = acme.account("refunds of July");
//! assert!(account.post("refund/17", Amount::of(-1, "EUR cent")).await.is_err()); // another amount: a conflict
//! assert_eq!(account.statement(0, 100).await?.len(), 1);
//! # engine.shutdown(std::time::Duration::from_secs(1)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each entry holds the balance after it, so that a balance is read from one row however many entries there are.
//! [`Account::audit`] proves the balance by adding up all entries.

mod amount;
mod post;
mod rows;

pub use amount::Amount;
pub use post::Post;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::exec::ExecError;
use crate::flow::{Ctx, Failure, FailureCode, TenantClient, exec_in_run};
use crate::guard::rows::read;
use crate::id::{IdError, RunId, checked};
use crate::store::{Store as _, StoreError};

/// The maximum length of an account name and of a transaction id, in bytes.
const NAME: usize = 256;
/// The maximum length of a unit, in bytes.
const UNIT: usize = 32;
/// The maximum length of a memo, in bytes.
const MEMO: usize = 1024;
/// The maximum number of entries in one page.
const PAGE: u32 = 1000;

/// A posted entry of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name of the account.
    pub account: String,
    /// The number of the entry in the account, from 1, without gaps.
    pub number: u32,
    /// The id of the transaction.
    pub transaction: String,
    /// The amount: positive for money in, negative for money out.
    pub amount: Amount,
    /// The purpose of the entry.
    pub memo: String,
    /// The balance of the account after this entry.
    pub balance: Amount,
    /// The run that posted the entry, if a run did.
    pub run: Option<RunId>,
    /// The time at which the entry was posted (UTC).
    pub at: Timestamp,
}

/// The balance of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// The sum of the account's entries.
    pub amount: Amount,
    /// The number of entries.
    pub entries: u32,
}

/// The reason why an entry was not posted or not read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The name of the account, the transaction, the unit or the memo is invalid. Nothing was posted.
    #[error(transparent)]
    Name(#[from] IdError),
    /// The transaction has an entry with another amount, which is unchanged.
    #[error(
        "the transaction {:?} has an entry of {} in {:?}, and {given} was to be posted: the entry stands; post the \
         difference under an id of its own [conflict]",
        first.transaction, first.amount, first.account
    )]
    Conflict {
        /// The existing entry of the transaction.
        first: Box<Entry>,
        /// The amount that was to be posted.
        given: Amount,
    },
    /// The account has another unit. Nothing was posted.
    #[error("the account is of {has}, and {given} was to be posted: keep an account for each unit [invalid]")]
    Unit {
        /// The unit of the account.
        has: String,
        /// The unit of the amount that was to be posted.
        given: String,
    },
    /// The new balance would overflow 128 bits. Nothing was posted.
    #[error("the account has {balance}, and its sum would not fit 128 bits: nothing was posted [invalid]")]
    Overflow {
        /// The present balance of the account.
        balance: Amount,
    },
    /// The entries do not add up to the balance: the rows were changed by something other than this library.
    #[error(
        "the account {account:?}: its entry {number} is missing or does not follow from those before it; something other than this \
         library has changed its rows: compare them with a backup [damaged]"
    )]
    Broken {
        /// The name of the account.
        account: String,
        /// The number of the first entry that is wrong or missing.
        number: u32,
    },
    /// The account could not be read. Nothing was posted.
    #[error("the account could not be read: {0}")]
    Unread(#[from] StoreError),
    /// The outcome of the post is unknown; posting the entry again returns it.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// An account: for a run by [`Ctx::account`], outside of runs by [`TenantClient::account`].
#[derive(Clone, Debug)]
pub struct Account<By> {
    by: By,
    name: String,
}

impl Ctx {
    /// An account of the tenant. An entry that a run posts and the run's own record of it are one transaction.
    pub fn account(&self, name: impl Into<String>) -> Account<Self> {
        Account { by: self.clone(), name: name.into() }
    }
}

impl TenantClient {
    /// An account of the tenant, outside of runs.
    pub fn account(&self, name: impl Into<String>) -> Account<Self> {
        Account { by: self.clone(), name: name.into() }
    }
}

impl<By: Clone> Account<By> {
    /// An entry for a transaction. The id is the tenant's own name for the event, the same in every retry.
    pub fn post(&self, transaction: impl Into<String>, amount: Amount) -> Post<By> {
        Post::new(self.clone(), transaction.into(), amount)
    }
}

impl Account<TenantClient> {
    /// The balance of the account; `None` if the account has no entry. Reads one row.
    ///
    /// # Errors
    /// If the account cannot be read.
    pub async fn balance(&self) -> Result<Option<Balance>, EntryError> {
        let (core, tenant) = self.by.core();
        let Some(row) = core.group.document_find(&tenant, rows::ACCOUNT, &self.name).await? else {
            return Ok(None);
        };
        Ok(Some(read(&row)?))
    }

    /// The entries after the entry of number `after`, in order: at most `limit`, and at most 1000.
    ///
    /// # Errors
    /// If the entries cannot be read.
    pub async fn statement(&self, after: u32, limit: u32) -> Result<Vec<Entry>, EntryError> {
        let (core, tenant) = self.by.core();
        let from = rows::line(&self.name, after);
        let rows = core.group.document_list(&tenant, rows::ENTRY, &from, limit.min(PAGE)).await?;
        let entries: Result<Vec<Entry>, _> = rows.iter().map(read).collect();
        // The rows after the account's last entry belong to the next account.
        Ok(entries?.into_iter().take_while(|entry| entry.account == self.name).collect())
    }

    /// The entry of a transaction.
    ///
    /// # Errors
    /// If the entry cannot be read.
    pub async fn entry(&self, transaction: &str) -> Result<Option<Entry>, EntryError> {
        let (core, tenant) = self.by.core();
        Ok(rows::of_transaction(&core, &tenant, &self.name, transaction).await?)
    }

    /// Adds up all entries and compares the sum with the balance. Reads every entry.
    ///
    /// # Errors
    /// [`EntryError::Broken`] if they do not add up.
    pub async fn audit(&self) -> Result<Option<Balance>, EntryError> {
        let (mut sum, mut number) = (None::<Amount>, 0);
        // The balance is read first, so that entries posted during the audit are not part of it.
        let Some(said) = self.balance().await? else { return Ok(None) };
        let broken = |number| EntryError::Broken { account: self.name.clone(), number };
        while number < said.entries {
            let page = self.statement(number, PAGE.min(said.entries - number)).await?;
            if page.is_empty() {
                return Err(broken(number + 1));
            }
            for entry in page {
                let next =
                    sum.as_ref().map_or_else(|| Ok(entry.amount.clone()), |sum| sum.plus(&entry.amount))?;
                number += 1;
                if entry.number != number || entry.balance != next {
                    return Err(broken(number));
                }
                sum = Some(next);
            }
        }
        if sum.as_ref() == Some(&said.amount) { Ok(Some(said)) } else { Err(broken(number)) }
    }
}

fn checked_names(account: &str, transaction: &str, unit: &str, memo: &str) -> Result<(), EntryError> {
    checked("account", account, NAME)?;
    checked("transaction's id", transaction, NAME)?;
    checked("unit", unit, UNIT)?;
    if !memo.is_empty() {
        checked("memo", memo, MEMO)?;
    }
    Ok(())
}

/// The failure of a run for an error.
fn in_run(error: EntryError) -> Result<Failure, ExecError> {
    let code = match error {
        EntryError::Conflict { .. } => FailureCode::Conflict,
        EntryError::Exec(error) => return exec_in_run(error),
        EntryError::Unread(source) => return exec_in_run(ExecError::Store { key: "account".into(), source }),
        _ => FailureCode::Invalid,
    };
    Ok(Failure::coded(code, error.to_string()))
}
