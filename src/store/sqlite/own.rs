//! The file as the user's own database: the functions of each subject's file for its transactions and messages.

use futures_util::future::BoxFuture;
use sqlx::sqlite::SqliteConnection;

use super::Sqlite;
use crate::id::QuestionId;
use crate::ledger::Origin;
use crate::payload::Payload;
use crate::store::own::{
    OwnDatabase, Transacting, TransactionsOn, Unseen, Within, Work, messages, transactions,
};
use crate::store::{Change, Delivery, Known, SetAside, Step, StoreFuture};

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

    messages!();
}

transactions!(Sqlite, SqliteConnection);
