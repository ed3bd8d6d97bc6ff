//! What operators look at beside runs and questions: records, artifacts, memories, the outbox, and the ledger as a whole.

use std::fmt::Write as _;
use std::time::Duration;

use counterfoil::api::{Api, Role};
use counterfoil::ledger::{Backoff, Contract, ContractClass, EffectClass, Quota, Rate};
use counterfoil::outbox::{Event, PublishResult, Publisher, Sink, SinkError};
use counterfoil::tool::{Done, DynamicTool};
use counterfoil::{Client, Ctx, Engine, Failure, Key};
use serde_json::{Value, json};

use super::{Served, serve, wait};
use crate::on_both_stores;
use crate::place::Place;

/// A tool that sends a letter, which the provider takes.
fn post(name: &str) -> DynamicTool {
    let kind = name.to_owned();
    DynamicTool::new(name, EffectClass::InternalMutation, Contract::new(ContractClass::ReplaysKey))
        .key(move |input| Some(Key::of(&kind).target(input["to"].as_str()?)))
        .call(async |_, _| Ok(Done::new(json!("posted")).external_ref("letter-7")))
        .quota(Quota::default().rate(Rate::per_second(1000)))
}

pub(super) async fn posts(ctx: Ctx, (tool, to): (String, String)) -> Result<Value, Failure> {
    ctx.call_named(tool, json!({ "to": to })).await
}

pub(super) async fn parents(ctx: Ctx, to: String) -> Result<Value, Failure> {
    ctx.child(posts, ("post".to_owned(), to)).await
}

pub(super) async fn reports(ctx: Ctx, (kind, id, text): (String, String, String)) -> Result<u32, Failure> {
    Ok(ctx.artifact(kind, id).source("mail 4").new_version().put(&text).await?.version)
}

pub(super) async fn tells(ctx: Ctx, aggregate: String) -> Result<(), Failure> {
    ctx.emit(&aggregate, "bad", &1).await?;
    ctx.emit(&aggregate, "late", &2).await
}

/// Takes what is not `bad`.
struct Picky;

impl Sink for Picky {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        let bad = batch.iter().enumerate().filter(|(_, event)| event.kind == "bad");
        Ok(bad.fold(PublishResult::all(), |taken, (place, _)| taken.except(place, SinkError::refused("422"))))
    }
}

/// An engine with two tools, some workflows, and a sink that does not take everything.
pub(super) async fn engine(place: &Place) -> Engine {
    let no_pause = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
    let engine = place.engine().dynamic_tool(post("post")).dynamic_tool(post("fax"));
    let engine =
        engine.workflow("posts", 1, posts).workflow("reports", 1, reports).workflow("tells", 1, tells);
    let engine = engine
        .workflow("wait", 1, wait)
        .workflow("parents", 1, parents)
        .sink(Publisher::new(Picky).tries(1).backoff(no_pause));
    engine.start().await.unwrap()
}

pub(super) async fn served(place: &Place) -> Served {
    let engine = engine(place).await;
    let client = match place {
        Place::Sqlite(dir) => Client::sqlite(dir.path().join("agents.db")),
        Place::Postgres(schema) => Client::postgres_with(crate::server::url(), schema.options()),
    };
    let client = client.open().await.unwrap();
    let url = serve(Api::of_engine(&engine).router()).await;
    Served { engine, client, url }
}

/// A text as a part of a URL.
pub(super) fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        write!(escaped, "%{byte:02X}").unwrap();
        escaped
    })
}

pub(super) fn texts<'v>(page: &'v Value, name: &str) -> Vec<&'v str> {
    page["items"].as_array().unwrap().iter().map(|item| item[name].as_str().unwrap()).collect()
}

