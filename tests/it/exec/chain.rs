//! The chain of evidence (OBS-4; HAZARDS M09): whoever changes a row in the database is found out, and nobody else is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::exec::StartError;
use counterfoil::ledger::{
    Contract, ContractClass, EffectClass, ErrorKind, LookupOffer, OperationKey, Retention, RetryPolicy,
};
use counterfoil::store::chain::{Anchor, ChainKey, ChainReport, FindingKind};
use counterfoil::store::{Change, OpenError, Resolution, Store, StoreError, StoreFuture, Verdict};
use counterfoil::tool::DynamicTool;
use counterfoil::{Client, Executor, Key, Outcome, ToolRequest};
use serde_json::json;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use crate::on_both_stores;
use crate::place::Place;
use crate::world::{
    Keys, Look, Process, Reply, TestClock, World, acme, brief, executor, request, settle, soon,
};

const TOOL: &str = "pay_out";

fn secret() -> ChainKey {
    ChainKey::new([7; 32])
}

fn tool(world: &Arc<World>) -> DynamicTool {
    let contract = Contract::new(ContractClass::Lookup).lookup(LookupOffer::Strong);
    world.tool(TOOL, EffectClass::InternalMutation, contract).retry(brief())
}

/// Pays, whatever becomes of it.
async fn pay(executor: &Executor, case: &str) {
    let outcome = executor.execute(ToolRequest::new(acme(), TOOL, json!({"case": case}))).await.unwrap();
    assert!(matches!(outcome, Outcome::Done(_) | Outcome::Failed(_)), "{outcome:?}");
}

fn key(case: &str) -> OperationKey {
    Key::of(TOOL).target(case).render().unwrap()
}

async fn verified(executor: &Executor) -> ChainReport {
    executor.verify_chain(None).await.unwrap().expect("the ledger has a chain")
}

fn assert_whole(report: &ChainReport, rows: u64) {
    assert!(report.is_whole(), "{report}");
    assert_eq!(report.rows, rows, "{report}");
}

/// The kinds of the findings, and the words of each.
fn found(report: &ChainReport) -> Vec<(FindingKind, String)> {
    report.findings.iter().map(|finding| (finding.kind, finding.what.clone())).collect()
}

