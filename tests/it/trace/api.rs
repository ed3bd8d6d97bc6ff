//! A run that is started over HTTP stands in the trace of the request.

use std::time::Duration;

use counterfoil::api::{Api, Caller, Role, TenantScope};
use counterfoil::trace::{SpanKind, TraceContext};
use counterfoil::{Client, Ctx, Engine, Failure, Tenant};
use serde_json::json;

use super::{CALLER, Kept};
use crate::world::serve;

async fn greet(_: Ctx, name: String) -> Result<String, Failure> {
    Ok(format!("Hello, {name}"))
}

#[tokio::test]
async fn the_header_traceparent_is_taken_and_one_that_cannot_be_read_is_ignored() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), Kept::default());
    let path = dir.path().join("agents.db");
    let engine = Engine::sqlite(&path).workflow("greet", 1, greet).spans(kept.clone()).start().await.unwrap();
    let client = Client::sqlite(&path).open().await.unwrap();
    let api = Api::new(&client);
    let caller = Caller::new("ann", Role::Operate, TenantScope::One(Tenant::new("acme").unwrap())).unwrap();
    let token = api.tokens().create(caller).await.unwrap().secret().to_owned();
    let url = serve(api.router()).await;
    for (key, header) in [("a", CALLER), ("b", "00-nonsense")] {
        let start = json!({ "reason": "asked for", "workflow": "greet", "input": "Ann" });
        let request = reqwest::Client::new().post(format!("{url}/runs")).bearer_auth(&token).json(&start);
        let answer =
            request.header("idempotency-key", key).header("traceparent", header).send().await.unwrap();
        assert_eq!(answer.status(), 201);
        client.tenant("acme").unwrap().run_of_named("greet", key).result().await.unwrap();
    }
    client.shutdown(Duration::ZERO).await;
    engine.shutdown(Duration::ZERO).await;
    let (runs, caller) = (kept.of(SpanKind::Run), CALLER.parse::<TraceContext>().unwrap());
    assert_eq!((runs[0].context.trace, runs[0].parent), (caller.trace, Some(caller.span)));
    assert_eq!(runs[1].parent, None);
}
