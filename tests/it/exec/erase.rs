//! Erasure on demand (REC-8; HAZARDS M03), on both databases: of what a record says, and of a tenant.

use std::sync::Arc;

use counterfoil::exec::{Compensated, EraseError};
use counterfoil::flow::{ClientBuilder, EffectEnd, EffectOutcome, EngineBuilder, RunError};
use counterfoil::ledger::{
    Contract, ContractClass, EffectClass, ErrorKind, FinalState, LookupResult, OperationKey, Undone,
};
use counterfoil::store::{Resolution, UnderWay};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Tool, ToolError, contract, effect};
use counterfoil::{Client, Ctx, Engine, Failure, Key, Outcome, RunId, Tenant, ToolRequest};
use serde_json::json;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _};

use crate::store::postgres::{Schema, url};
use crate::world::{Keys, Reply, World, acme, brief, request};

/// What must not be found any more. Long, so that it is stored beside its record; and short.
const IBAN: &str = "DE02120300000000202051";

enum Place {
    File(tempfile::TempDir),
    Schema(Schema),
}

impl Place {
    fn both() -> [Self; 2] {
        [Self::File(tempfile::tempdir().unwrap()), Self::Schema(Schema::new())]
    }

    fn engine(&self) -> EngineBuilder {
        match self {
            Self::File(folder) => Engine::sqlite(folder.path().join("test.db")),
            Self::Schema(schema) => Engine::postgres_with(url(), schema.options()),
        }
    }

    fn client(&self) -> ClientBuilder {
        match self {
            Self::File(folder) => Client::sqlite(folder.path().join("test.db")),
            Self::Schema(schema) => Client::postgres_with(url(), schema.options()),
        }
    }

    /// The tables with a row that says this.
    async fn saying(&self, what: &str) -> Vec<String> {
        match self {
            Self::File(folder) => saying_on_sqlite(&folder.path().join("test.db"), what).await,
            Self::Schema(schema) => saying_on_postgres(schema.plain().await, what).await,
        }
    }
}

async fn saying_on_sqlite(path: &std::path::Path, what: &str) -> Vec<String> {
    let mut db: SqliteConnection = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let tables = "SELECT s.name, group_concat('coalesce(CAST(\"' || c.name || '\" AS TEXT), '''')', '||') \
                  FROM sqlite_schema s JOIN pragma_table_info(s.name) c WHERE s.type = 'table' GROUP BY 1 ORDER BY 1";
    let tables: Vec<(String, String)> = sqlx::query_as(tables).fetch_all(&mut db).await.unwrap();
    let mut saying = Vec::new();
    for (table, row) in tables {
        let count = format!("SELECT count(*) FROM \"{table}\" WHERE instr({row}, ?) > 0");
        let count: i64 =
            sqlx::query_scalar(AssertSqlSafe(count)).bind(what).fetch_one(&mut db).await.unwrap();
        saying.extend((count > 0).then_some(table));
    }
    saying
}

async fn saying_on_postgres(mut db: PgConnection, what: &str) -> Vec<String> {
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut db).await.unwrap();
    let mut saying = Vec::new();
    for table in tables {
        let count = format!("SELECT count(*) FROM \"{table}\" t WHERE position($1 IN t::text) > 0");
        let count: i64 =
            sqlx::query_scalar(AssertSqlSafe(count)).bind(what).fetch_one(&mut db).await.unwrap();
        saying.extend((count > 0).then_some(table));
    }
    saying
}

fn with_tools(engine: EngineBuilder, world: &Arc<World>) -> EngineBuilder {
    let tool = |name: &str, class| {
        world.tool(name, EffectClass::InternalMutation, Contract::new(class)).retry(brief())
    };
    engine
        .dynamic_tool(tool("pay", ContractClass::Lookup))
        .dynamic_tool(tool("ring", ContractClass::Blind))
        .tool(Book)
        .workflow("booking", 1, booking)
}

/// Books for somebody, and unbooks, but not for whoever stays.
struct Book;

const STAYS: &str = "stays: ";

impl Tool for Book {
    const NAME: &'static str = "book";
    type Effect = effect::Undoable<effect::InternalMutation>;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = String;

    fn key(&self, _: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target("room"))
    }

    async fn call(&self, _: &Call, whom: &String) -> Result<Done<String>, ToolError> {
        Ok(Done::new(format!("booked for {whom}")))
    }
}

