//! Documents, as every store must keep them.

use super::tables::Tables;
use crate::id::Tenant;
use crate::store::change::follows;
use crate::store::{Document, Refusal};

impl Tables {
    pub(super) fn check_document(&self, document: &Document) -> Result<(), Refusal> {
        let stored = self.documents.get(&key(document)).map(|stored| stored.revision);
        follows(stored, document.revision).map_err(|_| Refusal::Exists)
    }

    pub(super) fn write_document(&mut self, document: &Document) {
        self.documents.insert(key(document), document.clone());
    }

    pub(super) fn has_document(&self, document: &Document) -> bool {
        self.documents.get(&key(document)) == Some(document)
    }

    pub(super) fn document_find(&self, tenant: &Tenant, kind: &str, id: &str) -> Option<Document> {
        self.documents.get(&(tenant.clone(), kind.to_owned(), id.to_owned())).cloned()
    }

    pub(super) fn document_list(
        &self,
        tenant: &Tenant,
        kind: &str,
        after: &str,
        limit: u32,
    ) -> Vec<Document> {
        self.documents_from(tenant, kind, after).take(limit as usize).cloned().collect()
    }

    pub(super) fn document_open(
        &self,
        tenant: &Tenant,
        kind: &str,
        after: &str,
        limit: u32,
    ) -> Vec<Document> {
        let open = self.documents_from(tenant, kind, after).filter(|document| document.open);
        open.take(limit as usize).cloned().collect()
    }

    fn documents_from(&self, tenant: &Tenant, kind: &str, after: &str) -> impl Iterator<Item = &Document> {
        let later = move |document: &&Document| {
            document.tenant == *tenant && document.kind.as_str() == kind && document.id.as_str() > after
        };
        self.documents.values().filter(later)
    }
}

fn key(document: &Document) -> (Tenant, String, String) {
    (document.tenant.clone(), document.kind.as_str().to_owned(), document.id.clone())
}
