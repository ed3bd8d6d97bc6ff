//! Tools that people or a policy approve, as an agent calls them.

use std::sync::Arc;

use counterfoil::agent::{AgentAnswer, Message, Reply};
use counterfoil::ledger::{Contract, ContractClass, EffectClass, ReviewPolicy};
use counterfoil::tool::approval::Verdict;
use counterfoil::tool::{Done, DynamicTool};
use counterfoil::{ApprovalSubject, Ctx, Failure, Key};
use serde_json::json;

use crate::agent::models::{call, engine, told};
use crate::flow::world::{Process, World};
use crate::guard::approval::{approve, open_about};

async fn teller(ctx: Ctx, (): ()) -> Result<AgentAnswer, Failure> {
    ctx.agent("m").tool_named("fax").run([Message::user("go")]).await
}

// EXE-2: a tool that is known only at run time, and that a model proposes without an approval, asks for it. The run waits.
#[test]
fn a_tool_without_an_approval_asks_for_it() {
    let world = World::new();
    let fax = || {
        let sent = world.clone();
        DynamicTool::new("fax", EffectClass::Notification, Contract::new(ContractClass::ReplaysKey))
            .describe(
                "Sends a fax.",
                json!({ "type": "object", "properties": { "text": { "type": "string" } } }),
            )
            .package(|input| ApprovalSubject::of("fax", &input["text"]))
            .review(ReviewPolicy::by(["ann", "bob"]).quorum(2))
            .call(move |call, input| {
                sent.happen("fax", call.key(), input["text"].as_str().unwrap());
                async { Ok(Done::new(json!("sent"))) }
            })
    };
    let proposals = [Reply::calls([call("fax", json!({ "text": "hello" }))]), Reply::text("done")];
    let builder = || engine(&world, proposals.clone()).dynamic_tool(fax()).workflow("teller", 1, teller);
    let process = Process::start(&world, builder());
    let run = process.on(async {
        let run = process.acme().run(teller, ()).start().await.unwrap();
        let review = open_about(&process, "hello").await;
        assert_eq!(review.review.quorum, 2);
        approve(&process.acme(), &review, "ann").await.unwrap();
        run.id()
    });
    process.crash();
    let process = Process::start(&world, builder());
    let answer = process.on(async {
        let review = open_about(&process, "hello").await;
        assert_eq!(review.review.votes.len(), 1, "it is asked once");
        approve(&process.acme(), &review, "bob").await.unwrap();
        process.acme().handle::<AgentAnswer>(run).result().await.unwrap()
    });
    assert_eq!(
        (world.effects("fax"), told(&answer.messages)),
        (vec!["hello".to_owned()], vec!["sent".to_owned()])
    );
}

/// A fax about one case, whatever its text is: ann approves it.
fn case_fax(world: &Arc<World>) -> DynamicTool {
    let sent = world.clone();
    DynamicTool::new("fax", EffectClass::Notification, Contract::new(ContractClass::ReplaysKey))
        .describe("Sends a fax.", json!({ "type": "object", "properties": { "text": { "type": "string" } } }))
        .key(|_| Some(Key::of("fax").target("case 17")))
        .package(|input| ApprovalSubject::of("fax", &input["text"]))
        .review(ReviewPolicy::by(["ann"]))
        .call(move |call, input| {
            sent.happen("fax", call.key(), input["text"].as_str().unwrap());
            async { Ok(Done::new(json!("sent"))) }
        })
}

/// A process whose model proposes faxes about the case, one list of texts in each turn.
fn faxing(world: &Arc<World>, turns: &[&[&str]]) -> Process {
    let fax = |text: &&str| call("fax", json!({ "text": text }));
    let proposals = turns.iter().map(|texts| Reply::calls(texts.iter().map(fax)));
    let replies: Vec<_> = proposals.chain([Reply::text("done")]).collect();
    let builder = engine(world, replies).dynamic_tool(case_fax(world)).workflow("teller", 1, teller);
    Process::start(world, builder)
}

