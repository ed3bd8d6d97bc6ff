//! The lookup over HTTP, against servers of its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use axum::{Json, Router};
use counterfoil::ledger::{Basis, Contract, ErrorKind, LookupResult};
use counterfoil::tool::lookup::{Expected, HttpGet, LookupTarget, Pages};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Key, Payload};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::tool::lookup::world::{Cut, Faults, Sent};
use crate::world::{brief, serve};

const SOON: Duration = Duration::from_secs(5);

/// A bank that lists transfers, two to a page, the oldest first. Its search shows those of everybody.
struct Bank {
    transfers: Mutex<Vec<Value>>,
    faults: Arc<Faults>,
}

#[derive(Deserialize)]
struct Search {
    after: Option<usize>,
}

async fn create(State(bank): State<Arc<Bank>>, Json(mut body): Json<Value>) -> Json<Value> {
    let effect = async {
        let mut transfers = bank.transfers.lock().unwrap();
        body["id"] = json!(format!("t{}", transfers.len() + 1));
        body["amount"] = json!(body["amount"].as_f64().unwrap()); // in its own way of writing
        transfers.push(body.clone());
        body
    };
    Json(bank.faults.around(effect).await)
}

async fn list(State(bank): State<Arc<Bank>>, Query(search): Query<Search>) -> Json<Value> {
    let transfers = bank.transfers.lock().unwrap();
    let from = search.after.unwrap_or(0);
    let next = (from + 2 < transfers.len()).then(|| (from + 2).to_string());
    Json(json!({ "data": transfers.iter().skip(from).take(2).collect::<Vec<_>>(), "next": next }))
}

/// Transfers that others have made.
fn others() -> Vec<Value> {
    (1..=5).map(|n| json!({"id": format!("t{n}"), "reference": format!("their-{n}"), "amount": 1})).collect()
}

struct PayOut {
    client: reqwest::Client,
    bank: String,
    lookup: HttpGet,
}

impl PayOut {
    fn at(bank: &str) -> Self {
        let lookup = HttpGet::list(format!("{bank}/transfers?reference={{token}}"), "/data", SOON).unwrap();
        let lookup = lookup.carries("/reference").pages(Pages::cursor("/next", "after"));
        Self { client: reqwest::Client::new(), bank: bank.into(), lookup }
    }
}

impl Tool for PayOut {
    const NAME: &'static str = "pay_out";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = Sent;
    type Output = Value;

    fn key(&self, sent: &Sent) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&sent.text))
    }

    fn contract(&self) -> Contract {
        <Self::Contract as contract::Contract>::declaration().sight(&HttpGet::SIGHT)
    }

    fn retry(&self) -> counterfoil::ledger::RetryPolicy {
        brief()
    }

    async fn call(&self, call: &Call, sent: &Sent) -> Result<Done<Value>, ToolError> {
        let body = json!({"reference": call.key(), "amount": sent.amount});
        let broken = |e: reqwest::Error| ToolError::new(ErrorKind::Disconnected, e.to_string());
        let answer = self.client.post(format!("{}/transfers", self.bank)).json(&body).send().await;
        let made: Value = answer.map_err(broken)?.json().await.map_err(broken)?;
        let id = made["id"].as_str().unwrap().to_owned();
        Ok(Done::new(made).external_ref(id))
    }
}

impl Reconcile for PayOut {
    async fn reconcile(&self, call: &Call, sent: &Sent) -> Result<LookupResult<Value>, ToolError> {
        self.lookup.find(call, &Expected::new().field("/amount", sent.amount), serde_json::from_value).await
    }
}

