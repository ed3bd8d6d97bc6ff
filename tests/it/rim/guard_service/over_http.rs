//! The guard service over HTTP, beside the other routes of the API.

use std::time::Duration;

use counterfoil::api::{Api, Caller, Role, TenantScope};
use counterfoil::guard_service::GuardService;
use counterfoil::{Engine, Tenant};
use serde_json::{Value, json};

use crate::world::{Chance, TestClock, serve};

/// An engine with a guard, served over HTTP.
pub(super) struct Served {
    pub(super) dir: tempfile::TempDir,
    pub(super) clock: TestClock,
    pub(super) url: String,
    engine: Engine,
}

impl Served {
    pub(super) async fn new() -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        let engine =
            Engine::sqlite(dir.path().join("agents.db")).clock(clock.clone()).entropy(Chance::least());
        let engine = engine.start().await.unwrap();
        let api = Api::of_engine(&engine).guard(&GuardService::new(&engine.executor()));
        let url = serve(api.router()).await;
        Self { dir, clock, url, engine }
    }

    pub(super) async fn token(&self, role: Role, tenant: &str) -> String {
        let scope = TenantScope::One(Tenant::new(tenant).unwrap());
        let caller = Caller::new(format!("agent of {tenant}"), role, scope).unwrap();
        Api::of_engine(&self.engine).tokens().create(caller).await.unwrap().secret().to_owned()
    }

    async fn post(&self, verb: &str, token: &str, body: Value) -> (u16, Value) {
        let url = format!("{}/guard/{verb}", self.url);
        let answer = reqwest::Client::new().post(url).bearer_auth(token).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    /// True if the tenant `acme` has an open question.
    pub(super) async fn asks(&self) -> bool {
        !self.engine.executor().questions(&crate::world::acme()).await.unwrap().is_empty()
    }

    pub(super) async fn end(self) {
        self.engine.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_call_is_begun_and_sealed_over_http_and_its_result_is_handed_out_again() {
    let served = Served::new().await;
    let token = served.token(Role::Call, "acme").await;
    let begin = json!({ "tool": "refund", "key": "order-9", "input": { "cents": 1200 } });
    let (status, send) = served.post("begin", &token, begin.clone()).await;
    assert_eq!((status, &send["step"], &send["attempt"]), (200, &json!("send"), &json!(1)), "{send}");
    let outcome = json!({ "done": { "output": { "id": "re_7" }, "external_ref": "re_7" } });
    let seal = json!({ "permit": send["permit"], "outcome": outcome });
    let (_, done) = served.post("seal", &token, seal.clone()).await;
    assert_eq!(
        done,
        json!({ "step": "done", "output": { "id": "re_7" }, "external_ref": "re_7", "first": true })
    );
    // The answer to a seal may be lost: the same seal again is no second effect.
    for (verb, body) in [("begin", begin), ("seal", seal)] {
        let (status, again) = served.post(verb, &token, body).await;
        assert_eq!(
            (status, &again["output"], &again["first"]),
            (200, &json!({ "id": "re_7" }), &json!(false))
        );
    }
    assert!(served.engine.executor().questions(&crate::world::acme()).await.unwrap().is_empty());
    served.end().await;
}

#[tokio::test]
async fn an_agent_seals_nothing_of_another_tenant_and_decides_nothing() {
    let served = Served::new().await;
    let (own, other) = (served.token(Role::Call, "acme").await, served.token(Role::Call, "other").await);
    let (_, send) = served.post("begin", &own, json!({ "tool": "refund", "key": "order-9" })).await;
    let seal = json!({ "permit": send["permit"], "outcome": { "done": { "output": 1 } } });
    let (status, refused) = served.post("seal", &other, seal).await;
    assert_eq!((status, &refused["type"]), (404, &json!("urn:counterfoil:problem:not_found")));
    for path in ["/questions", "/runs", "/approvals"] {
        let answer = reqwest::Client::new().get(format!("{}{path}", served.url)).bearer_auth(&own);
        assert_eq!(answer.send().await.unwrap().status(), 403, "{path}");
    }
    for role in [Role::Read, Role::Decide, Role::Operate] {
        let token = served.token(role, "acme").await;
        assert_eq!(served.post("begin", &token, json!({ "tool": "refund", "key": "k" })).await.0, 403);
    }
    served.end().await;
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused_with_its_reason() {
    let served = Served::new().await;
    let token = served.token(Role::Call, "acme").await;
    let cases = [
        (json!({ "tool": "refund" }), 400, "malformed"),
        (json!({ "tool": "refund", "key": "k", "unknown": 1 }), 400, "malformed"),
        (json!({ "tool": "refund", "key": "" }), 422, "key"),
        (json!({ "tool": "", "key": "k" }), 422, "key"),
        (json!({ "tool": "refund", "key": "k", "contract": "transactional" }), 422, "contract"),
    ];
    for (body, expected, code) in cases {
        let (status, problem) = served.post("begin", &token, body.clone()).await;
        let kind = format!("urn:counterfoil:problem:{code}");
        assert_eq!((status, problem["type"].as_str()), (expected, Some(kind.as_str())), "{body}: {problem}");
    }
    let permit = json!({ "permit": "forged", "outcome": { "done": { "output": 1 } } });
    assert_eq!(served.post("seal", &token, permit).await.0, 404);
    served.end().await;
}
