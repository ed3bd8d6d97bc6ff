//! A ledger that is older than the world: restored from a backup, copied, or new beside an older system.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::Clock as _;
use counterfoil::exec::{ExecError, ExecutorBuilder, ToolRequest};
use counterfoil::ledger::{Basis, Contract, ContractClass, EffectClass, Key, LookupOffer};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::tool::Done;
use counterfoil::{Executor, Outcome, Tenant, Timestamp};
use serde_json::json;

use crate::world::{Chance, Keys, SETTLE, TestClock, World, acme, brief, request};

/// A folder with a ledger, and a copy of it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn ledger(&self) -> std::path::PathBuf {
        self.0.path().join("ledger.db")
    }

    fn backup(&self) -> std::path::PathBuf {
        self.0.path().join("backup.db")
    }
}

fn builder(path: &Path, world: &Arc<World>, contract: &Contract) -> ExecutorBuilder {
    let tool = world.tool("pay", EffectClass::InternalMutation, contract.clone());
    Executor::sqlite(path).dynamic_tool(tool.retry(brief()))
}

/// Opens it, and lets the settle time pass: whatever was on its way has arrived.
async fn open(builder: ExecutorBuilder) -> Executor {
    let clock = TestClock::breathing();
    let executor = builder.clock(clock.clone()).entropy(Chance::least()).open().await.unwrap();
    clock.advance(SETTLE);
    executor
}

/// A payment of a key of its own.
fn pay(key: &str) -> ToolRequest {
    ToolRequest { key: Some(Key::of("pay").target(key)), ..request("pay") }
}

/// A ledger with one payment, closed; a copy of it; and a payment that only the ledger knows.
async fn lost(folder: &Folder, world: &Arc<World>, contract: &Contract) {
    for key in ["known", "lost"] {
        let executor = open(builder(&folder.ledger(), world, contract)).await;
        let _done = executor.execute(pay(key)).await.unwrap();
        executor.shutdown(Duration::from_secs(5)).await;
        if key == "known" {
            std::fs::copy(folder.ledger(), folder.backup()).unwrap();
        }
    }
    assert_eq!(world.count(), 2);
}

async fn question(executor: &Executor) -> Option<counterfoil::QuestionId> {
    let open = executor.questions(&Tenant::ledger()).await.unwrap();
    open.into_iter().find(|asked| asked.kind == QuestionKind::Restored).map(|asked| asked.id)
}

#[tokio::test]
async fn a_restored_ledger_looks_before_it_repeats_an_effect_that_it_lost() {
    // Under another name (a copy has another inode), and over the ledger itself (the same inode, an older state).
    for in_place in [false, true] {
        let (folder, world) = (Folder::new(), World::new(Keys::Ignores));
        let contract = Contract::new(ContractClass::Lookup);
        lost(&folder, &world, &contract).await;
        let path = if in_place {
            std::fs::write(folder.ledger(), std::fs::read(folder.backup()).unwrap()).unwrap();
            folder.ledger()
        } else {
            folder.backup()
        };
        let executor = open(builder(&path, &world, &contract)).await;
        assert!(question(&executor).await.is_some(), "in place: {in_place}");
        let known = executor.execute(pay("known")).await.unwrap();
        assert!(known.answer().is_some_and(|answer| !answer.first));
        let found = executor.execute(pay("lost")).await.unwrap();
        assert_eq!(found.answer().map(|answer| answer.basis), Some(Basis::Lookup), "{found:?}");
        assert_eq!(world.count(), 2, "nothing was repeated");
        let new = executor.execute(pay("new")).await.unwrap();
        assert!(new.answer().is_some(), "{new:?}");
        assert_eq!((world.count(), world.lookups().len()), (3, 2), "what the lookup does not show is sent");
        executor.shutdown(Duration::from_secs(5)).await;

        // It is durable, asked once, and ends when somebody lifts it.
        let executor = open(builder(&path, &world, &contract)).await;
        assert_eq!(executor.questions(&Tenant::ledger()).await.unwrap().len(), 1);
        assert!(executor.restored().await.unwrap().is_some());
        executor.lift_restored("ann", "all is seen to").await.unwrap();
        let _done = executor.execute(pay("later")).await.unwrap();
        assert_eq!(world.lookups().len(), 2, "it is sent at once again");
        assert_eq!((executor.restored().await.unwrap(), question(&executor).await), (None, None));
        executor.shutdown(Duration::from_secs(5)).await;
    }
}

