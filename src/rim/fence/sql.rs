//! The fence on the ledger's own database, for use without Redis: in rows of the store, by compare-and-set on their
//! revisions.

use std::time::Duration;

use super::slot::{Seal, Slot, Turned};
use super::{Claimed, FenceError, FenceToken, KeyFence, checked_size, entry_name};
use crate::clock::Timestamp;
use crate::exec::{ExecError, Executor};
use crate::id::Tenant;
use crate::store::{Change, Document, Refusal, Store as _, Verdict};

/// The kind of the fence's rows.
const KIND: &str = "fence";
/// The number of hexadecimal digits of a key's name that select its row: the keys of a tenant share 4096 rows.
const DIGITS: usize = 3;
/// The maximum number of tries. Each refused try means that another writer succeeded, so this number is not reached
/// in practice.
const TRIES: u32 = 1000;

/// A fence in the ledger's own database, SQLite or PostgreSQL: for use alone, where there is no Redis. Feature `fence`.
///
/// Its entries are as durable as the ledger, and are erased with their tenant. The clock of the ledger decides when
/// they expire. In front of the ledger this fence is useless, because it asks the same database. All keys of a tenant
/// share 4096 rows, each of which is written as a whole: enough for up to a few hundred thousand live keys.
#[derive(Clone, Debug)]
pub struct SqlFence {
    executor: Executor,
    tenant: Tenant,
}

impl SqlFence {
    /// A fence for the keys of a tenant, in the database of this executor.
    pub fn new(executor: &Executor, tenant: Tenant) -> Self {
        Self { executor: executor.clone(), tenant }
    }

    /// Applies an operation to the row of a name, and writes the row if it has changed. Starts again if another
    /// writer was first.
    async fn turn<A>(
        &self,
        name: &str,
        turn: impl Fn(&mut Slot, Timestamp) -> Result<Turned<A>, FenceError> + Send + Sync,
    ) -> Result<A, FenceError> {
        let core = self.executor.core();
        let id = name.get(..DIGITS).unwrap_or(name);
        let failed = |source| ExecError::Store { key: format!("row {id} of the fence"), source };
        for _ in 0..TRIES {
            let found = core.group.document_find(&self.tenant, KIND, id).await.map_err(failed)?;
            let mut slot = found.as_ref().map_or_else(|| Ok(Slot::default()), read)?;
            let now = core.now();
            let turned = turn(&mut slot, now)?;
            if !turned.changed {
                return Ok(turned.answer);
            }
            let row = self.row(id, found, &slot, now);
            let change = Change { documents: vec![row], ..core.change(None) };
            match core.group.commit_one(change).await.map_err(failed)? {
                Verdict::Admitted => return Ok(turned.answer),
                Verdict::Refused(Refusal::Exists) => {}
                Verdict::Refused(refusal) => {
                    return Err(ExecError::Refused { key: format!("row {id} of the fence"), refusal }.into());
                }
            }
        }
        Err(FenceError::Late)
    }

    fn row(&self, id: &str, found: Option<Document>, slot: &Slot, now: Timestamp) -> Document {
        let (revision, created_at) = found.map_or((0, now), |row| (row.revision, row.created_at));
        let first = Document::first(&self.tenant, KIND, id.to_owned(), slot, now);
        Document { revision: revision + 1, created_at, ..first }
    }
}

fn read(row: &Document) -> Result<Slot, FenceError> {
    serde_json::from_str(&row.body).map_err(|_| FenceError::Damaged)
}

impl KeyFence for SqlFence {
    fn kind(&self) -> &'static str {
        "sql"
    }

    async fn claim(
        &self,
        key: &str,
        token: &FenceToken,
        pending_for: Duration,
    ) -> Result<Claimed, FenceError> {
        let name = entry_name(key);
        self.turn(&name, |slot, now| slot.claim(&name, token, now, now.after(pending_for))).await
    }

    async fn seal(
        &self,
        key: &str,
        token: &FenceToken,
        value: &[u8],
        sealed_for: Duration,
    ) -> Result<bool, FenceError> {
        checked_size(value)?;
        let name = entry_name(key);
        let seal = Seal { name: &name, token, value, sealed_for };
        self.turn(&name, |slot, now| Ok(slot.seal(seal, now))).await
    }

    async fn release(&self, key: &str, token: &FenceToken) -> Result<bool, FenceError> {
        let name = entry_name(key);
        self.turn(&name, |slot, now| Ok(slot.release(&name, token, now))).await
    }
}