on_both_stores! {
    async fn calls_attempts_lookups_and_answers_fit_their_links(place) {
        let (world, clock) = (World::new(Keys::Ignores), TestClock::breathing());
        let open = || place.executor().clock(clock.clone()).dynamic_tool(tool(&world)).evidence_chain(secret()).open();
        let executor = open().await.unwrap();
        world.replies([Reply::Answer, Reply::Fail(ErrorKind::Validation), Reply::EffectThenFail(ErrorKind::Disconnected)]);
        world.looks([Look::Truth]);
        for case in ["c1", "c2", "c3"] {
            pay(&executor, case).await;
        }
        let report = verified(&executor).await;
        assert!(report.is_signed && report.older == 0 && report.unsettled == 0, "{report}");
        assert!(report.rows >= 5, "three calls, an attempt and a lookup: {report}");
        assert_whole(&report, report.rows);
        executor.shutdown(Duration::ZERO).await;

        // Another process goes on with a chain of its own.
        let executor = open().await.unwrap();
        pay(&executor, "c4").await;
        let later = verified(&executor).await;
        assert_whole(&later, report.rows + 1);
        assert_eq!(later.anchor.heads.len(), 2, "{later}");
        let with_anchor = executor.verify_chain(Some(&report.anchor)).await.unwrap().unwrap();
        assert!(with_anchor.is_whole(), "{with_anchor}");
        executor.shutdown(Duration::ZERO).await;
    }

    async fn a_process_without_the_secret_is_refused(place) {
        let world = World::new(Keys::Ignores);
        let open = |key: Option<ChainKey>| {
            let executor = place.executor().dynamic_tool(tool(&world));
            match key {
                Some(key) => executor.evidence_chain(key),
                None => executor,
            }
            .open()
        };
        let refusal = |opened: Result<Executor, StartError>| match opened {
            Err(StartError::Store(StoreError::Open(error))) => error,
            other => panic!("{other:?}"),
        };
        open(Some(secret())).await.unwrap().shutdown(Duration::ZERO).await;
        assert!(matches!(refusal(open(None).await), OpenError::Chained));
        for key in [ChainKey::none(), ChainKey::new([8; 32])] {
            assert!(matches!(refusal(open(Some(key)).await), OpenError::WrongChainSecret));
        }
        let executor = open(Some(secret())).await.unwrap();
        assert_whole(&verified(&executor).await, 0);
        executor.shutdown(Duration::ZERO).await;
    }

    async fn rows_from_before_the_chain_are_counted_and_covered_from_their_next_change_on(place) {
        let world = World::new(Keys::Ignores);
        let executor = place.executor().dynamic_tool(tool(&world)).open().await.unwrap();
        pay(&executor, "c1").await;
        assert_eq!(executor.verify_chain(None).await.unwrap(), None);
        executor.shutdown(Duration::ZERO).await;
        let executor = place.executor().dynamic_tool(tool(&world)).evidence_chain(ChainKey::none()).open().await.unwrap();
        pay(&executor, "c2").await;
        let report = verified(&executor).await;
        assert!(report.is_whole() && !report.is_signed, "{report}");
        assert_eq!((report.rows, report.older), (1, 1), "{report}");
        assert!(report.to_string().contains("damage, not intent"), "{report}");
        executor.shutdown(Duration::ZERO).await;
    }

    async fn an_erased_tenant_and_an_erased_call_leave_the_chain_whole(place) {
        let world = World::new(Keys::Ignores);
        let executor = place.executor().dynamic_tool(tool(&world)).evidence_chain(secret()).open().await.unwrap();
        world.replies([Reply::EffectThenFail(ErrorKind::Disconnected), Reply::Answer, Reply::Answer]);
        world.looks([Look::Truth]);
        pay(&executor, "c1").await;
        pay(&executor, "c2").await;
        let globex = counterfoil::Tenant::new("globex").unwrap();
        let theirs = ToolRequest::new(globex.clone(), TOOL, json!({"case": "c1"}));
        assert!(matches!(executor.execute(theirs).await.unwrap(), Outcome::Done(_)));
        let before = verified(&executor).await;
        assert!(before.is_whole(), "{before}");
        executor.erase(&acme(), &key("c1")).await.unwrap();
        executor.erase_tenant(&globex).await.unwrap();
        let report = verified(&executor).await;
        assert!(report.is_whole() && report.rows < before.rows, "{report}");
        executor.shutdown(Duration::ZERO).await;
    }

    async fn retention_leaves_the_chain_whole(place) {
        let world = World::new(Keys::Ignores);
        let second = Duration::from_secs(1);
        // A record is kept for as long as its call might still be under way.
        let at_once = RetryPolicy { attempts: 1, attempt_timeout: Duration::from_millis(200), ..brief() };
        let kept = tool(&world).retry(at_once).retention(Retention::tombstone_after(second));
        let executor = place.executor().dynamic_tool(kept).evidence_chain(secret()).sweep(true).open().await.unwrap();
        pay(&executor, "c1").await;
        let gone = async {
            let asked = || ToolRequest::new(acme(), TOOL, json!({"case": "c1"}));
            while !matches!(executor.execute(asked()).await.unwrap(), Outcome::Expired { .. }) {
                tokio::task::yield_now().await;
            }
            Ok::<_, ()>(())
        };
        soon("the record is not swept".to_owned(), gone).await;
        assert_whole(&verified(&executor).await, 1); // the tombstone
        executor.shutdown(Duration::ZERO).await;
    }
}

