//! REC-8: runs whose time is over. A tombstone is left, which keeps the start key; or nothing, where that was declared. On both stores.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::StartError;
use counterfoil::flow::{EffectOutcome, EngineBuilder, RunError, RunStatus, Sent, Workflow};
use counterfoil::ledger::{LookupResult, Retention, State, Undone};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key, RunId};
use sqlx::ConnectOptions as _;

use crate::flow::store::Tapped;
use crate::flow::tools::Post;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;
use crate::world::{TestClock, acme};

/// The sweeper looks at least every second.
const AT_ONCE: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_hours(24);
const NAME: &str = "letter";

async fn letter(ctx: Ctx, to: String) -> Result<String, Failure> {
    ctx.call::<Post>(format!("a secret for {to}")).await?;
    Ok(format!("posted a secret to {to}"))
}

/// Begins a letter and says nothing of it until it is let go.
async fn office(ctx: Ctx, to: String) -> Result<String, Failure> {
    let posted = ctx.child(letter, to).await?;
    ctx.signal::<()>("close").await?;
    Ok(posted)
}

fn engine(engine: EngineBuilder, retention: Retention) -> EngineBuilder {
    let letters = Workflow::new(NAME, letter).retention(retention);
    engine.register(letters).register(Workflow::new("office", office).retention(retention))
}

/// What was said of the run is in none of its views.
async fn expired(process: &Process, run: RunId) {
    process.state(run, "expired").await;
    let handle = process.acme().handle::<String>(run);
    let said = format!("{:?} {:?}", handle.status().await.unwrap(), handle.history(None).await.unwrap());
    assert!(!said.contains("secret") && !said.contains("ann"), "{said}");
}

#[test]
fn a_start_that_comes_too_late_is_told_that_the_run_has_expired() {
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        let build = || engine(world.engine_in(&schema, shared), Retention::tombstone_after(AT_ONCE));
        let start = |process: &Process, to: &str| process.acme().run(letter, to.to_owned()).key("letter/1");
        let process = Process::start(&world, build());
        let run = process.on(start(&process, "ann").start()).unwrap().id();
        process.on(expired(&process, run));
        process.crash();

        let process = Process::start(&world, build()); // the next process knows it, too
        process.on(async {
            let is_expired = |error: RunError| {
                assert!(matches!(error, RunError::Expired { run: of } if of == run), "{error}");
            };
            assert_eq!(start(&process, "ann").start().await.unwrap().id(), run);
            is_expired(start(&process, "ann").await.unwrap_err());
            is_expired(start(&process, "bob").start().await.err().unwrap());
            let handle = process.acme().handle::<String>(run);
            is_expired(handle.result().await.unwrap_err());
            is_expired(handle.signal("close", ()).id("1").await.unwrap_err());
            is_expired(handle.retry("ann", "again").await.unwrap_err());
            is_expired(handle.fork("ann", "again").await.err().unwrap());
        });
        assert_eq!(world.effects("post"), ["a secret for ann"]);
        process.shut_down();
    }
}

#[test]
fn a_forgotten_run_is_begun_anew_and_its_calls_are_answered_by_their_records() {
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        let build = engine(world.engine_in(&schema, shared), Retention::forget_after(AT_ONCE));
        let process = Process::start(&world, build);
        process
            .on(async {
                let start = || process.acme().run(letter, "ann".to_owned()).key("letter/1");
                let first = start().start().await.unwrap();
                let unknown = async |_: &_| matches!(first.status().await, Err(RunError::Unknown { .. }));
                process.until(unknown).await;
                let second = start().start().await.unwrap();
                assert_ne!(second.id(), first.id());
                second.result().await.map(drop).or_else(|error| match error {
                    RunError::Unknown { .. } => Ok(()), // it is forgotten already
                    error => Err(error),
                })
            })
            .unwrap();
        process.shut_down();
    }
}

