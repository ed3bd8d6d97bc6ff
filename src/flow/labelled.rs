//! The labels of runs: read, and erased by.

use std::collections::BTreeMap;

use super::error::RunError;
use super::handle::RunHandle;
use super::tenant::TenantClient;
use crate::exec::{EraseError, ErasureReport, erase_labelled, to_the_end};
use crate::store::Store as _;

impl<O> RunHandle<O> {
    /// The [labels](super::StartRun::label) of the run, by their names. A run that has expired has none.
    pub async fn labels(&self) -> Result<BTreeMap<String, String>, RunError> {
        let labels = self.inner.core.group.run_labels(&self.tenant, self.id()).await?;
        Ok(labels.into_iter().map(|label| (label.name, label.value)).collect())
    }
}

impl TenantClient {
    /// Erases the runs and the calls that have a label, and tells what was erased and what was kept: see
    /// [`Executor::erase_labelled`](crate::Executor::erase_labelled).
    ///
    /// # Errors
    /// [`EraseError::Failed`] if the store failed. What was erased before stays erased.
    pub async fn erase_labelled(&self, name: &str, value: &str) -> Result<ErasureReport, EraseError> {
        let (core, tenant) = self.core();
        let label = (name.to_owned(), value.to_owned());
        let tracker = core.tracker.clone();
        to_the_end(&tracker, async move { erase_labelled(&core, &tenant, &label).await }).await
    }
}
