//! The list of workflows, and the check of an input before its run is started.

use counterfoil::api::{Api, Role};
use counterfoil::flow::{EngineBuilder, Workflow};
use counterfoil::ledger::Rate;
use counterfoil::{Client, Ctx, Engine, Failure};
use serde_json::{Value, json};

use super::operating::texts;
use super::{Served, greet};
use crate::on_both_stores;
use crate::place::Place;
use crate::world::serve;

async fn refund_all(_: Ctx, order: String) -> Result<String, Failure> {
    Ok(order)
}

async fn refund(_: Ctx, refund: Value) -> Result<Value, Failure> {
    Ok(refund["cents"].clone())
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "order": { "type": "string" }, "cents": { "type": "integer", "minimum": 1 } },
        "required": ["order", "cents"],
        "additionalProperties": false,
    })
}

/// An engine with a workflow that has a schema, in its second version, and one without.
fn with_refunds(engine: EngineBuilder, schema: Value) -> EngineBuilder {
    let newest = Workflow::new("refund", refund).version(2).input_schema(schema);
    engine.workflow("refund", 1, refund_all).register(newest).workflow("greet", 1, greet)
}

async fn served(place: &Place) -> Served {
    let engine = with_refunds(place.engine(), schema()).start().await.unwrap();
    beside(place, engine).await
}

async fn beside(place: &Place, engine: Engine) -> Served {
    let client = match place {
        Place::Sqlite(dir) => Client::sqlite(dir.path().join("agents.db")),
        Place::Postgres(schema) => Client::postgres_with(crate::server::url(), schema.options()),
    };
    let client = client.open().await.unwrap();
    let url = serve(Api::new(&client).rate(Rate::per_second(1_000_000).burst(1_000_000)).router()).await;
    Served { engine, client, url }
}

fn start(workflow: &str, input: &Value) -> Value {
    json!({ "reason": "asked for", "workflow": workflow, "input": input })
}

on_both_stores! {
    async fn the_workflows_of_the_engine_are_listed_with_their_schemas(place) {
        let served = served(&place).await;
        let token = served.token(Role::Read, "acme").await;
        let (status, page) = served.get("/workflows", &token).await;
        assert_eq!((status.as_u16(), texts(&page, "name")), (200, vec!["greet", "refund"]), "{page}");
        let (plain, described) = (&page["items"][0], &page["items"][1]);
        assert_eq!((&plain["versions"], &plain["input_schema"]), (&json!([1]), &json!(null)));
        assert_eq!((&described["versions"], &described["input_schema"]), (&json!([1, 2]), &schema()));
        assert!(described["published_at"].is_string(), "{described}");
        let (_, first) = served.get("/workflows?limit=1", &token).await;
        assert_eq!((texts(&first, "name"), &first["next"]), (vec!["greet"], &json!("greet")));
        let (_, second) = served.get("/workflows?limit=1&after=greet", &token).await;
        assert_eq!(texts(&second, "name"), ["refund"]);
        let all = served.token(Role::Read, "*").await;
        assert_eq!(served.get("/tenants/other/workflows", &all).await.1, page, "the list is that of every tenant");
        assert_eq!(served.get("/tenants/other/workflows", &token).await.0, 403);
        assert_eq!(served.get("/workflows", &served.token(Role::Call, "acme").await).await.0, 403);
        served.end().await;
    }

    async fn an_input_that_does_not_fit_is_refused_with_its_place_and_starts_no_run(place) {
        let served = served(&place).await;
        let token = served.token(Role::Operate, "acme").await;
        for (input, named) in [
            (json!({ "order": "o-1", "cents": "42" }), "/cents: "),
            (json!({ "order": "o-1", "cents": 0 }), "/cents: "),
            (json!({ "order": "o-1" }), "the input itself: "),
            (json!({ "order": "o-1", "cents": 1, "note": "n" }), "the input itself: "),
            (json!(null), "the input itself: "),
        ] {
            let (status, problem) = served.post("/runs", &token, "r1", start("refund", &input)).await;
            assert_eq!((status.as_u16(), &problem["type"]), (422, &json!("urn:counterfoil:problem:input")), "{input}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(named) && detail.contains("nothing was started"), "{detail}");
        }
        assert_eq!(served.get("/runs", &token).await.1["items"], json!([]));
        let fitting = json!({ "order": "o-1", "cents": 42 });
        let (status, run) = served.post("/runs", &token, "r1", start("refund", &fitting)).await;
        assert_eq!(status, 201, "{run}");
        let refunded = served.client.tenant("acme").unwrap().run_of_named("refund", "r1").result().await;
        assert_eq!(refunded.unwrap(), json!(42));
        // The run is there, so a repeated start with another input is a conflict and no misfit.
        let (status, problem) = served.post("/runs", &token, "r1", start("refund", &json!(null))).await;
        assert_eq!((status.as_u16(), &problem["type"]), (409, &json!("urn:counterfoil:problem:conflict")));
        served.end().await;
    }

    async fn without_a_schema_every_input_is_taken_and_the_worker_decodes_it(place) {
        let served = served(&place).await;
        let token = served.token(Role::Operate, "acme").await;
        let (status, run) = served.post("/runs", &token, "g1", start("greet", &json!(["no", "name"]))).await;
        assert_eq!(status, 201, "{run}");
        let path = format!("/runs/{}", run["id"].as_str().unwrap());
        while served.get(&path, &token).await.1["state"] != "blocked" {}
        let (status, run) = served.post("/runs", &token, "u1", start("elsewhere", &json!(7))).await;
        assert_eq!(status, 201, "a workflow that no engine has published may come: {run}");
        let (status, problem) = served.post("/runs", &token, "u2", start("bad\u{0}name", &json!(7))).await;
        assert_eq!((status.as_u16(), &problem["type"]), (422, &json!("urn:counterfoil:problem:name")));
        served.end().await;
    }

    async fn an_engine_that_is_started_later_publishes_what_has_changed(place) {
        let first = served(&place).await;
        let token = first.token(Role::Operate, "acme").await;
        let (_, before) = first.get("/workflows", &token).await;
        let fitting = json!({ "order": "o-1", "cents": 42 });
        let (_, run) = first.post("/runs", &token, "r1", start("refund", &fitting)).await;
        first.end().await;
        let same = served(&place).await;
        assert_eq!(same.get("/workflows", &token).await.1, before, "nothing has changed");
        same.end().await;

        let stricter = json!({ "properties": { "cents": { "maximum": 40 } } });
        let engine = with_refunds(place.engine(), stricter.clone()).start().await.unwrap();
        let later = beside(&place, engine).await;
        let (_, now) = later.get("/workflows", &token).await;
        assert_eq!(now["items"][0], before["items"][0]);
        assert_eq!(now["items"][1]["input_schema"], stricter);
        let (_, again) = later.post("/runs", &token, "r1", start("refund", &fitting)).await;
        assert_eq!(again["id"], run["id"], "a repeated start finds its run");
        let (status, problem) = later.post("/runs", &token, "r2", start("refund", &fitting)).await;
        assert_eq!(status, 422, "{problem}");
        later.end().await;
    }

    async fn an_engine_with_a_malformed_schema_is_not_started(place) {
        for bad in [json!({ "type": "money" }), json!({ "title": "x".repeat(65 * 1024) })] {
            let refused = with_refunds(place.engine(), bad).start().await.unwrap_err().to_string();
            assert!(refused.contains("\"refund\"") && refused.contains("the schema of its input"), "{refused}");
            assert!(refused.ends_with("[declaration]"), "{refused}");
        }
        served(&place).await.end().await;
    }
}
