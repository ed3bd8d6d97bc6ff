//! Labels of records: a call is given them where it is asked for, and is found and erased by them, on both databases.

use std::sync::Arc;

use counterfoil::exec::{CallError, ExecError, RequestError};
use counterfoil::flow::RunFilter;
use counterfoil::ledger::{Contract, ContractClass, EffectClass, ErrorKind, FinalState};
use counterfoil::store::Resolution;
use counterfoil::tool::{Done, contract};
use counterfoil::{Ctx, Engine, Executor, Failure, Key, Outcome, RunId, Tenant, ToolRequest};
use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use crate::on_both_stores;
use crate::place::Place;
use crate::world::{Keys, Reply, World, acme, brief};

/// Pays two bills: the first with a label.
async fn pays(ctx: Ctx, case: String) -> Result<(), Failure> {
    let paid = ctx.call_named("pay", json!({ "case": case })).label("customer", "c-7").await?;
    ctx.call_named("pay", json!({ "case": format!("{case}/2"), "of": paid })).await?;
    ctx.signal::<()>("done").await
}

/// Asks for the weather and pays, and fails: somebody is asked about the payment.
async fn overdrawn(ctx: Ctx, case: String) -> Result<(), Failure> {
    ctx.call_named("weather", json!({ "case": case })).await?;
    ctx.call_named("pay", json!({ "case": case })).await?;
    Err(Failure::new("the account is overdrawn"))
}

/// Is left by a child that fails, and has ended well.
async fn forgives(ctx: Ctx, case: String) -> Result<(), Failure> {
    let failed = ctx.child(overdrawn, case).await;
    assert!(failed.is_err());
    Ok(())
}

/// Pays with more labels than a call may have.
async fn overlabelled(ctx: Ctx, case: String) -> Result<Value, Failure> {
    let call = ctx.call_named("pay", json!({ "case": case }));
    (0..9).fold(call, |call, n| call.label(format!("label {n}"), "x")).await
}

async fn engine(place: &Place, world: &Arc<World>) -> Engine {
    let tool = |name: &str, effect, class| world.tool(name, effect, Contract::new(class)).retry(brief());
    let engine = place
        .engine()
        .dynamic_tool(tool("pay", EffectClass::InternalMutation, ContractClass::Lookup))
        .dynamic_tool(tool("ring", EffectClass::InternalMutation, ContractClass::Blind))
        .dynamic_tool(tool("weather", EffectClass::ReadOnly, ContractClass::Blind));
    let engine = engine.workflow("pays", 1, pays).workflow("overlabelled", 1, overlabelled);
    engine.workflow("overdrawn", 1, overdrawn).workflow("forgives", 1, forgives).start().await.unwrap()
}

/// A request for a case.
fn request(tool: &str, case: &str) -> ToolRequest {
    ToolRequest::new(acme(), tool, json!({ "case": case }))
}

fn key(tool: &str, case: &str) -> String {
    Key::of(tool).target(case).render().unwrap().to_string()
}

