//! The server as the user's own database.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use sqlx::postgres::PgConnection;

use super::Postgres;
use crate::ledger::Origin;
use crate::store::own::{OwnDatabase, TransactionsOn};
use crate::store::{Outage, StoreFuture};

impl OwnDatabase for Postgres {
    fn outage(&self) -> Option<Arc<Outage>> {
        Some(self.connector.outage.clone())
    }

    fn on_postgres(&self) -> Option<&dyn TransactionsOn<PgConnection>> {
        Some(self)
    }

    fn continuity<'a>(
        &'a self,
        before: Option<&'a Origin>,
    ) -> StoreFuture<'a, (Option<&'static str>, Option<Origin>)> {
        Box::pin(async move {
            let origin = self.origin().await?.map(|origin| origin.or_as_it_was(before));
            let doubt = origin.as_ref().zip(before).and_then(|(origin, before)| origin.doubt(before));
            Ok((doubt, origin))
        })
    }

    fn retire(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.retire())
    }
}