/// A ledger with three calls, of which the first was in doubt, was looked up and has an approval; its process has ended.
async fn ledger(place: &Place) -> ChainReport {
    let world = World::new(Keys::Ignores);
    let executor = place.executor().dynamic_tool(tool(&world)).evidence_chain(secret()).open().await.unwrap();
    world.replies([Reply::EffectThenFail(ErrorKind::Disconnected), Reply::Answer, Reply::Answer]);
    world.looks([Look::Truth]);
    for case in ["c1", "c2", "c3"] {
        pay(&executor, case).await;
    }
    let report = verified(&executor).await;
    assert!(report.is_whole(), "{report}");
    executor.shutdown(Duration::ZERO).await;
    report
}

async fn tampered(place: &Place, sql: &str) {
    let Place::Sqlite(dir) = place else { unreachable!("these tests are on files") };
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path().join("agents.db"));
    let mut db = options.connect().await.unwrap();
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut db).await.unwrap();
    assert!(done.rows_affected() > 0, "{sql} changes nothing");
    db.close().await.unwrap();
}

async fn report(place: &Place, anchor: Option<&Anchor>) -> ChainReport {
    let executor = place.executor().evidence_chain(secret()).open().await.unwrap();
    let report = executor.verify_chain(anchor).await.unwrap().unwrap();
    executor.shutdown(Duration::ZERO).await;
    report
}

#[tokio::test]
async fn each_change_of_a_row_in_the_database_is_found() {
    use FindingKind::{Added, Altered, LinkAltered, LinkMissing, MarkAltered, Missing, RolledBack};
    for (sql, expected) in [
        (
            "UPDATE record SET external_ref = 'forged' WHERE key = 'pay_out:c2'",
            vec![(Altered, "call pay_out:c2")],
        ),
        (
            "UPDATE record SET updated_at = updated_at + 1 WHERE key = 'pay_out:c2'",
            vec![(Altered, "call pay_out:c2")],
        ),
        (
            "UPDATE record SET revision = 1, status = 1, outcome = NULL, external_ref = NULL, sealed_at = NULL \
             WHERE key = 'pay_out:c2'",
            vec![(RolledBack, "call pay_out:c2")],
        ),
        ("DELETE FROM record WHERE key = 'pay_out:c2'", vec![(Missing, "record ")]),
        ("UPDATE contact SET result = 3 WHERE is_lookup", vec![(Altered, "lookup 1 of call pay_out:c1")]),
        ("DELETE FROM contact WHERE is_lookup", vec![(Missing, "attempt or lookup ")]),
        (
            "INSERT INTO contact SELECT tenant, record, id + 1000, is_lookup, number + 1, attempt, worker, began, ended, \
             result, error, message, external_ref FROM contact WHERE is_lookup",
            vec![(Added, "lookup 2 of call pay_out:c1")],
        ),
        (
            // A row that was added gives itself a time before the chain.
            "INSERT INTO contact SELECT tenant, record, id + 1000, is_lookup, number + 1, attempt, worker, 0, 0, \
             result, error, message, external_ref FROM contact WHERE is_lookup",
            vec![(Added, "lookup 2 of call pay_out:c1")],
        ),
        (
            "UPDATE document SET body = json_set(body, '$.older', 9) WHERE id = 'chain'",
            vec![(MarkAltered, "the mark")],
        ),
        (
            "UPDATE document SET body = json_set(body, '$.since', json_extract(body, '$.since') + 1) WHERE id = 'chain'",
            vec![(MarkAltered, "the mark")],
        ),
        ("DELETE FROM link WHERE number = 2", vec![(LinkMissing, "links 2 to 2")]),
        ("UPDATE link SET at = at + 1 WHERE number = 2", vec![(LinkAltered, "link 2")]),
        ("UPDATE link SET body = zeroblob(length(body)) WHERE number = 2", vec![(LinkAltered, "link 2")]),
        (
            "PRAGMA ignore_check_constraints = ON; UPDATE record SET status = 99 WHERE key = 'pay_out:c2'",
            vec![(Altered, "record")],
        ),
    ] {
        let place = Place::sqlite();
        ledger(&place).await;
        tampered(&place, sql).await;
        let report = report(&place, None).await;
        let found = found(&report);
        for (kind, words) in expected {
            // The process that opens the ledger takes the call up, perhaps before it verifies: then the row is altered.
            let is_of = |of| of == kind || (kind, of) == (RolledBack, Altered);
            let is_there = found.iter().any(|(of, what)| is_of(*of) && what.contains(words));
            assert!(is_there, "{sql}: {report}");
        }
        assert!(!report.is_whole(), "{sql}");
    }
}