// R-EXE-10, C07, C09, C11: our transfer is on the third page, behind those of others.
#[tokio::test]
async fn a_transfer_is_found_or_made_once_more() {
    for (cut, sends, settled, basis) in
        [(Cut::AfterEffect, 1, false, Basis::Lookup), (Cut::BeforeEffect, 2, true, Basis::Answer)]
    {
        let faults = Faults::new(cut);
        let bank = Arc::new(Bank { transfers: others().into(), faults: faults.clone() });
        let app = Router::new().route("/transfers", get(list).post(create)).with_state(bank.clone());
        let (outcome, had_to) = faults.outcome(PayOut::at(&serve(app).await)).await;
        let answer = outcome.answer().unwrap_or_else(|| panic!("{outcome:?}"));
        let ours: Vec<_> = bank.transfers.lock().unwrap().iter().skip(5).cloned().collect();
        assert_eq!((faults.sends(), had_to, answer.basis), (sends, settled, basis), "{cut:?}");
        assert_eq!((ours.len(), answer.external_ref.as_deref()), (1, Some("t6")), "{cut:?}");
        assert_eq!(answer.response, Payload::of(&ours[0]).unwrap(), "{cut:?}");
    }
}

/// Answers every request as it is told to.
async fn says(status: u16, headers: &[(&'static str, &'static str)], body: impl Into<String>) -> String {
    let (status, body): (_, String) = (StatusCode::from_u16(status).unwrap(), body.into());
    let headers: HeaderMap = headers.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
    serve(Router::new().fallback(async move || (status, headers, body))).await
}

type Found = Result<LookupResult<String>, ToolError>;

async fn find(lookup: &HttpGet) -> Found {
    let id = |thing: Value| serde_json::from_value(thing["id"].clone());
    lookup.find("ours", &Expected::new().field("/amount", 4900), id).await
}

async fn listed(base: &str) -> Found {
    find(&HttpGet::list(format!("{base}/{{token}}"), "/data", SOON).unwrap().carries("/reference")).await
}

async fn one(base: &str) -> Found {
    find(&HttpGet::one(format!("{base}/{{token}}"), SOON).unwrap()).await
}

fn transfer(id: &str) -> Value {
    json!({"id": id, "reference": "ours", "amount": 4900})
}

fn committed(id: &str) -> LookupResult<String> {
    LookupResult::Committed { output: id.into(), external_ref: Some(id.into()) }
}

