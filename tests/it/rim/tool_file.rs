//! Tools from a file: the example of the guide is run, and each mistake has its line and its field.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::Path as InPath;
use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Json, Router};
use counterfoil::tool_file::{ToolFile, ToolFileError};
use counterfoil::{Executor, Outcome, Tenant, ToolRequest};
use serde_json::{Value, json};

use super::mcp::server::{Notes, effects};
use crate::world::{Process, TestClock, executor as on_disk, soon, until};

/// The first block of the guide.
fn example() -> String {
    let page = include_str!("../../../docs/tool-file.md");
    let (_, after) = page.split_once("```yaml\n").unwrap();
    after.split_once("```").unwrap().0.to_owned()
}

fn secrets(name: &str) -> Option<String> {
    ["PAY_KEY", "SHIP_TOKEN"].contains(&name).then(|| format!("secret-{name}"))
}

/// What a provider of refunds was sent: the path, the key, the credential and the body.
type Sent = Arc<Mutex<Vec<(String, String, String, Value)>>>;

async fn bank() -> (String, Sent) {
    let sent = Sent::default();
    let kept = sent.clone();
    let refund = move |InPath(charge): InPath<String>, headers: HeaderMap, Json(body): Json<Value>| {
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        kept.lock().unwrap().push((charge, header("idempotency-key"), header("authorization"), body));
        std::future::ready(Json(json!({ "id": "re_1" })))
    };
    let router = Router::new().route("/charges/{charge}/refunds", post(refund));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }));
    (url, sent)
}

/// The example with a bank, a shipping program and a server of notes that are there.
fn in_place(bank: &str, folder: &Path) -> String {
    let ship = "case $1 in list) printf '{\"parcels\":['; paste -sd, parcels 2>/dev/null; printf ']}' ;;\n\
                *) printf '{\"parcel\":\"p1\",\"key\":\"%s\",\"order\":\"%s\",\"token\":\"%s\"}\\n' \"$SHIP_KEY\" \"$2\" \"$SHIP_TOKEN\" >> parcels\n\
                tail -n1 parcels; [ -e lose ] && kill -9 $$; exit 0 ;; esac";
    std::fs::write(folder.join("ship.sh"), ship).unwrap();
    let Notes { command, args, env } = Notes::started_in(folder);
    let notes = json!({ "command": command, "args": args, "env": env });
    example()
        .replace("https://pay.example", bank)
        .replace("[ship-cli, ", "[sh, ship.sh, ")
        .replace("    command:\n", &format!("    command:\n      folder: {}\n", folder.display()))
        .replace("    timeout: 30 s\n", "    timeout: 2 s\n    settle: 2 s\n")
        .replace("{ command: notes-server, args: [--folder, /srv/notes] }", &notes.to_string())
}

async fn executor(file: &str) -> Executor {
    let tools = ToolFile::parse(file).unwrap().tools(secrets).unwrap();
    assert_eq!(tools.len(), 3);
    Executor::in_memory().dynamic_tools(tools).open().await.unwrap()
}

fn request(tool: &str, input: Value) -> ToolRequest {
    ToolRequest::new(Tenant::new("acme").unwrap(), tool, input)
}

async fn made(executor: &Executor, tool: &str, input: Value) -> Value {
    let outcome = executor.execute(request(tool, input)).await.unwrap();
    outcome.answer().unwrap_or_else(|| panic!("{tool}: {outcome:?}")).response.value().unwrap()
}

