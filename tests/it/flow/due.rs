//! What is due and cannot be taken up is tried again in time: not at once and for ever, and hiding nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil::flow::Failure;
use counterfoil::ledger::Look;
use counterfoil::store::{Change, Model, Run, Store, StoreError, StoreFuture, Verdict};
use counterfoil::{Clock as _, Timestamp};
use counterfoil::{Engine, RunId};
use sqlx::Executor as _;

use crate::flow::lives::plain;
use crate::flow::wait::{HOUR, begin, life, result};
use crate::flow::world::{Process, World};
use crate::world::{TestClock, soon};

const GRACE: Duration = Duration::from_millis(200);
/// The pauses between tries: they grow, and have a limit.
const PAUSES: [u64; 7] = [5, 10, 20, 40, 60, 60, 60];

async fn asleep_for(hands: &TestClock, pause: Duration) {
    soon(format!("nobody pauses for {pause:?}"), async {
        hands.asleep_for(pause).await;
        Ok::<_, ()>(())
    })
    .await;
}

/// Damages or mends the row of a run.
async fn edit(world: &World, run: RunId, change: &str) {
    let mut other = plain(world).await;
    other.execute("PRAGMA ignore_check_constraints = ON").await.unwrap();
    let edit = format!("UPDATE run SET {change} WHERE id = {}", run.0);
    let edited = sqlx::query(sqlx::AssertSqlSafe(edit)).execute(&mut other).await.unwrap();
    assert_eq!(edited.rows_affected(), 1);
}

/// Begins runs that sleep for so many seconds, and parks them.
fn sleepers(process: &Process, hands: &TestClock, flow: Flow, seconds: &[u32]) -> Vec<RunId> {
    let runs: Vec<_> = seconds.iter().map(|seconds| begin(process, &flow, *seconds)).collect();
    process.on(async {
        // Each of them: the step of one may be on its way to the disk when another one sleeps already.
        hands.asleep(runs.len(), GRACE..=GRACE).await;
        hands.advance(GRACE);
        for run in &runs {
            process.state(*run, "waiting").await;
        }
    });
    runs
}

type Flow = fn(counterfoil::Ctx, u32) -> futures_util::future::BoxFuture<'static, Result<String, Failure>>;

fn nap(
    ctx: counterfoil::Ctx,
    seconds: u32,
) -> futures_util::future::BoxFuture<'static, Result<String, Failure>> {
    Box::pin(async move {
        ctx.sleep(Duration::from_secs(seconds.into())).await?;
        Ok("slept".to_owned())
    })
}

// R-FLOW-4, G10: a damaged row is tried again in time, costs next to nothing meanwhile, and makes no other late.
#[test]
fn a_damaged_run_that_is_due_holds_up_nothing() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow: Flow = nap;
    let process = life(&world, &hands, &flow);
    let runs = sleepers(&process, &hands, flow, &[3600, 3602]);
    let [hurt, sound] = runs[..] else { unreachable!() };
    process.on(async {
        edit(&world, hurt, "workflow = ''").await;
        // The edit is a write of another process: the engine looks once for what it has to take up, which is not counted below.
        world.tap.until(|tap| tap.listened > 1).await;
        hands.advance(HOUR.saturating_sub(GRACE));
        // It cannot be taken up; the other one, which is due before the pause is over, is waited for.
        asleep_for(&hands, Duration::from_secs(2)).await;
        hands.advance(Duration::from_secs(2));
    });
    assert_eq!(result(&process, sound), "slept");
    process.on(async {
        for pause in &PAUSES[1..] {
            let pause = Duration::from_secs(*pause);
            asleep_for(&hands, pause).await;
            let asked = world.tap.see(|tapped| tapped.asked);
            hands.advance(pause);
            asleep_for(&hands, (pause * 2).min(Duration::from_mins(1))).await;
            let asked = world.tap.see(|tapped| tapped.asked) - asked;
            // Looks, deadlines, timers and schedules that are due, and what is due next, twice.
            assert!(asked <= 6, "asked {asked} times after a pause of {pause:?}");
        }
        edit(&world, hurt, "workflow = 'wait'").await;
        hands.advance(Duration::from_mins(1));
    });
    assert_eq!(result(&process, hurt), "slept", "once mended, it goes on");
    process.shut_down();
}

/// What a store may say.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    /// Something is due, and nothing is on the lists.
    Nothing,
    /// Something is due, and the lists cannot be read.
    NoLists,
    /// It does not know whether anything is due.
    NoInstant,
    /// It cannot be read at all.
    Failure,
}

#[derive(Debug)]
struct Odd {
    model: Model,
    says: Says,
    due: Timestamp,
    asked: AtomicUsize,
}

fn failed() -> StoreError {
    StoreError::Io { detail: "as told".into() }
}

impl Store for Odd {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        self.model.commit(changes)
    }

    fn look_due<'a>(&'a self, _: Timestamp, _: Option<&'a Look>, _: u32) -> StoreFuture<'a, Vec<Look>> {
        self.list()
    }

    fn run_due<'a>(&'a self, _: Timestamp, _: Option<&'a Run>, _: u32) -> StoreFuture<'a, Vec<Run>> {
        self.list()
    }

    fn next_due(&self, after: Timestamp) -> StoreFuture<'_, Option<Timestamp>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let fails = matches!(self.says, Says::NoInstant | Says::Failure);
        let due = Some(self.due).filter(|due| *due > after);
        Box::pin(async move { if fails { Err(failed()) } else { Ok(due) } })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&self.model)
    }
}

impl Odd {
    fn list<T: Send + 'static>(&self) -> StoreFuture<'_, Vec<T>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let fails = matches!(self.says, Says::NoLists | Says::Failure);
        Box::pin(async move { if fails { Err(failed()) } else { Ok(Vec::new()) } })
    }
}

// DESIGN 4.9: whatever the store says, it is not asked without a pause.
#[tokio::test]
async fn no_answer_of_the_store_makes_the_engine_spin() {
    for says in [Says::Nothing, Says::NoLists, Says::NoInstant, Says::Failure] {
        let hands = TestClock::default();
        let store =
            Arc::new(Odd { model: Model::default(), says, due: hands.now(), asked: AtomicUsize::new(0) });
        let engine = Engine::store(store.clone()).clock(hands.clone()).start().await.unwrap();
        for pause in PAUSES {
            asleep_for(&hands, Duration::from_secs(pause)).await;
            let asked = store.asked.swap(0, Ordering::Relaxed);
            assert!(asked <= 6, "{says:?}: asked {asked} times before a pause of {pause} s");
            hands.advance(Duration::from_secs(pause));
        }
        drop(engine);
    }
}
