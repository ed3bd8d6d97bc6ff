//! Writes: each takes effect once under its key, and its author is the caller.

use std::collections::BTreeSet;

use counterfoil::ApprovalSubject;
use counterfoil::api::Role;
use counterfoil::ledger::ReviewPolicy;
use reqwest::Method;
use serde_json::json;

use super::Served;
use super::operating::escaped;
use crate::on_both_stores;
use crate::place::Place;
use crate::world::Log;

on_both_stores! {
    async fn a_run_is_started_once_under_its_key(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Operate, "acme").await;
        let start = |name: &str| json!({ "reason": "asked for", "workflow": "greet", "input": name });
        let (status, first) = served.post("/runs", &token, "g1", start("Ann")).await;
        assert_eq!(status, 201, "{first}");
        let (_, again) = served.post("/runs", &token, "g1", start("Ann")).await;
        assert_eq!((&first["id"], &first["key"]), (&again["id"], &json!("g1")));
        let (status, other) = served.post("/runs", &token, "g1", start("Bob")).await;
        assert_eq!((status.as_u16(), &other["type"]), (409, &json!("urn:counterfoil:problem:conflict")));
        let greeting = served.client.tenant("acme").unwrap().run_of_named("greet", "g1").result().await;
        assert_eq!(greeting.unwrap(), json!("Hello, Ann"));
        let without = reqwest::Client::new().post(format!("{}/runs", served.url)).bearer_auth(&token);
        assert_eq!(without.json(&start("Ann")).send().await.unwrap().status(), 400);
        served.end().await;
    }

    async fn a_run_is_paused_resumed_and_signalled_by_the_caller(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Operate, "acme").await;
        let run = served.waiting("w").await;
        let (path, reason) = (|command: &str| format!("/runs/{run}/{command}"), json!({ "reason": "the bank is down" }));
        let (status, told) = served.post(&path("pause"), &token, "p1", reason.clone()).await;
        assert_eq!((status.as_u16(), &told["sent"]), (200, &json!("new")));
        let again = served.send(Method::POST, &path("pause"), &token, Some(("p1", reason.clone()))).await;
        assert_eq!(again.headers()["idempotent-replayed"], "true");
        while served.get(&format!("/runs/{run}"), &token).await.1["state"] != "blocked" {}
        let (_, open) = served.get("/questions", &token).await;
        let question = open["items"][0]["id"].as_str().unwrap().to_owned();
        let text = open["items"][0]["question"].as_str().unwrap();
        assert!(text.contains("ann") && text.contains("the bank is down"), "{text}");
        let answer = json!({ "reason": "it is up", "answer": "resume" });
        let (status, answered) = served.post(&format!("/questions/{question}/answer"), &token, "a1", answer.clone()).await;
        assert_eq!((status.as_u16(), &answered["answer"]["by"]), (200, &json!("ann")), "{answered}");
        let (status, _) = served.post(&format!("/questions/{question}/answer"), &token, "a2", answer).await;
        assert_eq!(status, 200, "the same answer of the same person");
        let other = json!({ "reason": "no", "answer": "abandon" });
        let (status, problem) = served.post(&format!("/questions/{question}/answer"), &token, "a3", other).await;
        assert_eq!((status.as_u16(), &problem["type"]), (409, &json!("urn:counterfoil:problem:answer")));
        let (status, problem) = served.post(&path("resume"), &token, "r1", reason.clone()).await;
        assert_eq!((status.as_u16(), &problem["type"]), (409, &json!("urn:counterfoil:problem:invalid")));
        let go = json!({ "reason": "paid", "name": "go", "body": 7 });
        assert_eq!(served.post(&path("signals"), &token, "s1", go.clone()).await.1["sent"], "new");
        let result = served.client.tenant("acme").unwrap().handle::<u32>(run).result().await.unwrap();
        assert_eq!(result, 7);
        assert_eq!(served.post(&path("cancel"), &token, "c1", reason).await.0, 409, "it is over");
        let unknown = served.post("/runs/run-ffff/pause", &token, "p1", json!({ "reason": "r" })).await;
        assert_eq!(unknown.0, 404);
        served.end().await;
    }

    async fn a_cancelled_run_is_retried_and_forked(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Operate, "acme").await;
        let run = served.waiting("w").await;
        let reason = json!({ "reason": "by mistake" });
        assert_eq!(served.post(&format!("/runs/{run}/cancel"), &token, "c1", reason.clone()).await.0, 200);
        while served.get(&format!("/runs/{run}"), &token).await.1["state"] != "failed" {}
        let (status, forked) = served.post(&format!("/runs/{run}/fork"), &token, "f1", reason.clone()).await;
        assert_eq!(status, 201, "{forked}");
        assert_ne!(forked["id"], run.to_string());
        let (_, again) = served.post(&format!("/runs/{run}/fork"), &token, "f1", reason.clone()).await;
        assert_eq!(again["id"], forked["id"]);
        let (status, told) = served.post(&format!("/runs/{run}/retry"), &token, "t1", reason).await;
        assert_eq!((status.as_u16(), &told["sent"]), (200, &json!("new")));
        served.end().await;
    }

    async fn another_command_under_the_key_of_a_command_is_refused(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Operate, "acme").await;
        let run = served.waiting("w").await;
        let (path, reason) = (|command: &str| format!("/runs/{run}/{command}"), json!({ "reason": "the bank is up" }));
        assert_eq!(served.post(&path("pause"), &token, "p", reason.clone()).await.0, 200);
        while served.get(&format!("/runs/{run}"), &token).await.1["state"] != "blocked" {}
        let (_, told) = served.post(&path("resume"), &token, "k", reason.clone()).await;
        assert_eq!(told["sent"], "new", "{told}");
        assert_eq!(served.post(&path("cancel"), &token, "c", reason.clone()).await.0, 200);
        while served.get(&format!("/runs/{run}"), &token).await.1["state"] != "failed" {}
        assert_eq!(served.post(&path("resume"), &token, "k", reason.clone()).await.1["sent"], "before");
        let conflict = (409, json!("urn:counterfoil:problem:conflict"));
        let (status, problem) = served.post(&path("retry"), &token, "k", reason.clone()).await;
        assert_eq!((status.as_u16(), problem["type"].clone()), conflict, "a retry is no resume: {problem}");
        let (status, forked) = served.post(&path("fork"), &token, "k", reason.clone()).await;
        assert_eq!(status, 201, "the key of a fork is the new run's: {forked}");
        let other = json!({ "reason": "another one" });
        let (status, problem) = served.post(&path("fork"), &token, "k", other).await;
        assert_eq!((status.as_u16(), problem["type"].clone()), conflict, "{problem}");
        assert_eq!(served.post(&path("fork"), &token, "k", reason.clone()).await.1["id"], forked["id"]);
        assert_eq!(served.post(&path("retry"), &token, "t", reason).await.1["sent"], "new");
        served.end().await;
    }

    async fn an_approval_is_decided_by_the_caller_and_not_by_a_name_in_the_body(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Decide, "acme").await;
        let approvals = served.client.tenant("acme").unwrap().approvals();
        let refund = ApprovalSubject::of("refund", &json!({ "cents": 4200 }));
        for (id, person) in [("refund/1", "ann"), ("refund/2", "bob")] {
            approvals.ask(id, refund.clone(), ReviewPolicy::by([person])).await.unwrap();
        }
        let (_, open) = served.get("/approvals", &token).await;
        let ids: Vec<_> = open["items"].as_array().unwrap().iter().map(|open| open["id"].clone()).collect();
        assert_eq!(ids.len(), 2, "{open}");
        assert_eq!(open["items"][0]["content"], json!({ "cents": 4200 }));
        let path = |id: &serde_json::Value| format!("/approvals/{}/decision", id.as_str().unwrap().replace('/', "%2F"));
        let approve = json!({ "reason": "checked", "version": 1, "approve": true });
        let (status, decided) = served.post(&path(&ids[0]), &token, "d1", approve.clone()).await;
        assert_eq!((status.as_u16(), &decided["approvals"]), (200, &json!(1)), "{decided}");
        assert_eq!(served.post(&path(&ids[0]), &token, "d2", approve.clone()).await.1, decided, "the same again");
        let (status, problem) = served.post(&path(&ids[1]), &token, "d3", approve.clone()).await;
        assert_eq!((status.as_u16(), &problem["type"]), (409, &json!("urn:counterfoil:problem:vote")));
        let as_bob = json!({ "reason": "checked", "version": 1, "approve": true, "by": "bob" });
        assert_eq!(served.post(&path(&ids[1]), &token, "d4", as_bob).await.0, 400);
        served.end().await;
    }

    // The server is a process of its own, which cannot be given the host's rule.
    async fn where_the_host_has_a_rule_a_server_without_it_decides_about_no_review_that_names_nobody(place) {
        let engine = place.engine().reviewers(BTreeSet::from(["ann".to_owned()]));
        let served = Served::beside(&place, engine).await;
        let (ann, bob) = (served.token(Role::Decide, "acme").await, served.token_of("bob", Role::Decide, "acme").await);
        let host = served.engine.tenant("acme").unwrap();
        let refund = || ApprovalSubject::of("refund", &json!({ "cents": 4200 }));
        let id = host.approvals().ask("refund/1", refund(), ReviewPolicy::default()).await.unwrap().id;
        let decide = format!("/approvals/{}/decision", escaped(&id));
        for (token, key, approve) in [(&bob, "d1", false), (&bob, "d2", true), (&ann, "d3", true)] {
            let decision = json!({ "reason": "because", "version": 1, "approve": approve });
            let (status, problem) = served.post(&decide, token, key, decision).await;
            assert_eq!((status.as_u16(), &problem["type"]), (409, &json!("urn:counterfoil:problem:vote")), "{problem}");
        }
        assert_eq!(served.get("/approvals", &ann).await.1["items"][0]["votes"], json!([]));
        let named = host.approvals().ask("refund/2", refund(), ReviewPolicy::by(["bob"])).await.unwrap().id;
        let no = json!({ "reason": "because", "version": 1, "approve": false });
        let decided = served.post(&format!("/approvals/{}/decision", escaped(&named)), &bob, "d4", no).await;
        assert_eq!(decided.0, 200, "{}", decided.1);
        host.decide(&id, 1).approve("ann").await.unwrap();
        served.end().await;
    }

    async fn the_reason_of_an_approval_is_kept_with_its_vote_and_shown(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Decide, "acme").await;
        let acme = served.client.tenant("acme").unwrap();
        let refund = ApprovalSubject::of("refund", &json!({ "cents": 4200 }));
        let people = ReviewPolicy::by(["ann", "bob", "carl"]).quorum(3);
        let id = acme.approvals().ask("refund/1", refund, people).await.unwrap().id;
        let path = format!("/approvals/{}", escaped(&id));
        let (decide, decision) = (format!("{path}/decision"), |why: &str| json!({ "reason": why, "version": 1, "approve": true }));
        assert_eq!(served.post(&decide, &token, "d1", decision("it is that of the bill")).await.0, 200);
        assert_eq!(served.post(&decide, &token, "d2", decision("once more")).await.0, 200, "the first one stands");
        acme.decide(&id, 1).because("as ann says").approve("bob").await.unwrap();
        acme.decide(&id, 1).approve("carl").await.unwrap();
        let (_, shown) = served.get(&path, &token).await;
        let votes: Vec<_> = shown["votes"].as_array().unwrap().iter().map(|vote| (vote["by"].clone(), vote["reason"].clone())).collect();
        let expected = [("ann", json!("it is that of the bill")), ("bob", json!("as ann says")), ("carl", json!(null))];
        assert_eq!(votes, expected.map(|(by, reason)| (json!(by), reason)));
        served.end().await;
    }
}

