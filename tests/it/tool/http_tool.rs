//! The declared HTTP tool against a raw server: what is on the wire, and what becomes of the call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::ledger::{
    Backoff, Contract, ContractClass, EffectClass, ErrorKind, LookupPolicy, RetryPolicy,
};
use counterfoil::tool::http_tool::{HttpTool, HttpToolBuilder, HttpToolError};
use counterfoil::tool::lookup::HttpGet;
use counterfoil::tool::{Done, DynamicTool, Meaning};
use counterfoil::{Executor, Key, Outcome, Secret, Tenant, ToolRequest};
use reqwest::{Certificate, Client};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::tls::TlsProxy;
use crate::wire::request;

/// The answer to a request, in bytes, after which the connection is closed or kept. `None`: silence.
type Says = Option<(String, Then)>;

#[derive(Clone, Copy)]
enum Then {
    Close,
    Keep,
}

#[allow(clippy::unnecessary_wraps, reason = "as the list of answers takes it")]
fn says(head: &str, body: &str) -> Says {
    Some((format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()), Then::Keep))
}

#[allow(clippy::unnecessary_wraps, reason = "as the list of answers takes it")]
fn hangs_up() -> Says {
    Some((String::new(), Then::Close))
}

/// A server that keeps each request that arrives, with the number of its connection.
#[derive(Clone)]
struct Wire {
    url: String,
    script: Arc<Mutex<VecDeque<Says>>>,
    arrived: Arc<Mutex<Vec<(usize, String, String)>>>,
}

impl Wire {
    async fn with(script: impl IntoIterator<Item = Says>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let script = Arc::new(Mutex::new(script.into_iter().collect()));
        let wire = Self { url, script, arrived: Arc::default() };
        let serving = wire.clone();
        tokio::spawn(async move {
            let mut connections = 0;
            while let Ok((stream, _)) = listener.accept().await {
                connections += 1;
                tokio::spawn(serving.clone().serve(stream, connections));
            }
        });
        wire
    }

    async fn serve(self, mut stream: TcpStream, connection: usize) {
        while let Some((head, body)) = request(&mut stream).await {
            self.arrived.lock().unwrap().push((connection, head, body));
            let next = self.script.lock().unwrap().pop_front();
            let Some((bytes, then)) = next.expect("a request too many") else {
                return std::future::pending().await;
            };
            let _ = stream.write_all(bytes.replace("{url}", &self.url).as_bytes()).await;
            if matches!(then, Then::Close) {
                return;
            }
        }
    }

    fn arrived(&self) -> Vec<(usize, String, String)> {
        self.arrived.lock().unwrap().clone()
    }

    fn refund(&self) -> HttpToolBuilder {
        refund_at(&self.url)
    }
}

fn refund_at(url: &str) -> HttpToolBuilder {
    HttpTool::post(format!("{url}/charges/{{charge}}/refunds")).key_header("Idempotency-Key")
}

fn quick(attempts: u32) -> RetryPolicy {
    let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(2) };
    RetryPolicy { attempts, backoff, attempt_timeout: Duration::from_millis(500), ..RetryPolicy::default() }
}

/// A tool at a provider of whose calls nobody finds out: each unknown outcome is a question.
fn blind(declared: HttpToolBuilder) -> DynamicTool {
    let contract = Contract::new(ContractClass::Blind);
    declared
        .build()
        .unwrap()
        .dynamic("refund", EffectClass::InternalMutation, contract)
        .unwrap()
        .retry(quick(3))
}

async fn called(tool: DynamicTool, input: Value) -> Outcome {
    let executor = Executor::in_memory().dynamic_tool(tool).open().await.unwrap();
    let key = Key::of("refund").target("case-1");
    executor.execute(ToolRequest::new(Tenant::new("acme").unwrap(), "refund", input).key(key)).await.unwrap()
}

fn input() -> Value {
    json!({ "charge": "ch_1", "cents": 4200 })
}

/// The outcome of a call whose requests meet these answers, each of which must be used.
async fn meets(script: Vec<Says>) -> Outcome {
    let (wire, sends) = (Wire::with(script.clone()).await, script.len());
    let outcome = called(blind(wire.refund().max_response_bytes(1000)), input()).await;
    assert_eq!(wire.arrived().len(), sends, "{outcome:?}");
    outcome
}

