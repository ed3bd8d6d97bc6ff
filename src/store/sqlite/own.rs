//! The file as the user's own database.

use futures_util::future::BoxFuture;
use sqlx::sqlite::SqliteConnection;

use super::Sqlite;
use crate::ledger::Origin;
use crate::store::StoreFuture;
use crate::store::own::{OwnDatabase, TransactionsOn};

impl OwnDatabase for Sqlite {
    fn on_sqlite(&self) -> Option<&dyn TransactionsOn<SqliteConnection>> {
        Some(self)
    }

    fn continuity<'a>(
        &'a self,
        _: Option<&'a Origin>,
    ) -> StoreFuture<'a, (Option<&'static str>, Option<Origin>)> {
        Box::pin(async { Ok((self.doubt(), None)) })
    }

    fn keeps_mark(&self) -> bool {
        true
    }

    fn mark(&self, raise: bool) -> StoreFuture<'_, ()> {
        Box::pin(self.mark(raise))
    }

    fn retire(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.retire())
    }
}
