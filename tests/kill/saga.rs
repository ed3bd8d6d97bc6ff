//! A saga on PostgreSQL in real processes (SAGA-1, FLOW-5): an order is cancelled, and its process is killed with SIGKILL before and
//! after each durable boundary, in the middle of the undoing among them. Another process waits for the lease to run out, takes the order
//! over, and ends it: the next life, or one that is busy with an order of its own. Files that outlive the processes count what happened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{EffectOutcome, FailureCode, RunError, RunHandle, RunState};
use counterfoil::ledger::{Contract, LookupResult, Undone};
use counterfoil::sim::CrashPoint;
use counterfoil::store::postgres::Options;
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Ctx, Engine, Failure, Key, QuestionId, Tenant};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::Failed;
use crate::harness::desk::crossings;
use crate::harness::process::Program;
use crate::harness::role::{Ended, Lived, Message, Report, TENANT, say};
use crate::harness::worker::Ledger;
use crate::service::{append, find, lookup};
use crate::{full, on_postgres, run};

const AT_ONCE: usize = 4;
/// Without `COUNTERFOIL_FULL` so many kills are spread over a day.
const KILLS: usize = 20;
/// Longer than a process waits for its turn on a machine that is busy with other tests: one without a lease ends.
const LEASE: Duration = Duration::from_secs(3);
/// So often it is looked whether the order waits.
const LOOK: Duration = Duration::from_millis(5);

/// One life of the process in which an order is cancelled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shop {
    url: String,
    schema: String,
    /// Where the provider's books are.
    folder: PathBuf,
    order: String,
    /// Die here, as in `after-undoing:1`.
    cancelled_and_killed: Option<String>,
}

impl Shop {
    /// Of this order: a process may take over the order of another one.
    fn books(&self, which: &str, order: &str) -> PathBuf {
        self.folder.join(format!("{which}-{order}.txt"))
    }
}

/// Books something by a line in a file, and strikes it out by a line in another one.
macro_rules! booking {
    ($($tool:ident = $name:literal;)*) => {$(
        struct $tool(Shop);

        impl Tool for $tool {
            const NAME: &'static str = $name;
            type Effect = effect::Undoable<effect::Payment>;
            type Contract = contract::Lookup;
            type Input = String;
            type Output = usize;

            fn contract(&self) -> Contract {
                lookup()
            }

            fn key(&self, order: &String) -> Option<Key> {
                Some(Key::of(Self::NAME).target(order))
            }

            async fn call(&self, call: &Call, order: &String) -> Result<Done<usize>, ToolError> {
                Ok(Done::new(append(&self.0.books($name, order), call.key())))
            }
        }

        impl Reconcile for $tool {
            async fn reconcile(&self, call: &Call, order: &String) -> Result<LookupResult<usize>, ToolError> {
                Ok(found(&self.0.books($name, order), call.key()))
            }
        }

        impl Compensate for $tool {
            async fn compensate(&self, _: &Call, forth: &OriginalCall<String, usize>) -> Result<Done<Undone>, ToolError> {
                append(&self.0.books("struck", forth.input().unwrap()), forth.key());
                Ok(Undone::whole().into())
            }

            async fn find_compensation(
                &self,
                _: &Call,
                forth: &OriginalCall<String, usize>,
            ) -> Result<LookupResult<Undone>, ToolError> {
                found(&self.0.books("struck", forth.input().unwrap()), forth.key()).try_map(|_| Ok(Undone::whole()))
            }
        }
    )*};
}

booking! {
    Reserve = "reserve";
    Charge = "charge";
}

fn found(books: &Path, key: &str) -> LookupResult<usize> {
    let entry = |output: usize| LookupResult::Committed { output, external_ref: None };
    find(books, key).map_or(LookupResult::NotFound, entry)
}

async fn order(ctx: Ctx, order: String) -> Result<(), Failure> {
    ctx.call::<Reserve>(order.clone()).await?;
    ctx.call::<Charge>(order).await?;
    ctx.signal("delivered").await
}