impl Compensate for Book {
    async fn compensate(
        &self,
        _: &Call,
        forward: &OriginalCall<String, String>,
    ) -> Result<Done<Undone>, ToolError> {
        if forward.input().is_some_and(|whom| whom.starts_with(STAYS)) {
            return Err(ToolError::new(ErrorKind::Validation, "no way back"));
        }
        Ok(Undone::whole().detail(forward.output().cloned()).into())
    }

    async fn find_compensation(
        &self,
        _: &Call,
        _: &OriginalCall<String, String>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::Unknown)
    }
}

/// Books, and waits for a word.
async fn booking(ctx: Ctx, case: String) -> Result<String, Failure> {
    ctx.artifact("report", &case).put(&case).await?;
    ctx.call::<Book>(case).await?;
    ctx.signal::<String>("word").await
}

fn key(tool: &str) -> OperationKey {
    Key::of(tool).target("c1").render().unwrap()
}

fn room() -> OperationKey {
    Key::of("book").target("room").render().unwrap()
}

/// A payment that says whose it is, in so many words.
fn pay(words: usize) -> ToolRequest {
    let mut pay = request("pay");
    pay.input["iban"] = json!(IBAN.repeat(words));
    pay
}

// What was asked and answered goes, small or large; and the effect is not repeated.
#[tokio::test]
async fn what_a_record_says_goes_and_nothing_is_repeated() {
    for (place, words) in
        Place::both().into_iter().zip([1, 1]).chain(Place::both().into_iter().zip([999, 999]))
    {
        let world = World::new(Keys::Ignores);
        let engine = with_tools(place.engine(), &world).start().await.unwrap();
        let executor = engine.executor();
        world.replies([Reply::AnswerWith(json!({ "paid from": IBAN }))]);
        assert!(executor.execute(pay(words)).await.unwrap().answer().unwrap().first);
        assert!(!place.saying(IBAN).await.is_empty());

        executor.erase(&acme(), &key("pay")).await.unwrap();
        assert_eq!(place.saying(IBAN).await, Vec::<String>::new(), "{words}");
        assert_eq!(
            executor.execute(pay(words)).await.unwrap(),
            Outcome::Expired { was: FinalState::Committed }
        );
        let other = executor.execute(request("pay")).await.unwrap();
        assert!(matches!(other, Outcome::Conflict(_)), "{other:?}");
        executor.erase(&acme(), &key("pay")).await.unwrap();
        executor.erase(&acme(), &key("never")).await.unwrap();
        assert_eq!(world.count(), 1);
    }
}

// What for certain did not happen leaves nothing.
#[tokio::test]
async fn a_failed_one_leaves_nothing() {
    for place in Place::both() {
        let world = World::new(Keys::Ignores);
        let executor = with_tools(place.engine(), &world).start().await.unwrap().executor();
        world.replies([Reply::Fail(ErrorKind::Validation)]);
        assert!(matches!(executor.execute(pay(1)).await.unwrap(), Outcome::Failed(_)));
        executor.erase(&acme(), &key("pay")).await.unwrap();
        assert_eq!(executor.record(&acme(), &key("pay")).await.unwrap(), None);
        assert!(executor.execute(request("pay")).await.unwrap().answer().unwrap().first);
    }
}

// The compensation was told what it undoes.
#[tokio::test]
async fn its_compensation_goes_with_it() {
    for place in Place::both() {
        let executor =
            with_tools(place.engine(), &World::new(Keys::Ignores)).start().await.unwrap().executor();
        let first = executor.call::<Book>(&acme(), IBAN.to_owned(), None).await.unwrap();
        assert!(first.answer().unwrap().first);
        assert!(matches!(executor.compensate(&acme(), &room()).await.unwrap(), Compensated::Undone(_)));
        assert_eq!(place.saying(IBAN).await, ["record"]);
        executor.erase(&acme(), &room()).await.unwrap();
        assert_eq!(place.saying(IBAN).await, Vec::<String>::new());
        let again = executor.call::<Book>(&acme(), IBAN.to_owned(), None).await.unwrap();
        assert_eq!(again, Outcome::Expired { was: FinalState::Compensated });
    }
}

