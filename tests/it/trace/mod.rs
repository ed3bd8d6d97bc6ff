//! Traces: a run is one trace, whoever carries it out.

mod api;
mod otlp;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::flow::EngineBuilder;
use counterfoil::ledger::{
    Compensation, Contract, ContractClass, EffectClass, ErrorKind, LookupResult, Undone,
};
use counterfoil::tool::{Done, DynamicTool, ToolError};
use counterfoil::trace::{Span, SpanKind, SpanSink, TraceContext};
use counterfoil::{Ctx, Failure, Key};
use serde_json::{Value, json};

use crate::flow::world::{Process, World};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Spans, and what tools would send as `traceparent`.
#[derive(Clone, Default)]
struct Kept {
    spans: Arc<Mutex<Vec<Span>>>,
    sent: Arc<Mutex<Vec<TraceContext>>>,
}

impl SpanSink for Kept {
    fn record(&self, span: Span) {
        self.spans.lock().unwrap().push(span);
    }
}

impl Kept {
    fn of(&self, kind: SpanKind) -> Vec<Span> {
        self.spans.lock().unwrap().iter().filter(|span| span.kind == kind).cloned().collect()
    }

    fn sent(&self) -> Vec<TraceContext> {
        self.sent.lock().unwrap().clone()
    }

    /// A tool whose calls can be held at its name, and are found by no lookup.
    fn book(&self, world: &Arc<World>) -> DynamicTool {
        let contract = Contract::new(ContractClass::Lookup).settle(Duration::ZERO).ends_with_sender();
        let (world, sent, looked) = (world.clone(), self.sent.clone(), self.sent.clone());
        DynamicTool::new("book", EffectClass::InternalMutation, contract)
            .key(|input| Some(Key::of("book").target(input["seat"].as_str()?)))
            .call(move |call, _| {
                sent.lock().unwrap().push(call.traceparent());
                let world = world.clone();
                async move {
                    world.pass("book").await;
                    Ok(Done::new(json!("booked")).external_ref("b-7"))
                }
            })
            .reconcile(move |call, _| {
                looked.lock().unwrap().push(call.traceparent());
                async { Ok(LookupResult::NotFound) }
            })
    }

    fn engine(&self, world: &Arc<World>) -> EngineBuilder {
        world
            .engine()
            .dynamic_tool(self.book(world))
            .workflow("trip", 1, trip)
            .workflow("seat", 1, seat)
            .workflow("failing", 1, failing)
            .spans(self.clone())
    }
}

fn field<'a>(span: &'a Span, name: &str) -> Option<&'a str> {
    span.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
}

async fn seat(ctx: Ctx, seat: String) -> Result<Value, Failure> {
    ctx.step("choose", &seat, String::len).await?;
    ctx.call_named("book", json!({ "seat": seat })).await
}

async fn trip(ctx: Ctx, place: String) -> Result<Value, Failure> {
    ctx.child(seat, place).await
}

async fn failing(ctx: Ctx, place: String) -> Result<Value, Failure> {
    ctx.call_named("undoable", json!({ "seat": place })).await?;
    Err(Failure::new("the plane is full"))
}

#[test]
fn a_takeover_continues_the_callers_trace_and_tells_of_the_attempt_that_died() {
    let (world, kept) = (World::new(), Kept::default());
    let caller: TraceContext = CALLER.parse().unwrap();
    world.hold("book");
    let process = Process::start(&world, kept.engine(&world));
    let run = process.on(async {
        let run = process.acme().run(seat, "7a".to_owned()).traceparent(caller).start().await.unwrap();
        world.reached("book").await;
        run.id()
    });
    process.crash();
    assert_eq!(kept.of(SpanKind::Attempt), [], "the dead process could not tell of its attempt");
    world.release("book");
    let process = Process::start(&world, kept.engine(&world));
    process.on(process.acme().handle::<Value>(run).result()).unwrap();
    process.shut_down();

    let runs = kept.of(SpanKind::Run);
    assert_eq!(runs.len(), 1, "{runs:#?}");
    assert_eq!((runs[0].name.as_str(), &runs[0].failure), ("seat", &None));
    assert_eq!((runs[0].context.trace, runs[0].parent), (caller.trace, Some(caller.span)));
    let run = runs[0].context.span;
    let attempts = kept.of(SpanKind::Attempt);
    assert_eq!(attempts.len(), 2, "{attempts:#?}");
    assert_eq!(attempts[0].failure.as_deref(), Some("worker_lost"));
    assert_eq!(attempts[1].failure, None);
    assert_eq!((field(&attempts[0], "attempt"), field(&attempts[1], "attempt")), (Some("1"), Some("2")));
    assert_ne!(field(&attempts[0], "worker"), field(&attempts[1], "worker"));
    assert_eq!(
        (field(&attempts[1], "external_ref"), field(&attempts[1], "key")),
        (Some("b-7"), Some("book:7a"))
    );
    let lookups = kept.of(SpanKind::Lookup);
    // The lookups after the second attempt confirm it.
    assert_eq!(field(&lookups[0], "found"), Some("not found"));
    // The provider saw the very spans that are told of: also that of the attempt that died.
    let told = [attempts[0].context, lookups[0].context, attempts[1].context];
    assert_eq!(kept.sent()[..3], told);
    for span in attempts.iter().chain(&lookups).chain(&kept.of(SpanKind::Step)) {
        assert_eq!((span.context.trace, span.parent), (caller.trace, Some(run)), "{span:#?}");
        assert!(span.began <= span.ended && runs[0].began <= span.began, "{span:#?}");
    }
}

