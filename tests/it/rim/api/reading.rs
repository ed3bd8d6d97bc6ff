//! What the API shows, and what it says to requests that it cannot read.

use counterfoil::api::Role;
use reqwest::Method;
use serde_json::json;

use super::{Served, greet, read};
use crate::on_both_stores;

on_both_stores! {
    async fn runs_are_listed_by_filters_and_page_by_page(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Read, "*").await;
        let acme = served.engine.tenant("acme").unwrap();
        for name in ["a/1", "a/2", "b/1"] {
            acme.run(greet, name.to_owned()).key(name).await.unwrap();
        }
        let waiting = served.waiting("w").await;
        let keys = |page: &serde_json::Value| {
            let items = page["items"].as_array().unwrap().clone();
            items.iter().map(|run| run["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        for (query, expected) in [
            ("", vec!["a/1", "a/2", "b/1", "w"]),
            ("?key=a/", vec!["a/1", "a/2"]),
            ("?state=waiting", vec!["w"]),
            ("?workflow=greet&state=succeeded&key=b", vec!["b/1"]),
            ("?since=9999", vec![]),
            ("?newest_first=true", vec!["w", "b/1", "a/2", "a/1"]),
            ("?newest_first=true&workflow=greet", vec!["b/1", "a/2", "a/1"]),
            ("?before=9999&since=2000-01-01T00:00:00Z&workflow=wait", vec!["w"]),
        ] {
            let (status, page) = served.get(&format!("/tenants/acme/runs{query}"), &token).await;
            assert_eq!((status.as_u16(), keys(&page)), (200, expected.into_iter().map(str::to_owned).collect()), "{query}");
        }
        let (mut seen, mut path) = (Vec::new(), "/tenants/acme/runs?limit=3".to_owned());
        loop {
            let (_, page) = served.get(&path, &token).await;
            seen.extend(keys(&page));
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/tenants/acme/runs?limit=3&after={next}");
        }
        assert_eq!(seen, ["a/1", "a/2", "b/1", "w"]);
        let (status, run) = served.get(&format!("/tenants/acme/runs/{waiting}"), &token).await;
        assert_eq!((status.as_u16(), &run["state"], &run["signal"]), (200, &json!("waiting"), &json!(true)));
        let (status, history) = served.get(&format!("/tenants/acme/runs/{waiting}/history"), &token).await;
        assert_eq!(status, 200, "{history}");
        let (status, workers) = served.get("/workers", &token).await;
        assert_eq!((status.as_u16(), workers["items"].as_array().unwrap().len()), (200, 1));
        // Of another tenant: as if it were not there.
        let (status, problem) = served.get(&format!("/tenants/other/runs/{waiting}"), &token).await;
        assert_eq!((status.as_u16(), &problem["type"]), (404, &json!("urn:counterfoil:problem:not_found")));
        served.end().await;
    }

    async fn a_request_that_cannot_be_read_is_a_problem_in_words_and_nothing_is_done(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Admin, "acme").await;
        for (path, expected) in [
            ("/runs?after=run-zz", 400),
            ("/runs?after=run-1", 400),
            ("/runs?after=run-zz~1", 400),
            ("/runs?after=run-1~soon", 400),
            ("/runs?after=run-1~99999999999999999999", 400),
            ("/runs?after=run-1=key", 400), // of a list in another order
            ("/runs?key=k&after=run-1~1", 400),
            ("/runs?key=k&after=run-1=%00", 400),
            ("/runs?key=k&after=run-1=k", 200),
            ("/runs?after=run-7fffffffffffffff~9", 200), // a place in the caller's own list, where nothing is
            ("/runs?newest_first=perhaps", 400),
            ("/runs?since=2026-13", 400),
            ("/runs?limit=many", 400),
            ("/runs?state=asleep", 400),
            ("/runs?since=%3Cscript%3E", 400),
            ("/runs/nonsense", 422),
            ("/runs/%ff", 400),
            ("/runs/run-1/history?after=-1", 400),
            ("/questions?answered=perhaps", 400),
            ("/questions?after=question-%00", 400),
            ("/questions/question-1", 404),
            ("/approvals/%3Cscript%3E%1b[31m", 422),
            ("/approvals/%00", 422),
            ("/approvals?after=%00", 422),
            ("/records?key=%00", 422),
            ("/records?after=%00", 422),
            ("/records?state=lost", 400),
            ("/records", 200),
            ("/records?key=none&tool=%3Cscript%3E&state=gone", 200),
            ("/records/%00", 422),
            ("/records/none", 404),
            ("/records/none/evidence", 404),
            ("/artifacts?kind=%00", 422),
            ("/artifacts/%3Cscript%3E/%1b[31m", 422),
            ("/artifacts/report/none?version=-1", 400),
            ("/artifacts/report/none", 404),
            ("/memories?subject=ann", 400),
            ("/memories?subject=ann&kind=%00", 422),
            ("/memories?subject=ann&kind=fact&after=x", 400),
            ("/memories?subject=ann&kind=fact", 200),
            ("/outbox?after=question-zz", 400),
            ("/tenants", 403),
            ("/nowhere", 404),
        ] {
            let response = served.send(Method::GET, path, &token, None).await;
            let media = response.headers()["content-type"].to_str().unwrap().to_owned();
            let (status, _) = read(response).await;
            assert_eq!(status.as_u16(), expected, "{path}");
            assert_eq!(media, if expected == 200 { "application/json" } else { "application/problem+json" });
        }
        assert_eq!(served.send(Method::DELETE, "/runs", &token, None).await.status(), 405);
        let operator = served.token(Role::Operate, "acme").await;
        let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
        for (body, expected) in [
            ("", 400),
            ("{", 400),
            (r#"{"workflow": "greet"}"#, 400),
            (r#"{"reason": "", "workflow": "greet"}"#, 422),
            (r#"{"reason": "a\u001b[31mb", "workflow": "greet"}"#, 422),
            (r#"{"reason": "r", "reason": "s", "workflow": "greet"}"#, 400),
            (r#"{"reason": "r", "workflow": "greet", "by": "bob"}"#, 400),
            (r#"{"reason": "r", "workflow": ""}"#, 422),
            (r#"{"reason": "r", "workflow": "greet", "input": 123456789012345678901234567890}"#, 400),
            (deep.as_str(), 400),
            ("x".repeat(2 * 1024 * 1024).as_str(), 413),
        ] {
            let request = reqwest::Client::new().post(format!("{}/runs", served.url)).bearer_auth(&operator);
            let response = request.header("idempotency-key", "k").body(body.to_owned()).send().await.unwrap();
            let shown = &body[..body.len().min(90)];
            assert_eq!(read(response).await.0.as_u16(), expected, "{shown}");
        }
        assert!(served.engine.tenant("acme").unwrap().runs(None).await.unwrap().is_empty());
        served.end().await;
    }
}
