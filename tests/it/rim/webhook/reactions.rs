//! What an event does: a transaction, the start of a workflow, a signal to one, a guarded call; each once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use counterfoil::flow::{RunHandle, TenantClient};
use counterfoil::ledger::{Contract, ContractClass, EffectClass};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::tool::{Done, DynamicTool, ToolError};
use counterfoil::{Completion, Ctx, Engine, Failure, Key, Outcome, ToolRequest};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// Waits until its order is paid, and says how much it got.
async fn order(ctx: Ctx, order: String) -> Result<String, Failure> {
    let paid: i64 = ctx.signal("paid").await?;
    Ok(format!("{order}: {paid}"))
}

async fn engine() -> (TempDir, Engine) {
    let folder = tempfile::tempdir().unwrap();
    let engine =
        Engine::sqlite(folder.path().join("shop.db")).workflow("order", 1, order).start().await.unwrap();
    (folder, engine)
}

/// Orders are started and paid by events.
fn orders(engine: &Engine) -> Webhook {
    let shop = engine.tenant("acme").unwrap();
    let react = move |event: WebhookEvent| {
        let shop = shop.clone();
        async move {
            let said: Value = event.json()?;
            let number = said["order"].as_str().unwrap_or_default().to_owned();
            let reaction: Reaction<SqliteConnection> = match event.kind() {
                Some("placed") => Reaction::start(shop.run(order, number.clone()).key(number)),
                Some("paid") => match shop.run_of(order, &number).find().await? {
                    Some(run) => Reaction::signal(run.signal("paid", said["cents"].clone())),
                    None => return Err(format!("there is no order {number}").into()),
                },
                _ => Reaction::ignore(),
            };
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(reaction)
        }
    };
    standard().on(&engine.executor(), react).unwrap()
}

async fn deliver(webhook: &Webhook, id: &str, body: &Value) -> (u16, Decided) {
    let answer = webhook.receive(signed(id, &body.to_string())).await;
    (answer.status().as_u16(), decided(&answer))
}

async fn run(shop: &TenantClient, number: &str) -> RunHandle<String> {
    shop.run_of(order, number).find().await.unwrap().unwrap()
}

#[tokio::test]
async fn events_start_a_run_and_signal_it_once_each() {
    let (_folder, engine) = engine().await;
    let (webhook, shop) = (orders(&engine), engine.tenant("acme").unwrap());
    let placed = json!({"type": "placed", "order": "9"});
    let paid = json!({"type": "paid", "order": "9", "cents": 4200});
    // Payment before order: it comes again.
    assert_eq!(deliver(&webhook, "evt_2", &paid).await, (503, Decided::Freed));
    for expected in [Decided::Executed, Decided::Replayed] {
        assert_eq!(deliver(&webhook, "evt_1", &placed).await, (200, expected));
    }
    assert_eq!(
        deliver(&webhook, "evt_1b", &placed).await,
        (200, Decided::Executed),
        "told of by another event"
    );
    assert_eq!(shop.runs(None).await.unwrap().len(), 1);
    for expected in [Decided::Executed, Decided::Replayed] {
        assert_eq!(deliver(&webhook, "evt_2", &paid).await, (200, expected));
    }
    assert_eq!(run(&shop, "9").await.result().await.unwrap(), "9: 4200");
    assert_eq!(
        deliver(&webhook, "evt_2", &paid).await,
        (200, Decided::Replayed),
        "it is known after the run's end, too"
    );
    let other = json!({"type": "paid", "order": "9", "cents": 1});
    assert_eq!(deliver(&webhook, "evt_3", &other).await, (503, Decided::Freed), "nobody hears it any more");
    let noise = json!({"type": "note"});
    assert_eq!(deliver(&webhook, "evt_4", &noise).await, (200, Decided::Executed));
}