/// The labels of a call, as `name=value`.
async fn labels(executor: &Executor, key: &str) -> Vec<String> {
    let evidence = executor.evidence(&acme(), key).await.unwrap().unwrap();
    evidence.labels.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// The number of rows with labels of records.
async fn rows(place: &Place) -> i64 {
    let count = "SELECT count(*) FROM record_label";
    match place {
        Place::Sqlite(dir) => {
            let file = SqliteConnectOptions::new().filename(dir.path().join("agents.db"));
            sqlx::query_scalar(count).fetch_one(&mut file.connect().await.unwrap()).await.unwrap()
        }
        Place::Postgres(schema) => {
            sqlx::query_scalar(count).fetch_one(&mut schema.plain().await).await.unwrap()
        }
    }
}

on_both_stores! {
    async fn calls_are_erased_by_their_label_and_not_repeated(place) {
        let world = World::new(Keys::Ignores);
        let engine = engine(&place, &world).await;
        let executor = engine.executor();
        for request in [
            request("pay", "1").label("customer", "c-7").label("case", "a=b"),
            request("pay", "2").label("customer", "c-7"),
            request("pay", "3").label("customer", "c-8"),
            request("pay", "4"),
            request("weather", "5").label("customer", "c-7"), // recorded with its outcome alone
        ] {
            assert!(executor.execute(request).await.unwrap().answer().is_some());
        }
        assert_eq!((labels(&executor, &key("pay", "1")).await, rows(&place).await), (vec!["case=a=b".into(), "customer=c-7".into()], 5));
        let globex = Tenant::new("globex").unwrap();
        let nothing = executor.erase_labelled(&globex, "customer", "c-7").await.unwrap();
        assert_eq!((nothing.calls.len(), rows(&place).await), (0, 5));

        let report = executor.erase_labelled(&acme(), "customer", "c-7").await.unwrap();
        assert_eq!(report.calls, [key("pay", "1"), key("pay", "2"), key("weather", "5")]);
        assert!(report.is_complete() && report.runs.is_empty(), "{report:?}");
        assert_eq!((labels(&executor, &key("pay", "1")).await, rows(&place).await), (vec![], 1));
        let again = executor.execute(request("pay", "1").label("customer", "c-7")).await.unwrap();
        assert_eq!(again, Outcome::Expired { was: FinalState::Committed });
        let other = executor.execute(request("pay", "3")).await.unwrap();
        assert!(!other.answer().unwrap().first);
        let report = executor.erase_labelled(&acme(), "customer", "c-7").await.unwrap();
        assert_eq!((report.calls, report.kept_calls), (vec![], vec![]));
    }

    async fn the_labels_of_the_first_caller_stay(place) {
        let world = World::new(Keys::Ignores);
        let executor = engine(&place, &world).await.executor();
        let labelled = |value| request("pay", "1").label("customer", value);
        let _ = executor.execute(labelled("c-7")).await.unwrap();
        let _ = executor.execute(labelled("c-8").label("case", "9")).await.unwrap();
        assert_eq!(labels(&executor, &key("pay", "1")).await, ["customer=c-7"]);
        let _ = executor.execute(request("pay", "2")).await.unwrap();
        let _ = executor.execute(request("pay", "2").label("customer", "c-7")).await.unwrap();
        assert_eq!((labels(&executor, &key("pay", "2")).await, rows(&place).await), (vec![], 1));

        // A call that did not happen leaves nothing, and the next caller is the first one.
        world.replies([Reply::Fail(ErrorKind::Validation)]);
        assert!(matches!(executor.execute(request("pay", "3").label("case", "9")).await.unwrap(), Outcome::Failed(_)));
        let report = executor.erase_labelled(&acme(), "case", "9").await.unwrap();
        assert_eq!((report.calls, executor.evidence(&acme(), &key("pay", "3")).await.unwrap()), (vec![key("pay", "3")], None));
        let _ = executor.execute(request("pay", "3").label("case", "10")).await.unwrap();
        assert_eq!(labels(&executor, &key("pay", "3")).await, ["case=10"]);
    }

    async fn labels_that_do_not_fit_are_refused_before_anything_is_written(place) {
        let world = World::new(Keys::Ignores);
        let engine = engine(&place, &world).await;
        let executor = engine.executor();
        let nine = (0..9).fold(request("pay", "1"), |request, n| request.label(format!("label {n}"), "x"));
        let one = |name: &str, value: &str| request("pay", "1").label(name, value);
        let twice = one("customer", "c-7").label("customer", "c-8");
        for bad in [nine, twice, one("", "x"), one("x", ""), one("x", "a\u{1b}b"), one("x", &"y".repeat(257)), one(&"n".repeat(129), "x")] {
            let refused = executor.execute(bad.clone()).await.unwrap();
            let Outcome::Refused(error) = refused else { panic!("{bad:?}: {refused:?}") };
            assert!(matches!(*error, RequestError::Label(_)), "{error}");
            assert_eq!(error.code().as_str(), "name", "{error}");
            assert!(error.to_string().starts_with("nothing was recorded or sent"), "{error}");
        }
        let effect = executor.effect(&acme(), Key::of("pay").target("1"), ()).contract(contract::ReplaysKey).label("x", "");
        let refused = effect.run(|_, ()| async { Ok(Done::new(1)) }).await.unwrap_err();
        assert!(matches!(refused, CallError::Exec(ExecError::Request(RequestError::Label(_)))), "{refused}");
        let run = engine.tenant("acme").unwrap().run(overlabelled, "1".to_owned()).start().await.unwrap();
        while run.status().await.unwrap().state.name() != "blocked" {
            tokio::task::yield_now().await;
        }
        assert_eq!((executor.evidence(&acme(), &key("pay", "1")).await.unwrap(), rows(&place).await), (None, 0));
        assert_eq!(world.requests(), 0);
    }

    async fn a_call_that_is_under_way_or_asked_about_is_kept_and_reported(place) {
        let world = World::new(Keys::Ignores);
        let executor = engine(&place, &world).await.executor();
        world.replies([Reply::EffectThenFail(ErrorKind::Disconnected), Reply::EffectThenHang]);
        let asked = executor.execute(request("ring", "1").label("customer", "c-7")).await.unwrap();
        let Outcome::NeedsDecision { question } = asked else { panic!("{asked:?}") };
        let hanging = tokio::spawn({
            let executor = executor.clone();
            async move { executor.execute(request("pay", "2").label("customer", "c-7")).await }
        });
        world.requested(2).await;
        let _ = executor.execute(request("pay", "3").label("customer", "c-7")).await.unwrap();

        let report = executor.erase_labelled(&acme(), "customer", "c-7").await.unwrap();
        assert_eq!(report.calls, [key("pay", "3")]);
        let kept: Vec<_> = report.kept_calls.iter().map(|kept| kept.key.as_str()).collect();
        assert_eq!((kept, report.is_complete()), (vec![key("pay", "2").as_str(), key("ring", "1").as_str()], false));
        assert!(report.kept_calls.iter().all(|kept| kept.why.contains("under way, asked about")), "{report:?}");
        assert_eq!(labels(&executor, &key("ring", "1")).await, ["customer=c-7"]);

        world.release();
        assert!(hanging.await.unwrap().unwrap().answer().is_some());
        executor.answer(&acme(), question, Resolution::Happened(json!(1)), "ann").await.unwrap();
        let report = executor.erase_labelled(&acme(), "customer", "c-7").await.unwrap();
        assert_eq!((report.calls.len(), report.is_complete(), rows(&place).await), (2, true, 0));
        assert_eq!(world.count(), 3);
    }

    async fn calls_of_runs_are_erased_by_their_own_label_or_by_that_of_their_run(place) {
        let world = World::new(Keys::Ignores);
        let engine = engine(&place, &world).await;
        let (executor, tenant) = (engine.executor(), engine.tenant("acme").unwrap());
        let start = async |case: &str, label: Option<(&str, &str)>| -> RunId {
            let mut start = tenant.run(pays, case.to_owned()).key(case);
            if let Some((name, value)) = label {
                start = start.label(name, value);
            }
            start.start().await.unwrap().id()
        };
        let (plain, labelled) = (start("1", None).await, start("2", Some(("customer", "c-7"))).await);
        world.requested(4).await;
        assert_eq!(labels(&executor, &key("pay", "1")).await, ["customer=c-7"]);

        // The runs rest on their calls.
        let report = tenant.erase_labelled("customer", "c-7").await.unwrap();
        assert_eq!((report.calls.len(), report.kept.len(), report.kept_calls.len()), (0, 1, 2), "{report:?}");
        for run in [plain, labelled] {
            let run = tenant.handle::<()>(run);
            run.signal("done", ()).await.unwrap();
            run.result().await.unwrap();
        }
        let mut report = tenant.erase_labelled("customer", "c-7").await.unwrap();
        report.calls.sort();
        assert_eq!(report.calls, [key("pay", "1"), key("pay", "2"), key("pay", "2/2")], "each of them once");
        assert_eq!((report.runs, rows(&place).await), (vec![labelled], 0));
        assert_eq!(tenant.handle::<()>(plain).status().await.unwrap().state.name(), "succeeded");
        assert_eq!(executor.evidence(&acme(), &key("pay", "1/2")).await.unwrap().unwrap().outcome.state, "committed");
        assert_eq!(world.count(), 4);
    }

    async fn a_run_that_is_kept_keeps_its_calls(place) {
        let world = World::new(Keys::Ignores);
        let engine = engine(&place, &world).await;
        let (executor, tenant) = (engine.executor(), engine.tenant("acme").unwrap());
        let state = async |tool: &str, case: &str| {
            executor.evidence(&acme(), &key(tool, case)).await.unwrap().unwrap().outcome.state
        };
        let failed = tenant.run(overdrawn, "1".to_owned()).label("customer", "c-7").start().await.unwrap();
        failed.result().await.unwrap_err();
        // The parent may go, and its child may not.
        let parent = tenant.run(forgives, "2".to_owned()).label("customer", "c-7").start().await.unwrap();
        parent.result().await.unwrap();
        let runs = tenant.runs(None).await.unwrap();
        let child = runs.iter().find(|run| run.parent == Some(parent.id())).unwrap().id;

        let report = tenant.erase_labelled("customer", "c-7").await.unwrap();
        let mut kept: Vec<_> = report.kept.iter().map(|kept| kept.run).collect();
        kept.sort();
        assert_eq!((report.runs, kept), (vec![parent.id()], vec![failed.id(), child]));
        assert!(report.kept.iter().all(|kept| kept.why.contains("a question about it is open")), "{:?}", report.kept);
        assert_eq!(report.calls, [""; 0]);
        for (tool, case) in [("weather", "1"), ("pay", "1"), ("weather", "2"), ("pay", "2")] {
            assert_eq!(state(tool, case).await, "committed", "{tool} {case}");
        }

        for question in tenant.questions().await.unwrap() {
            tenant.answer(question.id, Resolution::Keep, "ann").await.unwrap();
        }
        let mut report = tenant.erase_labelled("customer", "c-7").await.unwrap();
        report.calls.sort();
        assert_eq!((report.runs, report.calls), (vec![failed.id()], vec![key("pay", "1"), key("weather", "1")]));
        assert!(report.kept.is_empty(), "{:?}", report.kept);
        executor.erase_run(&acme(), child).await.unwrap(); // it is named in the first report
    }

    async fn a_fork_has_the_labels_of_its_origin(place) {
        let world = World::new(Keys::Ignores);
        let engine = engine(&place, &world).await;
        let tenant = engine.tenant("acme").unwrap();
        let origin = tenant.run(pays, "1".to_owned()).key("1").label("customer", "c-7").label("case", "1");
        let origin = origin.start().await.unwrap();
        world.requested(2).await;
        origin.signal("done", ()).await.unwrap();
        origin.result().await.unwrap();
        let fork = origin.fork("ann", "looks at it again").await.unwrap();
        fork.result().await.unwrap();

        assert_eq!(fork.labels().await.unwrap(), origin.labels().await.unwrap());
        let of_customer = RunFilter::new().label("customer", "c-7");
        let listed = tenant.list_runs(&of_customer, None, 9).await.unwrap().runs;
        assert!(listed.iter().any(|run| run.id == fork.id()), "{listed:?}");
        let mut report = tenant.erase_labelled("customer", "c-7").await.unwrap();
        report.runs.sort();
        assert_eq!(report.runs, [origin.id(), fork.id()]);
        assert!(report.is_complete(), "{report:?}");
        for run in [&origin, &fork] {
            assert_eq!(run.status().await.unwrap().state.name(), "expired");
        }
        assert!(tenant.list_runs(&of_customer, None, 9).await.unwrap().runs.is_empty());
    }
}
