//! The lookup of a row, in a SQLite file, on the test PostgreSQL and on a standby.

use std::sync::Arc;

use counterfoil::Key;
use counterfoil::ledger::{Basis, Contract, ErrorKind, LookupResult};
use counterfoil::tool::lookup::{Match, Queried, Rows};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use futures_util::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, FromRow, PgConnection, PgPool, Pool, Postgres, Sqlite, SqlitePool};

use crate::own_server::Server;
use crate::store::postgres::Schema;
use crate::tool::lookup::world::{Cut, Faults, Sent};
use crate::world::brief;

const TABLE: &str =
    "CREATE TABLE payment (id BIGINT PRIMARY KEY, reference TEXT NOT NULL, amount BIGINT NOT NULL)";
const BY_REFERENCE: &str = "SELECT id, amount FROM payment WHERE reference = $1 ORDER BY id";
const INSERT: &str = "INSERT INTO payment SELECT count(*) + 1, $1, $2 FROM payment";

type Insert<DB> = fn(Pool<DB>, String, i64) -> BoxFuture<'static, Result<(), sqlx::Error>>;

/// A tool that writes into somebody else's database, which knows no keys.
struct Book<DB: Queried> {
    pool: Pool<DB>,
    insert: Insert<DB>,
    lookup: Rows<DB>,
    faults: Arc<Faults>,
}

impl<DB: Queried> Tool for Book<DB>
where
    (i64, i64): for<'r> FromRow<'r, DB::Row>,
{
    const NAME: &'static str = "book";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = Sent;
    type Output = i64;

    fn key(&self, sent: &Sent) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&sent.text))
    }

    fn contract(&self) -> Contract {
        <Self::Contract as contract::Contract>::declaration().sight(&Rows::<DB>::SIGHT)
    }

    fn retry(&self) -> counterfoil::ledger::RetryPolicy {
        brief()
    }

    async fn call(&self, call: &Call, sent: &Sent) -> Result<Done<i64>, ToolError> {
        let insert = (self.insert)(self.pool.clone(), call.key().to_owned(), amount(sent));
        let inserted = self.faults.around(insert).await;
        inserted.map_err(|e| ToolError::new(ErrorKind::Disconnected, e.to_string()))?;
        Ok(Done::new(1))
    }
}

impl<DB: Queried> Reconcile for Book<DB>
where
    (i64, i64): for<'r> FromRow<'r, DB::Row>,
{
    async fn reconcile(&self, call: &Call, sent: &Sent) -> Result<LookupResult<i64>, ToolError> {
        self.lookup.find(call, same(amount(sent))).await
    }
}

fn amount(sent: &Sent) -> i64 {
    i64::try_from(sent.amount).unwrap()
}

fn same(sent: i64) -> impl Fn((i64, i64)) -> Match<i64> + Send {
    move |(id, amount)| {
        if amount == sent {
            Match::ours(id, id.to_string())
        } else {
            Match::Conflict(format!("its amount is {amount}"))
        }
    }
}

async fn sqlite(folder: &tempfile::TempDir) -> SqlitePool {
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("shop.db").display());
    let pool = SqlitePool::connect(&url).await.unwrap();
    sqlx::query(TABLE).execute(&pool).await.unwrap();
    pool
}

fn options(schema: &Schema) -> PgConnectOptions {
    let options: PgConnectOptions = crate::store::postgres::url().parse().unwrap();
    options.options([("search_path", schema.name())])
}

/// In a schema of its own: the schema itself is made by a store that is opened in it.
async fn postgres(schema: &Schema) -> PgPool {
    drop(schema.open().await);
    let pool = PgPoolOptions::new().max_connections(2).connect_with(options(schema)).await.unwrap();
    sqlx::query(TABLE).execute(&pool).await.unwrap();
    pool
}

fn into_sqlite(pool: SqlitePool, key: String, amount: i64) -> BoxFuture<'static, Result<(), sqlx::Error>> {
    Box::pin(async move { sqlx::query(INSERT).bind(key).bind(amount).execute(&pool).await.map(drop) })
}

fn into_postgres(pool: PgPool, key: String, amount: i64) -> BoxFuture<'static, Result<(), sqlx::Error>> {
    Box::pin(async move { sqlx::query(INSERT).bind(key).bind(amount).execute(&pool).await.map(drop) })
}