// Rows from before the chain are counted when it begins: there are never more of them.
#[tokio::test]
async fn more_rows_from_before_the_chain_than_there_were_are_found() {
    let (world, place) = (World::new(Keys::Ignores), Place::sqlite());
    let executor = place.executor().dynamic_tool(tool(&world)).open().await.unwrap();
    world.replies([Reply::EffectThenFail(ErrorKind::Disconnected)]);
    world.looks([Look::Truth]);
    pay(&executor, "c1").await;
    executor.shutdown(Duration::ZERO).await;
    let whole = report(&place, None).await;
    assert!(whole.is_whole() && whole.older >= 2, "{whole}");
    let added = "INSERT INTO contact SELECT tenant, record, id + 1000, is_lookup, number + 1, attempt, worker, 0, 0, \
                 result, error, message, external_ref FROM contact WHERE is_lookup";
    tampered(&place, added).await;
    let broken = report(&place, None).await;
    assert!(
        matches!(&found(&broken)[..], [(FindingKind::Added, what)] if what.contains("older")),
        "{broken}"
    );
}

#[tokio::test]
async fn a_chain_whose_mark_was_deleted_does_not_begin_anew() {
    let place = Place::sqlite();
    ledger(&place).await;
    tampered(&place, "DELETE FROM document WHERE id = 'chain'").await;
    let opened = place.executor().evidence_chain(secret()).open().await;
    let Err(StartError::Store(error @ StoreError::Corrupt { .. })) = opened else { panic!("{opened:?}") };
    assert!(error.to_string().contains("the mark of the chain was deleted"), "{error}");
}

// The newest link, and the row that it is about, can be cut off: what is left is whole. The anchor shows it.
#[tokio::test]
async fn an_end_that_was_cut_off_is_shown_by_an_anchor() {
    let place = Place::sqlite();
    let anchor = ledger(&place).await.anchor;
    let cut = "DELETE FROM link WHERE number >= (SELECT max(number) - 1 FROM link); \
               DELETE FROM record WHERE key = 'pay_out:c3'";
    tampered(&place, cut).await;
    let unseen = report(&place, None).await;
    assert!(unseen.is_whole(), "{unseen}");
    let seen = report(&place, Some(&anchor)).await;
    assert!(matches!(&found(&seen)[..], [(FindingKind::CutOff, what)] if what.contains("anchor")), "{seen}");
}

// One call is verified by itself: what was done to another one is not its evidence.
#[tokio::test]
async fn one_call_is_verified_by_itself() {
    let place = Place::sqlite();
    ledger(&place).await;
    tampered(&place, "UPDATE record SET external_ref = 'forged' WHERE key = 'pay_out:c2'").await;
    let Place::Sqlite(dir) = &place else { unreachable!() };
    let client = Client::sqlite(dir.path().join("agents.db")).evidence_chain(secret()).open().await.unwrap();
    let acme = client.as_tenant(&acme());
    let whole = acme.verify_evidence("pay_out:c1", None).await.unwrap().unwrap();
    assert!(whole.is_whole() && whole.rows >= 3, "{whole}");
    let broken = acme.verify_evidence("pay_out:c2", None).await.unwrap().unwrap();
    assert_eq!(found(&broken), [(FindingKind::Altered, "call pay_out:c2".to_owned())], "{broken}");
    assert_eq!(acme.verify_evidence("pay_out:c9", None).await.unwrap(), None);
    client.shutdown(Duration::ZERO).await;
}

/// A store whose answers are lost now and then: after the batch was written, or before.
#[derive(Debug)]
struct Lossy(Arc<dyn Store>, AtomicU32);

