//! The access of the doors to an executor.

#[cfg(feature = "_sealed")]
use std::sync::Arc;
#[cfg(feature = "fence")]
use std::sync::PoisonError;

use super::executor::Executor;
#[cfg(all(feature = "mcp", feature = "sqlite"))]
use super::orphans;
#[cfg(any(feature = "_doors", feature = "guard-service"))]
use crate::clock::SharedClock;
#[cfg(feature = "fence")]
use crate::clock::{Boot, Timestamp};
#[cfg(feature = "_sealed")]
use crate::crash::CrashPoint;
#[cfg(any(feature = "nonce", feature = "fence", feature = "_queue"))]
use crate::id::Entropy;
#[cfg(feature = "http")]
use crate::payload::Limits;
#[cfg(feature = "_sealed")]
use crate::store::own::OwnDatabase;
#[cfg(feature = "fence")]
use crate::store::{LEDGER_ID, LEDGER_KIND, Store as _, StoreError};
#[cfg(all(feature = "mcp", feature = "sqlite"))]
use crate::tool::DynamicTool;
#[cfg(any(feature = "_sealed", all(feature = "mcp", feature = "sqlite")))]
use crate::tool::RegisterError;
#[cfg(feature = "_sealed")]
use crate::tool::Unprepared;
#[cfg(any(feature = "http", feature = "guard-service"))]
use {
    super::carry::recorded_outcome,
    super::outcome::{ExecError, Outcome},
    crate::id::Tenant,
    crate::ledger::{Facts, OperationKey, Request, State, decide},
};

impl Executor {
    /// Registers a tool that no builder could name.
    #[cfg(feature = "_sealed")]
    pub(crate) fn meet(&self, tool: Arc<dyn Unprepared>) -> Result<(), RegisterError> {
        self.core.registry.meet(tool).map(drop)
    }

    /// Registers a dynamic tool that no builder could name. Its calls of which nobody knows what became of them are taken up.
    #[cfg(all(feature = "mcp", feature = "sqlite"))]
    pub(crate) fn meet_dynamic(&self, tool: DynamicTool) -> Result<(), RegisterError> {
        let (tool, _) = tool.checked()?;
        orphans::meet(&self.core, tool)
    }

    /// The limits of payload sizes.
    #[cfg(feature = "http")]
    pub(crate) fn limits(&self) -> &Limits {
        &self.core.limits
    }

    /// The database that the ledger shares with its host, if there is one.
    #[cfg(feature = "_sealed")]
    pub(crate) fn database(&self) -> Option<&dyn OwnDatabase> {
        self.core.database.as_deref()
    }

    /// A point at which a simulation may crash.
    #[cfg(feature = "_sealed")]
    pub(crate) fn at(&self, point: CrashPoint) {
        self.core.registry.probe().at(point);
    }

    /// The source of randomness.
    #[cfg(any(feature = "nonce", feature = "fence", feature = "_queue"))]
    pub(crate) fn entropy(&self) -> &dyn Entropy {
        &*self.core.entropy
    }

    /// True while the ledger may be older than the world, or nobody can tell. Free of charge unless this worker knows of a
    /// restore: then the store is read, because another worker may have lifted it.
    #[cfg(feature = "fence")]
    pub(crate) async fn may_be_older(&self) -> bool {
        self.core.may_be_older() && !matches!(self.core.restored().await, Ok(None))
    }

    /// The instant at which this worker last learned of a restore.
    #[cfg(feature = "fence")]
    pub(crate) fn learned_of_restore(&self) -> Option<Boot> {
        *self.core.restores.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The instant at which the ledger last noted that it was restored, or that a person lifted this. `None` if it was never
    /// restored.
    #[cfg(feature = "fence")]
    pub(crate) async fn last_restore(&self) -> Result<Option<Timestamp>, StoreError> {
        let tenant = crate::id::Tenant::ledger();
        let found = self.core.group.document_find(&tenant, LEDGER_KIND, LEDGER_ID).await?;
        // Without a restore the note may be there as well: it names the database.
        let is_restored = |body: &str| {
            serde_json::from_str::<serde_json::Value>(body).is_ok_and(|note| note["restored"].is_object())
        };
        Ok(found.filter(|note| is_restored(&note.body)).map(|note| note.updated_at))
    }

    /// The clock of the ledger.
    #[cfg(any(feature = "_doors", feature = "guard-service"))]
    pub(crate) fn clock(&self) -> &SharedClock {
        &self.core.clock
    }

    /// The recorded outcome of an operation, as the same request would be answered. Nothing is carried out.
    #[cfg(any(feature = "http", feature = "guard-service"))]
    pub(crate) async fn recorded_outcome(
        &self,
        tenant: &Tenant,
        key: &OperationKey,
    ) -> Result<Option<Outcome>, ExecError> {
        // A key is free again if its call certainly did not happen.
        let found = self.core.find(tenant, key).await?;
        let Some(found) = found.filter(|found| !matches!(found.state, State::Failed { .. })) else {
            return Ok(None);
        };
        let request = Request { hash: found.request_hash, stored_rehashed: None };
        let decision = decide(Some(&found), &request, &Facts { attempt_alive: true });
        recorded_outcome(&self.core, decision, &found).await.map(Some)
    }
}