// Whatever became of the compensation, and also in a program that does not know the tool.
#[tokio::test]
async fn its_compensation_goes_with_it_where_its_tool_is_not_registered() {
    for is_undone in [true, false] {
        for place in Place::both() {
            let engine = with_tools(place.engine(), &World::new(Keys::Ignores)).start().await.unwrap();
            let executor = engine.executor();
            let whom = if is_undone { IBAN.to_owned() } else { format!("{STAYS}{IBAN}") };
            let first = executor.call::<Book>(&acme(), whom, None).await.unwrap();
            assert!(first.answer().unwrap().first);
            let became = executor.compensate(&acme(), &room()).await.unwrap();
            assert_eq!(matches!(became, Compensated::Undone(_)), is_undone, "{became:?}");
            engine.shutdown(std::time::Duration::ZERO).await;

            let engine = place.engine().start().await.unwrap();
            let executor = engine.executor();
            let undoing = Key::of("undo book").target(room()).render().unwrap();
            assert!(executor.record(&acme(), &undoing).await.unwrap().is_some());
            executor.erase(&acme(), &room()).await.unwrap();
            assert_eq!(place.saying(IBAN).await, Vec::<String>::new(), "undone: {is_undone}");
            engine.shutdown(std::time::Duration::ZERO).await;
        }
    }
}

// What could not be settled without it stays, all of it.
#[tokio::test]
async fn what_is_needed_stays() {
    for place in Place::both() {
        let world = World::new(Keys::Ignores);
        let engine = with_tools(place.engine(), &world).start().await.unwrap();
        let (executor, acme) = (engine.executor(), acme());
        let still_needed = async |key: &OperationKey| {
            let before = executor.record(&acme, key).await.unwrap();
            let refused = executor.erase(&acme, key).await;
            assert!(matches!(refused, Err(EraseError::StillNeeded { .. })), "{refused:?}");
            assert_eq!(executor.record(&acme, key).await.unwrap(), before);
        };
        world.replies([Reply::EffectThenFail(ErrorKind::Disconnected)]);
        let parked = executor.execute(request("ring")).await.unwrap();
        let Outcome::NeedsDecision { question: escalation } = parked else { panic!("{parked:?}") };
        still_needed(&key("ring")).await;
        executor.answer(&acme, escalation, Resolution::Happened(json!(1)), "ann").await.unwrap();
        executor.erase(&acme, &key("ring")).await.unwrap();

        let tenant = engine.tenant("acme").unwrap();
        let run = tenant.run(booking, "c1".to_owned()).start().await.unwrap();
        let is_booked = async || {
            let found = executor.record(&acme, &room()).await.unwrap();
            found.is_some_and(|(record, _)| record.response().is_some())
        };
        while !is_booked().await {
            tokio::task::yield_now().await;
        }
        still_needed(&room()).await;
        run.signal("word", "done".to_owned()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "done");
        executor.erase(&acme, &room()).await.unwrap();
        let again = executor.call::<Book>(&acme, "c1".to_owned(), None).await.unwrap();
        assert_eq!(again, Outcome::Expired { was: FinalState::Committed });
    }
}

/// Books a room, and has ended well.
async fn guest(ctx: Ctx, case: String) -> Result<String, Failure> {
    ctx.call::<Book>(case).await
}

/// Has a room booked by a child, and fails at a word.
async fn host(ctx: Ctx, case: String) -> Result<String, Failure> {
    ctx.child(guest, case).await?;
    let why = ctx.signal::<String>("word").await?;
    Err(Failure::new(why))
}

// Invariant 7: a parent that fails undoes what its child did. Until then nobody erases what says how.
#[tokio::test]
async fn what_a_child_did_stays_while_its_parent_may_undo_it() {
    for place in Place::both() {
        let engine = with_tools(place.engine(), &World::new(Keys::Ignores)).workflow("guest", 1, guest);
        let engine = engine.workflow("host", 1, host).start().await.unwrap();
        let (executor, tenant) = (engine.executor(), engine.tenant("acme").unwrap());
        let run = tenant.run(host, "c1".to_owned()).start().await.unwrap();
        let is_booked = async || {
            let runs = tenant.runs(None).await.unwrap();
            runs.iter().any(|child| child.parent == Some(run.id()) && child.state.name() == "succeeded")
        };
        while !is_booked().await {
            tokio::task::yield_now().await;
        }
        let before = executor.record(&acme(), &room()).await.unwrap();
        let refused = executor.erase(&acme(), &room()).await;
        assert!(matches!(refused, Err(EraseError::StillNeeded { .. })), "{refused:?}");
        assert_eq!(executor.record(&acme(), &room()).await.unwrap(), before);

        run.signal("word", "the house is closed".to_owned()).await.unwrap();
        let error = run.result().await.unwrap_err();
        let RunError::Failed { failure, .. } = &error else { panic!("{error}") };
        let undone = matches!(&failure.effects[..], [EffectEnd { became: EffectOutcome::Undone, .. }]);
        assert!(undone, "{failure:?}");
        executor.erase(&acme(), &room()).await.unwrap();
        let again = executor.call::<Book>(&acme(), "c1".to_owned(), None).await.unwrap();
        assert_eq!(again, Outcome::Expired { was: FinalState::Compensated });
    }
}

