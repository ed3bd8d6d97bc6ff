//! The forgetting of a memory: its text is removed, and a tombstone stays, so that a late retry does not revive it.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;

use super::rows::{Memory, Shelf};
use super::{Forgotten, Memories, MemoryError, NAME, REASON, in_run, unasked};
use crate::exec::{Core, ExecError};
use crate::flow::{Ctx, Failure, Guarded, Label, Proposal, TenantClient};
use crate::id::{MemoryId, Tenant, checked};
use crate::store::Change;

/// A memory to be forgotten. Nothing happens before it is awaited; the result is the memory's first tombstone.
///
/// A memory that a run has recalled before stays in that run's history, until the run itself is deleted.
#[must_use = "nothing is forgotten before this is awaited"]
#[derive(Debug)]
pub struct Forget<By> {
    memories: Memories<By>,
    memory: MemoryId,
    by: String,
    reason: String,
}

impl<By> Forget<By> {
    pub(super) const fn new(memories: Memories<By>, memory: MemoryId, by: String, reason: String) -> Self {
        Self { memories, memory, by, reason }
    }

    fn wish(self) -> Result<(By, Wish), MemoryError> {
        checked("name of who forgets", &self.by, NAME)?;
        checked("reason", &self.reason, REASON)?;
        let Self { memories, memory, by, reason } = self;
        Ok((memories.by, Wish { subject: memories.subject, memory, by, reason }))
    }
}

impl IntoFuture for Forget<Ctx> {
    type Output = Result<Forgotten, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Forgets the memory.
    ///
    /// # Crash
    /// The tombstone and the run's record of it are one transaction.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (ctx, wish) = match self.wish().map_err(in_run) {
                Ok(wish) => wish,
                Err(refused) => return Err(refused.unwrap_or_else(|error| Failure::new(error.to_string()))),
            };
            let bound_to = (wish.memory, wish.by.clone());
            let label = Label::of("forget", Some(wish.memory.to_string()));
            ctx.guarded(label, &bound_to, None, wish).await
        })
    }
}

impl IntoFuture for Forget<TenantClient> {
    type Output = Result<Forgotten, MemoryError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (tenant, wish) = self.wish()?;
            tenant.guarded(wish.memory.to_string(), wish).await
        })
    }
}

struct Wish {
    subject: String,
    memory: MemoryId,
    by: String,
    reason: String,
}

impl Guarded for Wish {
    type Answer = Forgotten;
    type Error = MemoryError;

    /// Reads the shelf before the memory, so that a statement made in between shows as a conflict with the shelf's
    /// revision.
    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Forgotten>, MemoryError>> {
        Box::pin(async move {
            let unasked = |error| unasked(key)(error);
            let (_, name) = self.find(core, tenant).await?;
            let onto = Shelf::find(core, tenant, name).await.map_err(unasked)?;
            let (memory, _) = self.find(core, tenant).await?;
            if let Some(forgotten) = memory.forgotten {
                return Ok(Proposal::Before(forgotten));
            }
            let mut writing = onto.write();
            let forgotten = Forgotten { by: self.by.clone(), reason: self.reason.clone(), at: writing.at };
            writing.forget(memory, forgotten.clone()).await.map_err(unasked)?;
            let change = Change { documents: writing.rows(), ..core.change(None) };
            Ok(Proposal::Write(Box::new(change), forgotten))
        })
    }

    fn in_run(error: MemoryError) -> Result<Failure, ExecError> {
        in_run(error)
    }
}

impl Wish {
    async fn find(&self, core: &Core, tenant: &Tenant) -> Result<(Memory, String), MemoryError> {
        let found = Memory::of(core, tenant, &self.subject, self.memory).await;
        found.map_err(unasked(&self.subject))?.ok_or(MemoryError::Unknown { memory: self.memory })
    }
}
