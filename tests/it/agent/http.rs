//! A model over HTTP: the protocol, every way in which an answer fails, and crashes all over a conversation.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::agent::{
    AgentAnswer, ChatCompletions, Finish, Message, Model, Prices, Prompt, Reply, Usage,
};
use counterfoil::flow::RunError;
use counterfoil::ledger::{Backoff, ErrorKind, RetryPolicy};
use counterfoil::tool::{Call, ToolError};
use counterfoil::{Ctx, Engine, Failure};
use serde_json::json;

use crate::agent::crash::case_agent::books::Books;
use crate::agent::crash::case_agent::{COMPLAINT, case_agent, equipped, script};
use crate::agent::models::{call, spoken, told};
use crate::agent::server::{Fault, Server};
use crate::flow::tools::Post;
use crate::flow::world::{Process, World};

/// The endpoint's model, asked again at once.
struct Quick(ChatCompletions, u32);

impl Model for Quick {
    async fn complete(&self, call: &Call, prompt: &Prompt) -> Result<Reply, ToolError> {
        self.0.complete(call, prompt).await
    }

    fn retry(&self) -> RetryPolicy {
        let backoff = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
        RetryPolicy { attempts: self.1, backoff, ..self.0.retry() }
    }
}

fn model(server: &Server) -> ChatCompletions {
    let prices = Prices { input_micros: 2_000_000, output_micros: 30_000_000 };
    ChatCompletions::at(server.url(), "scripted").unwrap().key("sk-secret").prices(prices)
}

/// Posts two things at once, then says so.
fn posting(prompt: &Prompt) -> Reply {
    let post = |what: &str, id: &str| call("post", json!({ "input": what })).id(id);
    match spoken(prompt) {
        0 => Reply::calls([post("a", "x"), post("b", "y")]).usage(Usage::tokens(1000, 100)),
        _ => Reply::text("both are out").usage(Usage::tokens(2000, 50)),
    }
}

async fn poster(ctx: Ctx, (): ()) -> Result<AgentAnswer, Failure> {
    let agent = ctx.agent("m").tool::<Post>();
    agent.run([Message::system("You post."), Message::user("go")]).await
}

fn start(world: &Arc<World>, server: &Server, attempts: u32) -> Process {
    let builder = world.engine().model("m", Quick(model(server), attempts)).workflow("poster", 1, poster);
    Process::start(world, builder)
}

fn run(world: &Arc<World>, server: &Server) -> Result<AgentAnswer, RunError> {
    let process = start(world, server, 6);
    process.on(async { process.acme().run(poster, ()).await })
}

#[test]
fn a_conversation_over_http() {
    let world = World::new();
    let server = Server::start(&world, posting);
    let answer = run(&world, &server).unwrap();
    assert_eq!((answer.text.as_str(), answer.finish), ("both are out", Finish::Done));
    assert_eq!(told(&answer.messages).len(), 2);
    assert_eq!(world.effects("post").len(), 2);
    // 3000 tokens at 2, 150 at 30 for a million each.
    let used = Usage { calls: 2, input_tokens: 3000, output_tokens: 150, cost_micros: 10_500 };
    assert_eq!(answer.usage, used);

    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen[0].head.contains("Bearer sk-secret") && seen[0].head.contains("idempotency-key: "));
    assert_eq!(seen[0].body["model"], "scripted");
    assert_eq!(seen[0].body["tools"][0]["function"]["name"], "post");
    assert_eq!(seen[1].body["messages"][2]["tool_calls"][1]["id"], "y");
    assert_eq!(seen[1].body["messages"][4]["tool_call_id"], "y");
}

// EXE-2, EXE-3: what passes is waited out and asked for again; what was cut off or is no answer is no answer.
#[test]
fn what_passes_is_asked_for_again() {
    let faults = [
        Fault::Status(500, "", "oops".into()),
        Fault::CutOff,
        Fault::Garbage("<html>proxy</html>".into()),
        Fault::HangUp,
        Fault::Garbage("{\"choices\": []}".into()),
    ];
    let world = World::new();
    let server = Server::start(&world, posting);
    server.fail(faults);
    let answer = run(&world, &server).unwrap();
    assert_eq!((answer.text.as_str(), server.seen().len()), ("both are out", 7));
    assert_eq!(world.effects("post").len(), 2);
    let keys = server
        .seen()
        .into_iter()
        .map(|seen| seen.head.lines().find(|line| line.starts_with("idempotency-key")).unwrap().to_owned());
    let keys: Vec<_> = keys.collect();
    assert!(
        keys[..6].iter().all(|key| *key == keys[0]) && keys[6] != keys[0],
        "attempts of one call have one key"
    );
}

#[test]
fn retry_after_is_honoured() {
    let world = World::new();
    let server = Server::start(&world, posting);
    server.fail([
        Fault::Status(429, "Retry-After: 1\r\n", "slow down".into()),
        Fault::Status(503, "Retry-After: 60\r\nretry-after-ms: 300\r\n", "overloaded".into()),
    ]);
    run(&world, &server).unwrap();
    let at: Vec<_> = server.seen().into_iter().map(|seen| seen.at).collect();
    assert!(at[1] >= at[0] + Duration::from_secs(1));
    assert!(at[2] >= at[1] + Duration::from_millis(300) && at[2] < at[1] + Duration::from_secs(30));
}

