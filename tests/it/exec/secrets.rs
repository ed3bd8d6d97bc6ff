//! Secrets reach the tool, and nothing else: no file, no log line, no message (M02, R-SCALE-7). A canary string
//! is searched for in the whole data folder, WAL included, and in everything that is traced.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once};

use counterfoil::ledger::{Basis, Contract, ContractClass, EffectClass, LookupResult};
use counterfoil::store::Resolution;
use counterfoil::tool::approval::Verdict;
use counterfoil::tool::contract::{Blind, Lookup, ReplaysKey};
use counterfoil::tool::{
    Call, Done, DynamicTool, Reconcile, RegisterError, Registry, Tool, ToolError, effect,
};
use counterfoil::{Ctx, Engine, Failure, Key, Outcome, Secret, ToolRequest};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use crate::canary;
use crate::world::{Keys, Process, Reply, TestClock, World, acme, executor};

const CANARY: &str = "canary-4111-1111-1111-1111";
const OTHER: &str = "canary-other";

/// Reads all that the crate traces, and keeps what it must not.
struct Listener;
static LEAKS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static HEARD: AtomicU32 = AtomicU32::new(0);

struct Reader(&'static str);

impl Visit for Reader {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        if text.contains("canary") {
            LEAKS.lock().unwrap().push(format!("{} {field}: {text}", self.0));
        }
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["counterfoil", "sqlx"].iter().any(|of| metadata.target().starts_with(of))
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        attributes.record(&mut Reader(attributes.metadata().name()));
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut Reader("span"));
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        HEARD.fetch_add(1, Ordering::Relaxed);
        event.record(&mut Reader(event.metadata().target()));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Listener).unwrap());
}

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
}

impl Scene {
    fn new(keys: Keys) -> Self {
        listen();
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        Self { dir, clock, world: World::new(keys) }
    }

    /// The canary is in no file of the folder and in nothing that was traced.
    fn nowhere(&self) {
        nowhere(self.dir.path());
    }
}

fn nowhere(dir: &Path) {
    canary::is_in_no_file(dir, "");
    assert!(HEARD.load(Ordering::Relaxed) > 0, "nothing was traced");
    let leaks = LEAKS.lock().unwrap();
    assert!(leaks.is_empty(), "{leaks:?}");
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Charge {
    case: String,
    card: Secret<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    id: String,
    token: Secret<String>,
}

fn charge(card: &str) -> Charge {
    Charge { case: "c1".into(), card: Secret::new(card.into()) }
}

/// A tool that takes a secret and gives one back.
macro_rules! charge_card {
    ($tool:ident, $contract:ident) => {
        struct $tool(Arc<World>);

        impl Tool for $tool {
            const NAME: &'static str = "charge";
            type Effect = effect::InternalMutation;
            type Contract = $contract;
            type Input = Charge;
            type Output = Receipt;

            fn key(&self, charge: &Charge) -> Option<Key> {
                Some(Key::of(Self::NAME).target(&charge.case))
            }

            async fn call(&self, call: &Call, charge: &Charge) -> Result<Done<Receipt>, ToolError> {
                let card = charge.card.expose().expect("the tool was called without its secret");
                self.0.request(call.key(), json!({"card": card})).await?;
                Ok(Done::new(receipt()))
            }
        }
    };
}

charge_card!(ChargeCard, Lookup);
charge_card!(ChargeOnTrust, ReplaysKey);
charge_card!(ChargeBlindly, Blind);

fn receipt() -> Receipt {
    Receipt { id: "r1".into(), token: Secret::new(CANARY.into()) }
}

impl Reconcile for ChargeCard {
    async fn reconcile(&self, call: &Call, _: &Charge) -> Result<LookupResult<Receipt>, ToolError> {
        self.0.lookup(call.key(), None).await?.try_map(|_| Ok(receipt()))
    }
}

// R-KEY-5, R-KEY-6, E09: equal secrets are equal, others are a conflict, and none is shown.
#[tokio::test]
async fn a_secret_is_bound_to_its_key_and_not_kept() {
    let scene = Scene::new(Keys::Ignores);
    let executor =
        executor(&scene.dir, &scene.clock).tool(ChargeCard(scene.world.clone())).open().await.unwrap();
    let call = async |card| executor.call::<ChargeCard>(&acme(), charge(card), None).await;
    let first = call(CANARY).await.unwrap();
    let again = call(CANARY).await.unwrap();
    assert_eq!(first.answer().unwrap().response, again.answer().unwrap().response);
    assert_eq!(first.answer().unwrap().decode::<Receipt>().unwrap().token.expose(), None);
    let conflict = call(OTHER).await.unwrap();
    let Outcome::Conflict(diff) = &conflict else { panic!("{conflict:?}") };
    assert_eq!(diff.0, json!([{"op": "replace", "path": "/card/$secret", "value": "redacted"}]));
    assert_eq!(scene.world.requests(), 1);

    // By name, as an agent loop does it; and with a secret that has not the right type.
    let by_name = |card| ToolRequest::new(acme(), "charge", json!({"case": "c1", "card": card}));
    assert_eq!(
        executor.execute(by_name(json!(CANARY))).await.unwrap().answer().unwrap().response,
        first.answer().unwrap().response
    );
    let wrong = executor.execute(by_name(json!([CANARY]))).await.unwrap();
    assert!(matches!(wrong, Outcome::Refused(_)), "{wrong:?}");
    let told = wrong.for_model();
    assert!(!format!("{told} {wrong:?}").contains("canary"), "{told}");
    scene.nowhere();
}

// R-REC-7, R-KEY-5: the payload of a plain function, too.
#[tokio::test]
async fn a_plain_function_may_take_a_secret() {
    let scene = Scene::new(Keys::Ignores);
    let executor = executor(&scene.dir, &scene.clock).open().await.unwrap();
    let once = async |card: &'static str| {
        let key = Key::of("charge_once").target("c1");
        executor.execute_once(&acme(), key, &charge(card), || async { Ok(1) }).await.unwrap()
    };
    assert!(once(CANARY).await.answer().is_some_and(|answer| answer.first));
    assert!(once(CANARY).await.answer().is_some_and(|answer| !answer.first));
    let conflict = once(OTHER).await;
    assert!(matches!(conflict, Outcome::Conflict(_)), "{conflict:?}");
    scene.nowhere();
}

