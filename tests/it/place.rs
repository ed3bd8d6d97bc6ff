//! Where a test keeps its ledger: for behaviour that must be the same on both real stores.

use counterfoil::Engine;
use counterfoil::Executor;
use counterfoil::exec::ExecutorBuilder;
use counterfoil::flow::EngineBuilder;
use tempfile::TempDir;

use crate::server::{LEASE, Schema, url};

/// A file or a schema, gone with the test.
pub(crate) enum Place {
    Sqlite(TempDir),
    Postgres(Schema),
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(Schema::new())
    }

    /// Another one on the same store.
    pub(crate) fn another(&self) -> Self {
        match self {
            Self::Sqlite(_) => Self::sqlite(),
            Self::Postgres(_) => Self::postgres(),
        }
    }

    /// An executor on this ledger, to be given its tools.
    pub(crate) fn executor(&self) -> ExecutorBuilder {
        match self {
            Self::Sqlite(dir) => Executor::sqlite(dir.path().join("agents.db")),
            Self::Postgres(schema) => ExecutorBuilder::postgres_with(url(), schema.options()).lease(LEASE),
        }
    }

    /// An engine on this ledger, to be given its tools and workflows.
    pub(crate) fn engine(&self) -> EngineBuilder {
        match self {
            Self::Sqlite(dir) => Engine::sqlite(dir.path().join("agents.db")),
            Self::Postgres(schema) => Engine::postgres_with(url(), schema.options()).lease(LEASE),
        }
    }
}

/// Makes two tests of each function: one on each store.
#[macro_export]
macro_rules! on_both_stores {
    ($($(#[$meta:meta])* fn $name:ident($place:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            fn on($place: $crate::place::Place) $body

            #[test]
            fn sqlite() {
                on($crate::place::Place::sqlite());
            }

            #[test]
            fn postgres() {
                on($crate::place::Place::postgres());
            }
        }
    )*};
    ($($(#[$meta:meta])* async fn $name:ident($place:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn on($place: $crate::place::Place) $body

            #[tokio::test]
            async fn sqlite() {
                on($crate::place::Place::sqlite()).await;
            }

            #[tokio::test]
            async fn postgres() {
                on($crate::place::Place::postgres()).await;
            }
        }
    )*};
}