// What does not pass fails the agent at once, and says why; without the key, should the endpoint repeat it.
#[test]
fn what_does_not_pass_is_said() {
    let cases = [
        (Fault::Status(400, "", "context length exceeded by sk-secret".into()), ErrorKind::Validation, 1),
        (Fault::Status(429, "", "{\"code\": \"insufficient_quota\"}".into()), ErrorKind::BudgetExceeded, 1),
        (Fault::Status(403, "", "no".into()), ErrorKind::PolicyDenied, 1),
        (Fault::Status(401, "", "who are you?".into()), ErrorKind::Unauthorized, 2),
        (Fault::Status(307, "Location: http://127.0.0.1:1/v1\r\n", String::new()), ErrorKind::Validation, 1),
        (Fault::Status(500, "", "x".repeat(1_000_000)), ErrorKind::Server, 3),
    ];
    for (fault, kind, attempts) in cases {
        let world = World::new();
        let server = Server::start(&world, posting);
        server.fail(std::iter::repeat_n(fault.clone(), 5));
        let process = start(&world, &server, 3);
        let failed = process.on(async { process.acme().run(poster, ()).await.unwrap_err() });
        let RunError::Failed { failure, .. } = failed else { panic!("{failed}") };
        assert_eq!(failure.detail["kind"], json!(kind), "{fault:?}: {failure}");
        assert!(!failure.message.contains("sk-secret") && failure.message.len() < 1000, "{failure}");
        assert_eq!(server.seen().len(), attempts, "{fault:?}");
    }
}

// Servers differ: what they leave out counts as nothing, what they add is passed over.
#[test]
fn a_lenient_reading_of_what_servers_say() {
    let call = json!({ "function": { "name": "post", "arguments": { "input": "a" } } });
    let odd = json!({
        "choices": [{ "message": { "tool_calls": [call, call] }, "finish_reason": null, "logprobs": null }],
        "usage": { "prompt_tokens": -3, "completion_tokens": 1e300 },
    });
    let cut = json!({
        "choices": [{ "message": { "content": "once upon a", "tool_calls": null }, "finish_reason": "length" }],
    });
    let world = World::new();
    let server = Server::start(&world, posting);
    server.fail([Fault::Garbage(odd.to_string()), Fault::Garbage(cut.to_string())]);
    let answer = run(&world, &server).unwrap();
    assert_eq!((answer.text.as_str(), answer.finish), ("once upon a", Finish::CutOff));
    assert_eq!((world.effects("post").len(), told(&answer.messages).len()), (1, 2));
    assert_eq!(answer.usage, Usage { calls: 2, ..Usage::default() });
}

#[test]
fn nobody_there_is_unreachable() {
    let world = World::new();
    let server = Server::start(&world, posting);
    let builder = world.engine().model("m", Quick(model(&server), 2)).workflow("poster", 1, poster);
    drop(server);
    let process = Process::start(&world, builder);
    let failed = process.on(async { process.acme().run(poster, ()).await.unwrap_err() });
    assert!(failed.to_string().contains("unreachable"), "{failed}");
    assert!(ChatCompletions::at("localhost:11434/v1", "m").is_err());
    assert!(
        !format!("{:?}", ChatCompletions::at("http://x", "m").unwrap().key("sk-secret"))
            .contains("sk-secret")
    );
}

/// The case agent with the endpoint's model.
fn clerk(world: &Arc<World>, server: &Server) -> Process {
    let books = Books::file(world.path().with_file_name("books.txt"));
    let tap = world.tap.clone();
    let engine = Engine::sqlite(world.path()).wrap_store(move |store| tap.around(store));
    let engine = engine.workflow("case_agent", 1, case_agent);
    Process::start(world, equipped(engine, &books).model("clerk", Quick(model(server), 8)))
}

/// Runs it, lets the process die after each of so many writes to the store, and starts it again; to its end.
fn crashed_after(batches: usize) -> (usize, usize, usize) {
    let world = World::new();
    let server = Server::start(&world, script::reply);
    let process = clerk(&world, &server);
    let started = process.on(async {
        let run = process.acme().run(case_agent, COMPLAINT.to_owned()).key("C-17").start().await.unwrap();
        let ended = run.result();
        let written = process.until(async |_| world.tap.see(|tap| tap.batches.len()) >= batches);
        tokio::select! {
            biased;
            () = written => {}
            settled = ended => drop(settled.unwrap()),
        }
        world.tap.see(|tap| tap.batches.len())
    });
    process.crash();
    let process = clerk(&world, &server);
    process.on(async {
        process.acme().run(case_agent, COMPLAINT.to_owned()).key("C-17").await.unwrap();
    });
    process.crash();
    let lines = std::fs::read_to_string(world.path().with_file_name("books.txt")).unwrap();
    (started, lines.lines().count(), server.seen().len())
}

// The agent over HTTP, killed after each write of the ledger: three things are written, each once.
#[test]
fn real_crashes_repeat_no_tool_call() {
    let mut crashes = 0;
    for batches in 1.. {
        let (written, lines, asked) = crashed_after(batches);
        assert_eq!(lines, 3, "after {batches} writes: two notes and a refund");
        assert!((5..=6).contains(&asked), "after {batches} writes: the model was asked {asked} times");
        if written < batches {
            break; // it had ended
        }
        crashes += 1;
    }
    assert!(crashes >= 8, "only {crashes} crashes");
}