pub(crate) async fn play(own: Shop) -> Result<i32, Failed> {
    let watch = Arc::new(Lived::new(own.cancelled_and_killed.as_deref().map(str::parse).transpose()?));
    let options = Options { schema: Some(own.schema.clone()), ..Options::default() };
    let engine = Engine::postgres_with(&own.url, options)
        .lease(LEASE)
        .workflow("order", 1, order)
        .tool(Reserve(own.clone()))
        .tool(Charge(own.clone()))
        .watch(watch.clone());
    let engine = engine.start().await?;
    let tenant = engine.tenant(TENANT)?;
    let run = tenant.run(order, own.order.clone()).key(own.order.clone()).start().await?;
    let ended = Ended::Failed(cancelled(&run).await?);
    let questions = tenant.questions().await?.iter().map(|question| question.kind).collect();
    engine.shutdown(Duration::from_secs(5)).await;
    let (crossed, taken_over_after) = watch.told();
    say(&Message::Lived(Report { ended, record: None, questions, crossed, taken_over_after }))?;
    Ok(0)
}

/// Cancels the order once it waits; the same command in each life. Gives what became of it, in a few words.
async fn cancelled(run: &RunHandle<()>) -> Result<String, Failed> {
    while matches!(run.status().await?.state, RunState::Active) {
        SystemClock.sleep(LOOK).await;
    }
    match run.cancel("ann", "withdrawn").key("c1").grace(Duration::ZERO).await {
        Ok(_) | Err(RunError::Over { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    match run.result().await {
        Err(RunError::Failed { failure, .. }) if failure.code == FailureCode::Cancelled => {
            let undone =
                failure.effects.iter().filter(|effect| effect.became == EffectOutcome::Undone).count();
            Ok(format!("{undone} undone"))
        }
        other => Ok(format!("{other:?}")),
    }
}

#[test]
fn a_cancelled_order_is_undone_by_whoever_takes_it_over() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
        let Ledger::Postgres { url, schema } = on_postgres() else { unreachable!("it is asked for") };
        let shop = |order: &str, kill: Option<String>| Shop {
            url: url.clone(),
            schema: schema.clone(),
            folder: folder.path().to_owned(),
            order: order.to_owned(),
            cancelled_and_killed: kill,
        };
        let clean = day(&program, shop("clean", None)).await.unwrap();
        for point in [CrashPoint::AfterSignal, CrashPoint::AfterUndoing] {
            assert!(clean.iter().any(|at| at.starts_with(point.name())), "no {point}: {clean:?}");
        }
        let every = if full() { 1 } else { (clean.len() / KILLS).max(1) };
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut days = JoinSet::new();
        for kill in clean.into_iter().step_by(every) {
            let (program, slots) = (program.clone(), slots.clone());
            let shop = shop(&kill.replace(':', "-"), Some(kill));
            days.spawn(async move {
                let _slot = slots.acquire_owned().await.unwrap();
                let name = shop.order.clone();
                day(&program, shop).await.map_err(|wrong| format!("{name}: {wrong}"))
            });
        }
        let days = days.join_all().await;
        let wrong: Vec<_> = days.iter().filter_map(|day| day.as_ref().err().cloned()).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(days.len() >= KILLS, "only {} kills", days.len());
        let store = Ledger::Postgres { url, schema }.open().await.unwrap();
        let tenant = Tenant::new(TENANT).unwrap();
        let open = store.escalation_open(&tenant, QuestionId(i64::MIN), 100).await.unwrap();
        assert!(open.is_empty(), "{open:?}");
    });
}

/// The crossings of a day, whose first life may be killed; or what was wrong when it was over.
async fn day(program: &Program, shop: Shop) -> Result<Vec<String>, String> {
    let life = async |shop: &Shop| {
        let death = program.start(shop).unwrap().death().await.map_err(|stuck| stuck.to_string())?;
        Ok::<_, String>(death)
    };
    if shop.cancelled_and_killed.is_some() {
        life(&shop).await?; // how often a point is crossed depends on the machine: it may live
    }
    let last = life(&Shop { cancelled_and_killed: None, ..shop.clone() }).await?;
    let report = last.report.ok_or_else(|| format!("the last life ended with {}", last.status))?;
    let lines = |which: &str| {
        let text = std::fs::read_to_string(shop.books(which, &shop.order)).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (reserved, charged, struck) = (lines("reserve"), lines("charge"), lines("struck"));
    // The last is undone first, each once.
    let back: Vec<_> = reserved.iter().chain(&charged).rev().cloned().collect();
    let whole = reserved.len() == 1 && charged.len() == 1 && struck == back;
    if whole && report.ended == Ended::Failed("2 undone".to_owned()) {
        Ok(crossings(&report))
    } else {
        Err(format!("{reserved:?} {charged:?} {struck:?}: {report:?}"))
    }
}
