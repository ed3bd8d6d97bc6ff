//! Published values, as every store must keep them.

use super::tables::Tables;
use crate::id::{RunId, Tenant};
use crate::store::change::follows;
use crate::store::{PublishedValue, Refusal};

impl Tables {
    pub(super) fn check_published(&self, row: &PublishedValue) -> Result<(), Refusal> {
        follows(self.published.get(&key(row)).map(|stored| stored.revision), row.revision)
    }

    pub(super) fn write_published(&mut self, row: &PublishedValue) {
        self.published.insert(key(row), row.clone());
    }

    pub(super) fn has_published(&self, row: &PublishedValue) -> bool {
        self.published.get(&key(row)) == Some(row)
    }

    pub(super) fn published_find(&self, tenant: &Tenant, run: RunId, name: &str) -> Option<PublishedValue> {
        self.published.get(&(tenant.clone(), run, name.to_owned())).cloned()
    }
}

fn key(row: &PublishedValue) -> (Tenant, RunId, String) {
    (row.tenant.clone(), row.run, row.name.clone())
}
