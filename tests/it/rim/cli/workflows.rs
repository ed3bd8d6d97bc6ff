//! `serve` beside an engine: it has none of the workflows' code, and is a process of its own.

use counterfoil::flow::Workflow;
use serde_json::{Value, json};

use super::{Line, Server};
use crate::flow;
use crate::flow::answers::Place;
use crate::flow::world::{Process, World};

#[test]
fn a_server_lists_the_workflows_of_the_engine_and_checks_inputs() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, input: u32| ctx.step("twice", &input, |input| input * 2).await);
        let schema = json!({ "type": "integer", "minimum": 0 });
        let twice = Workflow::new("twice", code).version(3).input_schema(schema.clone());
        let process = Process::start(&world, place.engine(&world).register(twice));
        let line = Line::at(&place, &world);
        let token = line.text(&["token", "create", "bot", "--role", "operate"]).trim().to_owned();
        let server = Server::start(&line, &[]);
        let url = server.url.clone();
        process.on(async move {
            let client = reqwest::Client::new();
            let listed = client.get(format!("{url}/workflows")).bearer_auth(&token).send().await.unwrap();
            let page: Value = listed.json().await.unwrap();
            let twice = &page["items"][0];
            assert_eq!((&twice["name"], &twice["versions"]), (&json!("twice"), &json!([3])), "{page}");
            assert_eq!(twice["input_schema"], schema);
            for (input, status) in [(json!("21"), 422), (json!(-1), 422), (json!(21), 201)] {
                let body = json!({ "reason": "asked for", "workflow": "twice", "input": input });
                let start = client.post(format!("{url}/runs")).bearer_auth(&token);
                let started = start.header("idempotency-key", "order/1").json(&body).send().await.unwrap();
                assert_eq!(started.status(), status, "{body}");
            }
        });
        assert_eq!(server.end(), Some(0));
        process.shut_down();
    }
}
