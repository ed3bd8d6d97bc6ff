//! What a model writes is not believed: malformed, unknown, hostile and huge proposals are told back to it, bounded, and
//! cost a turn. No run is lost, and no key is reached (HAZARDS L11).

use counterfoil::agent::{AgentAnswer, Finish, Message, Proposal, Reply, Usage};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::agent::models::{Asked, bill, call, engine, spoken, told};
use crate::flow::tools::{Pay, Post};
use crate::flow::world::{Process, World};

/// A tool whose author trusted its input.
struct Trusting;

#[derive(Serialize, Deserialize, JsonSchema)]
struct Words {
    words: String,
}

impl Tool for Trusting {
    const NAME: &'static str = "trusting";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = Words;
    type Output = String;

    fn key(&self, input: &Words) -> Option<Key> {
        assert!(input.words != "panic", "who would write that?");
        Some(Key::of(Self::NAME).target(&input.words))
    }

    async fn call(&self, call: &Call, _: &Words) -> Result<Done<String>, ToolError> {
        Ok(call.operation_key().to_string().into())
    }
}

async fn victim(ctx: Ctx, (): ()) -> Result<AgentAnswer, Failure> {
    ctx.agent("m").tool::<Post>().tool::<Pay>().tool::<Trusting>().run([Message::user("go")]).await
}

fn raw(tool: &str, arguments: impl Into<String>) -> Proposal {
    let mut proposal = call(tool, json!({}));
    proposal.arguments = arguments.into();
    proposal
}

/// What the model is told about one proposal; the run goes on to its end.
fn told_about(world: &std::sync::Arc<World>, proposals: Vec<Proposal>) -> Vec<String> {
    let replies = [Reply::calls(proposals), Reply::text("done")];
    let process = Process::start(world, engine(world, replies).tool(Trusting).workflow("victim", 1, victim));
    let answer = process.on(async { process.acme().run(victim, ()).await.unwrap() });
    process.shut_down();
    assert_eq!(answer.text, "done");
    told(&answer.messages)
}

#[test]
fn hostile_proposals_are_told_back() {
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let cases = [
        (raw("post", "{\"input\": \"a"), "JSON"),
        (raw("post", "[]"), "no JSON object"),
        (raw("post", ""), "\"input\" is missing"),
        (raw("post", "null"), "no JSON object"),
        (raw("post", "{\"input\": 7}"), "string"),
        (raw("post", "{\"input\": \"a\", \"input\": \"b\"}"), "twice"),
        (raw("post", format!("{{\"input\": {}}}", deep(1000))), "deep"),
        (raw("post", format!("{{\"input\": \"{}\"}}", "x".repeat(10_000_000))), "at most"),
        (raw("pay", "{\"reference\": \"r\", \"cents\": -1}"), "`-1`, expected u32"),
        (raw("pay", "{\"reference\": \"r\", \"cents\": 9007199254740993}"), "2^53"),
        (raw("pay", "{\"reference\": \"r\", \"cents\": 1e400}"), "error"),
        (raw("pay", "{\"reference\": \"\", \"cents\": 1}"), "empty"),
        (raw("pay", "{\"reference\": \"a\\u0000b\", \"cents\": 1}"), "control character"),
        (raw("pay", format!("{{\"reference\": \"{}\", \"cents\": 1}}", "x".repeat(5000))), "512"),
        (raw("trusting", "{\"words\": \"panic\"}"), "cannot read"),
        (raw("rm -rf", "{}"), "no tool \"rm -rf\"; there are: post, pay, trusting"),
        (raw(&"x".repeat(1_000_000), "{}"), "no tool"),
        (raw("model/m", "{}"), "no tool"),
        (raw("", "{}"), "no tool"),
    ];
    let world = World::new();
    let (proposals, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let told = told_about(&world, proposals);
    assert_eq!(told.len(), expected.len());
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with("error: ") && told.contains(expected), "{told:?} should say {expected:?}");
        assert!(told.len() < 4096, "{} bytes", told.len());
    }
    assert!(world.see(|seen| seen.effects.is_empty()));
}

