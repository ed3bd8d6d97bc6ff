//! An event that is older than what was seen of its aggregate is acknowledged and not applied. (HAZARDS J10)

use super::*;

/// The state of an order, as its events say.
fn sets(builder: WebhookBuilder, executor: &Executor) -> Webhook {
    let versioned = builder.version(|event| {
        let said: serde_json::Value = event.json().ok()?;
        Some((said["order"].as_str()?.to_owned(), said["version"].as_i64()?))
    });
    let react = |event: WebhookEvent| async move {
        let said: serde_json::Value = event.json()?;
        let state = said["version"].as_i64().unwrap_or_default();
        Ok::<_, serde_json::Error>(Reaction::transaction(move |db: &mut SqliteConnection| {
            Box::pin(async move {
                sqlx::query("INSERT INTO entry VALUES (?)").bind(state).execute(db).await.map(drop)
            })
        }))
    };
    versioned.on(executor, react).unwrap()
}

async fn send(webhook: &Webhook, id: &str, order: &str, version: i64) -> Decided {
    let answer = webhook.receive(signed(id, &format!(r#"{{"order":"{order}","version":{version}}}"#))).await;
    assert_eq!(answer.status(), 200);
    decided(&answer)
}

#[tokio::test]
async fn what_was_overtaken_is_acknowledged_and_not_applied() {
    let (_folder, executor, mut own) = crate::exec::inbox::sqlite::open().await;
    let webhook = sets(standard(), &executor);
    assert_eq!(send(&webhook, "paid", "9", 2).await, Decided::Executed);
    assert_eq!(send(&webhook, "placed", "9", 1).await, Decided::Outdated);
    assert_eq!(send(&webhook, "placed", "9", 1).await, Decided::Outdated, "each time");
    assert_eq!(send(&webhook, "paid, told twice", "9", 2).await, Decided::Outdated);
    assert_eq!(send(&webhook, "placed 10", "10", 1).await, Decided::Executed, "of another order");
    assert_eq!(send(&webhook, "refunded", "9", 3).await, Decided::Executed);
    assert_eq!(send(&webhook, "paid", "9", 2).await, Decided::Replayed, "it was done, and is known");
    let states: Vec<i64> = sqlx::query_scalar("SELECT what FROM entry").fetch_all(&mut own).await.unwrap();
    assert_eq!(states, [2, 1, 3]);
}

// Without a version events are applied in whatever order they come.
#[tokio::test]
async fn an_event_without_a_version_is_never_outdated() {
    let (_folder, executor, mut own) = crate::exec::inbox::sqlite::open().await;
    let webhook = sets(standard(), &executor);
    assert_eq!(send(&webhook, "paid", "9", 2).await, Decided::Executed);
    let other = webhook.receive(signed("note", r#"{"order":"9"}"#)).await;
    assert_eq!(decided(&other), Decided::Executed);
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(&mut own).await.unwrap();
    assert_eq!(count, 2);
}