// L02: what was done under the key with another content is a conflict, of which the model is told. Nobody is asked about it.
#[test]
fn another_text_after_an_approved_one_is_told_as_a_conflict() {
    let world = World::new();
    let process = faxing(&world, &[&["A"], &["B"]]);
    let answer = process.on(async {
        let run = process.acme().run(teller, ()).start().await.unwrap();
        approve(&process.acme(), &open_about(&process, "A").await, "ann").await.unwrap();
        run.result().await.unwrap()
    });
    let told = told(&answer.messages);
    assert!(told[1].contains("another payload"), "{told:?}");
    assert_eq!((world.effects("fax"), told[0].as_str()), (vec!["A".to_owned()], "sent"));
    process.shut_down();
}

// The model corrects itself after a rejection: people are asked about the new text, once, whatever dies meanwhile.
#[test]
fn another_text_after_a_rejected_one_is_asked_about() {
    let world = World::new();
    let turns: &[&[&str]] = &[&["A"], &["B"]];
    let process = faxing(&world, turns);
    let run = process.on(async {
        let run = process.acme().run(teller, ()).start().await.unwrap();
        let review = open_about(&process, "A").await;
        process.acme().decide(&review.id, review.version).reject("ann", "not so").await.unwrap();
        open_about(&process, "B").await;
        run.id()
    });
    process.crash();
    let process = faxing(&world, turns);
    let answer = process.on(async {
        approve(&process.acme(), &open_about(&process, "B").await, "ann").await.unwrap();
        process.acme().handle::<AgentAnswer>(run).result().await.unwrap()
    });
    let told = told(&answer.messages);
    assert!(told[0].starts_with("error: ann rejected the fax: not so"), "{told:?}");
    assert_eq!((world.effects("fax"), told[1].as_str()), (vec!["B".to_owned()], "sent"));
    process.shut_down();
}

// Two proposals of one reply under one key: people are asked about each, and the first one that is approved goes out.
#[test]
fn two_texts_of_one_reply_are_two_questions() {
    let world = World::new();
    let process = faxing(&world, &[&["A", "B"]]);
    let answer = process.on(async {
        let run = process.acme().run(teller, ()).start().await.unwrap();
        let (first, second) = (open_about(&process, "A").await, open_about(&process, "B").await);
        approve(&process.acme(), &first, "ann").await.unwrap();
        process.until(async |_| !world.effects("fax").is_empty()).await;
        approve(&process.acme(), &second, "ann").await.unwrap();
        run.result().await.unwrap()
    });
    let told = told(&answer.messages);
    assert!(told[1].contains("another payload"), "{told:?}");
    assert_eq!((world.effects("fax"), told[0].as_str()), (vec!["A".to_owned()], "sent"));
    process.shut_down();
}

// A refusal of the tool's policy is told to the model, which goes on.
#[test]
fn a_model_is_told_why_a_policy_refuses_its_call() {
    let world = World::new();
    let sent = world.clone();
    let fax = DynamicTool::new("fax", EffectClass::Notification, Contract::new(ContractClass::ReplaysKey))
        .describe("Sends a fax.", json!({ "type": "object", "properties": { "text": { "type": "string" } } }))
        .policy("no-adverts", 1, |input| match input["text"].as_str() {
            Some("buy") => Verdict::refuse("adverts are not sent"),
            _ => Verdict::Allow,
        })
        .call(move |call, input| {
            sent.happen("fax", call.key(), input["text"].as_str().unwrap());
            async { Ok(Done::new(json!("sent"))) }
        });
    let fax_of = |text: &str| Reply::calls([call("fax", json!({ "text": text }))]);
    let builder = engine(&world, [fax_of("buy"), fax_of("hello"), Reply::text("done")]).dynamic_tool(fax);
    let process = Process::start(&world, builder.workflow("teller", 1, teller));
    let answer = process.on(process.acme().run(teller, ())).unwrap();
    let told = told(&answer.messages);
    assert!(
        told[0].starts_with(
            "error: fax was not called: the policy no-adverts, version 1, refuses it: adverts are not sent"
        ),
        "{told:?}"
    );
    assert_eq!((world.effects("fax"), told[1].as_str()), (vec!["hello".to_owned()], "sent"));
    process.shut_down();
}
