//! Input that nobody in their right mind sends: each gets its own clear error or is carried out, and nothing
//! else is lost (HAZARDS D02, D13, E03, E10, F03, F15).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::IdError;
use counterfoil::exec::{ExecError, RequestError, StartError};
use counterfoil::flow::RunError;
use counterfoil::ledger::{Contract, ContractClass, EffectClass, ErrorKind, KeyError, Retention};
use counterfoil::tool::{Done, DynamicTool};
use counterfoil::{Ctx, Engine, Executor, Failure, Key, Outcome, PayloadError, Tenant, ToolRequest};
use serde_json::{Value, json};

use crate::world::{Keys, Reply, TestClock, World, acme, brief, executor, request};

/// Text that breaks what is put together from text.
const NASTY: [&str; 12] = [
    "'; DROP TABLE record; --",
    "\" OR 1=1 --",
    "%s%n{}${7*7}",
    "../../etc/passwd",
    "a:b~c%41",
    "\u{202e}txt.exe",
    "😀🏳️‍🌈",
    "e\u{301}",
    "\u{e9}",
    " ",
    "NULL",
    "@0000",
];

struct Scene {
    dir: tempfile::TempDir,
    world: Arc<World>,
    executor: Executor,
}

impl Scene {
    async fn new() -> Self {
        let (dir, world) = (tempfile::tempdir().unwrap(), World::new(Keys::Ignores));
        let tool = world.tool("pay_out", EffectClass::InternalMutation, Contract::new(ContractClass::Lookup));
        let executor = executor(&dir, &TestClock::breathing()).dynamic_tool(tool.retry(brief()));
        Self { executor: executor.open().await.unwrap(), dir, world }
    }

    async fn refused(&self, request: ToolRequest) -> RequestError {
        let outcome = self.executor.execute(request).await.unwrap();
        assert!(outcome.for_model().is_error, "{outcome:?}");
        let Outcome::Refused(error) = outcome else { panic!("{outcome:?}") };
        assert_eq!(self.world.requests(), 0, "{error}");
        self.goes_on().await;
        *error
    }

    /// A normal call still works, and is still there when it is made again.
    async fn goes_on(&self) {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let case = CALLS.fetch_add(1, Ordering::Relaxed);
        for first in [true, false] {
            let key = Key::of("normal").target(case);
            let outcome =
                self.executor.execute_once(&acme(), key, "normal", || async { Ok(7) }).await.unwrap();
            let answer = outcome.answer().unwrap();
            assert_eq!((answer.first, answer.response.as_str()), (first, "7"));
        }
    }
}