// An encrypted ledger encrypts what a person gives as a reason; the log would hold it in the clear.
#[tokio::test]
async fn the_log_says_who_has_written_what_and_not_why() {
    let (place, log) = (Place::sqlite(), Log::default());
    let _here = log.listen();
    let served = Served::on(&place).await;
    let token = served.token(Role::Operate, "acme").await;
    let run = served.waiting("w").await;
    let pause = json!({ "reason": "a canary sings" });
    assert_eq!(served.post(&format!("/runs/{run}/pause"), &token, "p", pause).await.0, 200);
    while served.get(&format!("/runs/{run}"), &token).await.1["state"] != "blocked" {}
    let (_, open) = served.get("/questions", &token).await;
    let question = open["items"][0]["id"].as_str().unwrap().to_owned();
    let answer = json!({ "reason": "the canary sleeps", "answer": "resume" });
    assert_eq!(served.post(&format!("/questions/{question}/answer"), &token, "a", answer).await.0, 200);
    // The reason of an erasure may name whom it makes forgotten.
    let erasure = json!({ "reason": "the canary wants to be forgotten", "name": "person", "value": "c-7" });
    let eraser = served.token(Role::Admin, "acme").await;
    assert_eq!(served.post("/erase", &eraser, "e", erasure).await.0, 200);
    let lines: Vec<_> = log.lines().iter().map(ToString::to_string).collect();
    let written = lines.iter().filter(|line| line.contains("write of the API taken")).collect::<Vec<_>>();
    let expected = [("pause", run.to_string()), ("answer", question), ("erase", "person".to_owned())];
    let expected = expected.map(|(action, subject)| {
        format!("INFO write of the API taken by=ann action={action} subject={subject}")
    });
    assert_eq!(written, expected.iter().collect::<Vec<_>>());
    let shown: Vec<_> = lines.iter().filter(|line| line.contains("canary")).collect();
    assert!(shown.is_empty(), "{shown:#?}");
    served.end().await;
}
