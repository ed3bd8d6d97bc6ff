//! The HTTP API: served by a client beside an engine, and called over a real connection.

mod events;
mod filters;
mod hostile;
mod labels;
mod operating;
mod pages;
mod reading;
mod routes;
mod tokens;
mod workflows;
mod writing;

use std::time::Duration;

use axum::Router;
use counterfoil::api::{Api, Caller, Role, TenantScope};
use counterfoil::flow::EngineBuilder;
use counterfoil::ledger::Rate;
use counterfoil::{Client, Ctx, Engine, Failure, RunId, Tenant, Turn};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::place::Place;
use crate::world::serve;

async fn greet(_: Ctx, name: String) -> Result<String, Failure> {
    Ok(format!("Hello, {name}"))
}

async fn wait(ctx: Ctx, _: Value) -> Result<u32, Failure> {
    ctx.signal("go").await
}

/// A loop of so many turns, each with a step.
async fn count(ctx: Ctx, turns: u32) -> Result<u32, Failure> {
    ctx.turns("count", 1, |turn: u32, ctx| async move {
        let next = ctx.step("add", &turn, |turn| turn + 1).await?;
        Ok(if turn < turns { Turn::Next(next) } else { Turn::Done(turn) })
    })
    .await
}

/// An engine with three workflows, and an API on its ledger.
struct Served {
    engine: Engine,
    client: Client,
    url: String,
}

impl Served {
    async fn on(place: &Place) -> Self {
        Self::beside(place, place.engine()).await
    }

    async fn beside(place: &Place, engine: EngineBuilder) -> Self {
        let unlimited = |api: Api| api.rate(Rate::per_second(1_000_000).burst(1_000_000)).router();
        Self::of(place, engine, unlimited).await
    }

    async fn with(place: &Place, router: impl FnOnce(Api) -> Router) -> Self {
        Self::of(place, place.engine(), router).await
    }

    async fn of(place: &Place, engine: EngineBuilder, router: impl FnOnce(Api) -> Router) -> Self {
        let engine = engine.workflow("greet", 1, greet).workflow("wait", 1, wait);
        let engine = engine.workflow("count", 1, count).start().await.unwrap();
        let client = match place {
            Place::Sqlite(dir) => Client::sqlite(dir.path().join("agents.db")),
            Place::Postgres(schema) => Client::postgres_with(crate::server::url(), schema.options()),
        };
        let client = client.open().await.unwrap();
        let url = serve(router(Api::new(&client))).await;
        Self { engine, client, url }
    }

    /// A token of Ann's.
    async fn token(&self, role: Role, tenant: &str) -> String {
        self.token_of("ann", role, tenant).await
    }

    async fn token_of(&self, name: &str, role: Role, tenant: &str) -> String {
        let tenants = match tenant {
            "*" => TenantScope::All,
            one => TenantScope::One(Tenant::new(one).unwrap()),
        };
        let caller = Caller::new(name, role, tenants).unwrap();
        Api::new(&self.client).tokens().create(caller).await.unwrap().secret().to_owned()
    }

    async fn send(&self, method: Method, path: &str, token: &str, body: Option<(&str, Value)>) -> Response {
        let mut request = reqwest::Client::new().request(method, format!("{}{path}", self.url));
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if let Some((key, body)) = body {
            request = request.header("idempotency-key", key).json(&body);
        }
        request.send().await.unwrap()
    }

    async fn get(&self, path: &str, token: &str) -> (StatusCode, Value) {
        read(self.send(Method::GET, path, token, None).await).await
    }

    async fn post(&self, path: &str, token: &str, key: &str, body: Value) -> (StatusCode, Value) {
        read(self.send(Method::POST, path, token, Some((key, body))).await).await
    }

    /// A run of the workflow that waits, and which waits now.
    async fn waiting(&self, key: &str) -> RunId {
        let acme = self.engine.tenant("acme").unwrap();
        let run = acme.run(wait, json!(null)).key(key).start().await.unwrap();
        while run.status().await.unwrap().state.name() != "waiting" {
            tokio::task::yield_now().await;
        }
        run.id()
    }

    async fn end(self) {
        self.client.shutdown(Duration::ZERO).await;
        self.engine.shutdown(Duration::ZERO).await;
    }
}

async fn read(response: Response) -> (StatusCode, Value) {
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: {text:?} is no JSON")))
}