/// What the call must end as: sends, whether it settled, basis.
const ENDS: [(Cut, usize, bool, Basis); 2] =
    [(Cut::AfterEffect, 1, false, Basis::Lookup), (Cut::BeforeEffect, 2, true, Basis::Answer)];

// R-EXE-10: an INSERT whose answer never came.
#[tokio::test]
async fn a_row_in_sqlite_is_found_or_made_once_more() {
    for (cut, sends, settled, basis) in ENDS {
        let (folder, faults) = (tempfile::tempdir().unwrap(), Faults::new(cut));
        let pool = sqlite(&folder).await;
        let lookup = Rows::<Sqlite>::new(pool.clone(), BY_REFERENCE);
        let book = Book { pool: pool.clone(), insert: into_sqlite, lookup, faults: faults.clone() };
        let (outcome, had_to) = faults.outcome(book).await;
        let answer = outcome.answer().unwrap_or_else(|| panic!("{outcome:?}"));
        assert_eq!((faults.sends(), had_to, answer.basis), (sends, settled, basis), "{cut:?}");
        let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM payment").fetch_one(&pool).await.unwrap();
        assert_eq!(rows, 1, "{cut:?}");
    }
}

#[tokio::test]
async fn a_row_in_postgres_is_found_or_made_once_more() {
    for (cut, sends, settled, basis) in ENDS {
        let (schema, faults) = (Schema::new(), Faults::new(cut));
        let pool = postgres(&schema).await;
        let lookup = Rows::<Postgres>::new(pool.clone(), BY_REFERENCE);
        let book = Book { pool: pool.clone(), insert: into_postgres, lookup, faults: faults.clone() };
        let (outcome, had_to) = faults.outcome(book).await;
        let answer = outcome.answer().unwrap_or_else(|| panic!("{outcome:?}"));
        assert_eq!((faults.sends(), had_to, answer.basis), (sends, settled, basis), "{cut:?}");
        // Not through the pool: a connection that the tool has opened ended with the runtime of its process.
        let mut own = PgConnection::connect_with(&options(&schema)).await.unwrap();
        let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM payment").fetch_one(&mut own).await.unwrap();
        assert_eq!(rows, 1, "{cut:?}");
    }
}

#[tokio::test]
async fn rows_are_one_several_other_or_too_many() {
    let folder = tempfile::tempdir().unwrap();
    let pool = sqlite(&folder).await;
    for (key, amount) in [("one", 7), ("two", 7), ("two", 7), ("other", 8)] {
        into_sqlite(pool.clone(), key.into(), amount).await.unwrap();
    }
    let lookup = Rows::new(pool.clone(), BY_REFERENCE);
    let committed = LookupResult::Committed { output: 1, external_ref: Some("1".into()) };
    assert_eq!(lookup.find("one", same(7)).await.unwrap(), committed);
    let two = LookupResult::duplicated([("2", 2), ("3", 3)]);
    assert_eq!(lookup.find("two", same(7)).await.unwrap(), two);
    assert!(matches!(lookup.find("other", same(7)).await.unwrap(), LookupResult::Foreign { .. }));
    assert_eq!(lookup.find("none' OR '1' = '1", same(7)).await.unwrap(), LookupResult::NotFound);
    let everything = Rows::new(
        pool.clone(),
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT i, 7 FROM n WHERE $1 <> ''",
    );
    let error = everything.find("one", same(7)).await.unwrap_err();
    assert!(error.message.contains("more than 1000"), "{error}");
    let wrong = Rows::new(pool.clone(), "SELECT id, amount FROM no_such_table WHERE reference = $1");
    assert!(wrong.find("one", same(7)).await.is_err());
    pool.close().await;
    assert_eq!(lookup.find("one", same(7)).await.unwrap_err().kind, ErrorKind::Unreachable);
}

// C13: a standby may not have it yet.
#[tokio::test]
async fn a_standby_is_not_believed() {
    let primary = Server::start(&[]).await;
    primary.sql(TABLE).await;
    let standby = primary.standby("second").await;
    primary.wait_for("second").await;
    primary.sql("INSERT INTO payment VALUES (1, 'one', 7)").await;
    for (server, knows) in [(&primary, true), (&standby, false)] {
        let pool = PgPoolOptions::new().max_connections(1).connect(&server.url()).await.unwrap();
        let found = Rows::new(pool, BY_REFERENCE).find("one", same(7)).await;
        assert_eq!(found.is_ok(), knows, "{found:?}");
    }
}
