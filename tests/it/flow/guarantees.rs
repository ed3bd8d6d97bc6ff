//! FLOW-10: the guarantee report of an engine, as a value, as text and as JSON.

use std::process::Command;

use counterfoil::exec::StartError;
use counterfoil::flow::{RunError, Workflow};
use counterfoil::ledger::WorstCase;
use serde_json::{Value, json};

use crate::flow;
use crate::flow::tools::{Post, Ring, post};
use crate::flow::world::{Process, World};

#[test]
fn each_workflow_has_a_table_of_the_calls_that_it_names() {
    let world = World::new();
    let (some, all) =
        (flow!(world, |ctx, _n: u32| post(&ctx, "x").await), flow!(world, |_ctx, n: u32| Ok(n)));
    let some = Workflow::new("some", some).version(2).calls::<Post>().calls_named("ring");
    let engine = world.engine().register(some);
    let engine = engine.workflow("all", 1, all);
    let report = engine.guarantees().unwrap();
    let calls = |place: usize| {
        let workflow = &report.workflows[place];
        let calls =
            workflow.calls.iter().map(|call| (call.tool.as_str(), call.worst_case)).collect::<Vec<_>>();
        (workflow.name.as_str(), workflow.version, workflow.declared, calls)
    };
    let (tell, pay) = (("tell", WorstCase::Settled), ("pay", WorstCase::Declared));
    let (post, ring) = (("post", WorstCase::Settled), ("ring", WorstCase::AtMostOnce));
    assert_eq!(calls(0), ("all", 1, false, vec![pay, post, ring, tell]));
    assert_eq!(calls(1), ("some", 2, true, vec![post, ring]));

    let text = report.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "some 2");
    let line = |start: &str| lines.iter().find(|line| line.trim_start().starts_with(start)).unwrap();
    for cell in [
        "internal mutation",
        "blind",
        "at most once, then a person decides",
        "whole for 30 d, then digests",
        "none declared",
    ] {
        assert!(line("ring").contains(cell), "{cell}: {text}");
    }
    assert!(text.contains("on unknown: look it up; not there: send again under the same key"), "{text}");
    assert!(lines.contains(&"all 1: any registered tool"), "{text}");

    // What is no tool's call: *exactly once* is said of the ledger's own database alone.
    for (what, words) in [
        ("transaction", "exactly once"),
        ("event written", "exactly once"),
        ("event published", "at least once"),
        ("artifact", "exactly once"),
        ("memory", "exactly once"),
        ("step", "may repeat, harmless"),
    ] {
        assert!(line(what).contains(words), "{what}: {text}");
    }
    let own = |line: &&str| line.contains("exactly once");
    let of_tools =
        lines.iter().take_while(|line| **line != "without a tool").filter(|line| own(line)).count();
    assert_eq!(of_tools, 0, "{text}");

    let json: Value = serde_json::to_value(&report).unwrap();
    assert_eq!(json["without_tools"][0]["worst_case"], json!("exactly_once"));
    assert_eq!(json["workflows"][1]["calls"][1]["worst_case"], json!("at_most_once"));
    assert_eq!(json["tools"][3]["approval"], json!("by a person"));

    let process = Process::start(&world, engine);
    assert_eq!(process.engine().guarantees(), report, "the same when it is started");
}

// The report would promise more than is kept if a workflow could call what it has not named.
#[test]
fn a_workflow_that_names_its_calls_makes_no_others() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: u32| post(&ctx, "x").await);
    let process =
        Process::start(&world, world.engine().register(Workflow::new("rings", code.clone()).calls::<Ring>()));
    let result = process.on(async { process.acme().run(code.clone(), 1).await });
    let Err(RunError::Blocked { message, .. }) = result else { panic!("{result:?}") };
    assert!(message.contains("\"post\" is not among those"), "{message}");
    assert_eq!(world.effects("post").len(), 0);
    process.shut_down();

    let unknown = world.engine().register(Workflow::new("calls", code).calls_named("fax"));
    for refused in [unknown.guarantees().map(drop), Process::try_start(&world, unknown).map(drop)] {
        let Err(StartError::Workflow { name, reason }) = refused else { panic!("{refused:?}") };
        assert!(name == "calls" && reason.contains("\"fax\""), "{reason}");
    }
}

#[test]
fn the_program_tells_what_may_be_promised_of_the_examples() {
    let program = || Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    let told = program().args(["guarantees", "five_calls"]).output().unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success() && text.contains("order ") && text.contains("settle time"), "{text}");

    let told = program().args(["guarantees", "--json"]).output().unwrap();
    let json: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(json["five_calls"][0]["worst_case"], json!("settled"));

    let unknown = program().args(["guarantees", "nobody"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
}