/// A process dies while it charges a card; the next one finds the call.
async fn crash<T: Tool<Input = Charge>>(scene: &Scene, tool: impl Fn(Arc<World>) -> T) -> Process {
    scene.world.replies([Reply::EffectThenHang]);
    let open = || executor(&scene.dir, &scene.clock).tool(tool(scene.world.clone()));
    let process = Process::start(open()).await.unwrap();
    let executor = process.executor();
    drop(process.spawn(async move { executor.call::<T>(&acme(), charge(CANARY), None).await }));
    scene.world.requested(1).await;
    // Searched while the process lives: its death removes the WAL.
    scene.nowhere();
    process.kill();
    Process::start(open()).await.unwrap()
}

// A05: the record holds a digest, the caller the secret; together they are the same request.
#[tokio::test]
async fn a_secret_survives_a_crash_with_its_caller() {
    let scene = Scene::new(Keys::Ignores);
    let process = crash(&scene, ChargeCard).await;
    let executor = process.executor();
    let outcome = executor.call::<ChargeCard>(&acme(), charge(CANARY), None).await.unwrap();
    assert_eq!(outcome.answer().unwrap().basis, Basis::Lookup);
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
    scene.nowhere();
}

// A record holds no secret, so the engine alone sends nothing again: a tool would get a digest for a card.
#[tokio::test]
async fn a_call_is_never_sent_without_its_secret() {
    let scene = Scene::new(Keys::Honours);
    let process = crash(&scene, ChargeOnTrust).await;
    let executor = process.executor();
    process.spawn(process.executor().shutdown(std::time::Duration::from_secs(1000))).await.unwrap();
    assert_eq!(scene.world.requests(), 1);
    let open = executor.questions(&acme()).await.unwrap();
    assert_eq!(open.len(), 1, "left without a question");
    assert!(open[0].question.contains("takes what its caller had"), "{}", open[0].question);
    scene.nowhere();
}

#[tokio::test]
async fn an_open_question_shows_no_secret() {
    let scene = Scene::new(Keys::Ignores);
    let process = crash(&scene, ChargeBlindly).await;
    let executor = process.executor();
    let outcome = executor.call::<ChargeBlindly>(&acme(), charge(CANARY), None).await.unwrap();
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    let shown = format!("{:?} {:?}", executor.questions(&acme()).await.unwrap(), executor.tools());
    assert!(!shown.contains("canary") && shown.contains("Ambiguous"), "{shown}");
    assert_eq!(executor.tools()[0].contract.class, ContractClass::Blind);
    scene.nowhere();
}

async fn order(ctx: Ctx, order: Charge) -> Result<String, Failure> {
    // A run is resumed from its record, which holds no secret; so it has none from the beginning.
    assert_eq!(order.card.expose(), None);
    let last_four =
        ctx.step("last four", &charge(CANARY), |charge| charge.card.expose().map(String::len)).await?;
    assert_eq!(last_four, Some(CANARY.len()));
    let kept = ctx.step("kept", &1, |_| Secret::new(CANARY.to_owned())).await?;
    assert_eq!(kept.expose(), None); // as on a resume
    Ok(ctx.call::<ChargeCard>(charge(CANARY)).await?.id)
}

