//! Views of runs: plain values, written as JSON with times in RFC 3339.

use std::time::Duration;

use counterfoil::Failure;
use counterfoil::flow::RunState;
use serde_json::json;

use crate::flow;
use crate::flow::lives::NAME;
use crate::flow::tools::post;
use crate::flow::world::{Process, World};

#[test]
fn a_status_is_written_as_json_with_the_state_in_a_word() {
    let world = World::new();
    let code = flow!(world, |ctx, failing: bool| {
        post(&ctx, "first").await?;
        if failing {
            return Err(Failure::new("no paper"));
        }
        ctx.sleep(Duration::from_secs(3600)).await?;
        Ok(1_u32)
    });
    let process = Process::start(&world, world.engine().workflow(NAME, 1, code.clone()));
    let (sleeping, failed) = process.on(async {
        let sleeping = process.acme().run(code.clone(), false).key("order 7").start().await.unwrap();
        process.state(sleeping.id(), "waiting").await;
        let failed = process.acme().run(code, true).start().await.unwrap();
        failed.result().await.unwrap_err();
        (sleeping, failed)
    });
    let status = process.on(sleeping.status()).unwrap();
    let shown = serde_json::to_value(&status).unwrap();
    assert_eq!(shown["id"], json!(sleeping.id().to_string()));
    assert_eq!(
        (&shown["state"], &shown["answer"], &shown["signal"]),
        (&json!("waiting"), &json!(false), &json!(false))
    );
    assert_eq!((&shown["key"], &shown["tenant"]), (&json!("order 7"), &json!("acme")));
    assert!(shown["started_at"].as_str().unwrap().ends_with('Z'), "{shown}");
    assert!(shown["until"].as_str().unwrap().ends_with('Z'), "{shown}");
    assert!(status.to_string().contains("key order 7: waiting until "), "{status}");

    let status = process.on(failed.status()).unwrap();
    let RunState::Failed { failure } = &status.state else { panic!("{status:?}") };
    assert_eq!(failure.message, "no paper");
    assert!(status.to_string().ends_with(": failed: no paper"), "{status}");

    let history = serde_json::to_value(process.on(failed.history(None)).unwrap()).unwrap();
    assert_eq!(history[0]["calls"][0]["tool"], json!("post"), "{history}");
    assert!(history[0]["calls"][0]["response"]["value"].is_number(), "{history}");
    process.shut_down();
}

#[test]
fn until_waiting_returns_when_the_run_waits_as_a_row_is_blocked_or_is_over() {
    let world = World::new();
    let code = flow!(world, |ctx, failing: bool| {
        post(&ctx, "first").await?;
        if failing {
            return Err(Failure::new("no paper"));
        }
        ctx.signal::<u32>("paid").await
    });
    let process = Process::start(&world, world.engine().workflow(NAME, 1, code.clone()));
    process.on(async {
        let waiting = process.acme().run(code.clone(), false).start().await.unwrap();
        let status = waiting.until_waiting().await.unwrap();
        assert!(matches!(status.state, RunState::Waiting { signal: true, .. }), "{status}");
        waiting.signal("paid", 7_u32).await.unwrap();
        assert_eq!(waiting.result().await.unwrap(), 7);
        let failed = process.acme().run(code, true).start().await.unwrap();
        assert!(failed.until_waiting().await.unwrap().state.is_final());
    });
    process.shut_down();
}

#[test]
fn a_tenant_whose_name_was_checked_needs_no_second_check() {
    let world = World::new();
    let code = flow!(world, |ctx, what: String| post(&ctx, &what).await);
    let process = Process::start(&world, world.engine().workflow(NAME, 1, code.clone()));
    process.on(async {
        let tenant = counterfoil::Tenant::new("acme").unwrap();
        let run = process.engine().as_tenant(&tenant).run(code, "x".to_owned()).start().await.unwrap();
        assert_eq!(run.status().await.unwrap().tenant, tenant);
        assert!(process.acme().runs(None).await.unwrap().iter().any(|of_name| of_name.id == run.id()));
    });
    process.shut_down();
}
