//! Labels: runs and records are listed and erased by them.

use counterfoil::ToolRequest;
use counterfoil::api::Role;
use serde_json::{Value, json};

use super::operating::{escaped, parents, posts, served, texts};
use super::wait;
use crate::on_both_stores;

on_both_stores! {
    async fn a_run_is_started_with_labels_shown_with_them_and_listed_by_one(place) {
        let served = served(&place).await;
        let token = served.token(Role::Operate, "acme").await;
        let start = |labels: Value| {
            json!({ "reason": "asked for", "workflow": "posts", "input": ["post", "ann"], "labels": labels })
        };
        for (key, labels) in [
            ("1", json!({ "customer": "c-7", "case": "a=b" })),
            ("2", json!({ "customer": "c-8" })),
            ("3", json!({})),
            ("4", json!({ "customer": "c-7" })),
        ] {
            let (status, run) = served.post("/runs", &token, key, start(labels)).await;
            assert_eq!(status, 201, "{run}");
        }
        for (query, expected) in [
            ("?label=customer%3Dc-7", vec!["1", "4"]),
            ("?label=customer%3Dc-7&newest_first=true", vec!["4", "1"]),
            ("?label=customer%3Dc-7&key=4", vec!["4"]),
            ("?label=customer%3Dc-7&workflow=wait", vec![]),
            ("?label=case%3Da%3Db", vec!["1"]),
            ("?label=customer%3Dc", vec![]),
        ] {
            let (status, page) = served.get(&format!("/runs{query}"), &token).await;
            assert_eq!((status.as_u16(), texts(&page, "key")), (200, expected), "{query}");
        }
        let (_, page) = served.get("/runs?label=customer%3Dc-7&key=&limit=1", &token).await;
        let next = page["next"].as_str().unwrap();
        let (_, page) = served.get(&format!("/runs?label=customer%3Dc-7&limit=1&after={next}"), &token).await;
        assert_eq!(texts(&page, "key"), ["4"]);
        let (_, all) = served.get("/runs", &token).await;
        let (_, run) = served.get(&format!("/runs/{}", all["items"][0]["id"].as_str().unwrap()), &token).await;
        assert_eq!((&run["labels"], &run["key"]), (&json!({ "case": "a=b", "customer": "c-7" }), &json!("1")));
        // A start under a key that was used before gives that run no labels.
        let (_, again) = served.post("/runs", &token, "3", start(json!({ "customer": "c-7" }))).await;
        let (_, again) = served.get(&format!("/runs/{}", again["id"].as_str().unwrap()), &token).await;
        assert_eq!(again["labels"], json!({}));

        let nine: serde_json::Map<_, _> = (0..9).map(|n| (n.to_string(), json!("x"))).collect();
        for bad in [json!(nine), json!({ "": "x" }), json!({ "x": "" }), json!({ "x": "a\u{1b}[31m" }), json!({ "x": "y".repeat(257) })] {
            let (status, problem) = served.post("/runs", &token, "5", start(bad.clone())).await;
            assert_eq!((status.as_u16(), &problem["type"]), (422, &json!("urn:counterfoil:problem:name")), "{bad}");
        }
        for bad in ["customer", "", "%3Dx", "customer%3D", "customer%3D%00"] {
            assert_eq!(served.get(&format!("/runs?label={bad}"), &token).await.0, 400, "{bad}");
        }
        let other = served.token(Role::Admin, "other").await;
        assert_eq!(served.get("/runs?label=customer%3Dc-7", &other).await.1["items"], json!([]));
        served.end().await;
    }

    async fn runs_are_erased_by_their_label_and_what_was_kept_is_reported(place) {
        let served = served(&place).await;
        let token = served.token(Role::Admin, "acme").await;
        let acme = served.engine.tenant("acme").unwrap();
        let post = |to: &str| acme.run(posts, ("post".to_owned(), to.to_owned())).key(to);
        post("secret-1").label("customer", "c-7").await.unwrap();
        post("secret-2").label("customer", "c-7").label("case", "9").await.unwrap();
        post("other").label("customer", "c-8").await.unwrap();
        let waiting = acme.run(wait, json!("secret-3")).key("w").label("customer", "c-7").start().await.unwrap();
        while waiting.status().await.unwrap().state.name() != "waiting" {
            tokio::task::yield_now().await;
        }
        let erasure = json!({ "reason": "the customer has asked for it", "name": "customer", "value": "c-7" });
        let operator = served.token(Role::Operate, "acme").await;
        assert_eq!(served.post("/erase", &operator, "e", erasure.clone()).await.0, 403);
        let elsewhere = served.token(Role::Admin, "other").await;
        let (_, nothing) = served.post("/erase", &elsewhere, "e", erasure.clone()).await;
        assert_eq!(nothing, json!({ "runs": [], "calls": [], "kept": [], "kept_calls": [] }));

        let (status, report) = served.post("/erase", &token, "e", erasure.clone()).await;
        let number = |name: &str| report[name].as_array().unwrap().len();
        assert_eq!((status.as_u16(), number("runs"), number("calls"), number("kept")), (200, 2, 2, 1), "{report}");
        assert_eq!(report["kept"][0]["run"], json!(waiting.id()));
        assert!(report["kept"][0]["why"].as_str().unwrap().contains("has not ended"), "{report}");
        let (_, runs) = served.get("/runs", &token).await;
        let ends: Vec<_> = runs["items"].as_array().unwrap().iter().map(|run| (run["key"].clone(), run["state"].clone())).collect();
        assert_eq!(
            ends,
            [("secret-1", "expired"), ("secret-2", "expired"), ("other", "succeeded"), ("w", "waiting")]
                .map(|(key, state)| (json!(key), json!(state)))
        );
        for key in report["calls"].as_array().unwrap() {
            let path = format!("/records/{}", escaped(key.as_str().unwrap()));
            let (_, record) = served.get(&path, &token).await;
            assert_eq!((&record["state"], &record["request"]), (&json!("gone"), &json!(null)), "{record}");
        }
        assert_eq!(texts(&served.get("/runs?label=customer%3Dc-7", &token).await.1, "key"), ["w"]);
        assert_eq!(served.get("/runs?label=case%3D9", &token).await.1["items"], json!([]));
        assert_eq!(texts(&served.get("/records?state=committed", &token).await.1, "tool"), ["post"]);

        // The effect is not repeated, and the run is not begun again.
        let again = post("secret-1").await.unwrap_err();
        assert!(again.to_string().contains("[gone]"), "{again}");
        waiting.signal("go", 1_u32).await.unwrap();
        waiting.result().await.unwrap();
        let (_, report) = served.post("/erase", &token, "e2", erasure).await;
        assert_eq!((&report["runs"], &report["kept"]), (&json!([waiting.id()]), &json!([])));

        // The children have no label of their own, and go with their parent.
        acme.run(parents, "secret-4".to_owned()).key("p").label("customer", "c-9").await.unwrap();
        let erasure = json!({ "reason": "the customer has asked for it", "name": "customer", "value": "c-9" });
        let (_, report) = served.post("/erase", &token, "e3", erasure).await;
        assert_eq!((report["runs"].as_array().unwrap().len(), report["calls"].as_array().unwrap().len()), (2, 1), "{report}");
        assert_eq!(served.get("/runs?state=succeeded", &token).await.1["items"].as_array().unwrap().len(), 1);
        served.end().await;
    }

    async fn records_are_shown_with_their_labels_listed_and_erased_by_one(place) {
        let served = served(&place).await;
        let token = served.token(Role::Admin, "acme").await;
        let executor = served.engine.executor();
        let post = |tool: &str, to: &str| ToolRequest::new("acme".to_owned().try_into().unwrap(), tool, json!({ "to": to }));
        for request in [
            post("post", "a").label("customer", "c-7").label("case", "a=b"),
            post("fax", "b").label("customer", "c-7"),
            post("post", "c").label("customer", "c-8"),
            post("post", "d"),
        ] {
            let _ = executor.execute(request).await.unwrap();
        }
        for (query, expected) in [
            ("?label=customer%3Dc-7", vec!["fax:b", "post:a"]),
            ("?label=customer%3Dc-7&key=post%3A", vec!["post:a"]),
            ("?label=customer%3Dc-7&tool=fax", vec!["fax:b"]),
            ("?label=customer%3Dc-7&limit=1&after=fax%3Ab", vec!["post:a"]),
            ("?label=case%3Da%3Db&state=committed", vec!["post:a"]),
            ("?label=customer%3Dc", vec![]),
        ] {
            let (status, page) = served.get(&format!("/records{query}"), &token).await;
            assert_eq!((status.as_u16(), texts(&page, "key")), (200, expected), "{query}");
        }
        assert_eq!(served.get("/records?label=customer", &token).await.0, 400);
        for path in ["/records/post%3Aa", "/records/post%3Aa/evidence"] {
            let (_, record) = served.get(path, &token).await;
            assert_eq!(record["labels"], json!({ "case": "a=b", "customer": "c-7" }), "{path}");
        }
        let elsewhere = served.token(Role::Admin, "other").await;
        assert_eq!(served.get("/records?label=customer%3Dc-7", &elsewhere).await.1["items"], json!([]));

        let erasure = json!({ "reason": "the customer has asked for it", "name": "customer", "value": "c-7" });
        let (status, report) = served.post("/erase", &token, "e", erasure).await;
        let expected = json!({ "runs": [], "calls": ["fax:b", "post:a"], "kept": [], "kept_calls": [] });
        assert_eq!((status.as_u16(), report), (200, expected));
        assert_eq!(served.get("/records?label=customer%3Dc-7", &token).await.1["items"], json!([]));
        let (_, record) = served.get("/records/post%3Aa", &token).await;
        assert_eq!((&record["state"], &record["labels"]), (&json!("gone"), &json!({})));
        served.end().await;
    }
}
