//! The verification of a chain of evidence.

use super::core::Core;
use super::executor::Executor;
use crate::id::Tenant;
use crate::ledger::OperationKey;
use crate::store::StoreError;
use crate::store::chain::{Anchor, ChainReport, Scope, verify};

impl Executor {
    /// Compares all rows on which evidence rests with the [chain of evidence](crate::store::chain), while workers go on.
    /// `None` if the ledger has no chain. `anchor`: the ends of the chains at an earlier verification, which must still be
    /// there. The whole ledger is read: about 100 bytes of memory are needed for each row.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    pub async fn verify_chain(&self, anchor: Option<&Anchor>) -> Result<Option<ChainReport>, StoreError> {
        verify_ledger(&self.core, anchor).await
    }
}

/// Verifies the whole ledger of a core.
pub(crate) async fn verify_ledger(
    core: &Core,
    anchor: Option<&Anchor>,
) -> Result<Option<ChainReport>, StoreError> {
    verify(&**core.group.store(), &core.chain, anchor, Scope::Ledger, core.now()).await
}

/// Verifies the evidence of one call. `None` if the ledger has no chain, or the tenant no such call.
pub(crate) async fn verify_call(
    core: &Core,
    tenant: &Tenant,
    key: &str,
    anchor: Option<&Anchor>,
) -> Result<Option<ChainReport>, StoreError> {
    let scope = Scope::Call(tenant, OperationKey::stored(key));
    verify(&**core.group.store(), &core.chain, anchor, scope, core.now()).await
}