// L11: "retry with a new key". There is no argument that is one; parts of a key that look like another's are escaped.
#[test]
fn no_argument_reaches_another_key() {
    let world = World::new();
    let paid = || call("pay", bill("rent", 100));
    let mut with_key = bill("rent", 100);
    with_key["idempotency_key"] = json!("new");
    let told = told_about(
        &world,
        vec![
            paid(),
            call("pay", with_key),
            call("pay", bill("rent:~revision:1", 100)),
            call("trusting", json!({ "words": "rent" })),
            call("trusting", json!({ "words": "~tenant:pay:ann:rent" })),
        ],
    );
    assert!(told[1].contains("no argument \"idempotency_key\""), "{told:?}");
    assert_eq!(
        world.effects("pay"),
        ["rent 100", "rent:~revision:1 100"],
        "another bill, and not a revision"
    );
    assert_eq!(told[3], "trusting:rent");
    assert_eq!(told[4], "trusting:%7Etenant%3Apay%3Aann%3Arent");
}

// A repaired call is the call that was meant: once.
#[test]
fn a_repaired_call_is_made_once() {
    let world = World::new();
    let replies = [
        Reply::calls([raw("pay", "{\"reference\": \"rent\", \"cents\": \"100\"}")]),
        Reply::calls([raw("pay", "{\"reference\": \"rent\", \"cents\": 100}")]),
        Reply::calls([raw("pay", " {\"cents\": 1.0e2, \"reference\": \"rent\"} ")]),
        Reply::text("done"),
    ];
    let process =
        Process::start(&world, engine(&world, replies).tool(Trusting).workflow("victim", 1, victim));
    let answer = process.on(async { process.acme().run(victim, ()).await.unwrap() });
    assert_eq!(world.effects("pay"), ["rent 100"]);
    assert!(told(&answer.messages)[0].contains("expected u32"), "{answer:?}");
}

// A reply beyond all bounds is cut before it is recorded, and its numbers are what JSON carries.
#[test]
fn a_reply_beyond_all_bounds_costs_a_turn() {
    let world = World::new();
    let model = Asked::by(&world, |prompt| {
        if spoken(prompt) > 0 {
            return Ok(Reply::text("y".repeat(20_000_000)));
        }
        let mut calls: Vec<_> = (0..500).map(|i| call("post", json!({ "input": format!("{i}") }))).collect();
        calls[0].id = "z".repeat(1_000_000);
        Ok(Reply { text: "x\u{0}".repeat(5_000_000), ..Reply::calls(calls) })
    });
    let builder = world.engine().model("m", model).tool(Trusting).workflow("victim", 1, victim);
    let process = Process::start(&world, builder);
    let answer = process.on(async { process.acme().run(victim, ()).await.unwrap() });
    assert_eq!((answer.turns, answer.finish), (2, Finish::Done));
    assert_eq!(world.effects("post").len(), 63);
    assert!(told(&answer.messages)[63].contains("500 calls in one turn, 64 at most"));
    assert!(answer.text.ends_with("[cut: 20000000 bytes in all]"));
    assert_eq!(answer.usage, Usage { calls: 2, input_tokens: 200, output_tokens: 20, cost_micros: 10 });
}

/// Prints what no ledger keeps.
struct Print;

impl Tool for Print {
    const NAME: &'static str = "print";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = Words;
    type Output = String;

    async fn call(&self, _: &Call, _: &Words) -> Result<Done<String>, ToolError> {
        Ok(Done::new("x".repeat(5_000_000)).external_ref("page-1"))
    }
}

async fn printer(ctx: Ctx, (): ()) -> Result<AgentAnswer, Failure> {
    ctx.agent("m").tool::<Print>().run([Message::user("go")]).await
}

// A response over the limit is told to the model as an error: the call happened, and is not made again.
#[test]
fn a_response_over_the_limit_is_told_to_the_model() {
    let world = World::new();
    let replies = [Reply::calls([call("print", json!({ "words": "all" }))]), Reply::text("done")];
    let process = Process::start(&world, engine(&world, replies).tool(Print).workflow("printer", 1, printer));
    let answer = process.on(async { process.acme().run(printer, ()).await.unwrap() });
    process.shut_down();
    let told = told(&answer.messages);
    for words in ["error: print", "happened", "5000002 bytes", "page-1"] {
        assert!(told[0].contains(words), "{words}: {told:?}");
    }
}
