//! The keys that the texts of the ledger name, beside those of the file that the program was given.

use std::collections::BTreeSet;

use super::{Doctor, Note};
use crate::store::Store as _;
use crate::store::encryption::{Keyring, OTHERS};

impl Doctor {
    /// Looks for keys that texts name and the file lacks, and tells which keys of the file are named. A text of a caller
    /// that looks like an encrypted one only keeps a key in the file for longer.
    pub(super) async fn look_at_keys(&mut self, keyring: &Keyring) {
        let named = match self.group.named_keys().await {
            Ok(named) => named,
            Err(error) => {
                let found = format!("it is not known which keys the texts name: {error}");
                return self.found("keys", found, "remove no key from the file; try again later");
            }
        };
        let keys = keyring.ids();
        let mut used = BTreeSet::new();
        for ((tenant, id), texts) in &named {
            let line = if keys.contains_key(tenant) { tenant.as_str() } else { OTHERS };
            match keys.get(line) {
                // Whoever has dropped the keys of a tenant has erased what its texts say.
                Some(None) => {}
                Some(Some(ids)) if ids.contains(id) => {
                    used.insert((line, id.as_str()));
                    self.note(format!("{texts} texts of tenant {tenant} name the key {id}"));
                }
                Some(Some(_)) | None => self.found(
                    "keys",
                    format!("{texts} texts of tenant {tenant} name the key {id}, which the file lacks"),
                    "put its line back (docs/encryption.md); if the tenant was erased, write `dropped` for it",
                ),
            }
        }
        for (tenant, ids) in &keys {
            // The first key stays in any case: it hides the digests, which name no key.
            for id in ids.iter().flatten().skip(1) {
                if !used.contains(&(tenant.as_str(), id.as_str())) {
                    self.note(format!("no text names the key {id} of {tenant}"));
                }
            }
        }
    }

    fn note(&mut self, note: String) {
        self.notes.push(Note { check: "keys", note });
    }
}
