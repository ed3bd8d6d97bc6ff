//! The posting of an entry, once for each transaction.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::rows::{ACCOUNT, ENTRY, Numbered, TRANSACTION, line, of_transaction, transaction};
use super::{Account, Amount, Balance, Entry, EntryError, checked_names, in_run};
use crate::exec::{Core, ExecError};
use crate::flow::{Ctx, Failure, Guarded, Label, Proposal, TenantClient};
use crate::guard::rows::{Row, read};
use crate::id::{RunId, Tenant};
use crate::store::{Change, Document, Store as _};

/// An entry to be posted. Nothing happens before it is awaited.
#[must_use = "nothing is posted before this is awaited"]
#[derive(Debug)]
pub struct Post<By> {
    account: Account<By>,
    transaction: String,
    amount: Amount,
    memo: String,
    id: Option<String>,
}

impl<By> Post<By> {
    pub(super) const fn new(account: Account<By>, transaction: String, amount: Amount) -> Self {
        Self { account, transaction, amount, memo: String::new(), id: None }
    }

    /// Sets the purpose of the entry. If the transaction has an entry already, that entry keeps its memo.
    pub fn memo(mut self, memo: impl Into<String>) -> Self {
        self.memo = memo.into();
        self
    }

    fn wish(self, run: Option<RunId>) -> Result<Wish, EntryError> {
        let Self { account: Account { name, .. }, transaction, amount, memo, .. } = self;
        checked_names(&name, &transaction, &amount.unit, &memo)?;
        Ok(Wish { account: name, transaction, amount, memo, run })
    }
}

impl Post<Ctx> {
    /// Sets an id that distinguishes several entries that the run posts concurrently.
    #[allow(clippy::needless_pass_by_value, reason = "`.id(7)` and `.id(&name)` both read well")]
    pub fn id(mut self, id: impl ToString) -> Self {
        self.id = Some(id.to_string());
        self
    }
}

impl IntoFuture for Post<Ctx> {
    type Output = Result<Entry, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Posts the entry.
    ///
    /// # Crash
    /// The entry, the balance and the run's record of them are one transaction.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let ctx = self.account.by.clone();
            let label = Label::of("post", self.id.clone());
            let failed = |error| in_run(error).unwrap_or_else(|error| Failure::new(error.to_string()));
            let wish = self.wish(Some(ctx.origin())).map_err(failed)?;
            let bound_to = (wish.account.clone(), wish.transaction.clone(), wish.amount.clone());
            let given = wish.amount.clone();
            let posted = ctx.guarded(label, &bound_to, None, wish).await?;
            posted.entry(given).map_err(failed)
        })
    }
}

impl IntoFuture for Post<TenantClient> {
    type Output = Result<Entry, EntryError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Posts the entry.
    ///
    /// # Crash
    /// The entry and the balance are one transaction. A repeated post returns the same entry.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let by = self.account.by.clone();
            let wish = self.wish(None)?;
            let (key, given) = (transaction(&wish.account, &wish.transaction), wish.amount.clone());
            by.guarded(key, wish).await?.entry(given)
        })
    }
}

/// The entry that a caller wants to post.
struct Wish {
    account: String,
    transaction: String,
    amount: Amount,
    memo: String,
    run: Option<RunId>,
}

/// The result of a post. A refusal is recorded as well, so that a resumed run gets the same answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Posted {
    Entry(Entry),
    Conflict(Entry),
    Unit(String),
    Overflow(Amount),
}

impl Posted {
    fn entry(self, given: Amount) -> Result<Entry, EntryError> {
        match self {
            Self::Entry(entry) => Ok(entry),
            Self::Conflict(first) => Err(EntryError::Conflict { first: Box::new(first), given }),
            Self::Unit(has) => Err(EntryError::Unit { has, given: given.unit }),
            Self::Overflow(balance) => Err(EntryError::Overflow { balance }),
        }
    }
}

impl Guarded for Wish {
    type Answer = Posted;
    type Error = EntryError;

    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        _key: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Posted>, EntryError>> {
        Box::pin(async move {
            // If another post is committed between these two reads, the transaction's row exists, and this write is
            // refused.
            if let Some(first) = of_transaction(core, tenant, &self.account, &self.transaction).await? {
                let same = first.amount == self.amount;
                return Ok(Proposal::Before(if same {
                    Posted::Entry(first)
                } else {
                    Posted::Conflict(first)
                }));
            }
            let head = core.group.document_find(tenant, ACCOUNT, &self.account).await?;
            let before: Option<Balance> = head.as_ref().map(read).transpose()?;
            let sum =
                before.as_ref().map_or_else(|| Ok(self.amount.clone()), |b| b.amount.plus(&self.amount));
            let balance = match sum {
                Ok(balance) => balance,
                Err(EntryError::Unit { has, .. }) => return Ok(Proposal::Before(Posted::Unit(has))),
                Err(EntryError::Overflow { balance }) => {
                    return Ok(Proposal::Before(Posted::Overflow(balance)));
                }
                Err(error) => return Err(error),
            };
            let Some(number) = before.map_or(Some(1), |before| before.entries.checked_add(1)) else {
                return Ok(Proposal::Before(Posted::Overflow(balance)));
            };
            let entry = Entry {
                account: self.account.clone(),
                number,
                transaction: self.transaction.clone(),
                amount: self.amount.clone(),
                memo: self.memo.clone(),
                balance,
                run: self.run,
                at: core.now(),
            };
            let documents = documents(tenant, &entry, head.as_ref());
            Ok(Proposal::Write(Box::new(Change { documents, ..core.change(None) }), Posted::Entry(entry)))
        })
    }

    fn in_run(error: EntryError) -> Result<Failure, ExecError> {
        in_run(error)
    }
}

/// The rows of a post: the new balance in place of the old one, and two rows that are written once: the entry under
/// its number, and under its transaction.
fn documents(tenant: &Tenant, entry: &Entry, head: Option<&Document>) -> Vec<Document> {
    let (account, number, at) = (entry.account.as_str(), entry.number, entry.at);
    let since = head.map_or(at, |head| head.created_at);
    let balance = Balance { amount: entry.balance.clone(), entries: number };
    let of = transaction(account, &entry.transaction);
    vec![
        Row { tenant, kind: ACCOUNT, id: account.to_owned(), revision: number, since, at }.holding(&balance),
        Row { tenant, kind: ENTRY, id: line(account, number), revision: 1, since: at, at }.holding(entry),
        Row { tenant, kind: TRANSACTION, id: of, revision: 1, since: at, at }.holding(&Numbered { number }),
    ]
}