// M02: workflow inputs, step inputs and results, tool inputs and results.
#[tokio::test]
async fn a_run_keeps_no_secret() {
    let scene = Scene::new(Keys::Ignores);
    let engine = Engine::sqlite(scene.dir.path().join("agents.db"))
        .workflow("order", 1, order)
        .tool(ChargeCard(scene.world.clone()))
        .start()
        .await
        .unwrap();
    let acme = engine.tenant("acme").unwrap();
    assert_eq!(acme.run(order, charge(CANARY)).key("k").await.unwrap(), "r1");
    assert_eq!(acme.run(order, charge(CANARY)).key("k").await.unwrap(), "r1");
    let conflict = acme.run(order, charge(OTHER)).key("k").await.unwrap_err();
    assert!(conflict.to_string().contains("another input"), "{conflict}");
    assert!(!format!("{conflict} {conflict:?}").contains("canary"), "{conflict:?}");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
    scene.nowhere();
    engine.shutdown(std::time::Duration::from_secs(1)).await;
    scene.nowhere();
}

/// A tool that is put together at run time, and that keeps neither the card nor the token.
fn redacting(world: Arc<World>, class: ContractClass) -> DynamicTool {
    DynamicTool::new("charge", EffectClass::InternalMutation, Contract::new(class))
        .key(|input| Some(Key::of("charge").target(input["case"].as_str()?)))
        .policy("cards", 1, |input| {
            if input["card"]["number"].is_string() {
                Verdict::Allow
            } else {
                Verdict::refuse("there is no card")
            }
        })
        .redact(["/card/number"])
        .redact_output(["/token"])
        .call(move |call, input| {
            let world = world.clone();
            async move {
                if input["cents"] == 0 {
                    return Err(ToolError::refused(format!(
                        "the card {} is declined",
                        input["card"]["number"]
                    )));
                }
                world.request(call.key(), input).await?;
                Ok(Done::new(json!({ "id": "r1", "token": CANARY })))
            }
        })
}

fn redacted(case: &str, card: &str, cents: u32) -> ToolRequest {
    let card = json!({ "number": card, "holder": "Ann" });
    ToolRequest::new(acme(), "charge", json!({ "case": case, "card": card, "cents": cents }))
}

// SCALE-7: redaction by field, before anything is stored.
#[tokio::test]
async fn a_redacted_field_reaches_the_tool_and_nothing_else() {
    let scene = Scene::new(Keys::Ignores);
    let charge = redacting(scene.world.clone(), ContractClass::Blind);
    let executor = executor(&scene.dir, &scene.clock).dynamic_tool(charge).open().await.unwrap();
    let call = async |card, cents| executor.execute(redacted("c1", card, cents)).await.unwrap();
    let first = call(CANARY, 5).await;
    let output = first.answer().unwrap().response.value().unwrap();
    assert_eq!(output, json!({ "id": "r1", "token": { "$secret": "redacted" } }));
    assert_eq!(call(CANARY, 5).await.answer().unwrap().response.value().unwrap(), output);
    let Outcome::Conflict(diff) = call(OTHER, 5).await else { panic!("another card is another request") };
    assert_eq!(diff.0, json!([{"op": "replace", "path": "/card/number/$secret", "value": "redacted"}]));
    assert_eq!(scene.world.requests(), 1);

    let declined = executor.execute(redacted("c2", CANARY, 0)).await.unwrap();
    let Outcome::Failed(failure) = &declined else { panic!("{declined:?}") };
    assert_eq!(failure.message, "the card \"…\" is declined");
    assert!(!format!("{first:?} {declined:?}").contains("canary"), "{first:?} {declined:?}");
    scene.nowhere();
}

// The engine alone would send a digest in place of the card.
#[tokio::test]
async fn a_call_with_a_redacted_field_is_sent_again_by_its_caller_alone() {
    let scene = Scene::new(Keys::Honours);
    scene.world.replies([Reply::EffectThenHang]);
    let open = || {
        let charge = redacting(scene.world.clone(), ContractClass::ReplaysKey);
        executor(&scene.dir, &scene.clock).dynamic_tool(charge)
    };
    let process = Process::start(open()).await.unwrap();
    let executor = process.executor();
    drop(process.spawn(async move { executor.execute(redacted("c1", CANARY, 5)).await }));
    scene.world.requested(1).await;
    scene.nowhere();
    process.kill();
    let process = Process::start(open()).await.unwrap();
    process.spawn(process.executor().shutdown(std::time::Duration::from_secs(1000))).await.unwrap();
    drop(process);
    assert_eq!(scene.world.requests(), 1, "nothing is sent without the card");
    let process = Process::start(open()).await.unwrap();
    let executor = process.executor();
    let outcome = executor.execute(redacted("c1", CANARY, 5)).await.unwrap();
    let Outcome::NeedsDecision { question } = outcome else { panic!("{outcome:?}") };
    executor.answer(&acme(), question, Resolution::DidNotHappen, "ann").await.unwrap();
    let outcome = executor.execute(redacted("c1", CANARY, 5)).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 2));
    scene.nowhere();
}

#[test]
fn a_field_to_redact_is_a_pointer_or_the_tool_is_refused() {
    for wrong in ["card", "", "/card~2"] {
        let tool = redacting(World::new(Keys::Ignores), ContractClass::Blind).redact([wrong]);
        let refused = tool.register(&mut Registry::default()).unwrap_err();
        assert!(
            matches!(&refused, RegisterError::NoFieldToRedact { field, .. } if field == wrong),
            "{refused}"
        );
    }
}
