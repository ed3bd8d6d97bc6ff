//! The rows of an operation, as the store holds them, for test writers. [`Executor::evidence`] shows the same to people.

use super::executor::Executor;
use super::outcome::ExecError;
use crate::id::{DeclarationId, Tenant};
use crate::ledger::{Declaration, Look, OperationKey, Record, Restored};
use crate::store::{Evidence, SharedEffect, Store as _};

impl Executor {
    /// The record of an operation and the late answers of fenced workers: the proof that the operation happened once.
    pub async fn record(
        &self,
        tenant: &Tenant,
        key: &OperationKey,
    ) -> Result<Option<(Record, Vec<Evidence>)>, ExecError> {
        let Some(record) = self.core.find(tenant, key).await? else { return Ok(None) };
        let evidence = self.core.group.record_evidence(tenant, record.id).await;
        let evidence = evidence.map_err(|source| ExecError::Store { key: key.to_string(), source })?;
        Ok(Some((*record, evidence)))
    }

    /// The runs that were answered from an operation's record without owning it, and so rest on its effect.
    pub async fn uses(&self, tenant: &Tenant, key: &OperationKey) -> Result<Vec<SharedEffect>, ExecError> {
        let Some(record) = self.core.find(tenant, key).await? else { return Ok(Vec::new()) };
        let uses = self.core.group.record_uses(tenant, record.id).await;
        uses.map_err(|source| ExecError::Store { key: key.to_string(), source })
    }

    /// The declaration of an operation's tool from the time of its call: effect, contract, the fields that its key is
    /// bound to. `None` for a person's vote, which belongs to no tool.
    pub async fn declaration(
        &self,
        tenant: &Tenant,
        key: &OperationKey,
    ) -> Result<Option<Declaration>, ExecError> {
        let Some(record) = self.core.find(tenant, key).await? else { return Ok(None) };
        if record.declaration == DeclarationId(0) {
            return Ok(None);
        }
        let declaration = self.core.declaration(&record).await;
        let declaration = declaration.map_err(|source| ExecError::Store { key: key.to_string(), source })?;
        Ok(Some((*declaration).clone()))
    }

    /// The next look at an operation's record, if there will be one.
    pub async fn next_look(&self, tenant: &Tenant, key: &OperationKey) -> Result<Option<Look>, ExecError> {
        let Some(record) = self.core.find(tenant, key).await? else { return Ok(None) };
        let look = self.core.group.look_find(tenant, record.id).await;
        look.map_err(|source| ExecError::Store { key: key.to_string(), source })
    }

    /// The restore since which this ledger is taken for older than the world. `None` if there is none, or if it was
    /// lifted.
    pub async fn restored(&self) -> Result<Option<Restored>, ExecError> {
        self.core.restored().await
    }
}