impl Store for Lossy {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let lost = || StoreError::Io { detail: "the connection was lost".into() };
            match self.1.fetch_add(1, Ordering::Relaxed) % 3 {
                1 => Err(lost()),
                2 => self.0.commit(changes).await.and(Err(lost())),
                _ => self.0.commit(changes).await,
            }
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}

// The change is written again with the link that it had: each row has one, and no number is missing.
#[tokio::test]
async fn a_write_whose_answer_was_lost_keeps_its_link() {
    let (world, place) = (World::new(Keys::Ignores), Place::sqlite());
    let executor = place.executor().dynamic_tool(tool(&world)).evidence_chain(secret());
    let executor =
        executor.wrap_store(|store| Arc::new(Lossy(store, AtomicU32::new(0)))).open().await.unwrap();
    for case in 0..10 {
        pay(&executor, &format!("c{case}")).await;
    }
    assert_whole(&verified(&executor).await, 10);
    executor.shutdown(Duration::ZERO).await;
    assert_whole(&report(&place, None).await, 10);
}

// A call that was under way when its process died, was looked up by the next process, and was answered by a person.
#[tokio::test]
async fn a_takeover_and_the_answer_of_a_person_fit_their_links() {
    let (dir, clock, world) =
        (tempfile::tempdir().unwrap(), TestClock::breathing(), World::new(Keys::Ignores));
    let blind = || {
        let contract = Contract::new(ContractClass::Blind);
        world.tool(TOOL, EffectClass::InternalMutation, contract).retry(brief())
    };
    let start = || Process::start(executor(&dir, &clock).dynamic_tool(blind()).evidence_chain(secret()));
    world.replies([Reply::Hang]);
    let process = start().await.unwrap();
    drop(process.execute(request(TOOL)));
    world.requested(1).await;
    process.kill();
    let process = start().await.unwrap();
    let (outcome, settled) = settle(&clock, process.execute(request(TOOL))).await;
    let Outcome::NeedsDecision { question } = outcome else { panic!("{settled}: {outcome:?}") };
    let executor = process.executor();
    let answered = executor.answer(&acme(), question, Resolution::Happened(json!({"id": 1})), "ann");
    answered.because("seen at the bank").await.unwrap();
    let report = verified(&executor).await;
    assert!(report.is_whole() && report.rows >= 2, "{report}");
}

// Its attempts and lookups go with a call whose retention is over, and no link of theirs is in want of a row.
#[tokio::test]
async fn what_belongs_to_a_call_goes_with_it() {
    let (dir, clock, world) =
        (tempfile::tempdir().unwrap(), TestClock::breathing(), World::new(Keys::Ignores));
    let hour = Duration::from_hours(1);
    let forgets = tool(&world).retention(Retention::forget_after(hour));
    let executor =
        executor(&dir, &clock).dynamic_tool(forgets).evidence_chain(secret()).open().await.unwrap();
    world.replies([Reply::EffectThenFail(ErrorKind::Disconnected)]);
    world.looks([Look::Truth]);
    pay(&executor, "c1").await;
    assert!(verified(&executor).await.rows >= 3);
    let gone = async {
        while executor.record(&acme(), &key("c1")).await.unwrap().is_some() {
            clock.advance(hour);
            tokio::task::yield_now().await;
        }
        Ok::<_, ()>(())
    };
    soon("the record is not swept".to_owned(), gone).await;
    assert_whole(&verified(&executor).await, 0);
    executor.shutdown(Duration::ZERO).await;
}

// A verification beside work sees no row as altered that is only newer.
#[tokio::test]
async fn a_ledger_is_verified_while_it_is_worked_on() {
    let (world, place) = (World::new(Keys::Ignores), Place::sqlite());
    let executor = place.executor().dynamic_tool(tool(&world)).evidence_chain(secret()).open().await.unwrap();
    let working = async {
        for case in 0..200 {
            pay(&executor, &format!("c{case}")).await;
        }
    };
    let looking = async {
        for _ in 0..20 {
            let report = verified(&executor).await;
            assert!(report.is_whole(), "{report}");
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(working, looking);
    assert_whole(&verified(&executor).await, 200);
    executor.shutdown(Duration::ZERO).await;
}