/// The rows that were written since the first restore came with the second copy: they do not show what was sent last.
#[tokio::test]
async fn a_copy_of_a_ledger_whose_restore_is_in_force_is_one_more_restore() {
    let (folder, world) = (Folder::new(), World::new(Keys::Ignores));
    let contract = Contract::new(ContractClass::Lookup);
    lost(&folder, &world, &contract).await;
    let executor = open(builder(&folder.backup(), &world, &contract)).await;
    let first = executor.restored().await.unwrap().unwrap();
    executor.shutdown(Duration::from_secs(5)).await;
    let second = folder.backup().with_extension("second");
    std::fs::copy(folder.backup(), &second).unwrap();
    let executor = open(builder(&second, &world, &contract)).await;
    let both = executor.restored().await.unwrap().unwrap();
    assert!(both.by > first.by, "{:?} after {:?}", both.by, first.by);
    assert_eq!((both.since, both.as_of), (first.since, first.as_of));
    assert_eq!(executor.questions(&Tenant::ledger()).await.unwrap().len(), 1);
    executor.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn the_command_lifts_what_a_restore_has_brought_about() {
    let (folder, world) = (Folder::new(), World::new(Keys::Ignores));
    let contract = Contract::new(ContractClass::Lookup);
    lost(&folder, &world, &contract).await;
    let command = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.arg("lift-restored").arg(format!("sqlite:{}", folder.backup().display()));
        let output = command.args(["--by", "ann", "--because", "it is a test system"]).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let executor = open(builder(&folder.backup(), &world, &contract)).await;
    assert!(question(&executor).await.is_some());
    executor.shutdown(Duration::ZERO).await;
    assert_eq!(command(), (true, String::new()));
    let (lifted, why) = command();
    assert!(!lifted && why.contains("nothing to be lifted"), "{why}");
    let executor = open(builder(&folder.backup(), &world, &contract)).await;
    assert_eq!(executor.restored().await.unwrap(), None);
    assert_eq!(question(&executor).await, None);
    executor.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_ledger_that_goes_on_in_its_place_is_no_restore() {
    let (folder, world) = (Folder::new(), World::new(Keys::Ignores));
    for life in 0..4 {
        let executor = open(builder(&folder.ledger(), &world, &Contract::new(ContractClass::Lookup))).await;
        assert_eq!(executor.restored().await.unwrap(), None, "life {life}");
        let _done = executor.execute(pay(&life.to_string())).await.unwrap();
        executor.shutdown(Duration::from_secs(5)).await;
        if life == 1 {
            std::fs::rename(folder.ledger(), folder.backup()).unwrap();
            std::fs::rename(folder.backup(), folder.ledger()).unwrap();
        }
    }
    assert_eq!((world.count(), world.lookups().len()), (4, 0));
}

#[tokio::test]
async fn after_a_restore_a_call_that_cannot_be_looked_up_asks() {
    let (folder, world) = (Folder::new(), World::new(Keys::Ignores));
    let executor =
        open(builder(&folder.ledger(), &world, &Contract::new(ContractClass::Blind)).restored(None)).await;
    let outcome = executor.execute(pay("c1")).await.unwrap();
    let Outcome::NeedsDecision { question: escalation } = outcome else { panic!("{outcome:?}") };
    assert_eq!(world.count(), 0);
    // A person says that it did not happen: it is sent.
    executor.answer(&acme(), escalation, Resolution::DidNotHappen, "ann").await.unwrap();
    let outcome = executor.execute(pay("c1")).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!(world.count(), 1);
    executor.shutdown(Duration::ZERO).await;
}

/// A provider that remembers keys for a day, and the ledger's rows are of an hour ago, or of two days ago, or of nobody knows when.
#[tokio::test]
async fn after_a_restore_the_age_of_a_key_counts_from_the_instant_of_the_backup() {
    const HOUR: Duration = Duration::from_hours(1);
    for (hours, is_sent) in [(Some(1), true), (Some(48), false), (None, false)] {
        let (folder, world) = (Folder::new(), World::new(Keys::Honours));
        let contract =
            Contract::new(ContractClass::ReplaysKey).key_window(24 * HOUR).lookup(LookupOffer::None);
        let now = TestClock::breathing().now();
        let as_of = hours.map(|hours| Timestamp(now.0 - hours * 3_600_000_000));
        let executor = open(builder(&folder.ledger(), &world, &contract).restored(as_of)).await;
        let outcome = executor.execute(pay("c1")).await.unwrap();
        assert_eq!(outcome.answer().is_some(), is_sent, "{hours:?}: {outcome:?}");
        assert_eq!(world.requests(), usize::from(is_sent));
        if let Some(answer) = outcome.answer() {
            assert_eq!(answer.basis, Basis::Declaration);
        }
        executor.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_tool_may_look_first_always() {
    let (folder, world) = (Folder::new(), World::new(Keys::Ignores));
    let contract = Contract::new(ContractClass::Lookup).look_first();
    let executor = open(builder(&folder.ledger(), &world, &contract)).await;
    let _done = executor.execute(pay("c1")).await.unwrap();
    assert_eq!((world.count(), world.lookups().len()), (1, 1));
    executor.shutdown(Duration::ZERO).await;
    // Another ledger, as beside an older system: the effect is found.
    let executor = open(builder(&folder.backup(), &world, &contract)).await;
    let found = executor.execute(pay("c1")).await.unwrap();
    assert_eq!(found.answer().map(|answer| answer.basis), Some(Basis::Lookup));
    assert_eq!(world.count(), 1);
    executor.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn what_was_done_before_is_imported_and_not_done_again() {
    let (folder, world) = (Folder::new(), World::new(Keys::Ignores));
    let executor = open(builder(&folder.ledger(), &world, &Contract::new(ContractClass::Blind))).await;
    let done = || Done::new(json!({"id": "old-1"})).external_ref("old-1");
    executor.import(pay("c1"), done()).await.unwrap();
    let outcome = executor.execute(pay("c1")).await.unwrap();
    let answer = outcome.answer().unwrap();
    assert_eq!(
        (answer.first, answer.basis, answer.external_ref.as_deref()),
        (false, Basis::Decision, Some("old-1"))
    );
    assert_eq!(world.count(), 0);
    let again = executor.import(pay("c1"), done()).await.unwrap_err();
    assert!(matches!(again, ExecError::Recorded { .. }), "{again}");
    assert!(again.to_string().contains("has a record already: nothing was imported"), "{again}");
    let other = ToolRequest { input: json!({"cents": 7}), ..pay("c1") };
    assert!(matches!(executor.execute(other).await.unwrap(), Outcome::Conflict(_)));
    executor.shutdown(Duration::ZERO).await;
}
