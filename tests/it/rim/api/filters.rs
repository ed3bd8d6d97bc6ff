//! Lists that are narrowed by filters, and are walked page by page all the same.

use counterfoil::ApprovalSubject;
use counterfoil::api::Role;
use counterfoil::ledger::ReviewPolicy;
use serde_json::json;

use super::operating::{escaped, posts, served, texts};
use super::{Served, wait};
use crate::on_both_stores;

/// The values of a field of the items that a list answers with.
async fn found(served: &Served, token: &str, path: &str, field: &str) -> Vec<String> {
    let (status, page) = served.get(path, token).await;
    assert_eq!(status.as_u16(), 200, "{path}: {page}");
    texts(&page, field).into_iter().map(str::to_owned).collect()
}

on_both_stores! {
    async fn questions_tenants_tokens_and_workflows_are_narrowed_by_filters(place) {
        let served = served(&place).await;
        let token = served.token(Role::Admin, "*").await;
        served.token(Role::Read, "acme").await;
        let mut runs = Vec::new();
        for tenant in ["acme", "acme", "beta"] {
            let run = served.engine.tenant(tenant).unwrap().run(wait, json!(null)).start().await.unwrap();
            run.pause("ann", "the bank is down").await.unwrap();
            while run.status().await.unwrap().state.name() != "blocked" {
                tokio::task::yield_now().await;
            }
            runs.push(run.id().to_string());
        }
        let questions = "/tenants/acme/questions";
        for (query, expected) in [
            (format!("?run={}", runs[1]), &runs[1..2]),
            ("?kind=paused".to_owned(), &runs[..2]),
            ("?kind=ambiguous".to_owned(), &[]),
            ("?since=2999".to_owned(), &[]),
            ("?before=2999&kind=paused".to_owned(), &runs[..2]),
            ("?answered=true".to_owned(), &[]),
        ] {
            let path = format!("{questions}{query}");
            assert_eq!(found(&served, &token, &path, "run").await, expected, "{path}");
        }
        let (_, first) = served.get(&format!("{questions}?kind=paused&limit=1"), &token).await;
        assert_eq!(texts(&first, "run"), runs[..1]);
        let next = first["next"].as_str().unwrap();
        let rest = format!("{questions}?kind=paused&limit=1&after={next}");
        assert_eq!(found(&served, &token, &rest, "run").await, runs[1..2]);
        for (path, field, expected) in [
            ("/stuck?tenant=beta", "tenant", vec!["beta"]),
            ("/stuck?tenant=acme&kind=paused", "tenant", vec!["acme", "acme"]),
            ("/stuck?kind=missing", "tenant", vec![]),
            ("/tenants?prefix=be", "name", vec!["beta"]),
            ("/tokens?tenant=acme", "role", vec!["read"]),
            ("/tokens?tenant=*", "role", vec!["admin"]),
            ("/tokens?role=decide", "role", vec![]),
            ("/tenants/acme/workflows?prefix=wa", "name", vec!["wait"]),
        ] {
            assert_eq!(found(&served, &token, path, field).await, expected, "{path}");
        }
        served.end().await;
    }

    async fn approvals_records_and_schedules_are_narrowed_by_filters(place) {
        let served = served(&place).await;
        let token = served.token(Role::Read, "acme").await;
        let acme = served.engine.tenant("acme").unwrap();
        let approvals = served.client.tenant("acme").unwrap().approvals();
        let mut ids = Vec::new();
        for (id, reviewer) in [("a", "ann"), ("b", "bob"), ("c", "ann")] {
            let refund = ApprovalSubject::of("refund", &json!({ "cents": 4200 }));
            let asked = approvals.ask(id, refund, ReviewPolicy::by([reviewer])).await.unwrap();
            ids.push(asked.id.clone());
            if id == "c" {
                approvals.decide(&asked.id, asked.version).approve("ann").await.unwrap();
            }
        }
        let run = acme.run(posts, ("post".to_owned(), "ann".to_owned())).start().await.unwrap();
        run.result().await.unwrap();
        for name in ["day", "night"] {
            acme.schedule(name).cron("0 3 * * *").run(wait, json!(null)).await.unwrap();
        }
        acme.schedule("night").pause().await.unwrap();
        let of_run = format!("/records?run={}", run.id());
        for (path, field, expected) in [
            ("/approvals?reviewer=bob", "id", vec![ids[1].as_str()]),
            ("/approvals?what=refund", "id", vec![ids[0].as_str(), ids[1].as_str()]),
            ("/approvals?what=other", "id", vec![]),
            ("/approvals?decided=true", "id", vec![ids[2].as_str()]),
            (of_run.as_str(), "tool", vec!["post"]),
            ("/records?run=run-7fffffffffffffff", "tool", vec![]),
            ("/records?before=2999&tool=post", "tool", vec!["post"]),
            ("/records?since=2999", "tool", vec![]),
            ("/schedules?state=paused", "name", vec!["night"]),
            ("/schedules?state=active&workflow=wait", "name", vec!["day"]),
            ("/schedules?workflow=none", "name", vec![]),
        ] {
            assert_eq!(found(&served, &token, path, field).await, expected, "{path}");
        }
        assert_eq!(served.get(&format!("/questions?kind={}", escaped("none of them")), &token).await.0, 400);
        served.end().await;
    }
}