/// A booking without an artifact.
async fn room_for(ctx: Ctx, case: String) -> Result<String, Failure> {
    ctx.call::<Book>(case).await?;
    ctx.signal::<String>("word").await
}

/// A desk that has a booking made, and then waits for a word.
async fn desk(ctx: Ctx, case: String) -> Result<String, Failure> {
    ctx.call_named("pay", json!({"case": "c1", "iban": case})).await?;
    ctx.publish("case", &case).await?;
    let booked = ctx.child(room_for, case).await?;
    ctx.signal::<String>("word").await?;
    Ok(booked)
}

fn still_needs(erased: &Result<(), EraseError>, of: RunId) {
    assert!(matches!(erased, Err(EraseError::RunStillNeeded { run }) if *run == of), "{erased:?}");
}

// What a run says goes, and it is not begun again. Nothing goes before it and its parent have ended.
#[tokio::test]
async fn a_run_goes_with_what_it_says_and_its_start_key_stays_taken() {
    for place in Place::both() {
        let world = World::new(Keys::Ignores);
        let engine = with_tools(place.engine(), &world).workflow("desk", 1, desk);
        let engine = engine.workflow("room", 1, room_for).start().await.unwrap();
        let (executor, tenant) = (engine.executor(), engine.tenant("acme").unwrap());
        let start = || tenant.run(desk, IBAN.to_owned()).key("desk/1").start();
        let run = start().await.unwrap();
        let children = async || {
            let runs = tenant.runs(None).await.unwrap();
            runs.into_iter().filter(|child| child.parent == Some(run.id())).collect::<Vec<_>>()
        };
        while children().await.is_empty() {
            tokio::task::yield_now().await;
        }
        let child = tenant.handle::<String>(children().await[0].id);
        still_needs(&run.erase().await, run.id());
        child.signal("word", IBAN.to_owned()).await.unwrap();
        assert_eq!(child.result().await.unwrap(), IBAN);
        still_needs(&child.erase().await, child.id()); // its parent may go on from it
        run.signal("word", IBAN.to_owned()).id("w1").await.unwrap();
        assert_eq!(run.result().await.unwrap(), IBAN);
        still_needs(&child.erase().await, child.id()); // its parent may be retried

        let by_key = tenant.run_of(desk, "desk/1").handle().await.unwrap();
        by_key.erase().await.unwrap();
        executor.erase_run(&acme(), child.id()).await.unwrap();
        executor.erase_run(&acme(), child.id()).await.unwrap(); // a second time does nothing
        executor.erase_run(&acme(), RunId(7)).await.unwrap(); // and an unknown run is none
        executor.erase_run(&Tenant::new("globex").unwrap(), run.id()).await.unwrap();
        for key in [key("pay"), room()] {
            executor.erase(&acme(), &key).await.unwrap();
        }
        assert_eq!(place.saying(IBAN).await, Vec::<String>::new());
        let again = start().await.unwrap();
        assert_eq!(again.id(), run.id());
        assert!(matches!(again.result().await, Err(RunError::Expired { .. })));
        assert!(matches!(run.signal("word", IBAN.to_owned()).id("w1").await, Err(RunError::Expired { .. })));
        assert_eq!(world.count(), 1);
    }
}

/// More rows than go in one transaction, each of which says something.
async fn book(ctx: Ctx, iban: String) -> Result<usize, Failure> {
    for page in 0..ROWS {
        ctx.step(("page", page), &(), |()| iban.clone()).await?;
    }
    Ok(ROWS)
}