#[tokio::test]
async fn the_example_of_the_guide_makes_each_effect_once() {
    let folder = tempfile::tempdir().unwrap();
    let (url, sent) = bank().await;
    let executor = executor(&in_place(&url, folder.path())).await;
    std::fs::write(folder.path().join("lose"), "").unwrap();
    for _ in 0..2 {
        let refund = json!({ "charge": "ch_1", "case": "c1", "cents": 4200 });
        assert_eq!(made(&executor, "refund", refund).await, json!({ "id": "re_1" }));
        // The program is killed after the effect, and the parcel is looked up.
        assert_eq!(made(&executor, "ship", json!({ "order": "o1" })).await["parcel"], "p1");
    }
    let sent = sent.lock().unwrap().clone();
    let [(charge, key, authorization, body)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((charge.as_str(), authorization.as_str()), ("ch_1", "Bearer secret-PAY_KEY"));
    assert_eq!(body, &json!({ "amount": 4200, "reference": key }));
    let parcels = std::fs::read_to_string(folder.path().join("parcels")).unwrap();
    assert_eq!(parcels.lines().count(), 1);
    assert!(parcels.contains("--order=o1") && parcels.contains("secret-SHIP_TOKEN"), "{parcels}");

    let note = request("note", json!({ "case": "c1" }));
    let refused = executor.execute(note.clone()).await.unwrap();
    assert!(matches!(refused, Outcome::Refused(_)), "Ann has not agreed: {refused:?}");
    assert!(effects(folder.path()).is_empty());
}

#[tokio::test]
async fn a_field_that_the_file_redacts_is_sent_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (url, sent) = bank().await;
    let redacts = "    key: [/charge, /case]\n    redact: [/cents]\n    redact_output: [/id]\n";
    let file = in_place(&url, folder.path()).replacen("    key: [/charge, /case]\n", redacts, 1);
    let executor = executor(&file).await;
    let refund = |cents: u32| json!({ "charge": "ch_1", "case": "c1", "cents": cents });
    for _ in 0..2 {
        let kept = made(&executor, "refund", refund(4200)).await;
        assert_eq!(kept, json!({ "id": { "$secret": "redacted" } }));
    }
    let amounts: Vec<_> = sent.lock().unwrap().iter().map(|(.., body)| body["amount"].clone()).collect();
    assert_eq!(amounts, [4200], "it is sent once, as it is");
    let Outcome::Conflict(diff) = executor.execute(request("refund", refund(4300))).await.unwrap() else {
        panic!()
    };
    assert!(!diff.0.to_string().contains("4200"), "{diff:?}");
}

#[tokio::test]
async fn a_tool_of_a_server_in_a_file_is_looked_up_by_another_tool() {
    let folder = tempfile::tempdir().unwrap();
    let file = in_place("http://127.0.0.1:1", folder.path())
        .replace("    reviewers: [ann]\n", "    approval: nobody\n");
    let executor = executor(&file).await;
    super::mcp::server::fault(folder.path(), "die_after");
    for _ in 0..2 {
        assert_eq!(made(&executor, "note", json!({ "case": "c1" })).await["id"], 1);
    }
    let effects = effects(folder.path());
    assert_eq!((effects.len(), &effects[0]["arguments"]["title"]), (1, &json!("Refund of c1")));
    executor.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_key_that_the_provider_has_forgotten_is_not_sent_again() {
    let (dir, clock, sent) = (tempfile::tempdir().unwrap(), TestClock::breathing(), Arc::default());
    let kept: Arc<AtomicUsize> = Arc::clone(&sent);
    let never_answered = move || {
        kept.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Json<Value>>()
    };
    let router = Router::new().route("/pay", post(never_answered));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/pay", listener.local_addr().unwrap());
    drop(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }));
    let file = format!(
        "tools:\n  pay:\n    effect: payment\n    contract: replays_key\n    key_window: 24 h\n    key: [/case]\n    http: {{ post: '{url}', key_header: Idempotency-Key }}\n"
    );
    let start = || {
        let tools = ToolFile::parse(file.as_str()).unwrap().tools(secrets).unwrap();
        Process::start(on_disk(&dir, &clock).dynamic_tools(tools))
    };
    let process = start().await.unwrap();
    let _lost = process.execute(request("pay", json!({ "case": "c1" })));
    until("the first request", async || sent.load(Ordering::Relaxed) == 1).await;
    process.kill();
    clock.advance(Duration::from_hours(25));

    let process = start().await.unwrap();
    let again = process.execute(request("pay", json!({ "case": "c1" })));
    let is_asked = async {
        let outcome = again.await.unwrap().unwrap();
        if matches!(outcome, Outcome::NeedsDecision { .. }) { Ok(()) } else { Err(outcome) }
    };
    soon("the call waits to be sent again".to_owned(), is_asked).await;
    assert_eq!(sent.load(Ordering::Relaxed), 1);
}

