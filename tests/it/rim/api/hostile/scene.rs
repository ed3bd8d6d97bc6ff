//! Two tenants with rows of every kind, callers of every role, and what an attacker could have got hold of.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use counterfoil::api::{Api, Caller, Role, TenantScope};
use counterfoil::guard_service::{Begin, CallOutcome, GuardService, Seal, Step};
use counterfoil::ledger::{Rate, ReviewPolicy};
use counterfoil::{ApprovalSubject, Engine, Tenant};
use serde_json::json;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use super::answer::{Answer, Shot};
use crate::place::Place;
use crate::rim::api::operating::{self, posts, reports, tells, texts};
use crate::rim::api::wait;

/// The word that stands in the contents of the other tenant's rows, and in nothing else.
pub(super) const CANARY: &str = "canary";

/// The bearer tokens.
pub(super) struct Tokens {
    /// Of the tenant `acme`, for each role.
    pub(super) own: Vec<(Role, String)>,
    /// Of all tenants, for each role.
    pub(super) all: Vec<(Role, String)>,
    /// Of the other tenant, which may read.
    pub(super) other: String,
    /// Of the tenant `acme`, for everything, and revoked.
    pub(super) revoked: String,
}

impl Tokens {
    async fn of(engine: &Engine) -> Self {
        let tokens = Api::of_engine(engine).tokens();
        let token = async |role: Role, scope: TenantScope| {
            let caller = Caller::new("ann", role, scope).unwrap();
            tokens.create(caller).await.unwrap().secret().to_owned()
        };
        let one = |name: &str| TenantScope::One(Tenant::new(name).unwrap());
        let (mut own, mut all) = (Vec::new(), Vec::new());
        for role in Role::ALL {
            own.push((role, token(role, one("acme")).await));
            all.push((role, token(role, TenantScope::All).await));
        }
        let (other, revoked) = (token(Role::Read, one("other")).await, token(Role::Admin, one("acme")).await);
        assert!(tokens.revoke(&revoked[4..20], "ann").await.unwrap());
        Self { own, all, other, revoked }
    }

    /// The token of this role, for all tenants.
    pub(super) fn root(&self) -> &str {
        &self.all.last().unwrap().1
    }

    /// The parts of the tokens that nobody may be shown.
    pub(super) fn secrets(&self) -> Vec<String> {
        let known = self.own.iter().chain(&self.all).map(|(_, token)| token);
        let known = known.chain([&self.other, &self.revoked]);
        known.map(|token| token.rsplit('_').next().unwrap().to_owned()).collect()
    }
}

/// An engine with its API in this process.
pub(super) struct Scene {
    place: Place,
    engine: Engine,
    guard: GuardService,
    router: Router,
    pub(super) tokens: Tokens,
    pub(super) secrets: Vec<String>,
    /// What the parts of a path may be, by their names: rows of `acme`.
    pub(super) parts: BTreeMap<&'static str, Vec<String>>,
    /// Ids, cursors and permits of both tenants.
    pub(super) genuine: Vec<String>,
    /// Cursors of streams of events, of both tenants.
    pub(super) cursors: Vec<String>,
    /// The permit of a call of `acme` that is under way, and that of a call of the other tenant.
    pub(super) permits: [String; 2],
}

impl Scene {
    pub(super) async fn new() -> Self {
        let place = Place::sqlite();
        let engine = operating::engine(&place).await;
        let guard = GuardService::new(&engine.executor());
        let api = Api::of_engine(&engine).rate(Rate::per_second(1_000_000).burst(1_000_000));
        let router = api.guard(&guard).router();
        let tokens = Tokens::of(&engine).await;
        let secrets = tokens.secrets();
        for (tenant, word) in [("acme", "plain"), ("other", CANARY)] {
            Box::pin(furnish(&engine, tenant, word)).await;
        }
        let mut permits = Vec::new();
        for (tenant, word) in [("acme", "plain"), ("other", CANARY)] {
            let tenant = Tenant::new(tenant).unwrap();
            let sealed = Seal::new(
                begun(&guard, &tenant, "order-8", word).await,
                CallOutcome::done(json!({ "id": word })),
            );
            assert!(matches!(guard.seal(&tenant, sealed).await.unwrap(), Step::Done { first: true, .. }));
            permits.push(begun(&guard, &tenant, "order-9", word).await);
        }
        let permits = permits.try_into().unwrap();
        let (parts, genuine, cursors) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut scene =
            Self { place, engine, guard, router, tokens, secrets, parts, genuine, cursors, permits };
        scene.look_round().await;
        scene
    }

    pub(super) async fn fire(&self, shot: &Shot) -> Answer {
        shot.fire(&self.router).await
    }

    /// What a path shows to the operator for all tenants.
    pub(super) async fn shown(&self, path: &str) -> Answer {
        let shot = Shot::get(path).bearer(self.tokens.root());
        let answer = self.fire(&shot).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer
    }

