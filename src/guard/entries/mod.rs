//! Ledger entries (GUARD-6): what an account has is the sum of its entries, each under the id of its transaction.
//! Nothing is ever counted up: a retry finds its entry there, and a mistake is set right by another entry.
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
//! Each entry carries the balance behind it, so that a balance is read in one row however many entries there are; and
//! [`Account::audit`] proves it by adding them all up.

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

/// The longest account and transaction id, in bytes.
const NAME: usize = 256;
/// The longest unit, in bytes.
const UNIT: usize = 32;
/// The longest memo, in bytes.
const MEMO: usize = 1024;
/// So many entries are read at once at most.
const PAGE: u32 = 1000;

/// An entry that stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// In which account.
    pub account: String,
    /// Which it is there, from 1, without gaps.
    pub number: u32,
    /// The transaction that it is of.
    pub transaction: String,
    /// How much: in, or below zero out.
    pub amount: Amount,
    /// What for.
    pub memo: String,
    /// What the account has with this entry and all before it.
    pub balance: Amount,
    /// The run that posted it, if one has.
    pub run: Option<RunId>,
    /// When (UTC).
    pub at: Timestamp,
}

/// What an account has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// The sum of its entries.
    pub amount: Amount,
    /// How many there are.
    pub entries: u32,
}

/// Why there is no entry.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// A name that cannot be one. Nothing was posted.
    #[error(transparent)]
    Name(#[from] IdError),
    /// The transaction has an entry with another amount: that one stands.
    #[error(
        "the transaction {:?} has an entry of {} in {:?}, and {given} was to be posted: the entry stands; post the \
         difference under an id of its own",
        first.transaction, first.amount, first.account
    )]
    Conflict {
        /// The entry that stands.
        first: Box<Entry>,
        /// What was to be posted.
        given: Amount,
    },
    /// An account is of one unit. Nothing was posted.
    #[error("the account is of {has}, and {given} was to be posted: keep an account for each unit")]
    Unit {
        /// What the account has.
        has: String,
        /// What was to be posted.
        given: String,
    },
    /// The sum would not fit. Nothing was posted.
    #[error("the account has {balance}, and its sum would not fit 128 bits: nothing was posted")]
    Overflow {
        /// What it has.
        balance: Amount,
    },
    /// The entries do not add up to what the account is said to have: the rows were changed by another hand.
    #[error("{account:?}: entry {number} does not follow from those before it")]
    Broken {
        /// The account.
        account: String,
        /// The first entry that does not follow, or one that is missing.
        number: u32,
    },
    /// It could not be read. Nothing was posted.
    #[error("the account could not be read: {0}")]
    Unread(#[from] StoreError),
    /// Whether it was posted is not known here; posting it again answers that.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// An account: of a run by [`Ctx::account`], outside of any by [`TenantClient::account`].
#[derive(Clone, Debug)]
pub struct Account<By> {
    by: By,
    name: String,
}

impl Ctx {
    /// An account of the tenant. What a run posts is one transaction with its own record of that.
    pub fn account(&self, name: impl Into<String>) -> Account<Self> {
        Account { by: self.clone(), name: name.into() }
    }
}

impl TenantClient {
    /// An account of the tenant.
    pub fn account(&self, name: impl Into<String>) -> Account<Self> {
        Account { by: self.clone(), name: name.into() }
    }
}

impl<By: Clone> Account<By> {
    /// The entry of a transaction: its id is the tenant's own name for what happened, the same in every retry.
    pub fn post(&self, transaction: impl Into<String>, amount: Amount) -> Post<By> {
        Post::new(self.clone(), transaction.into(), amount)
    }
}

impl Account<TenantClient> {
    /// What it has; `None` while it has no entry. One row is read.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn balance(&self) -> Result<Option<Balance>, EntryError> {
        let (core, tenant) = self.by.core();
        let Some(row) = core.group.document_find(&tenant, rows::ACCOUNT, &self.name).await? else {
            return Ok(None);
        };
        Ok(Some(read(&row)?))
    }

    /// Its entries behind the one of this number, in their order, at most so many (and at most 1000).
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn statement(&self, after: u32, limit: u32) -> Result<Vec<Entry>, EntryError> {
        let (core, tenant) = self.by.core();
        let from = rows::line(&self.name, after);
        let rows = core.group.document_list(&tenant, rows::ENTRY, &from, limit.min(PAGE)).await?;
        let entries: Result<Vec<Entry>, _> = rows.iter().map(read).collect();
        // Behind the last one stand those of the next account.
        Ok(entries?.into_iter().take_while(|entry| entry.account == self.name).collect())
    }

    /// The entry of a transaction.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn entry(&self, transaction: &str) -> Result<Option<Entry>, EntryError> {
        let (core, tenant) = self.by.core();
        Ok(rows::of_transaction(&core, &tenant, &self.name, transaction).await?)
    }

    /// Adds all entries up and compares: the balance is proven by them. Reads every entry.
    ///
    /// # Errors
    /// [`EntryError::Broken`] if they do not add up.
    pub async fn audit(&self) -> Result<Option<Balance>, EntryError> {
        let (mut sum, mut number) = (None::<Amount>, 0);
        // First the sum: entries that are posted meanwhile are not of it.
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

/// What an error means in a run.
fn in_run(error: EntryError) -> Result<Failure, ExecError> {
    let code = match error {
        EntryError::Conflict { .. } => FailureCode::Conflict,
        EntryError::Exec(error) => return exec_in_run(error),
        EntryError::Unread(source) => return exec_in_run(ExecError::Store { key: "account".into(), source }),
        _ => FailureCode::Invalid,
    };
    Ok(Failure::coded(code, error.to_string()))
}