#[test]
fn each_mistake_has_its_place_and_what_to_write_instead() {
    let tool = |fields: &str| format!("tools:\n  pay:\n{}\n", fields.replace('|', "\n"));
    let http = "    http: { post: 'http://pay.example/' }";
    let cases: &[(String, &str, u64, &str)] = &[
        ("servers: {}\n".to_owned(), "tools", 1, "no tool"),
        (tool("    efect: payment"), "tools.pay.efect", 3, "`effect`"),
        (tool("    http: { past: x }"), "tools.pay.http.past", 3, "`post`"),
        (tool("    effect: payment"), "tools.pay", 2, "one HTTP request"),
        (tool(&format!("{http}|    command: {{ run: [pay] }}")), "tools.pay", 2, "one of `http`"),
        (tool("    http: { post: 'http://{host}/' }"), "tools.pay.http", 3, "takes its host from the input"),
        (tool("    http: { key_header: K }"), "tools.pay.http", 3, "one method"),
        (tool(&format!("{http}|    contract: replays_key")), "tools.pay.http", 3, "sends no key"),
        (tool(&format!("{http}|    contract: lookup")), "tools.pay.contract", 4, "there is no lookup"),
        (tool(&format!("{http}|    effect: deletion")), "tools.pay.reviewers", 2, "nobody is named"),
        (tool(&format!("{http}|    key: []")), "tools.pay.key", 4, "empty key"),
        (
            tool(&format!("{http}|    means: {{ maybe: [1] }}")),
            "tools.pay.means.maybe",
            4,
            "there is no field",
        ),
        (tool(&format!("{http}|    lookup: {{ run: [find] }}")), "tools.pay.lookup.run", 4, "no such field"),
        (
            tool(&format!("{http}|    lookup: {{ get: 'http://pay.example/refunds', at: /data }}")),
            "tools.pay.http",
            3,
            "any answer would count as the effect",
        ),
        (
            tool("    command: { run: [pay], key_env: K }|    lookup: { run: [find], at: /data }"),
            "tools.pay.command",
            3,
            "any answer would count as the effect",
        ),
        (
            tool(
                "    mcp: { server: n, tool: a }|    lookup: { tool: b, at: /data }|servers: { n: { command: n } }",
            ),
            "tools.pay.mcp",
            3,
            "any answer would count as the effect",
        ),
        (
            tool("    http:|      post: 'http://b.example/'|      secret_headers: { authorization: sk_1 }"),
            "tools.pay.http.secret_headers.authorization",
            5,
            "never written here",
        ),
        (tool("    command: { run: [] }"), "tools.pay.command.run", 3, "there is no program"),
        (tool("    command: { run: [pay, '{case'] }"), "tools.pay.command", 3, "brace without its partner"),
        (
            tool("    command: { run: [pay] }|    lookup: { run: [find] }"),
            "tools.pay.lookup",
            4,
            "missing_exit",
        ),
        (tool("    mcp: { server: notes, tool: create }"), "tools.pay.mcp.server", 3, "there is no server"),
        (
            tool(
                "    mcp: { server: notes, tool: a }|    lookup: { tool: a }|servers: { notes: { command: n } }",
            ),
            "tools.pay.mcp",
            3,
            "calls the tool itself",
        ),
        (
            tool("    mcp: { server: notes, tool: a }|servers: { notes: {} }"),
            "servers.notes",
            4,
            "a program or a URL",
        ),
        (tool(&format!("{http}|    description: Pays.")), "tools.pay", 2, "both `description` and `input`"),
        (tool(&format!("{http}|    timeout: 30")), "tools.pay.timeout", 4, ""),
    ];
    for (file, path, line, says) in cases {
        let Err(ToolFileError::Findings(findings)) = ToolFile::parse(file) else {
            panic!("accepted:\n{file}")
        };
        let finding = findings
            .iter()
            .find(|finding| finding.path == *path)
            .unwrap_or_else(|| panic!("{path}: {findings:?}\n{file}"));
        assert_eq!(finding.line, *line, "{finding}\n{file}");
        assert!(finding.to_string().contains(says), "{says}: {finding}");
        assert!(!finding.to_string().contains("sk_1"), "{finding}");
    }
}

#[test]
fn a_secret_that_is_not_set_is_named() {
    let file = ToolFile::parse(example()).unwrap();
    let asked = AtomicUsize::new(0);
    let counted = |_: &str| {
        asked.fetch_add(1, Ordering::Relaxed);
        None
    };
    let Err(ToolFileError::Findings(findings)) = file.tools(counted) else { panic!("no secrets") };
    assert!(findings[0].to_string().contains("PAY_KEY is not set"), "{findings:?}");
    assert_eq!(asked.into_inner(), 2);
    let broken = file.tools(|_| Some("sk_12345678\n".to_owned())).map(|_| ()).unwrap_err();
    assert!(!format!("{broken} {broken:?}").contains("sk_1"), "{broken}");
}
