//! Documents that are asked for at the same time are found by one query. Between us and the driver's thread each query costs a wake-up
//! in both directions, and whatever a guard does begins with its row.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
#[derive(Debug, Default)]
pub(super) struct Finder {
    next: Arc<Next>,
    /// Held by the query that is under way.
    now: Arc<tokio::sync::Mutex<()>>,
}

/// The query that has not begun. It begins after all that its askers have seen written.
type Next = Mutex<Option<Query>>;

#[derive(Debug)]
struct Query {
    wanted: Vec<Key>,
    answer: Answer,
}

/// Carried on by whichever of its askers is left. Nothing, if the query failed: then each asks alone, and hears of its own row only.
type Answer = Shared<BoxFuture<'static, Option<Arc<[Document]>>>>;

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

    fn ask(&self, readers: &Queries<SqlitePool>, key: Key) -> Answer {
        let mut next = locked(&self.next);
        let query = next.get_or_insert_with(|| {
            let answer = answer(Arc::downgrade(&self.next), self.now.clone(), Queries(readers.0.clone()));
            Query { wanted: Vec::new(), answer: answer.boxed().shared() }
        });
        query.wanted.push(key);
        query.answer.clone()
    }
}

/// `next` holds this future until it begins. If it held `next` in turn, a query whose askers have gone would keep the readers open for ever.
async fn answer(
    next: Weak<Next>,
    now: Arc<tokio::sync::Mutex<()>>,
    readers: Queries<SqlitePool>,
) -> Option<Arc<[Document]>> {
    let _now = now.lock_owned().await;
    // From here on others ask for the one after it. None is taken before its turn, so this one is still the next.
    let wanted = locked(&*next.upgrade()?).take()?.wanted;
    let wanted = serde_json::to_string(&wanted).ok()?;
    readers.rows(WANTED, &[(&*wanted).into()]).await.ok().map(Arc::from)
}

/// Nothing that holds this lock can panic halfway through a change.
fn locked(next: &Next) -> MutexGuard<'_, Option<Query>> {
    next.lock().unwrap_or_else(PoisonError::into_inner)
}
