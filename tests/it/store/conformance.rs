//! The public suite against every store and every wrapper of one.

use std::future::ready;
use std::ops::Deref;
use std::sync::Arc;

use counterfoil::SystemClock;
use counterfoil::store::encryption::EncryptedStore;
use counterfoil::store::sqlite::Sqlite;
use counterfoil::store::{Group, Model, Store};

use super::encryption::encrypted;

/// A store and the folder that it lives in.
struct Kept<S> {
    store: S,
    #[allow(dead_code, reason = "removed when the store is dropped")]
    folder: tempfile::TempDir,
}

impl<S> Deref for Kept<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.store
    }
}

async fn fresh_sqlite() -> Kept<Sqlite> {
    let folder = tempfile::tempdir().unwrap();
    Kept { store: Sqlite::open(folder.path().join("test.db")).await.unwrap(), folder }
}

fn grouped(store: impl Store) -> Group {
    Group::new(Arc::new(store), Arc::new(SystemClock))
}

async fn group_over_sqlite() -> Kept<Group> {
    let Kept { store, folder } = fresh_sqlite().await;
    Kept { store: grouped(store), folder }
}

async fn group_over_postgres() -> crate::store::postgres::Kept<Group> {
    crate::store::postgres::fresh().await.map(grouped)
}

async fn encrypted_sqlite() -> Kept<EncryptedStore> {
    let Kept { store, folder } = fresh_sqlite().await;
    Kept { store: encrypted(Arc::new(store)), folder }
}

async fn encrypted_postgres() -> crate::store::postgres::Kept<EncryptedStore> {
    crate::store::postgres::fresh().await.map(|store| encrypted(Arc::new(store)))
}

counterfoil::conformance!(model, ready(Box::new(Model::new())));
counterfoil::conformance!(sqlite, fresh_sqlite());
counterfoil::conformance!(grouped_model, ready(Box::new(grouped(Model::new()))));
counterfoil::conformance!(grouped_sqlite, group_over_sqlite());
counterfoil::conformance!(postgres, crate::store::postgres::fresh());
counterfoil::conformance!(distributed_postgres, crate::store::postgres::distributed::fresh());
counterfoil::conformance!(grouped_postgres, group_over_postgres());
counterfoil::conformance!(encrypted_model, ready(Box::new(encrypted(Arc::new(Model::new())))));
counterfoil::conformance!(encrypted_sqlite, encrypted_sqlite());
counterfoil::conformance!(
    grouped_encrypted_model,
    ready(Box::new(grouped(encrypted(Arc::new(Model::new())))))
);
counterfoil::conformance!(encrypted_postgres, encrypted_postgres());
