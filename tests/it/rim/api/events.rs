//! Streams of events: what they tell, and how they are resumed.

use std::collections::BTreeSet;

use counterfoil::ApprovalSubject;
use counterfoil::api::{Api, Role};
use counterfoil::ledger::ReviewPolicy;
use reqwest::Response;
use serde_json::{Value, json};

use super::Served;
use crate::on_both_stores;
use crate::place::Place;

/// A stream, as a client reads it.
struct Reader {
    response: Response,
    text: String,
    last: String,
}

impl Reader {
    async fn open(served: &Served, path: &str, token: &str, last: &str) -> Result<Self, u16> {
        let request = reqwest::Client::new().get(format!("{}{path}", served.url)).bearer_auth(token);
        let request = if last.is_empty() { request } else { request.header("last-event-id", last) };
        let response = request.send().await.unwrap();
        if response.status() != 200 {
            return Err(response.status().as_u16());
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Ok(Self { response, text: String::new(), last: String::new() })
    }

    /// The next event: its kind and its data. `None` at the end of the stream.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
                    line.map(str::to_owned)
                };
                self.last = field("id").unwrap_or(std::mem::take(&mut self.last));
                if let (Some(kind), Some(data)) = (field("event"), field("data")) {
                    return Some((kind, serde_json::from_str(&data).unwrap()));
                }
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The next event of this kind.
    async fn until(&mut self, kind: &str) -> Value {
        loop {
            let (is, data) = self.next().await.unwrap_or_else(|| panic!("the stream ended without {kind}"));
            if is == kind {
                return data;
            }
        }
    }
}