// R-EXE-5
#[tokio::test]
async fn a_write_of_unknown_outcome_is_on_the_wire_once() {
    let half = Some(("HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n{\"id\"".to_owned(), Then::Close));
    for (what, answer) in [
        ("closed", hangs_up()),
        ("half an answer", half),
        ("silence", None),
        ("redirect", says("307 X\r\nlocation: {url}/charges/ch_1/refunds", "")),
        ("misdirected", says("421 X", "")),
        ("server error", says("503 X\r\nretry-after: 0", "")),
        ("beyond the limit", says("200 OK", &format!("\"{}\"", "x".repeat(2000)))),
        ("no JSON", says("200 OK", "<html>")),
        ("a gzip bomb that nobody asked for", says("200 OK\r\ncontent-encoding: gzip", "\u{1f}\u{8b}")),
    ] {
        let outcome = meets(vec![answer]).await;
        let is_certain = what == "misdirected";
        assert_eq!(!is_certain, matches!(outcome, Outcome::NeedsDecision { .. }), "{what}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_certain_answer_decides_what_happens_next() {
    let later = says("429 X\r\nretry-after: 0", "");
    let ok = says("201 X", r#"{"id": 7}"#);
    let outcome = meets(vec![later.clone(), later, ok.clone()]).await;
    assert_eq!(outcome.answer().unwrap().response.value().unwrap(), json!({ "id": 7 }));
    let outcome = meets(vec![says("422 X", "already refunded")]).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert!(failure.message.contains("HTTP 422: already refunded"), "{failure:?}");
    let empty = meets(vec![says("204 X", "")]).await;
    assert_eq!(empty.answer().unwrap().response.value().unwrap(), Value::Null);
}

#[tokio::test]
async fn a_provider_whose_certificate_is_not_trusted_gets_nothing() {
    let wire = Wire::with([says("200 X", r#"{"id": 7}"#)]).await;
    let proxy = TlsProxy::of(wire.url.replace("http://", "")).await;
    let Outcome::Failed(failure) = called(blind(refund_at(&proxy.url)), input()).await else { panic!() };
    assert_eq!(failure.kind, ErrorKind::Unreachable, "{failure:?}");
    assert_eq!(wire.arrived().len(), 0);

    let certificate = std::fs::read(proxy.certificate()).unwrap();
    let certificate = Certificate::from_pem(&certificate).unwrap();
    let trusting = refund_at(&proxy.url).client(Client::builder().tls_certs_merge([certificate]));
    let outcome = called(blind(trusting), input()).await;
    assert_eq!(outcome.answer().unwrap().response.value().unwrap(), json!({ "id": 7 }));
    assert_eq!(wire.arrived().len(), 1);
}

#[tokio::test]
async fn an_accepted_call_waits_and_is_not_sent_again() {
    let wire = Wire::with([says("202 X\r\nlocation: /jobs/job-7?x=1", "")]).await;
    let outcome = called(blind(wire.refund().external_id_from_location()), input()).await;
    assert!(matches!(outcome, Outcome::Pending { .. }), "{outcome:?}");
    assert_eq!(wire.arrived().len(), 1);
}

#[tokio::test]
async fn a_declared_status_counts_instead_of_the_usual_meaning() {
    let wire =
        Wire::with([says("404 X", "no such charge yet"), says("202 X", r#"{"refund": {"id": "re_1"}}"#)])
            .await;
    let declared = wire.refund().status(404, Meaning::Later).status(202, Meaning::Done).output("/refund");
    let outcome = called(blind(declared), input()).await;
    assert_eq!(outcome.answer().unwrap().response.value().unwrap(), json!({ "id": "re_1" }));
}

#[tokio::test]
async fn a_request_carries_key_and_values_on_a_connection_of_its_own() {
    let wire = Wire::with([says("429 X\r\nretry-after: 0", ""), says("200 X", "{}")]).await;
    let body = json!({ "amount": "{cents}", "text": "refund of {charge}", "reference": "{token}" });
    let _ = called(
        blind(wire.refund().header("x-case", "c-{/charge}").body(body)),
        json!({ "charge": "a/../b", "cents": 1 }),
    )
    .await;
    let arrived = wire.arrived();
    let keys: Vec<_> = arrived
        .iter()
        .map(|(_, head, body)| {
            assert!(head.starts_with("POST /charges/a%2F..%2Fb/refunds HTTP/1.1"), "{head}");
            assert!(head.contains("x-case: c-a/../b"), "{head}");
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!((&body["amount"], &body["text"]), (&json!(1), &json!("refund of a/../b")));
            let header = head.lines().find_map(|line| line.strip_prefix("idempotency-key: ")).unwrap();
            assert_eq!(body["reference"], header);
            header.to_owned()
        })
        .collect();
    assert_eq!(keys[0], keys[1], "each attempt has the same key");
    assert_ne!(
        arrived[0].0, arrived[1].0,
        "no request depends on a connection that the provider may be closing"
    );
}

#[tokio::test]
async fn a_hostile_value_is_refused_before_anything_is_sent() {
    for (what, value) in [("path", ".."), ("path", ""), ("header", "x\r\nhost: eve")] {
        let wire = Wire::with([]).await;
        let outcome =
            called(blind(wire.refund().header("x-charge", "{charge}")), json!({ "charge": value })).await;
        assert!(matches!(outcome, Outcome::Failed(_)), "{what} {value:?}: {outcome:?}");
        assert_eq!(wire.arrived().len(), 0);
    }
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_is_looked_up_and_not_sent_again() {
    let found = r#"{"data": [{"id": "re_9", "reference": "other", "amount": 4200}, {"id": "re_1", "reference": "KEY", "amount": 4200}]}"#;
    let wire = Wire::with([hangs_up()]).await;
    let list = format!("{}/charges/{{charge}}/refunds?of={{charge}}", wire.url);
    let secret = Secret::new("Bearer sk_test_12345678".to_owned());
    let declared = wire
        .refund()
        .secret_header("authorization", secret)
        .lookup(HttpGet::list(list, "/data", Duration::from_secs(5)).unwrap().carries("/reference"))
        .expects("/amount", "{cents}")
        .key_fields(["charge"]);
    let tool = declared.build().unwrap();
    assert!(!format!("{tool:?}").contains("sk_test"));
    let contract = Contract::new(ContractClass::Lookup).settle(Duration::from_millis(600));
    let tool = tool.dynamic("refund", EffectClass::InternalMutation, contract).unwrap().retry(quick(3));
    let tool = tool.lookups(LookupPolicy::default());
    let executor = Executor::in_memory().dynamic_tool(tool).open().await.unwrap();
    let request = || ToolRequest::new(Tenant::new("acme").unwrap(), "refund", input());
    // The list is answered once the key is known: it is that of the write.
    let (script, arrived) = (wire.script.clone(), wire.arrived.clone());
    let answering = tokio::spawn(async move {
        loop {
            if let Some((_, head, _)) = arrived.lock().unwrap().first() {
                let key = head.lines().find_map(|line| line.strip_prefix("idempotency-key: ")).unwrap();
                script.lock().unwrap().push_back(says("200 OK", &found.replace("KEY", key)));
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    let outcome = executor.execute(request()).await.unwrap();
    answering.await.unwrap();
    assert_eq!(outcome.answer().unwrap().response.value().unwrap()["id"], "re_1", "{outcome:?}");
    let arrived = wire.arrived();
    assert_eq!(arrived.len(), 2);
    assert!(arrived[1].1.starts_with("GET /charges/ch_1/refunds?of=ch_1 "), "{}", arrived[1].1);
    assert!(arrived[1].1.contains("authorization: Bearer sk_test_12345678"));
    let again = executor.execute(request()).await.unwrap();
    assert_eq!(
        again.answer().unwrap().response.value().unwrap()["id"],
        "re_1",
        "the key is that of its fields"
    );
}

// R-EXE-5
#[tokio::test]
async fn a_second_write_within_one_attempt_is_refused_and_the_outcome_is_unknown() {
    let wire = Wire::with([says("503 X", ""), says("200 X", "{}")]).await;
    let declared = wire.refund().build().unwrap();
    let twice =
        DynamicTool::new("refund", EffectClass::InternalMutation, Contract::new(ContractClass::Blind))
            .call(move |call, input| {
                let declared = declared.clone();
                async move {
                    match declared.send::<_, Value>(&call, &input).await {
                        Ok(done) => Ok(done),
                        Err(_) => declared.send(&call, &input).await, // the mistake
                    }
                }
            })
            .retry(quick(3));
    let outcome = called(twice, input()).await;
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    assert_eq!(wire.arrived().len(), 1);
}

// R-EXE-5
#[tokio::test]
async fn a_write_after_its_attempt_is_not_sent() {
    let wire = Wire::with([]).await;
    let declared = wire.refund().build().unwrap();
    let (kept, mut calls) = tokio::sync::mpsc::unbounded_channel();
    let detaches =
        DynamicTool::new("refund", EffectClass::InternalMutation, Contract::new(ContractClass::Blind)).call(
            move |call, _| {
                kept.send(call).unwrap();
                async { Ok(Done::new(Value::Null)) }
            },
        );
    let _ = called(detaches, input()).await;
    let late = declared.send::<_, Value>(&calls.recv().await.unwrap(), &input()).await.unwrap_err();
    assert!(late.message.contains("the attempt is over"), "{late}");
    assert_eq!(wire.arrived().len(), 0);
}

#[tokio::test]
async fn a_secret_that_the_provider_repeats_is_not_recorded() {
    let wire = Wire::with([says("422 X", "bad key sk_test_12345678 given")]).await;
    let secret = Secret::new("Bearer sk_test_12345678".to_owned());
    let outcome = called(blind(wire.refund().secret_header("authorization", secret)), input()).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.message, "HTTP 422: bad key … given");
}

#[test]
fn a_lookup_that_would_take_the_effect_of_another_call_is_refused() {
    let bank = "http://bank.example";
    let list = |path: &str| HttpGet::list(format!("{bank}{path}"), "/data", Duration::from_secs(5)).unwrap();
    let one = |path: &str| HttpGet::one(format!("{bank}{path}"), Duration::from_secs(5)).unwrap();
    for any in [list("/charges/{charge}/refunds"), list("/refunds").id("/ref"), one("/refunds/last")] {
        let refused = refund_at(bank).lookup(any).build();
        assert!(matches!(refused, Err(HttpToolError::Template { part: "lookup", .. })), "{refused:?}");
    }
    for ours in [
        list("/refunds?ref={token}"),
        list("/refunds").carries("/ref"),
        list("/refunds").carries_if_any("/ref"),
        one("/refunds/{case}"),
    ] {
        let _ = refund_at(bank).lookup(ours).build().unwrap();
    }
    let _ = refund_at(bank).lookup(list("/refunds")).expects("/case", "{case}").build().unwrap();
}

#[test]
fn a_lookup_by_a_key_that_is_not_sent_is_refused() {
    for url in ["http://bank.example/refunds", "http://bank.example/refunds?ref={token}"] {
        let list = HttpGet::list(url, "/data", Duration::from_secs(5)).unwrap();
        let list = if url.ends_with("refunds") { list.carries_if_any("/ref") } else { list };
        let keyless = HttpTool::post("http://bank.example/refunds").lookup(list).build().unwrap();
        let refused = keyless.dynamic("refund", EffectClass::Payment, Contract::new(ContractClass::Lookup));
        assert!(matches!(refused, Err(HttpToolError::KeyNotSent { .. })), "{url}");
    }
}

#[test]
fn a_declaration_that_cannot_keep_its_promise_is_refused() {
    let keyless = HttpTool::post("http://bank.example/refunds").build().unwrap();
    let refused = keyless.dynamic("refund", EffectClass::Payment, Contract::new(ContractClass::ReplaysKey));
    assert!(matches!(refused, Err(HttpToolError::KeyNotSent { .. })));
    let in_body =
        HttpTool::post("http://bank.example/refunds").body(json!({ "ref": ["{token}"] })).build().unwrap();
    let _ =
        in_body.dynamic("refund", EffectClass::Payment, Contract::new(ContractClass::ReplaysKey)).unwrap();
    let secret =
        HttpTool::post("http://b.example/").secret_header("x", Secret::new("sk_\n".to_owned())).build();
    let Err(error) = secret else { panic!("a line break is no header") };
    assert!(!format!("{error} {error:?}").contains("sk_"), "{error}");
}