#[test]
fn a_child_is_a_span_of_its_parent_and_each_other_run_has_a_trace_of_its_own() {
    let (world, kept) = (World::new(), Kept::default());
    let process = Process::start(&world, kept.engine(&world));
    process.on(process.acme().run(trip, "7a".to_owned())).unwrap();
    process.on(process.acme().run(seat, "7b".to_owned())).unwrap();
    process.shut_down();
    let runs = kept.of(SpanKind::Run);
    let [child, parent, other] = &runs[..] else { panic!("three runs: {runs:#?}") };
    assert_eq!((child.context.trace, child.parent), (parent.context.trace, Some(parent.context.span)));
    assert_eq!((parent.name.as_str(), parent.parent), ("trip", None));
    assert_ne!(other.context.trace, parent.context.trace);
}

#[test]
fn an_undoing_is_a_span_and_so_is_the_run_that_failed() {
    let (world, kept) = (World::new(), Kept::default());
    let tool =
        DynamicTool::new("undoable", EffectClass::InternalMutation, Contract::new(ContractClass::ReplaysKey))
            .key(|input| Some(Key::of("undoable").target(input["seat"].as_str()?)))
            .call(|_, _| async { Ok(Done::new(json!(1))) })
            .compensate(Compensation::Automatic, |_, _| async { Ok(Undone::whole().into()) });
    let process = Process::start(&world, kept.engine(&world).dynamic_tool(tool));
    process.on(process.acme().run(failing, "7a".to_owned())).unwrap_err();
    process.shut_down();
    let (runs, undone) = (kept.of(SpanKind::Run), kept.of(SpanKind::Compensation));
    assert_eq!(runs[0].failure.as_deref(), Some("failed"));
    assert_eq!(undone.len(), 1, "{undone:#?}");
    assert_eq!(undone[0].context.trace, runs[0].context.trace);
}

#[test]
fn a_failed_attempt_names_the_kind_of_its_error() {
    let (world, kept) = (World::new(), Kept::default());
    let tool =
        DynamicTool::new("undoable", EffectClass::InternalMutation, Contract::new(ContractClass::ReplaysKey))
            .key(|_| Some(Key::of("undoable").target("1")))
            .call(|_, _| async { Err(ToolError::new(ErrorKind::Validation, "no such seat")) });
    let process = Process::start(&world, kept.engine(&world).dynamic_tool(tool));
    process.on(process.acme().run(failing, "7a".to_owned())).unwrap_err();
    process.shut_down();
    let failures: Vec<_> = kept.of(SpanKind::Attempt).into_iter().map(|span| span.failure.unwrap()).collect();
    assert_eq!(failures, ["validation"]);
}

#[test]
fn nothing_is_recorded_of_a_trace_that_its_caller_does_not_sample() {
    let (world, kept) = (World::new(), Kept::default());
    let process = Process::start(&world, kept.engine(&world));
    let caller = TraceContext { is_sampled: false, ..CALLER.parse().unwrap() };
    process.on(process.acme().run(seat, "7a".to_owned()).traceparent(caller)).unwrap();
    process.shut_down();
    assert_eq!(*kept.spans.lock().unwrap(), []);
    assert_eq!(kept.sent()[0].trace, caller.trace, "it is passed on");
    assert!(kept.sent()[0].to_string().ends_with("-00"));
}

#[test]
fn a_process_without_spans_passes_the_same_trace_on() {
    let (world, kept) = (World::new(), Kept::default());
    let caller: TraceContext = CALLER.parse().unwrap();
    world.hold("book");
    let process =
        Process::start(&world, world.engine().dynamic_tool(kept.book(&world)).workflow("seat", 1, seat));
    let run = process.on(async {
        let run = process.acme().run(seat, "7a".to_owned()).traceparent(caller).start().await.unwrap();
        world.reached("book").await;
        run.id()
    });
    process.crash();
    world.release("book");
    let process = Process::start(&world, kept.engine(&world));
    process.on(process.acme().handle::<Value>(run).result()).unwrap();
    process.shut_down();
    assert_eq!(kept.sent()[0], kept.of(SpanKind::Attempt)[0].context);
    assert_eq!(kept.sent()[0].trace, caller.trace);
}