#[tokio::test]
async fn a_run_of_the_same_key_with_another_input_is_a_failed_try() {
    let (_folder, engine) = engine().await;
    let shop = engine.tenant("acme").unwrap();
    let react = move |event: WebhookEvent| {
        let start = shop.run(order, event.id().unwrap_or_default().to_owned()).key("the same");
        async move { Ok::<_, Infallible>(Reaction::<SqliteConnection>::start(start)) }
    };
    let webhook = standard().tries(2).on(&engine.executor(), react).unwrap();
    let nothing = json!({});
    assert_eq!(deliver(&webhook, "evt_1", &nothing).await, (200, Decided::Executed));
    let mut answers = Vec::new();
    while answers.last() != Some(&(503, Decided::SetAside)) {
        assert!(answers.len() < 4, "{answers:?}");
        answers.push(deliver(&webhook, "evt_2", &nothing).await);
    }
    let questions = engine.tenant("acme").unwrap().questions().await.unwrap();
    assert_eq!(questions[0].kind, QuestionKind::Unprocessed);
    assert!(questions[0].question.contains("evt_2"), "{}", questions[0].question);
}

#[tokio::test]
async fn a_run_of_another_engine_is_refused() {
    let ((_folder, one), (_other_folder, other)) = (engine().await, engine().await);
    let shop = other.tenant("acme").unwrap();
    let react = move |_: WebhookEvent| {
        let start = shop.run(order, "9".to_owned());
        async move { Ok::<_, Infallible>(Reaction::<SqliteConnection>::start(start)) }
    };
    let webhook = standard().on(&one.executor(), react).unwrap();
    assert_eq!(deliver(&webhook, "evt_1", &json!({})).await, (503, Decided::Freed));
    assert!(other.tenant("acme").unwrap().runs(None).await.unwrap().is_empty());
}

// A closure that fails is rolled back, and the sender sends again; after its tries somebody is asked.
#[tokio::test]
async fn an_event_that_fails_is_tried_again_and_set_aside() {
    let (_folder, executor, mut own) = crate::exec::inbox::sqlite::open().await;
    let broken = Arc::new(AtomicBool::new(true));
    let breaks = broken.clone();
    let react = move |_: WebhookEvent| {
        let broken = breaks.clone();
        async move {
            Ok::<_, Infallible>(Reaction::transaction(move |db: &mut SqliteConnection| {
                Box::pin(async move {
                    sqlx::query("INSERT INTO entry VALUES (1)")
                        .execute(db)
                        .await
                        .map_err(|error| error.to_string())?;
                    if broken.load(Ordering::SeqCst) { Err("the stock is empty".to_owned()) } else { Ok(()) }
                })
            }))
        }
    };
    let webhook = standard().tries(3).on(&executor, react).unwrap();
    let body = json!({});
    for _ in 0..2 {
        let answer = webhook.receive(signed("evt_1", "{}")).await;
        assert_eq!(problem(&answer), (503, "webhook-not-processed".to_owned()));
        assert!(!String::from_utf8_lossy(answer.body()).contains("stock"), "the sender is not told why");
    }
    for _ in 0..2 {
        assert_eq!(deliver(&webhook, "evt_1", &body).await, (503, Decided::SetAside));
    }
    assert_eq!(deliver(&webhook, "evt_2", &body).await, (503, Decided::Freed), "others are tried");
    broken.store(false, Ordering::SeqCst);
    assert_eq!(deliver(&webhook, "evt_2", &body).await, (200, Decided::Executed));
    assert_eq!(
        deliver(&webhook, "evt_1", &body).await,
        (503, Decided::SetAside),
        "until somebody has answered"
    );
    let question = executor.questions(&acme()).await.unwrap().remove(0);
    assert!(question.question.contains("the stock is empty"), "{}", question.question);
    executor.answer(&acme(), question.id, Resolution::Again, "ann").await.unwrap();
    assert_eq!(deliver(&webhook, "evt_1", &body).await, (200, Decided::Executed));
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(&mut own).await.unwrap();
    assert_eq!(count, 2);
}