// R-EXE-10, C10: only a clear "not there" is not found.
#[tokio::test]
async fn only_a_clear_miss_is_a_miss() {
    assert_eq!(listed(&says(200, &[], r#"{"data": []}"#).await).await.unwrap(), LookupResult::NotFound);
    assert_eq!(one(&says(404, &[], "").await).await.unwrap(), LookupResult::NotFound);
    assert_eq!(one(&says(200, &[], transfer("t1").to_string()).await).await.unwrap(), committed("t1"));
    let empty = [r#"{"data": []}"#, "", "{}"];
    for status in [201, 202, 204, 302, 400, 401, 403, 404, 408, 410, 429, 500, 502, 503] {
        for body in empty {
            let base = says(status, &[("location", "/login"), ("retry-after", "7")], body).await;
            let error = listed(&base).await.expect_err(&format!("{status}"));
            assert_eq!(error.retry_after, Some(Duration::from_secs(7)), "{status}");
            assert!(status == 404 || one(&base).await.is_err(), "{status}");
        }
    }
    for body in [
        "<html>log in</html>",
        "",
        "{}",
        r#"{"error": "try later"}"#,
        r#"{"data": null}"#,
        r#"{"data": {"id": 1}}"#,
        r#"{"data": [{"amount": 4900}]}"#,
        r#"{"data": [], "has_more": true}"#,
        r#"{"data": [], "next_cursor": "c"}"#,
    ] {
        assert!(listed(&says(200, &[], body).await).await.is_err(), "{body}");
    }
    let linked = [("link", "<http://elsewhere/list>; rel=\"next\"")];
    assert!(listed(&says(200, &linked, r#"{"data": []}"#).await).await.is_err());
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_none() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"data\": []").await.unwrap();
    });
    assert_eq!(listed(&base).await.unwrap_err().kind, ErrorKind::Disconnected);
    server.await.unwrap();
    assert_eq!(listed(&base).await.unwrap_err().kind, ErrorKind::Unreachable, "nobody listens any more");
}

// A deployment that is gone answers 404 as well, in other words.
#[tokio::test]
async fn a_gateways_404_is_not_the_providers() {
    let lookup =
        |base| HttpGet::one(format!("{base}/{{token}}"), SOON).unwrap().missing("/error/code", "missing");
    let own = says(404, &[], r#"{"error": {"code": "missing"}}"#).await;
    assert_eq!(find(&lookup(own)).await.unwrap(), LookupResult::NotFound);
    for body in ["<html>no such backend</html>", r#"{"error": {"code": "no_route"}}"#, "{}"] {
        assert!(find(&lookup(says(404, &[], body).await)).await.is_err(), "{body}");
    }
}

// R-EXE-13: the thing says how it stands.
#[tokio::test]
async fn a_thing_that_is_not_finished_or_has_failed_says_so() {
    let find = async |status: &str| {
        let job = json!({"id": "job-7", "reference": "ours", "amount": 7, "status": status});
        let base = says(200, &[], json!({"data": [job]}).to_string()).await;
        let lookup = HttpGet::list(format!("{base}/?reference={{token}}"), "/data", SOON).unwrap();
        let lookup = lookup.carries("/reference").pending("/status", ["queued", "rendering"], SOON);
        let lookup = lookup.failed("/status", ["refused"], ErrorKind::Validation);
        let expected = Expected::new().field("/amount", 7);
        lookup.find("ours", &expected, |job| Ok(job["status"].clone())).await.unwrap()
    };
    let pending = LookupResult::Pending { external_ref: Some("job-7".into()), look_again: SOON };
    for status in ["queued", "rendering"] {
        assert_eq!(find(status).await, pending);
    }
    let refused = LookupResult::Failed { kind: ErrorKind::Validation, message: "job-7 is refused".into() };
    assert_eq!(find("refused").await, refused);
    let done = LookupResult::Committed { output: json!("done"), external_ref: Some("job-7".into()) };
    assert_eq!(find("done").await, done);
}

// C09: the amount is not ours.
#[tokio::test]
async fn what_carries_our_token_and_is_not_what_we_sent_is_foreign() {
    let other = json!({"id": "t1", "reference": "ours", "amount": 1});
    let base = says(200, &[], json!({"data": [transfer("t2"), other]}).to_string()).await;
    let LookupResult::Foreign { what } = listed(&base).await.unwrap() else { panic!() };
    assert!(what.contains("/amount is 1"), "{what}");
    let theirs = json!({"id": "t1", "reference": "theirs", "amount": 1});
    let none = json!({"id": "t3", "reference": null, "amount": 1});
    let base = says(200, &[], json!({"data": [theirs, none, transfer("t2")]}).to_string()).await;
    assert_eq!(listed(&base).await.unwrap(), committed("t2"));
}

// Others write to the list as well, and their things lack our field.
#[tokio::test]
async fn a_thing_without_our_field_is_somebody_elses_if_that_is_said() {
    let theirs = json!({"id": "t1", "amount": 4900});
    let base = says(200, &[], json!({"data": [theirs, transfer("t2")]}).to_string()).await;
    assert!(listed(&base).await.unwrap_err().message.contains("a thing without a token at \"/reference\""));
    let lookup = |pointer| HttpGet::list(base.clone(), "/data", SOON).unwrap().carries_if_any(pointer);
    assert_eq!(find(&lookup("/reference")).await.unwrap(), committed("t2"));
    let none = says(200, &[], json!({"data": [{"id": "t1", "amount": 1}]}).to_string()).await;
    let lookup_in_none = HttpGet::list(none, "/data", SOON).unwrap().carries_if_any("/reference");
    assert_eq!(find(&lookup_in_none).await.unwrap(), LookupResult::NotFound);

    // A wrong pointer makes all of them somebody else's, until one is there whose id the record knows.
    assert_eq!(find(&lookup("/refrence")).await.unwrap(), LookupResult::NotFound);
    let sought = LookupTarget { token: "ours", noted: Some("t2") };
    let id = |thing: Value| serde_json::from_value::<String>(thing["id"].clone());
    let error = lookup("/refrence").find(sought, &Expected::new(), id).await.unwrap_err();
    for words in ["gave \"t2\" to this call", "no token at \"/refrence\"", "the pointer is wrong"] {
        assert!(error.message.contains(words), "{words}: {error}");
    }
    assert_eq!(error.kind, ErrorKind::Unknown);
    assert_eq!(lookup("/reference").find(sought, &Expected::new(), id).await.unwrap(), committed("t2"));
}

#[tokio::test]
async fn several_are_duplicated_the_first_one_first() {
    let body = json!({"data": [transfer("t1"), transfer("t2"), transfer("t1")]}).to_string();
    let base = says(200, &[], body).await;
    let duplicated =
        |first: &str, second: &str| LookupResult::duplicated([first, second].map(|id| (id, id.to_owned())));
    assert_eq!(listed(&base).await.unwrap(), duplicated("t1", "t2"), "one is shown twice");
    let newest_first = HttpGet::list(format!("{base}/{{token}}"), "/data", SOON).unwrap().newest_first();
    assert_eq!(find(&newest_first).await.unwrap(), duplicated("t1", "t2"));
    let shown = says(200, &[], json!({"data": [transfer("t2"), transfer("t1")]}).to_string()).await;
    let newest_first = HttpGet::list(format!("{shown}/{{token}}"), "/data", SOON).unwrap().newest_first();
    assert_eq!(find(&newest_first).await.unwrap(), duplicated("t1", "t2"));
}

/// A list of so many pages, numbered from 1, with ours on the last one.
async fn numbered(pages: u64) -> String {
    let page = async move |Query(query): Query<Value>| {
        let number: u64 = query["page"].as_str().unwrap().parse().unwrap();
        let things = match number {
            _ if number > pages => vec![],
            _ if number == pages => vec![transfer("t9")],
            _ => vec![json!({"id": number, "reference": "theirs", "amount": number})],
        };
        Json(json!(things))
    };
    serve(Router::new().route("/list", get(page))).await
}

// C07: all pages, or an error at the bound.
#[tokio::test]
async fn pages_are_read_to_the_end_or_not_believed() {
    let base = numbered(5).await;
    let lookup = HttpGet::list(format!("{base}/list"), "", SOON).unwrap();
    let lookup = lookup.carries("/reference").pages(Pages::numbers("page", 1));
    assert_eq!(find(&lookup.clone().at_most(6)).await.unwrap(), committed("t9"));
    let error = find(&lookup.at_most(5)).await.unwrap_err();
    assert!(error.message.contains("there are more"), "{error}");
    let round = says(200, &[], r#"{"data": [], "next": "c1"}"#).await;
    let lookup = HttpGet::list(round, "/data", SOON).unwrap().pages(Pages::cursor("/next", "cursor"));
    let error = find(&lookup).await.unwrap_err();
    assert!(error.message.contains("in a circle"), "{error}");
}

#[tokio::test]
async fn each_request_is_authorized_anew_and_past_caches() {
    let app = Router::new().fallback(async |headers: HeaderMap| {
        let is = |name: &str, value: &str| headers.get(name).is_some_and(|header| header == value);
        if is("authorization", "Bearer fresh") && is("cache-control", "no-cache") {
            (StatusCode::OK, json!({"data": [transfer("t1")]}).to_string())
        } else {
            (StatusCode::UNAUTHORIZED, String::new())
        }
    });
    let base = serve(app).await;
    assert_eq!(listed(&base).await.unwrap_err().kind, ErrorKind::Unauthorized);
    let lookup = HttpGet::list(base, "/data", SOON).unwrap().authorize(|request| {
        request.headers_mut().insert("authorization", "Bearer fresh".parse().unwrap());
    });
    assert_eq!(find(&lookup).await.unwrap(), committed("t1"));
}

#[tokio::test]
async fn a_reference_of_ones_own_is_escaped() {
    let app = Router::new().route(
        "/list",
        get(async |Query(query): Query<Value>| {
            Json(json!({"data": [{"id": 1, "amount": query["reference"]}]}))
        }),
    );
    let base = serve(app).await;
    let lookup = HttpGet::list(format!("{base}/list?reference={{token}}"), "/data", SOON).unwrap();
    let reference = "INV 17/ä&x=1#+%";
    let expected = Expected::new().field("/amount", reference);
    let found = lookup.find(reference, &expected, serde_json::from_value::<Value>).await.unwrap();
    assert!(matches!(found, LookupResult::Committed { .. }), "{found:?}");
}
