//! One query for documents that are requested at the same time. Each query costs a wake-up in both directions between
//! the caller and the driver's thread, and every action of a guard begins with its row.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use sqlx::SqlitePool;

use crate::id::Tenant;
use crate::store::Document;
use crate::store::sql::ask::{Found, Queries};

/// Selects all requested documents by a JSON array of their keys: one text, however many there are.
pub(super) const WANTED: &str = "WHERE (tenant, kind, id) IN \
     (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1))";

/// The key of a document: tenant, kind and id.
type Key = (String, String, String);

/// The finder of documents: one query at a time; a document that is requested meanwhile is part of the next query.
#[derive(Debug, Default)]
pub(super) struct Finder {
    next: Arc<Next>,
    /// The lock that is held by the query under way. It guards the number of callers of the last query.
    now: Arc<tokio::sync::Mutex<usize>>,
}

/// The query that has not begun. It begins after all writes that its callers have seen.
type Next = Mutex<Option<Query>>;

#[derive(Debug)]
struct Query {
    /// Each document once, however many callers ask for it: all requests of a client read the row of its token.
    wanted: BTreeSet<Key>,
    callers: usize,
    answer: Answer,
}

/// The shared answer, driven by any of its remaining callers. `None` if the query failed: then each caller asks
/// alone, and gets the error of its own row only.
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
            Query { wanted: BTreeSet::new(), callers: 0, answer: answer.boxed().shared() }
        });
        query.wanted.insert(key);
        query.callers += 1;
        query.answer.clone()
    }
}

/// Runs the next query. `next` holds this future until it begins. If the future held `next` in turn, a query whose
/// callers have gone would keep the readers open for ever.
async fn answer(
    next: Weak<Next>,
    now: Arc<tokio::sync::Mutex<usize>>,
    readers: Queries<SqlitePool>,
) -> Option<Arc<[Document]>> {
    let mut last = now.lock_owned().await;
    // Callers that are about to ask take part: callers out of step would otherwise use a query each.
    let mut seen = 0;
    loop {
        let callers = locked(&*next.upgrade()?).as_ref()?.callers;
        if callers == seen || (*last).max(callers) == 1 {
            break; // nobody has come meanwhile, or there is one caller at a time
        }
        seen = callers;
        tokio::task::yield_now().await;
    }
    // From here on, new requests go into the query after this one. No query is taken before its turn, so this one is
    // still the next.
    let Query { wanted, callers, answer: _ } = locked(&*next.upgrade()?).take()?;
    *last = callers;
    let wanted = serde_json::to_string(&wanted).ok()?;
    readers.rows(WANTED, &[(&*wanted).into()]).await.ok().map(Arc::from)
}

/// Locks the next query. No code that holds this lock can panic halfway through a change.
fn locked(next: &Next) -> MutexGuard<'_, Option<Query>> {
    next.lock().unwrap_or_else(PoisonError::into_inner)
}