#[tokio::test]
async fn an_event_that_is_dropped_is_acknowledged() {
    let (_folder, executor, _own) = crate::exec::inbox::sqlite::open().await;
    let react = |_: WebhookEvent| async { Err::<Reaction<SqliteConnection>, _>("no such order") };
    let webhook = standard().tries(1).on(&executor, react).unwrap();
    let body = json!({});
    assert_eq!(deliver(&webhook, "evt_1", &body).await, (503, Decided::SetAside));
    let question = executor.questions(&acme()).await.unwrap().remove(0);
    executor.answer(&acme(), question.id, Resolution::Skip, "ann").await.unwrap();
    assert_eq!(deliver(&webhook, "evt_1", &body).await, (200, Decided::Settled));
}

#[tokio::test]
async fn an_event_calls_a_tool_under_its_guard() {
    let folder = tempfile::tempdir().unwrap();
    let (sent, fails) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(true)));
    let (count, failing) = (sent.clone(), fails.clone());
    let tool =
        DynamicTool::new("send_parcel", EffectClass::InternalMutation, Contract::new(ContractClass::Blind))
            .call(move |_, _| {
                let (sent, fails) = (count.clone(), failing.clone());
                async move {
                    if fails.load(Ordering::SeqCst) {
                        return Err(ToolError::new(counterfoil::ledger::ErrorKind::Validation, "closed"));
                    }
                    sent.fetch_add(1, Ordering::SeqCst);
                    Ok(Done::new(json!("parcel")))
                }
            });
    let executor = Executor::sqlite(folder.path().join("shop.db")).dynamic_tool(tool).open().await.unwrap();
    let react = |event: WebhookEvent| async move {
        let order = event.json::<Value>()?["order"].clone();
        let key = Key::of("send_parcel").target(order.as_str().unwrap_or_default());
        let request = ToolRequest::new(acme(), "send_parcel", json!({"order": order})).key(key);
        Ok::<_, serde_json::Error>(Reaction::<SqliteConnection>::call(request))
    };
    let webhook = standard().on(&executor, react).unwrap();
    let body = json!({"order": "9"});
    assert_eq!(
        deliver(&webhook, "evt_1", &body).await,
        (503, Decided::Freed),
        "for certain it did not happen"
    );
    fails.store(false, Ordering::SeqCst);
    for (id, expected) in [
        ("evt_1", Decided::Executed),
        ("evt_1", Decided::Replayed),
        ("evt_2", Decided::Executed),
        ("evt_2", Decided::Replayed),
    ] {
        assert_eq!(deliver(&webhook, id, &body).await, (200, expected));
    }
    assert_eq!(sent.load(Ordering::SeqCst), 1, "two events tell of one parcel");
}

// R-EXE-13: a provider that accepted a call calls back when it has finished it, twice.
#[tokio::test]
async fn an_event_completes_a_call_that_was_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let tool = DynamicTool::new("render", EffectClass::InternalMutation, Contract::new(ContractClass::Blind))
        .call(|_, _| async { Err(ToolError::accepted(Some("job-7".into()))) });
    let executor = Executor::sqlite(folder.path().join("films.db")).dynamic_tool(tool).open().await.unwrap();
    let request =
        || ToolRequest::new(acme(), "render", json!("a film")).key(Key::of("render").target("film"));
    assert!(matches!(executor.execute(request()).await.unwrap(), Outcome::Pending { .. }));
    let react = |event: WebhookEvent| async move {
        let finished = event.json::<Value>()?;
        let job = finished["job"].as_str().unwrap_or_default();
        let done = Completion::done("render", job, finished["film"].clone());
        Ok::<_, serde_json::Error>(Reaction::<SqliteConnection>::complete(done))
    };
    let webhook = standard().on(&executor, react).unwrap();
    let body = json!({"job": "job-7", "film": "https://cdn/7"});
    for (id, expected) in
        [("evt_1", Decided::Executed), ("evt_1", Decided::Replayed), ("evt_2", Decided::Executed)]
    {
        assert_eq!(deliver(&webhook, id, &body).await, (200, expected));
    }
    let unnamed = deliver(&webhook, "evt_3", &json!({"film": "of no job"})).await;
    assert_eq!(unnamed, (503, Decided::Freed), "it can be of no call");
    let settled = async {
        loop {
            if let Outcome::Done(done) = executor.execute(request()).await.unwrap() {
                break done;
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(settled.await.response.value().unwrap(), json!("https://cdn/7"));
}