const ROWS: usize = 1200;

// A long run goes in parts. A client erases it like an engine's own handle.
#[tokio::test]
async fn a_run_of_many_rows_goes_whole() {
    for place in Place::both() {
        let world = World::new(Keys::Ignores);
        let engine = with_tools(place.engine(), &world).workflow("book", 1, book).start().await.unwrap();
        let tenant = engine.tenant("acme").unwrap();
        let client = place.client().open().await.unwrap();
        let by_client = client.tenant("acme").unwrap();
        for (key, erased_by) in [("book/1", &tenant), ("book/2", &by_client)] {
            let run = tenant.run(book, IBAN.to_owned()).key(key).start().await.unwrap();
            assert_eq!(run.result().await.unwrap(), ROWS);
            assert_eq!(place.saying(IBAN).await, ["run", "step"], "{key}");
            erased_by.handle::<usize>(run.id()).erase().await.unwrap();
            assert_eq!(place.saying(IBAN).await, Vec::<String>::new(), "{key}");
            let again = tenant.run(book, IBAN.to_owned()).key(key).await;
            assert!(matches!(again, Err(RunError::Expired { .. })), "{again:?}");
            erased_by.handle::<usize>(run.id()).erase().await.unwrap();
        }
        let waits = tenant.run(booking, IBAN.to_owned()).start().await.unwrap();
        still_needs(&by_client.handle::<String>(waits.id()).erase().await, waits.id());
        client.shutdown(std::time::Duration::ZERO).await;
    }
}

// All of a tenant that is at its end, and nothing of another's.
#[tokio::test]
async fn a_tenant_goes_with_all_that_is_its_own() {
    for place in Place::both() {
        let world = World::new(Keys::Ignores);
        let engine = with_tools(place.engine(), &world).start().await.unwrap();
        let executor = engine.executor();
        let globex = Tenant::new("globex").unwrap();
        for name in ["acme", "globex"] {
            let tenant = engine.tenant(name).unwrap();
            tenant.memory(IBAN).remember("fact", "likes tea").await.unwrap();
            let run = tenant.run(booking, IBAN.to_owned()).start().await.unwrap();
            if name == "acme" {
                let refused = executor.erase_tenant(&acme()).await;
                let under_way = matches!(&refused, Err(EraseError::UnderWay { what: UnderWay::Run, .. }));
                assert!(under_way, "{refused:?}");
            }
            run.signal("word", IBAN.to_owned()).await.unwrap();
            assert_eq!(run.result().await.unwrap(), IBAN);
        }
        let everywhere = place.saying("acme").await;
        assert!(everywhere.len() > 6, "{everywhere:?}");
        let theirs = place.saying("globex").await;

        executor.erase_tenant(&acme()).await.unwrap();
        assert!(
            ["tenant"].map(str::to_owned).ends_with(&place.saying("acme").await),
            "its name, with its key for digests"
        );
        assert_eq!(place.saying("globex").await, theirs);
        let is_first = async |tenant: &Tenant| {
            let booked = executor.call::<Book>(tenant, IBAN.to_owned(), None).await.unwrap();
            booked.answer().unwrap().first
        };
        assert!(!is_first(&globex).await);
        assert!(is_first(&acme()).await, "its keys are new");
        executor.erase_tenant(&acme()).await.unwrap();
        executor.erase_tenant(&Tenant::new("nobody").unwrap()).await.unwrap();
    }
}

// Whichever table comes next is erased, too.
#[test]
fn no_table_is_left_out() {
    /// The keys for digests, and the links of a chain of evidence, which hold digests alone.
    const STAY: [&str; 2] = ["tenant", "link"];
    let erases =
        |sql: &str| counterfoil::store::sqlite::statements().iter().any(|statement| statement == sql);
    let mut count = 0;
    for file in std::fs::read_dir("migrations/sqlite").unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for table in text.split("CREATE TABLE ").skip(1) {
            let (name, columns) = table.split_once(" (").unwrap();
            if columns.split_once("STRICT").unwrap().0.contains("\n    tenant ") && !STAY.contains(&name) {
                assert!(erases(&format!("DELETE FROM {name} WHERE tenant = $1")), "{name} is left out");
                count += 1;
            }
        }
    }
    assert_eq!(count, 20);
}
