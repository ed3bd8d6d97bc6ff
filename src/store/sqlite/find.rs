//! Documents that are asked for at the same time are found by one query. Between us and the driver's thread each query costs a wake-up
//! in both directions, and whatever a guard does begins with its row.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use sqlx::SqlitePool;

use crate::id::Tenant;
use crate::store::Document;
use crate::store::sql::ask::{Found, Queries};

/// All that are wanted, as a JSON array of their keys: one text, however many they are.
pub(super) const WANTED: &str = "WHERE (tenant, kind, id) IN \
     (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1))";

/// Tenant, kind and id.
type Key = (String, String, String);

/// One query at a time; whoever asks meanwhile is part of the next one.
#[derive(Clone, Debug, Default)]
pub(super) struct Finder(Arc<Turns>);

#[derive(Debug, Default)]
struct Turns {
    /// The query that has not begun. It begins after all that its askers have seen written.
    next: Mutex<Option<Query>>,
    /// Held by the query that is under way.
    now: Arc<tokio::sync::Mutex<()>>,
}

/// Carried on by whichever of its askers is left.
#[derive(Clone, Debug)]
struct Query {
    wanted: Arc<Mutex<Vec<Key>>>,
    /// Nothing, if it failed: then each asks alone, and hears of its own row only.
    found: Shared<BoxFuture<'static, Option<Arc<[Document]>>>>,
}

impl Finder {
    pub(super) async fn find(
        &self,
        readers: &Queries<SqlitePool>,
        tenant: &Tenant,
        kind: &str,
        id: &str,
    ) -> Found<Document> {
        let found = self.ask(readers, (tenant.as_str().to_owned(), kind.to_owned(), id.to_owned())).await;
        let Some(found) = found else { return readers.document_find(tenant, kind, id).await };
        let is_it = |row: &&Document| row.tenant == *tenant && row.kind.as_str() == kind && row.id == id;
        Ok(found.iter().find(is_it).cloned())
    }

    fn ask(
        &self,
        readers: &Queries<SqlitePool>,
        key: Key,
    ) -> Shared<BoxFuture<'static, Option<Arc<[Document]>>>> {
        let mut next = locked(&self.0.next);
        let query = next.get_or_insert_with(|| {
            let wanted = Arc::default();
            let found = self.clone().answer(Queries(readers.0.clone()), Arc::clone(&wanted));
            Query { wanted, found: found.boxed().shared() }
        });
        locked(&query.wanted).push(key);
        query.found.clone()
    }

    async fn answer(
        self,
        readers: Queries<SqlitePool>,
        wanted: Arc<Mutex<Vec<Key>>>,
    ) -> Option<Arc<[Document]>> {
        let _now = self.0.now.lock().await;
        drop(locked(&self.0.next).take()); // from here on others ask for the next one
        let wanted = serde_json::to_string(&*locked(&wanted)).ok()?;
        readers.rows(WANTED, &[(&*wanted).into()]).await.ok().map(Arc::from)
    }
}

/// Nothing that holds one of these locks can panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