on_both_stores! {
    async fn the_stream_of_a_run_tells_what_changes_and_is_resumed_behind_its_cursor(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Operate, "acme").await;
        let run = served.waiting("w").await;
        let path = format!("/runs/{run}/events");
        let mut reader = Reader::open(&served, &path, &token, "").await.unwrap();
        assert_eq!(reader.until("run").await["state"], "waiting");
        reader.until("open").await;
        let cursor = reader.last.clone();
        let reason = json!({ "reason": "the bank is down" });
        served.post(&format!("/runs/{run}/pause"), &token, "p", reason).await;
        let asked = reader.until("question").await;
        assert_eq!(asked["kind"], "paused");
        drop(reader);
        let question = asked["id"].as_str().unwrap();
        let answer = json!({ "reason": "it is up", "answer": "resume" });
        served.post(&format!("/questions/{question}/answer"), &token, "a", answer).await;
        // Behind the cursor of before: the run has changed since. The question that it does not know is closed again.
        let mut reader = Reader::open(&served, &path, &token, &cursor).await.unwrap();
        assert_eq!(reader.until("run").await["id"], run.to_string());
        reader.until("open").await;
        served.post(&format!("/runs/{run}/signals"), &token, "s", json!({ "reason": "r", "name": "go", "body": 7 })).await;
        while reader.until("run").await["state"] != "succeeded" {}
        while reader.next().await.is_some() {} // nothing changes any more, so the stream ends
        served.end().await;
    }

    async fn the_stream_of_a_tenant_tells_of_questions_and_answers_and_of_no_other_tenant(place) {
        let served = Served::on(&place).await;
        let (token, other) = (served.token(Role::Operate, "acme").await, served.token(Role::Read, "other").await);
        let mut foreign = Reader::open(&served, "/events", &other, "").await.unwrap();
        let mut reader = Reader::open(&served, "/events", &token, "").await.unwrap();
        reader.until("open").await;
        let run = served.waiting("w").await;
        served.post(&format!("/runs/{run}/pause"), &token, "p", json!({ "reason": "down" })).await;
        let asked = reader.until("question").await;
        assert_eq!(asked["run"], run.to_string());
        reader.until("seen").await;
        let cursor = reader.last.clone();
        drop(reader);
        let question = asked["id"].as_str().unwrap();
        let answer = json!({ "reason": "it is up", "answer": "resume" });
        served.post(&format!("/questions/{question}/answer"), &token, "a", answer).await;
        let mut reader = Reader::open(&served, "/events", &token, &cursor).await.unwrap();
        let answered = reader.until("answer").await;
        assert_eq!((&answered["id"], &answered["answer"]["by"]), (&asked["id"], &json!("ann")));
        assert_eq!(foreign.next().await.unwrap().0, "open", "of an empty tenant there is nothing to tell");
        for (path, token, last) in [
            ("/events", &other, cursor.as_str()), // of another tenant
            (&*format!("/runs/{run}/events"), &token, cursor.as_str()), // of another stream
            ("/events", &token, "forged"),
            ("/events", &token, &cursor[1..]),
            ("/events", &token, &format!("{cursor}AAAAAAAAAAA")),
        ] {
            assert_eq!(Reader::open(&served, path, token, last).await.err(), Some(400), "{last}");
        }
        assert_eq!(Reader::open(&served, &format!("/runs/{run}/events"), &other, "").await.err(), Some(404));
        served.end().await;
    }

    async fn the_stream_of_a_tenant_tells_of_the_last_of_many_questions_and_of_its_answer_while_nobody_reads(place) {
        const OPEN: usize = 101;
        let served = Served::on(&place).await;
        let token = served.token(Role::Operate, "acme").await;
        for number in 0..OPEN {
            let run = served.waiting(&format!("w{number}")).await;
            let paused = json!({ "reason": "down" });
            served.post(&format!("/runs/{run}/pause"), &token, &format!("p{number}"), paused).await;
        }
        let mut reader = Reader::open(&served, "/events", &token, "").await.unwrap();
        let mut told = BTreeSet::new();
        while told.len() < OPEN {
            told.insert(reader.until("question").await["id"].to_string());
        }
        drop(reader);
        // A new stream tells of all of them, in the order of their ids.
        let mut reader = Reader::open(&served, "/events", &token, "").await.unwrap();
        let mut last = json!(null);
        loop {
            match reader.next().await.unwrap() {
                (kind, asked) if kind == "question" => last = asked["id"].clone(),
                (kind, _) if kind == "open" => break,
                (kind, _) => assert_eq!(kind, "run", "each question has its event, so nothing is left out"),
            }
        }
        let cursor = reader.last.clone();
        drop(reader);
        let answer = json!({ "reason": "it is up", "answer": "resume" });
        served.post(&format!("/questions/{}/answer", last.as_str().unwrap()), &token, "a", answer).await;
        let mut reader = Reader::open(&served, "/events", &token, &cursor).await.unwrap();
        assert_eq!(reader.until("answer").await["id"], last);
        served.end().await;
    }

    async fn the_stream_of_a_tenant_tells_of_runs_and_of_approvals(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Read, "acme").await;
        let mut reader = Reader::open(&served, "/events", &token, "").await.unwrap();
        reader.until("open").await;
        let run = served.waiting("w").await;
        assert_eq!(reader.until("run").await["id"], run.to_string());
        let approvals = served.client.tenant("acme").unwrap().approvals();
        let refund = ApprovalSubject::of("refund", &json!({ "cents": 4200 }));
        let asked = approvals.ask("r", refund, ReviewPolicy::by(["ann"])).await.unwrap();
        let told = reader.until("approval").await;
        assert_eq!((&told["id"], &told["outcome"]), (&json!(asked.id), &json!(null)), "{told}");
        reader.until("seen").await;
        let cursor = reader.last.clone();
        approvals.decide(&asked.id, asked.version).approve("ann").await.unwrap();
        let told = reader.until("approval").await;
        assert_eq!(told["id"], json!(asked.id));
        assert!(!told["outcome"].is_null(), "{told}");
        drop(reader);
        // A cursor does not name the approvals: who resumes behind it is told to list them anew.
        let mut reader = Reader::open(&served, "/events", &token, &cursor).await.unwrap();
        reader.until("gap").await;
        reader.until("open").await;
        let unchanged = reader.last.clone();
        let mut reader = Reader::open(&served, "/events", &token, &unchanged).await.unwrap();
        loop {
            let (kind, _) = reader.next().await.unwrap();
            assert_ne!(kind, "gap", "no approval has changed since");
            if kind == "open" {
                break;
            }
        }
        served.end().await;
    }
}

#[tokio::test]
async fn a_caller_has_so_many_streams_and_one_that_is_gone_does_not_count() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let (token, other) = (served.token(Role::Read, "acme").await, served.token(Role::Read, "other").await);
    let mut open = Vec::new();
    let refused = loop {
        match Reader::open(&served, "/events", &token, "").await {
            Ok(reader) => open.push(reader),
            Err(status) => break status,
        }
    };
    assert_eq!((open.len(), refused), (16, 429));
    assert!(Reader::open(&served, "/events", &other, "").await.is_ok());
    open.pop();
    while Reader::open(&served, "/events", &token, "").await.is_err() {
        tokio::task::yield_now().await;
    }
    served.end().await;
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let token = served.token(Role::Read, "acme").await;
    let operator = served.token(Role::Operate, "acme").await;
    let mut reader = Reader::open(&served, "/events", &token, "").await.unwrap();
    reader.until("open").await;
    Api::new(&served.client).tokens().revoke(&token[4..20], "bob").await.unwrap();
    let run = served.waiting("w").await;
    served.post(&format!("/runs/{run}/pause"), &operator, "p", json!({ "reason": "down" })).await;
    assert_eq!(reader.next().await, None, "of what came after, nothing is told");
    served.end().await;
}
