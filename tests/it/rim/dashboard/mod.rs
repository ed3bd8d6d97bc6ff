//! The dashboard: served by a client beside an engine, and looked at over a real connection, without script.

mod browser;
mod charts;
mod forms;
mod pages;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use counterfoil::api::{Api, Caller, Role, TenantScope};
use counterfoil::ledger::{Contract, ContractClass, EffectClass, ErrorKind, Rate, ReviewPolicy};
use counterfoil::{ApprovalSubject, Client, Ctx, Engine, Failure, QuestionId, RunId, Tenant};
use serde_json::{Value, json};

use self::browser::Browser;
use crate::place::Place;
use crate::world::{Keys, Reply, World, serve};

async fn wait(ctx: Ctx, _: Value) -> Result<u32, Failure> {
    ctx.signal("go").await
}

/// A step, a call that goes well, and one whose outcome the world decides.
async fn refund(ctx: Ctx, case: String) -> Result<Value, Failure> {
    ctx.step("draft", &case, String::len).await?;
    ctx.call_named("open", json!({ "case": case })).await?;
    ctx.call_named("pay", json!({ "case": case })).await
}

/// A call whose outcome a lookup shows. Its key is that of the case, whatever the number of seats.
async fn book(ctx: Ctx, (case, seats): (String, u32)) -> Result<Value, Failure> {
    ctx.call_named("book", json!({ "case": case, "seats": seats })).await
}

/// An engine with three workflows, and a dashboard on its ledger.
struct Served {
    engine: Engine,
    client: Client,
    world: Arc<World>,
    url: String,
}

impl Served {
    async fn on(place: &Place) -> Self {
        let world = World::new(Keys::Ignores);
        let tool = |name, class| world.tool(name, EffectClass::InternalMutation, Contract::new(class));
        let engine =
            place.engine().workflow("refund", 1, refund).workflow("wait", 1, wait).workflow("book", 1, book);
        let tools = [
            tool("open", ContractClass::ReplaysKey),
            tool("pay", ContractClass::Blind),
            tool("book", ContractClass::Lookup),
        ];
        let engine = tools
            .into_iter()
            .fold(engine, counterfoil::flow::EngineBuilder::dynamic_tool)
            .start()
            .await
            .unwrap();
        let client = match place {
            Place::Sqlite(dir) => Client::sqlite(dir.path().join("agents.db")),
            Place::Postgres(schema) => Client::postgres_with(crate::server::url(), schema.options()),
        };
        let client = client.open().await.unwrap();
        let api = Api::new(&client).rate(Rate::per_second(1_000_000).burst(1_000_000));
        let app = Router::new().nest_service("/ui", api.dashboard().router()).merge(api.router());
        Self { engine, url: serve(app).await, client, world }
    }

    /// A token of this person.
    async fn token(&self, name: &str, role: Role, tenant: &str) -> String {
        let tenants = match tenant {
            "*" => TenantScope::All,
            name => TenantScope::One(Tenant::new(name).unwrap()),
        };
        let caller = Caller::new(name, role, tenants).unwrap();
        Api::new(&self.client).tokens().create(caller).await.unwrap().secret().to_owned()
    }

    /// A browser in which Ann has signed in.
    async fn browser(&self, role: Role, tenant: &str) -> Browser {
        let mut browser = Browser::at(&self.url);
        let token = self.token("ann", role, tenant).await;
        assert_eq!(browser.sign_in(&token).await.status, 303);
        browser
    }

    /// A run of acme that waits for a signal, and has its key as the label `case`.
    async fn waiting(&self, key: &str) -> RunId {
        let acme = self.engine.tenant("acme").unwrap();
        let run = acme.run(wait, json!(null)).key(key).label("case", key).start().await.unwrap();
        while run.status().await.unwrap().state.name() != "waiting" {
            tokio::task::yield_now().await;
        }
        run.id()
    }

    /// A run of acme with an open question about a call, whose error says this.
    async fn asked(&self, case: &str) -> (RunId, QuestionId) {
        self.world.replies([Reply::Answer, Reply::EffectThenFail(ErrorKind::Disconnected)]);
        let acme = self.engine.tenant("acme").unwrap();
        let run = acme.run(refund, case.to_owned()).key(case).start().await.unwrap().id();
        loop {
            let open = acme.questions().await.unwrap();
            if let Some(asked) = open.iter().find(|asked| asked.run == Some(run)) {
                return (run, asked.id);
            }
            tokio::task::yield_now().await;
        }
    }

    /// An approval that Ann decides about, and its id.
    async fn review(&self, id: &str, content: Value) -> String {
        let reviews = self.engine.tenant("acme").unwrap().approvals();
        let package = ApprovalSubject::of("refund", &content);
        reviews.ask(id, package, ReviewPolicy::by(["ann", "bob"])).await.unwrap().id
    }

    async fn end(self) {
        self.client.shutdown(Duration::ZERO).await;
        self.engine.shutdown(Duration::ZERO).await;
    }
}
