//! A record says when it was settled and under which approval it went out; what rests on it, and what its tool had declared, can be read
//! (R-REC-1).

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{EngineBuilder, WorkflowFn};
use counterfoil::ledger::{
    Approval, BoundFields, Compensation, Contract, ContractClass, EffectClass, ErrorKind, LookupOffer,
    OperationKey, Record, State, Undone,
};
use counterfoil::tool::DynamicTool;
use counterfoil::{ApprovalSubject, Executor, Failure, Key, Outcome, ToolRequest};
use serde_json::json;

use crate::flow::tools::{Bill, Pay};
use crate::flow::world::{Process, World as Runs};
use crate::place::Place;
use crate::world::{Keys, Reply, SETTLE, TestClock, World, acme, brief};
use crate::{flow, on_both_stores};

const TOOL: &str = "notify";

fn key() -> OperationKey {
    Key::of(TOOL).target("c1").render().unwrap()
}

/// A draft is undone by hand, and needs nobody's approval.
fn draft(world: &Arc<World>) -> DynamicTool {
    let contract = Contract::new(ContractClass::ReplaysKey).lookup(LookupOffer::Strong);
    world
        .tool(TOOL, EffectClass::InternalMutation, contract)
        .retry(brief())
        .bound(BoundFields::only(3, ["/case"]))
        .compensate(Compensation::Automatic, |_, _| async { Ok(Undone::whole().into()) })
}

async fn execute(executor: &Executor) -> Outcome {
    executor.execute(ToolRequest::new(acme(), TOOL, json!({"case": "c1"}))).await.unwrap()
}

async fn record(executor: &Executor) -> Record {
    executor.record(&acme(), &key()).await.unwrap().unwrap().0
}

fn notice() -> ApprovalSubject {
    ApprovalSubject::of("notice", &"Dear Ann")
}

fn approved(by: &str) -> Approval {
    Approval::of(by, &notice()).unwrap()
}

on_both_stores! {
    async fn a_record_says_when_it_was_settled(place) {
        let (world, clock) = (World::new(Keys::Honours), TestClock::breathing());
        let executor = place.executor().clock(clock.clone()).dynamic_tool(draft(&world));
        let executor = executor.open().await.unwrap();
        world.replies([Reply::Fail(ErrorKind::Validation)]);
        assert!(matches!(execute(&executor).await, Outcome::Failed(_)));
        let failed = record(&executor).await;
        let Some(failed_at) = failed.sealed_at else { panic!("{failed:?}") };
        assert!(failed_at >= failed.created_at);
        clock.advance(SETTLE);
        // It goes again: what it comes to now is what it was settled with.
        assert!(execute(&executor).await.answer().is_some());
        let committed = record(&executor).await;
        let Some(committed_at) = committed.sealed_at else { panic!("{committed:?}") };
        assert_eq!(committed.updated_at, committed_at);
        clock.advance(SETTLE);
        let _ = executor.compensate(&acme(), &key()).await.unwrap();
        let undone = record(&executor).await;
        assert!(matches!(undone.state, State::Compensated { .. }), "{undone:?}");
        assert_eq!(undone.sealed_at, Some(committed_at), "undoing does not move it");
        let declared = executor.declaration(&acme(), &key()).await.unwrap().unwrap();
        assert_eq!(declared.bound, BoundFields::only(3, ["/case"]));
        executor.shutdown(Duration::ZERO).await;
    }

    async fn a_call_under_way_is_not_settled(place) {
        let world = World::new(Keys::Honours);
        let executor = place.executor().dynamic_tool(draft(&world)).open().await.unwrap();
        world.replies([Reply::Hang]);
        let calling = executor.clone();
        let call = tokio::spawn(async move { execute(&calling).await });
        world.requested(1).await;
        assert_eq!(record(&executor).await.sealed_at, None);
        world.release();
        assert!(call.await.unwrap().answer().is_some());
        assert!(record(&executor).await.sealed_at.is_some());
    }

    async fn a_record_says_who_approved_it(place) {
        let world = World::new(Keys::Honours);
        let tool = world.tool(TOOL, EffectClass::Notification, Contract::new(ContractClass::ReplaysKey));
        let tool = tool.retry(brief()).package(|_| notice());
        let executor = place.executor().dynamic_tool(tool).open().await.unwrap();
        let notify = async |by: &str| {
            let request = ToolRequest::new(acme(), TOOL, json!({"case": "c1"})).approved_by(&approved(by));
            executor.execute(request).await.unwrap()
        };
        world.replies([Reply::Fail(ErrorKind::Validation)]);
        assert!(matches!(notify("ann").await, Outcome::Failed(_)));
        assert_eq!(record(&executor).await.approval.as_deref(), Some(&approved("ann")));
        // Nothing happened under the first one.
        assert!(notify("bob").await.answer().unwrap().first);
        assert_eq!(record(&executor).await.approval.as_deref(), Some(&approved("bob")));
        assert!(!notify("cid").await.answer().unwrap().first);
        assert_eq!(record(&executor).await.approval.as_deref(), Some(&approved("bob")));
    }
}

fn engine(world: &Arc<Runs>, place: &Place, code: impl WorkflowFn<(), u32>) -> EngineBuilder {
    world.equip(place.engine(), &world.tap).workflow(crate::flow::lives::NAME, 1, code)
}

on_both_stores! {
    /// Runs that were answered from another one's record.
    fn the_uses_of_a_record_can_be_read(place) {
        let world = Runs::new();
        let code = flow!(world, |ctx, _n: ()| ctx.call::<Pay>(Bill::new("rent", 100)).await);
        let process = Process::start(&world, engine(&world, &place, code.clone()));
        process.on(async {
            let mut runs = Vec::new();
            for _ in 0..3 {
                let run = process.acme().run(code.clone(), ()).start().await.unwrap();
                runs.push(run.id());
                run.result().await.unwrap();
            }
            let key = Key::of("pay").target("ann").operation("rent").render().unwrap();
            let executor = process.engine().executor();
            let (record, _) = executor.record(&acme(), &key).await.unwrap().unwrap();
            assert_eq!(record.owner.run, Some(runs[0]));
            let uses = executor.uses(&acme(), &key).await.unwrap();
            let mut others: Vec<_> = uses.iter().map(|used| used.run).collect();
            others.sort_unstable();
            assert_eq!(others, runs[1..]);
            Ok::<_, Failure>(())
        })
        .unwrap();
        process.shut_down();
        assert_eq!(world.effects("pay").len(), 1);
    }
}
