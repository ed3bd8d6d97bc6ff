//! One tenant never sees another's calls, plain functions, questions and runs, tried with what belongs to somebody else (M01,
//! invariant 10).

use std::sync::Arc;

use counterfoil::exec::ExecError;
use counterfoil::flow::{RunError, RunState};
use counterfoil::ledger::{Contract, ContractClass, EffectClass, ErrorKind, Key};
use counterfoil::store::Resolution;
use counterfoil::{Ctx, Engine, Failure, Outcome, Tenant, ToolRequest};
use serde_json::{Value, json};

use crate::world::{Chance, Keys, Reply, TestClock, World};

async fn halve(ctx: Ctx, n: u32) -> Result<u32, Failure> {
    ctx.step("halve", &n, |n| n / 2).await
}

struct Scene {
    _dir: tempfile::TempDir,
    world: Arc<World>,
    engine: Engine,
}

impl Scene {
    async fn new() -> Self {
        let (dir, world) = (tempfile::tempdir().unwrap(), World::new(Keys::Honours));
        let tool = world.tool("pay_out", EffectClass::InternalMutation, Contract::new(ContractClass::Blind));
        let engine = Engine::sqlite(dir.path().join("agents.db"))
            .clock(TestClock::breathing())
            .entropy(Chance::least())
            .workflow("halve", 1, halve)
            .dynamic_tool(tool)
            .start()
            .await
            .unwrap();
        Self { _dir: dir, world, engine }
    }

    async fn pay(&self, tenant: &Tenant, input: Value) -> Outcome {
        let key = Key::of("pay_out").target("the same key");
        let request = ToolRequest::new(tenant.clone(), "pay_out", input).key(key);
        self.engine.executor().execute(request).await.unwrap()
    }
}

fn tenants() -> (Tenant, Tenant) {
    (Tenant::new("acme").unwrap(), Tenant::new("globex").unwrap())
}

// R-KEY-3, D15: the same key is two operations, with two keys on the wire.
#[tokio::test]
async fn the_same_key_is_another_operation_for_another_tenant() {
    let (scene, (acme, globex)) = (Scene::new().await, tenants());
    for (tenant, amount) in [(&acme, 1), (&globex, 2)] {
        for _ in 0..2 {
            let outcome = scene.pay(tenant, json!({"amount": amount})).await;
            assert_eq!(outcome.answer().unwrap().response.value().unwrap()["body"]["amount"], amount);
        }
    }
    assert_eq!((scene.world.count(), scene.world.requests(), scene.world.wire_keys().len()), (2, 2, 2));

    let key = Key::of("pay_out").target("the same key").render().unwrap();
    let executor = scene.engine.executor();
    for tenant in [&acme, &globex] {
        let (record, evidence) = executor.record(tenant, &key).await.unwrap().unwrap();
        assert_eq!((&record.tenant, evidence.len()), (tenant, 0));
    }
    let nobody = Tenant::new("acm").unwrap();
    assert!(executor.record(&nobody, &key).await.unwrap().is_none());
}

#[tokio::test]
async fn a_plain_function_runs_once_for_each_tenant() {
    let (scene, (acme, globex)) = (Scene::new().await, tenants());
    for (tenant, said) in [(&acme, "a"), (&globex, "g"), (&acme, "never"), (&globex, "never")] {
        let key = Key::of("welcome").target("ann");
        let outcome = scene
            .engine
            .executor()
            .execute_once(tenant, key, "hi", move || async move { Ok(said.to_owned()) })
            .await
            .unwrap();
        let expected = if *tenant == acme { "a" } else { "g" };
        assert_eq!(outcome.answer().unwrap().decode::<String>().unwrap(), expected);
    }
}

#[tokio::test]
async fn open_questions_are_shown_to_their_tenant_alone() {
    let (scene, (acme, globex)) = (Scene::new().await, tenants());
    scene.world.replies([Reply::Fail(ErrorKind::Disconnected)]);
    let Outcome::NeedsDecision { question: escalation } = scene.pay(&acme, json!({})).await else {
        panic!("not parked")
    };

    let executor = scene.engine.executor();
    assert_eq!(executor.questions(&acme).await.unwrap().len(), 1);
    assert!(executor.questions(&globex).await.unwrap().is_empty());
    let others = scene.engine.tenant("globex").unwrap();
    assert!(others.questions().await.unwrap().is_empty());
    for resolution in [Resolution::DidNotHappen, Resolution::Abandon, Resolution::Happened(json!(1))] {
        let by_executor = executor.answer(&globex, escalation, resolution.clone(), "eve").await;
        assert!(matches!(by_executor, Err(ExecError::Unanswerable { .. })), "{by_executor:?}");
        let by_engine = others.answer(escalation, resolution, "eve").await;
        assert!(matches!(by_engine, Err(RunError::Exec(ExecError::Unanswerable { .. }))), "{by_engine:?}");
    }
    // Nothing of that changed anything: the question is open, and the other tenant's call is its own.
    assert_eq!(scene.engine.tenant("acme").unwrap().questions().await.unwrap()[0].id, escalation);
    assert!(matches!(scene.pay(&acme, json!({})).await, Outcome::NeedsDecision { .. }));
    assert!(scene.pay(&globex, json!({})).await.answer().is_some());
}

#[tokio::test]
async fn runs_are_shown_to_their_tenant_alone() {
    let scene = Scene::new().await;
    let (acme, globex) = (scene.engine.tenant("acme").unwrap(), scene.engine.tenant("globex").unwrap());
    let (mine, theirs) =
        (acme.run(halve, 10).key("k").start().await, globex.run(halve, 30).key("k").start().await);
    let (mine, theirs) = (mine.unwrap(), theirs.unwrap()); // the same start key with another input is no conflict
    assert_eq!((mine.result().await.unwrap(), theirs.result().await.unwrap()), (5, 15));
    assert_ne!(mine.id(), theirs.id());

    for (tenant, run) in [(&acme, &mine), (&globex, &theirs)] {
        let runs = tenant.runs(None).await.unwrap();
        assert_eq!(runs.iter().map(|run| run.id).collect::<Vec<_>>(), [run.id()]);
        assert_eq!(runs[0].state, RunState::Succeeded);
    }
    let stolen = globex.handle::<u32>(mine.id());
    assert!(matches!(stolen.status().await, Err(RunError::Unknown { .. })));
    assert!(matches!(stolen.result().await, Err(RunError::Unknown { .. })));
}

async fn wait(ctx: Ctx, n: u32) -> Result<u32, Failure> {
    ctx.sleep(std::time::Duration::from_hours(1)).await?;
    Ok(n)
}

// M01: of a run that is still being carried out, a stranger learns as little.
#[tokio::test]
async fn a_run_under_way_gives_nothing_away() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let engine = Engine::sqlite(dir.path().join("agents.db")).clock(clock.clone()).workflow("wait", 1, wait);
    let engine = engine.start().await.unwrap();
    let mine = engine.tenant("acme").unwrap().run(wait, 41).start().await.unwrap();
    let stolen = engine.tenant("globex").unwrap().handle::<u32>(mine.id());
    let hour = std::time::Duration::from_hours(1);
    let told = tokio::spawn(async move { stolen.result().await });
    let result = tokio::spawn(async move { mine.result().await });
    clock.slept(hour).await;
    clock.advance(hour);
    assert_eq!(result.await.unwrap().unwrap(), 41);
    let told = told.await.unwrap();
    assert!(matches!(told, Err(RunError::Unknown { .. })), "{told:?}");
}
