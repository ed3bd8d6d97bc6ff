//! A call whose worker has given it up is taken up by whichever worker its run goes on with, while the first one lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil::exec::Wait;
use counterfoil::flow::{EngineBuilder, RunError};
use counterfoil::ledger::{self, Backoff, ContractClass, ErrorKind, LookupResult, RetryPolicy};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key, Outcome, Tenant, ToolRequest};

use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

const SETTLE: Duration = Duration::from_secs(1);

/// Its first send fails, and nobody knows whether it happened. It did not.
#[derive(Clone)]
struct Remind {
    world: Arc<World>,
    /// Its lookup does not answer.
    is_down: Arc<AtomicBool>,
}

impl Remind {
    fn new(world: &Arc<World>, is_down: bool) -> Self {
        Self { world: world.clone(), is_down: Arc::new(AtomicBool::new(is_down)) }
    }
}

impl Tool for Remind {
    const NAME: &'static str = "remind";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = u32;

    fn contract(&self) -> ledger::Contract {
        ledger::Contract::new(ContractClass::Lookup).settle(SETTLE)
    }

    fn retry(&self) -> RetryPolicy {
        let backoff = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
        RetryPolicy { attempts: 3, backoff, attempt_timeout: SETTLE, ..RetryPolicy::default() }
    }

    fn lookups(&self) -> ledger::LookupPolicy {
        ledger::LookupPolicy { attempts: 1, ..ledger::LookupPolicy::default() }
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<u32>, ToolError> {
        self.world.pass("remind").await;
        if self.world.count("sent") == 1 {
            return Err(ToolError::new(ErrorKind::Server, "HTTP 500"));
        }
        Ok(Done::new(self.world.happen("remind", call.key(), what)))
    }
}

impl Reconcile for Remind {
    async fn reconcile(&self, _: &Call, _: &String) -> Result<LookupResult<u32>, ToolError> {
        self.world.count("looked up");
        if self.is_down.load(Ordering::SeqCst) {
            return Err(ToolError::new(ErrorKind::Server, "HTTP 503"));
        }
        let reminded = u32::try_from(self.world.effects("remind").len()).unwrap();
        let found = LookupResult::Committed { output: reminded, external_ref: None };
        Ok(if reminded == 0 { LookupResult::NotFound } else { found })
    }
}

async fn reminds(ctx: Ctx, what: String) -> Result<u32, Failure> {
    ctx.call::<Remind>(what).await
}

struct Scene {
    world: Arc<World>,
    tool: Remind,
    one: Process,
    other: Process,
    _schema: Schema,
}

/// An engine in this schema, with the tools of the world.
fn engine(world: &Arc<World>, schema: &Schema) -> EngineBuilder {
    let engine = Engine::postgres_with(crate::server::url(), schema.options());
    world.equip(engine, &world.tap).lease(Duration::from_secs(2)).workflow("reminds", 1, reminds)
}

impl Scene {
    fn new(is_down: bool) -> Self {
        let (world, schema) = (World::new(), Schema::new());
        let tool = Remind::new(&world, is_down);
        let start = || Process::start(&world, engine(&world, &schema).tool(tool.clone()));
        let (one, other) = (start(), start());
        Self { world, tool, one, other, _schema: schema }
    }

    fn shut_down(self) {
        assert_eq!(self.world.effects("remind"), ["tea"], "it is done once");
        self.one.shut_down();
        self.other.shut_down();
    }
}

// A question is withdrawn by the look of another worker than the one that asked.
#[test]
fn a_question_that_another_worker_withdraws_leaves_its_run_to_anybody() {
    let scene = Scene::new(true);
    let Scene { one, other, .. } = &scene;
    let (run, question) = one.on(async {
        let run = one.acme().run(reminds, "tea".to_owned()).start().await.unwrap().id();
        one.state(run, "waiting").await;
        (run, one.question(QuestionKind::Ambiguous).await.id)
    });
    scene.tool.is_down.store(false, Ordering::SeqCst);
    other.on(other.acme().answer(question, Resolution::LookNow, "ann").into_future()).unwrap();
    assert_eq!(other.on(other.acme().handle::<u32>(run).result()).unwrap(), 1);
    scene.shut_down();
}

// A run is paused while its call is looked up, and goes on elsewhere.
#[test]
fn a_call_that_a_paused_run_has_left_is_taken_up_where_it_goes_on() {
    let scene = Scene::new(false);
    let Scene { world, one, other, .. } = &scene;
    let run = one.on(async {
        let run = one.acme().run(reminds, "tea".to_owned()).start().await.unwrap();
        world.counts("looked up", 1).await;
        run.id()
    });
    let elsewhere = other.acme().handle::<u32>(run);
    other.on(async {
        elsewhere.pause("ann", "a holiday").await.unwrap();
        let paused = elsewhere.result().await;
        assert!(matches!(paused, Err(RunError::Blocked { .. })), "{paused:?}");
        elsewhere.resume("ann", "it is over").await.unwrap();
    });
    assert_eq!(other.on(elsewhere.result()).unwrap(), 1);
    scene.shut_down();
}

fn request(tool: &str, what: &str, wait: Wait) -> ToolRequest {
    let acme = Tenant::new("acme").unwrap();
    ToolRequest::new(acme, tool, what.into()).key(Key::of(tool).target(what)).wait(wait)
}

// Who asked a person because it does not know the tool is not dead: what it has under way stays its own.
#[test]
fn a_worker_whose_question_is_withdrawn_is_not_taken_for_dead() {
    let (world, schema) = (World::new(), Schema::new());
    let knowing = || Process::start(&world, engine(&world, &schema).tool(Remind::new(&world, false)));
    let dying = knowing();
    world.hold("remind");
    dying.on(async {
        let executor = dying.engine().executor().clone();
        dying.spawn(async move { executor.execute(request("remind", "tea", Wait::ForOutcome)).await });
        world.reached("remind").await;
    });
    dying.crash();
    world.release("remind");
    let one = Process::start(&world, engine(&world, &schema)); // an older build, say
    one.on(one.until(async |acme| !acme.questions().await.unwrap().is_empty()));
    one.on(one.question(QuestionKind::UnknownTool));
    world.hold("post before milk");
    let executor = one.engine().executor().clone();
    let posting = one.spawn(async move { executor.execute(request("post", "milk", Wait::ForOutcome)).await });
    one.on(world.reached("post before milk"));
    let other = knowing();
    other.on(async {
        let executor = other.engine().executor();
        let reminded = executor.execute(request("remind", "tea", Wait::ForOutcome)).await.unwrap();
        assert!(reminded.answer().is_some(), "{reminded:?}");
        let posted = executor.execute(request("post", "milk", Wait::No)).await.unwrap();
        assert!(matches!(posted, Outcome::InProgress), "{posted:?}");
    });
    world.release("post before milk");
    assert!(one.on(posting).unwrap().unwrap().answer().is_some());
    assert_eq!((world.effects("remind"), world.effects("post")), (vec!["tea".into()], vec!["milk".into()]));
    one.shut_down();
    other.shut_down();
}