on_both_stores! {
    async fn records_are_listed_by_key_state_and_tool_and_shown_with_their_evidence(place) {
        let served = served(&place).await;
        let token = served.token(Role::Read, "acme").await;
        let acme = served.engine.tenant("acme").unwrap();
        for (tool, to) in [("post", "a/1"), ("post", "b"), ("fax", "a/1"), ("fax", "c")] {
            acme.run(posts, (tool.to_owned(), to.to_owned())).await.unwrap();
        }
        let (_, all) = served.get("/records", &token).await;
        let keys = texts(&all, "key");
        assert_eq!(keys.len(), 4, "{all}");
        assert!(keys.is_sorted());
        let first = &all["items"][0];
        assert_eq!(
            (&first["tool"], &first["state"], &first["attempts"], &first["external_ref"]),
            (&json!("fax"), &json!("committed"), &json!(1), &json!("letter-7"))
        );
        assert!(first["run"].as_str().unwrap().starts_with("run-") && first["created_at"].as_str().unwrap().ends_with('Z'));
        assert!(!all.to_string().contains("posted"), "a list shows no content: {all}");
        for (query, expected) in [
            ("?key=fax:", &keys[..2]),
            ("?tool=post", &keys[2..]),
            ("?tool=post&state=committed&key=fax:", &[]),
            ("?state=started", &[]),
            ("?limit=4", &keys[..]),
        ] {
            let (status, page) = served.get(&format!("/records{query}"), &token).await;
            assert_eq!((status.as_u16(), texts(&page, "key").as_slice()), (200, expected), "{query}");
        }
        let (mut seen, mut path) = (Vec::new(), "/records?tool=post&limit=1".to_owned());
        loop {
            let (_, page) = served.get(&path, &token).await;
            seen.extend(texts(&page, "key").into_iter().map(str::to_owned));
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/records?tool=post&limit=1&after={}", escaped(next));
        }
        assert_eq!(seen, keys[2..]);
        let path = format!("/records/{}", escaped(keys[0]));
        let (status, shown) = served.get(&path, &token).await;
        assert_eq!((status.as_u16(), &shown["key"], &shown["request"]["to"]), (200, &json!(keys[0]), &json!("a/1")), "{shown}");
        let (status, evidence) = served.get(&format!("{path}/evidence"), &token).await;
        assert_eq!((status.as_u16(), &evidence["key"]), (200, &json!(keys[0])), "{evidence}");
        let other = served.token(Role::Admin, "other").await;
        assert_eq!(served.get(&path, &other).await.0, 404);
        assert_eq!(texts(&served.get("/records", &other).await.1, "key"), [""; 0]);
        served.end().await;
    }

    async fn artifacts_and_memories_are_listed_and_shown(place) {
        let served = served(&place).await;
        let token = served.token(Role::Read, "acme").await;
        let acme = served.engine.tenant("acme").unwrap();
        for (kind, id, text) in [("note", "x", "n"), ("report", "case/17", "all is well"), ("report", "case/17", "<b>"), ("report", "z", "r")] {
            acme.run(reports, (kind.to_owned(), id.to_owned(), text.to_owned())).await.unwrap();
        }
        let (_, all) = served.get("/artifacts", &token).await;
        assert_eq!((texts(&all, "kind"), texts(&all, "id")), (vec!["note", "report", "report"], vec!["x", "case/17", "z"]));
        assert_eq!(all["items"][1]["version"], 2);
        assert!(all["items"][1]["at"].as_str().unwrap().ends_with('Z') && !all.to_string().contains("<b>"), "{all}");
        let (_, page) = served.get("/artifacts?kind=report&limit=1", &token).await;
        assert_eq!(texts(&page, "id"), ["case/17"]);
        let next = escaped(page["next"].as_str().unwrap());
        let (_, page) = served.get(&format!("/artifacts?kind=report&after={next}"), &token).await;
        assert_eq!((texts(&page, "id"), &page["next"]), (vec!["z"], &json!(null)));
        let (status, last) = served.get("/artifacts/report/case%2F17", &token).await;
        assert_eq!((status.as_u16(), &last["content"], &last["version"]), (200, &json!("<b>"), &json!(2)));
        let (_, first) = served.get("/artifacts/report/case%2F17?version=1", &token).await;
        assert_eq!((&first["content"], &first["sources"]), (&json!("all is well"), &json!(["mail 4"])));
        assert_eq!(served.get("/artifacts/report/case%2F17?version=3", &token).await.0, 404);

        let memory = acme.memory("ann");
        for content in ["likes tea", "lives in Bern", "has a dog"] {
            memory.remember("fact", content).source("mail 4").await.unwrap();
        }
        let (_, page) = served.get("/memories?subject=ann&kind=fact&limit=2", &token).await;
        assert_eq!(texts(&page, "content"), ["has a dog", "lives in Bern"], "{page}");
        assert!(page["items"][0]["created_at"].as_str().unwrap().ends_with('Z'));
        let next = page["next"].as_str().unwrap();
        let (_, page) = served.get(&format!("/memories?subject=ann&kind=fact&after={next}"), &token).await;
        assert_eq!((texts(&page, "content"), &page["next"]), (vec!["likes tea"], &json!(null)));
        let other = served.token(Role::Admin, "other").await;
        for path in ["/artifacts", "/memories?subject=ann&kind=fact"] {
            assert_eq!(served.get(path, &other).await.1["items"], json!([]), "{path}");
        }
        assert_eq!(served.get("/artifacts/report/z", &other).await.0, 404);
        served.end().await;
    }

    async fn an_event_that_is_set_aside_is_released_and_left_out_by_the_caller(place) {
        let served = served(&place).await;
        let token = served.token(Role::Decide, "acme").await;
        let acme = served.engine.tenant("acme").unwrap();
        acme.run(tells, "order/1".to_owned()).await.unwrap();
        let aside = async |unlike: &str| loop {
            let (_, page) = served.get("/outbox", &token).await;
            if let Some(aside) = page["items"].get(0).filter(|aside| aside["question"] != unlike) {
                break aside.clone();
            }
        };
        let first = aside("").await;
        assert_eq!(
            (&first["aggregate"], &first["kind"], &first["behind"], &first["refusals"]),
            (&json!("order/1"), &json!("bad"), &json!(1), &json!(1))
        );
        let path = |aside: &Value, what: &str| format!("/outbox/{}/{what}", aside["question"].as_str().unwrap());
        let reason = |why: &str| json!({ "reason": why });
        let reader = served.token(Role::Read, "acme").await;
        assert_eq!(served.post(&path(&first, "release"), &reader, "k", reason("no")).await.0, 403);
        let other = served.token(Role::Admin, "other").await;
        assert_eq!(served.post(&path(&first, "release"), &other, "k", reason("no")).await.0, 404);
        let (status, view) = served.post(&path(&first, "release"), &token, "k", reason("it was mended")).await;
        assert_eq!((status.as_u16(), &view["answer"]["by"], &view["answer"]["resolution"]), (200, &json!("ann"), &json!("again")), "{view}");
        let second = aside(first["question"].as_str().unwrap()).await;
        assert_eq!(second["event"], first["event"], "it was refused again");
        assert_eq!(served.post(&path(&second, "skip"), &token, "k", reason("nobody needs it")).await.0, 200);
        assert_eq!(served.post(&path(&second, "skip"), &token, "k2", reason("once more")).await.0, 200, "the same answer");
        assert_eq!(served.post(&path(&second, "release"), &token, "k", reason("or so")).await.0, 409);
        while !served.get("/outbox", &token).await.1["items"].as_array().unwrap().is_empty() {}
        assert_eq!(served.post("/outbox/question-1/skip", &token, "k", reason("r")).await.0, 404);
        served.end().await;
    }

    async fn an_operator_for_all_tenants_sees_which_there_are_and_what_is_stuck_in_them(place) {
        let served = served(&place).await;
        let token = served.token(Role::Operate, "*").await;
        for tenant in ["b", "a", "c"] {
            let tenant = served.engine.tenant(tenant).unwrap();
            let run = tenant.run(wait, json!(null)).start().await.unwrap();
            run.pause("ann", "the bank is down").await.unwrap();
            while run.status().await.unwrap().state.name() != "blocked" {
                tokio::task::yield_now().await;
            }
        }
        let (_, tenants) = served.get("/tenants", &token).await;
        assert_eq!((texts(&tenants, "name"), &tenants["next"]), (vec!["a", "b", "c"], &json!(null)), "{tenants}");
        let (_, tenants) = served.get("/tenants?limit=1&after=a", &token).await;
        assert_eq!((texts(&tenants, "name"), &tenants["next"]), (vec!["b"], &json!("b")));
        let (_, stuck) = served.get("/stuck?limit=2", &token).await;
        assert_eq!(texts(&stuck, "tenant"), ["b", "a"], "the oldest first: {stuck}");
        assert!(stuck["items"][0]["question"].as_str().unwrap().contains("the bank is down"), "{stuck}");
        let next = stuck["next"].as_str().unwrap();
        let (_, rest) = served.get(&format!("/stuck?limit=2&after={next}"), &token).await;
        assert_eq!((texts(&rest, "tenant"), &rest["next"]), (vec!["c"], &json!(null)));
        let (_, throttles) = served.get("/throttles", &token).await;
        assert_eq!(texts(&throttles, "name"), ["fax", "post"], "{throttles}");
        assert_eq!((&throttles["items"][0]["state"], &throttles["items"][0]["waiting"]), (&json!("closed"), &json!(0)));
        let single = served.token(Role::Admin, "a").await;
        for path in ["/tenants", "/stuck", "/throttles"] {
            assert_eq!(served.get(path, &single).await.0, 403, "{path}");
        }
        served.end().await;
    }
}