fn input(input: Value) -> ToolRequest {
    ToolRequest::new(acme(), "pay_out", input).key(Key::of("pay_out").target("c1"))
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

// E10, E03: refused before anything is recorded, and the message says what to do.
#[tokio::test]
async fn a_payload_that_cannot_be_carried_exactly_is_refused() {
    let scene = Scene::new().await;
    let huge = "x".repeat(10_000_000);
    let cases: [(Value, &str); 5] = [
        (json!({"blob": huge}), "10000011 bytes, 4194304 at most: store it elsewhere"),
        (nested(1000), "nests deeper than 127 levels: flatten it"),
        (json!({"order": [{"id": 9_007_199_254_740_993_u64}]}), "9007199254740993 at $.order[0].id"),
        (json!({"id": i64::MIN}), "-9223372036854775808 at $.id"),
        (json!(u64::MAX), "at $ is beyond 2^53 - 1"),
    ];
    for (payload, says) in cases {
        let error = scene.refused(input(payload)).await;
        assert!(matches!(error, RequestError::Payload(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("nothing was recorded or sent: ") && text.contains(says), "{text:.200}");
    }
    let key = Key::of("pay_out").target("c1").render().unwrap();
    assert!(scene.executor.record(&acme(), &key).await.unwrap().is_none());
    // Two neighbours beyond 2^53 must not pass for one request: both are refused, and neither is rounded.
    assert!(matches!(
        scene.executor.execute_once(&acme(), Key::of("k").target("t"), &u64::MAX, || async { Ok(1) }).await,
        Err(ExecError::Payload(PayloadError::InexactInteger { .. }))
    ));
}

// D02, D13: bound, escaped, kept apart; each text is its own key, its own tenant, its own input.
#[tokio::test]
async fn nasty_text_is_only_text() {
    let scene = Scene::new().await;
    let mut effects = 0;
    for tenant in NASTY {
        let tenant = Tenant::new(tenant).unwrap();
        for text in NASTY {
            let request =
                ToolRequest::new(tenant.clone(), "pay_out", json!({"case": text, text: [text, "\u{0}"]}));
            for first in [true, false] {
                let outcome = scene.executor.execute(request.clone().call_id(text)).await.unwrap();
                let answer = outcome.answer().unwrap_or_else(|| panic!("{tenant} {text}: {outcome:?}"));
                assert_eq!(answer.first, first, "{tenant} {text}");
                assert_eq!(answer.response.value().unwrap()["body"][text], json!([text, "\u{0}"]));
            }
            effects += 1;
            let key = Key::of("pay_out").target(text).render().unwrap();
            let (record, _) = scene.executor.record(&tenant, &key).await.unwrap().unwrap();
            assert_eq!((record.tenant, record.key), (tenant.clone(), key));
        }
    }
    assert_eq!((scene.world.count(), scene.world.wire_keys().len()), (effects, effects));
    let wire = scene.world.wire_keys().concat();
    assert!(wire.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{wire}"); // R-KEY-7
}

// R-KEY-1: empty, too long, control characters.
#[tokio::test]
async fn names_that_cannot_be_part_of_a_key_are_refused() {
    let scene = Scene::new().await;
    let keyed = |key| request("pay_out").key(key);
    for (key, says) in [
        (Key::of("pay_out"), "the key's target is empty"),
        (Key::of("pay_out").target(""), "the key's target is empty"),
        (Key::of("").target("c1"), "the key's operation type is empty"),
        (Key::of("pay_out").target("a\u{0}b"), "the key's target holds a control character"),
        (Key::of("pay_out").target("c1").operation("a\r\nX-Evil: 1"), "the key's operation holds a control"),
        (Key::of("pay_out").target("x".repeat(600)), "608 bytes, 512 at most: shorten its parts"),
    ] {
        let error = scene.refused(keyed(key)).await;
        assert!(error.to_string().contains(says), "{error}");
    }
    let long = Key::of("pay_out").target("x".repeat(600)).hashed();
    assert!(scene.executor.execute(keyed(long)).await.unwrap().answer().is_some());

    assert!(matches!(Tenant::new(""), Err(IdError::Empty { .. })));
    assert!(matches!(Tenant::new("a\u{0}"), Err(IdError::Control { .. })));
    assert!(matches!(Tenant::new("x".repeat(10_000)), Err(IdError::TooLong { .. })));
}

#[tokio::test]
async fn a_tool_that_is_not_there_or_has_no_key_is_refused() {
    let scene = Scene::new().await;
    for name in NASTY.into_iter().chain(["", "pay\u{0}out", "PAY_OUT"]) {
        let error = scene.refused(request(name)).await;
        assert!(matches!(error, RequestError::UnknownTool { .. }), "{error:?}");
    }
    let error = scene.refused(ToolRequest::new(acme(), "pay_out", json!({"no": "case"}))).await;
    assert!(matches!(error, RequestError::NoKey { .. }), "{error:?}");
    let once =
        scene.executor.execute_once(&acme(), Key::of("a\u{7}b").target("c"), &1, || async { Ok(1) }).await;
    assert!(
        matches!(
            once,
            Err(ExecError::Request(RequestError::Key(KeyError::Empty { .. } | KeyError::Control { .. })))
        ),
        "{once:?}"
    );
}

// F15: a large answer is kept beside the row; one over the limit is recorded by its digest and size, and is not asked for again.
#[tokio::test]
async fn a_huge_answer_is_recorded_as_committed() {
    let scene = Scene::new().await;
    let large = "y".repeat(1_000_000);
    scene.world.replies([Reply::AnswerWith(json!(large)), Reply::AnswerWith(json!("z".repeat(10_000_000)))]);
    for _ in 0..2 {
        let outcome = scene.executor.execute(input(json!({"case": "large"}))).await.unwrap();
        assert_eq!(outcome.answer().unwrap().response.value().unwrap(), json!(large)); // beside the row
    }
    for _ in 0..2 {
        let outcome =
            scene.executor.execute(request("pay_out").key(Key::of("huge").target("c1"))).await.unwrap();
        let Outcome::ResponseTooLarge(response) = outcome else { panic!("{outcome:?}") };
        assert_eq!((response.bytes, response.limit), (10_000_002, 4 << 20));
        assert!(response.external_ref.is_some());
    }
    assert_eq!((scene.world.count(), scene.world.requests()), (2, 2));
    scene.goes_on().await;
}

// F03: the effect is there, its answer cannot be written down. Not failed, and not sent again.
#[tokio::test]
async fn an_answer_that_cannot_be_recorded_leaves_the_call_ambiguous() {
    let scene = Scene::new().await;
    for (case, answer) in [("deep", nested(1000)), ("inexact", json!({"id": u64::MAX}))] {
        scene.world.replies([Reply::AnswerWith(answer)]);
        let before = scene.world.count();
        let outcome =
            scene.executor.execute(ToolRequest::new(acme(), "pay_out", json!({"case": case}))).await;
        let outcome = outcome.unwrap();
        assert!(outcome.answer().is_some(), "{outcome:?}"); // the lookup told it in other words
        assert_eq!((scene.world.count(), scene.world.requests()), (before + 1, before + 1), "{case}");
    }
    scene.goes_on().await;
}

// A tool registered twice, or with a class that its contract does not satisfy: nothing is opened.
#[tokio::test]
async fn an_unsafe_tool_is_refused_at_registration() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::new(Keys::Ignores));
    let tool = |name: &str, effect, contract| world.tool(name, effect, contract);
    let lookup = Contract::new(ContractClass::Lookup);
    let without_lookup = || {
        DynamicTool::new("t", EffectClass::Payment, lookup.clone())
            .call(|_, _| async { Ok(Done::new(json!(1))) })
    };
    let refused: [(Vec<DynamicTool>, &str); 6] = [
        (
            vec![
                tool("t", EffectClass::Draft, lookup.clone()),
                tool("t", EffectClass::Draft, lookup.clone()),
            ],
            "a tool named \"t\" is registered already",
        ),
        (
            vec![tool("t", EffectClass::Payment, Contract::new(ContractClass::Blind))],
            "a payment cannot be sent to a blind provider",
        ),
        (vec![without_lookup()], "needs a lookup: give the tool a `reconcile`"),
        (
            vec![tool("t", EffectClass::Draft, lookup.clone().key_max_len(21))],
            "keys of 21 characters cannot be unique",
        ),
        (
            vec![
                tool("t", EffectClass::Draft, lookup.clone())
                    .retention(Retention::forget_after(Duration::from_secs(1))),
            ],
            "the record is kept for 1s, but retries may come",
        ),
        (vec![tool("t\u{0}", EffectClass::Draft, lookup.clone())], "holds a control character"),
    ];
    for (tools, says) in refused {
        let builder = Executor::sqlite(dir.path().join("agents.db"));
        let error =
            tools.into_iter().fold(builder, counterfoil::exec::ExecutorBuilder::dynamic_tool).open().await;
        let error = error.unwrap_err();
        assert!(matches!(error, StartError::Register(_)), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was created");
}

async fn echo(_: Ctx, text: String) -> Result<String, Failure> {
    Ok(text)
}

async fn shout(_: Ctx, text: String) -> Result<String, Failure> {
    Ok(text.to_uppercase())
}

#[tokio::test]
async fn two_workflows_of_one_name_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = || Engine::sqlite(dir.path().join("agents.db")).workflow("echo", 1, echo);
    for (engine, says) in [
        (engine().workflow("echo", 1, shout), "there is a version 1 of it"),
        (engine().workflow("other", 1, echo), "the same function is registered under another name"),
        (engine().workflow("", 1, shout), "empty"),
        (engine().workflow("a\nb", 1, shout), "control character"),
    ] {
        let error = engine.start().await.unwrap_err();
        assert!(matches!(error, StartError::Workflow { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(
        engine().start().await.unwrap().tenant("acme").unwrap().run(echo, "a".into()).await.unwrap(),
        "a"
    );
}

// D13: run keys and workflow inputs.
#[tokio::test]
async fn nasty_runs_are_only_runs() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::sqlite(dir.path().join("agents.db")).workflow("it's; DROP TABLE run", 1, echo);
    let acme = engine.start().await.unwrap().tenant("acme").unwrap();
    for text in NASTY.into_iter().chain(["a\u{0}b"]) {
        for _ in 0..2 {
            assert_eq!(
                acme.run(echo, text.to_owned()).key(format!("k{text}")).await.unwrap(),
                text,
                "{text:?}"
            );
        }
    }
    assert_eq!(acme.runs(None).await.unwrap().len(), NASTY.len() + 1);
    let large = "x".repeat(10_000_000);
    let refused = acme.run(echo, large).key("large").await.unwrap_err();
    assert!(matches!(refused, RunError::Payload(PayloadError::TooLarge { .. })), "{refused}");
    assert_eq!(acme.run(echo, "small".into()).key("large").await.unwrap(), "small"); // the key is not used up
}

// A tool whose error is as hostile as its input.
#[tokio::test]
async fn a_nasty_error_message_is_only_a_message() {
    let scene = Scene::new().await;
    for text in NASTY.into_iter().chain(["a\u{0}b"]) {
        let fail = move || async move {
            Err::<u8, _>(counterfoil::tool::ToolError::new(ErrorKind::Validation, text))
        };
        let key = Key::of("fails").target(text.replace('\u{0}', "0"));
        let outcome = scene.executor.execute_once(&acme(), key, text, fail).await.unwrap();
        let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.message, text);
    }
    assert!(scene.dir.path().join("agents.db").exists());
    scene.goes_on().await;
}