    /// Finds out what can be named in requests.
    async fn look_round(&mut self) {
        for tenant in ["acme", "other"] {
            let at = |path: &str| format!("/tenants/{tenant}{path}");
            while texts(&self.shown(&at("/outbox")).await.json(), "question").is_empty() {
                tokio::task::yield_now().await; // the event is not yet refused
            }
            for (name, path, field) in [
                ("run", "/runs", "id"),
                ("question", "/questions", "id"),
                ("approval", "/approvals", "id"),
                ("key", "/records", "key"),
                ("id", "/artifacts", "id"),
                ("kind", "/artifacts", "kind"),
            ] {
                let listed = self.shown(&at(path)).await.json();
                let found: Vec<_> = texts(&listed, field).into_iter().map(str::to_owned).collect();
                assert!(!found.is_empty(), "{tenant} has no {name}");
                self.genuine.extend(found.iter().cloned());
                let first = self.shown(&at(&format!("{path}?limit=1"))).await.json();
                self.genuine.extend(first["next"].as_str().map(str::to_owned));
                if tenant == "acme" {
                    self.parts.insert(name, found);
                }
            }
            let run = self.shown(&at("/runs")).await.json()["items"][0]["id"].as_str().unwrap().to_owned();
            for stream in ["/events".to_owned(), format!("/runs/{run}/events")] {
                let told = self.shown(&at(&stream)).await.text;
                let id = told.lines().find_map(|line| line.strip_prefix("id: "));
                self.cursors.push(id.unwrap_or_else(|| panic!("no cursor: {told}")).to_owned());
            }
        }
        self.parts.insert("token", vec!["0123456789abcdef".to_owned()]);
        self.genuine.extend(self.cursors.iter().chain(&self.permits).cloned());
    }

    /// All rows of the database, or those of a tenant, as SQL would write them: by their tables. Rows of processes are left out.
    pub(super) async fn rows(&self, tenant: Option<&str>) -> BTreeMap<String, Vec<String>> {
        let Place::Sqlite(dir) = &self.place else { unreachable!("the scene is on SQLite") };
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path().join("agents.db"));
        let mut db = options.read_only(true).connect().await.unwrap();
        let tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'worker' AND name NOT LIKE 'sqlite%'";
        let tables = sqlx::query_scalar::<sqlx::Sqlite, String>(tables).fetch_all(&mut db).await.unwrap();
        let mut all = BTreeMap::new();
        for table in tables {
            let columns = "SELECT name FROM pragma_table_info($1)";
            let columns = sqlx::query_scalar::<sqlx::Sqlite, String>(columns).bind(table.clone());
            let columns = columns.fetch_all(&mut db).await.unwrap();
            let condition = match tenant {
                Some(_) if !columns.iter().any(|column| column == "tenant") => continue,
                Some(tenant) => format!("WHERE tenant = '{tenant}'"),
                None => String::new(),
            };
            let quoted: Vec<_> = columns.iter().map(|column| format!("quote(\"{column}\")")).collect();
            let sql =
                format!("SELECT {} FROM \"{table}\" {condition} ORDER BY 1", quoted.join(" || ' ' || "));
            let rows = sqlx::query_scalar::<sqlx::Sqlite, String>(AssertSqlSafe(sql))
                .fetch_all(&mut db)
                .await
                .unwrap();
            all.insert(table, rows);
        }
        db.close().await.unwrap();
        all
    }

    /// The call of the other tenant is sealed by its own client, and a run of `acme` is started and ends: everything still works.
    pub(super) async fn still_works(&self) {
        let other = Tenant::new("other").unwrap();
        let seal = Seal::new(self.permits[1].clone(), CallOutcome::done(json!("sent")));
        let sealed = self.guard.seal(&other, seal).await.unwrap();
        assert!(matches!(sealed, Step::Done { first: true, .. }), "{sealed:?}");
        let acme = self.engine.tenant("acme").unwrap();
        let run = acme.run(wait, json!(null)).key("afterwards").start().await.unwrap();
        run.signal("go", 7).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
        for (path, role) in [("/runs", Role::Read), ("/questions", Role::Decide), ("/records", Role::Operate)]
        {
            let (_, token) = self.tokens.own.iter().find(|(own, _)| *own == role).unwrap();
            let answer = self.fire(&Shot::get(path).bearer(token)).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        }
    }

    pub(super) async fn end(self) {
        self.engine.shutdown(Duration::ZERO).await;
    }
}

/// Gives a tenant rows of every kind, with the word in their contents.
async fn furnish(engine: &Engine, name: &str, word: &str) {
    let tenant = engine.tenant(name).unwrap();
    tenant.run(posts, ("post".to_owned(), "a/1".to_owned())).await.unwrap();
    tenant.run(reports, ("report".to_owned(), "case/17".to_owned(), word.to_owned())).await.unwrap();
    tenant.run(tells, "order/1".to_owned()).await.unwrap();
    tenant.memory("ann").remember("fact", word).source("mail 4").await.unwrap();
    for (key, rests_as) in
        [("w1", "waiting"), ("w2", "waiting"), ("w3", "waiting"), ("p1", "blocked"), ("p2", "blocked")]
    {
        let run = tenant
            .run(wait, json!({ "note": word }))
            .key(key)
            .label("customer", "c-7")
            .start()
            .await
            .unwrap();
        if rests_as == "blocked" {
            run.pause("ann", word).await.unwrap();
        }
        while run.status().await.unwrap().state.name() != rests_as {
            tokio::task::yield_now().await;
        }
    }
    let subject = ApprovalSubject::of("refund", &json!({ "cents": 4200, "note": word }));
    tenant.approvals().ask("refund/1", subject, ReviewPolicy::by(["ann", "bob"])).await.unwrap();
}

/// Begins a guarded call, and returns its permit.
async fn begun(guard: &GuardService, tenant: &Tenant, key: &str, word: &str) -> String {
    let mut begin = Begin::new("refund", key, json!({ "note": word }));
    begin.attempt_ms = 3_600_000; // it is under way for as long as the test takes
    match guard.begin(tenant, begin).await.unwrap() {
        Step::Send(permitted) => permitted.permit,
        step => panic!("not to be sent but {step:?}"),
    }
}