#[test]
fn a_child_is_kept_for_as_long_as_its_parent() {
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        let build = engine(world.engine_in(&schema, shared), Retention::tombstone_after(AT_ONCE));
        let process = Process::start(&world, build);
        process.on(async {
            let parent = process.acme().run(office, "ann".to_owned()).start().await.unwrap();
            let alone = process.acme().run(letter, "bob".to_owned()).start().await.unwrap();
            expired(&process, alone.id()).await; // the sweeper has passed
            process.until(async |acme| acme.runs(None).await.unwrap().len() == 3).await;
            let runs = process.acme().runs(None).await.unwrap();
            let child = runs.iter().find(|run| run.parent == Some(parent.id())).unwrap();
            process.state(child.id, "succeeded").await;
            let again = process.acme().run(letter, "carl".to_owned()).start().await.unwrap();
            expired(&process, again.id()).await;
            process.state(child.id, "succeeded").await;
            parent.signal("close", ()).await.unwrap();
            expired(&process, parent.id()).await;
            expired(&process, child.id).await;
        });
        process.shut_down();
    }
}

// Both have ended long since, and nothing else wakes the sweeper: the parent goes, and then the child that waited for it.
#[test]
fn a_child_goes_in_the_same_sweep_as_its_parent() {
    let (world, hands) = (World::new(), TestClock::breathing());
    let build = engine(world.engine_on(hands.clone()), Retention::tombstone_after(DAY));
    let process = Process::start(&world, build);
    process.on(async {
        let parent = process.acme().run(office, "ann".to_owned()).start().await.unwrap();
        parent.signal("close", ()).await.unwrap();
        parent.result().await.unwrap();
        hands.advance(2 * DAY);
        for run in process.acme().runs(None).await.unwrap() {
            expired(&process, run.id).await;
        }
    });
    process.shut_down();
}

#[test]
fn the_time_of_a_run_counts_from_its_end_and_from_nothing_else() {
    let world = World::new();
    let build = engine(world.engine(), Retention::tombstone_after(AT_ONCE).from_last_access());
    let refused = Process::try_start(&Arc::clone(&world), build).err().unwrap();
    let StartError::Workflow { name, reason } = &refused else { panic!("{refused}") };
    assert_eq!(name, NAME);
    assert!(reason.contains("counts from its end"), "{reason}");
}

/// Waits for two words, however long that takes.
async fn diary(ctx: Ctx, (): ()) -> Result<String, Failure> {
    let first: String = ctx.signal("word").await?;
    let second: String = ctx.signal("word").await?;
    Ok(format!("{first}, {second}"))
}

async fn bodies(world: &World, schema: &Schema, shared: bool) -> Vec<String> {
    let sql = "SELECT body FROM signal WHERE name = 'word' ORDER BY id";
    if shared {
        return sqlx::query_scalar(sql).fetch_all(&mut schema.plain().await).await.unwrap();
    }
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(world.path());
    sqlx::query_scalar(sql).fetch_all(&mut options.connect().await.unwrap()).await.unwrap()
}

// A run may live for years: what it was sent goes, and is known when it comes again.
#[test]
fn a_signal_that_a_living_run_has_received_expires() {
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        let build = || {
            let diaries = Workflow::new("diary", diary).retention(Retention::tombstone_after(AT_ONCE));
            world.engine_in(&schema, shared).register(diaries)
        };
        let process = Process::start(&world, build());
        let run = process.on(async {
            let run = process.acme().run(diary, ()).start().await.unwrap();
            assert_eq!(run.signal("word", "a secret").id("1").await.unwrap(), Sent::New);
            let expires = |tapped: &Tapped| {
                tapped.batches.iter().flatten().any(|change| !change.expired_signals.is_empty())
            };
            world.tap.until(expires).await;
            run.id()
        });
        process.crash();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let left = runtime.block_on(bodies(&world, &schema, shared));
        assert!(left.len() == 1 && left[0].starts_with("{\"$expired\":\""), "{left:?}");
        assert!(!left[0].contains("secret"), "{left:?}");

        let process = Process::start(&world, build());
        process.on(async {
            let run = process.acme().handle::<String>(run);
            assert_eq!(run.signal("word", "a secret").id("1").await.unwrap(), Sent::Before);
            let another = run.signal("word", "another").id("1").await;
            assert!(matches!(another, Err(RunError::SignalConflict { .. })), "{another:?}");
            assert_eq!(run.signal("word", "the end").id("2").await.unwrap(), Sent::New);
            match run.result().await {
                Ok(said) => assert_eq!(said, "a secret, the end"),
                Err(error) => assert!(matches!(error, RunError::Expired { .. }), "{error}"),
            }
        });
        process.shut_down();
    }
}

#[test]
fn a_signal_stays_where_its_runs_are_kept() {
    let (world, hands) = (World::new(), TestClock::breathing());
    let diaries = Workflow::new("diary", diary).retention(Retention::keep());
    let build = engine(world.engine_on(hands.clone()), Retention::tombstone_after(DAY)).register(diaries);
    let process = Process::start(&world, build);
    process.on(async {
        let run = process.acme().run(diary, ()).start().await.unwrap();
        run.signal("word", "a secret").id("1").await.unwrap();
        let parent = process.acme().run(office, "ann".to_owned()).start().await.unwrap();
        parent.signal("close", ()).await.unwrap();
        parent.result().await.unwrap();
        hands.advance(2 * DAY);
        for run in process.acme().runs(None).await.unwrap().into_iter().filter(|run| run.workflow == "office")
        {
            expired(&process, run.id).await; // the sweeper has passed
        }
    });
    process.crash();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(runtime.block_on(bodies(&world, &Schema::new(), false)), ["\"a secret\""]);
}

/// Puts something on a shelf, and takes it away again.
struct Shelve(Arc<World>);

impl Tool for Shelve {
    const NAME: &'static str = "shelve";
    type Effect = effect::Undoable<effect::InternalMutation>;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = ();

    fn key(&self, what: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(what))
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<()>, ToolError> {
        self.0.happen("shelve", call.key(), what);
        Ok(Done::new(()))
    }
}

impl Compensate for Shelve {
    async fn compensate(
        &self,
        call: &Call,
        forward: &OriginalCall<String, ()>,
    ) -> Result<Done<Undone>, ToolError> {
        self.0.happen("clear", call.key(), &forward.input().cloned().unwrap_or_default());
        Ok(Undone::whole().into())
    }

    async fn find_compensation(
        &self,
        _: &Call,
        _: &OriginalCall<String, ()>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::Unknown)
    }
}

async fn shelves(ctx: Ctx, what: String) -> Result<(), Failure> {
    ctx.call::<Shelve>(what).await
}

/// Has something put on a shelf by a child, and fails at a word.
async fn shop(ctx: Ctx, what: String) -> Result<(), Failure> {
    ctx.child(shelves, what).await?;
    ctx.signal::<()>("close").await?;
    Err(Failure::new("closed for good"))
}

async fn is_gone(process: &Process, what: &str) -> bool {
    let key = Key::of("shelve").target(what).render().unwrap();
    let record = process.engine().executor().record(&acme(), &key).await.unwrap();
    matches!(record.unwrap().0.state, State::Gone { .. })
}

// Invariants 7 and 9: the records of a change in the own system are kept for thirty days, and a run may wait for longer.
#[test]
fn what_a_child_did_is_undone_with_its_parent_however_late_that_is() {
    let (world, hands) = (World::new(), TestClock::breathing());
    let build = world.engine_on(hands.clone()).tool(Shelve(world.clone()));
    let process = Process::start(&world, build.workflow("shelves", 1, shelves).workflow("shop", 1, shop));
    process.on(async {
        let run = process.acme().run(shop, "jam".to_owned()).start().await.unwrap();
        let ended = |runs: Vec<RunStatus>| {
            runs.iter().any(|child| child.parent == Some(run.id()) && child.state.name() == "succeeded")
        };
        process.until(async |acme| ended(acme.runs(None).await.unwrap())).await;
        process.acme().run(shelves, "tea".to_owned()).await.unwrap();
        hands.advance(31 * DAY);
        while !is_gone(&process, "tea").await {
            hands.advance(Duration::from_hours(1)); // the sweeper looks again, and its page has both
            tokio::task::yield_now().await;
        }
        assert!(!is_gone(&process, "jam").await, "its parent may undo it");
        run.signal("close", ()).await.unwrap();
        let error = run.result().await.unwrap_err();
        let RunError::Failed { failure, .. } = &error else { panic!("{error}") };
        let became: Vec<_> = failure.effects.iter().map(|effect| &effect.became).collect();
        assert_eq!(became, [&EffectOutcome::Undone], "{failure:?}");
        assert_eq!(world.effects("clear"), ["jam"]);
        // Nobody needs it any more.
        while !is_gone(&process, "jam").await {
            hands.advance(DAY);
            tokio::task::yield_now().await;
        }
    });
    process.shut_down();
}
