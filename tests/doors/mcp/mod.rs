//! The MCP gateway between the official clients and published servers (`.ci/mcp-peers` brings both). The effects of each tool that writes
//! are counted where they are, also when the gateway is killed after the call and before its record.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::Executor;
use counterfoil::mcp::{McpConfig, McpGateway};
use counterfoil::sim::{CrashPoint, KillAt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

const CONFIG: &str = "COUNTERFOIL_TEST_GATEWAY";
const KILL: &str = "COUNTERFOIL_TEST_KILL";

/// Not a test: a gateway, when a client has started this program as one.
#[tokio::test]
async fn child() {
    let Ok(path) = std::env::var(CONFIG) else { return };
    let config = McpConfig::parse(std::fs::read(path).unwrap()).unwrap();
    let mut executor = Executor::sqlite(config.ledger());
    if let Ok(point) = std::env::var(KILL) {
        executor = executor.watch(Arc::new(point.parse::<KillAt>().unwrap()));
    }
    let gateway = McpGateway::open_on(config, executor).await.unwrap();
    drop(gateway.serve(tokio::io::stdin(), tokio::io::stdout()).await);
    gateway.shutdown(Duration::from_secs(1)).await;
    std::process::exit(0);
}

fn peers() -> PathBuf {
    let told = "this test needs published MCP servers, and MCP_PEERS names no folder of them: run `./test`";
    std::env::var_os("MCP_PEERS").map_or_else(|| panic!("{told}"), PathBuf::from)
}

/// The official clients.
#[derive(Clone, Copy, Debug)]
enum Client {
    /// Python, by the newest protocol's discovery.
    Python,
    /// Python, by the handshake.
    PythonByHandshake,
    TypeScript,
}

const CLIENTS: [Client; 3] = [Client::Python, Client::PythonByHandshake, Client::TypeScript];

/// A server from `PyPI`.
fn python(package: &str, args: &Value) -> Value {
    let packages = peers().join("python").join(package);
    let mut all = vec![json!(packages.join("bin").join(package))];
    all.extend(args.as_array().unwrap().iter().cloned());
    json!({ "command": "python3", "args": all, "env": { "PYTHONPATH": packages } })
}

fn npm(package: &str, args: &Value) -> Value {
    let program = peers().join("node_modules/@modelcontextprotocol").join(package).join("dist/index.js");
    let mut all = vec![json!(program)];
    all.extend(args.as_array().unwrap().iter().cloned());
    json!({ "command": "node", "args": all })
}

/// A gateway's folder.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes the configuration: JSON is YAML.
    fn configure(&self, servers: &Value) {
        let config = json!({
            "ledger": self.path().join("calls.db"), "client": "tester", "servers": servers,
        });
        std::fs::write(self.path().join("gateway.yml"), config.to_string()).unwrap();
    }

    /// What a client is answered. `None` if the gateway was killed meanwhile.
    async fn life(&self, client: Client, kill: bool, calls: &[(&str, Value)]) -> Option<Value> {
        let mut env =
            json!({ CONFIG: self.path().join("gateway.yml"), "PATH": std::env::var("PATH").unwrap() });
        if kill {
            env[KILL] = KillAt::first(CrashPoint::AfterCall).to_string().into();
        }
        let calls: Vec<_> =
            calls.iter().map(|(tool, arguments)| json!({ "tool": tool, "arguments": arguments })).collect();
        let mode = if matches!(client, Client::PythonByHandshake) { "legacy" } else { "auto" };
        let gateway = json!([std::env::current_exe().unwrap(), "mcp::child", "--exact", "--nocapture"]);
        let plan = json!({ "gateway": gateway, "env": env, "calls": calls, "mode": mode }).to_string();
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doors/mcp");
        let mut command = match client {
            Client::TypeScript => {
                let mut command = Command::new("node");
                command.arg(scripts.join("client.mjs"));
                command
            }
            Client::Python | Client::PythonByHandshake => {
                let mut command = Command::new("python3");
                command.arg(scripts.join("client.py")).env("PYTHONPATH", peers().join("python/mcp"));
                command
            }
        };
        let command = command.arg(plan).current_dir(peers()).stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.unwrap();
        let (out, told) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.success(), !kill, "{client:?}: {told}");
        output
            .status
            .success()
            .then(|| serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}\n{told}")))
    }

    /// Has a call made by a gateway that is killed after it, and twice by the next one. Returns both answers.
    async fn killed_and_made_again(&self, clients: [Client; 2], tool: &str, arguments: &Value) -> [Value; 2] {
        let call = (tool, arguments.clone());
        self.life(clients[0], true, std::slice::from_ref(&call)).await;
        let answered = self.life(clients[1], false, &[call.clone(), call]).await.unwrap();
        [answered["answers"][0].clone(), answered["answers"][1].clone()]
    }
}

fn text(answer: &Value) -> String {
    let blocks = answer["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Both are the answer of an operation that was carried out.
fn done(answers: &[Value; 2]) {
    for answer in answers {
        assert_ne!(answer["isError"], true, "{answer}");
        assert!(answer["_meta"]["counterfoil"]["operation"].is_string(), "{answer}");
    }
    assert_eq!(answers[1]["_meta"]["counterfoil"]["first"], false, "{answers:?}");
}

#[tokio::test]
async fn a_file_is_moved_once() {
    let desk = Desk::new();
    let files = std::fs::canonicalize(desk.path()).unwrap().join("files");
    std::fs::create_dir(&files).unwrap();
    let lookup = json!({
        "tool": "get_file_info", "arguments": { "path": "{/destination}" }, "errors": "not_found",
        "contains": "isFile: true",
    });
    let mut server = npm("server-filesystem", &json!([files]));
    server["tools"] = json!({
        "get_file_info": { "effect": "read_only" },
        "move_file": { "contract": "natural_key", "timeout": "5 s", "settle": "5 s", "lookup": lookup },
    });
    desk.configure(&json!({ "files": server }));
    for (name, clients) in
        [("a", [Client::Python, Client::TypeScript]), ("b", [Client::TypeScript, Client::Python])]
    {
        std::fs::write(files.join(name), name).unwrap();
        let moved = files.join(format!("moved-{name}"));
        let arguments = json!({ "source": files.join(name), "destination": moved });
        done(&desk.killed_and_made_again(clients, "move_file", &arguments).await);
        assert_eq!(std::fs::read_to_string(moved).unwrap(), name);
        assert!(!files.join(name).exists());
    }
}

#[tokio::test]
async fn an_entity_is_made_once() {
    let desk = Desk::new();
    let memory = desk.path().join("memory.jsonl");
    let lookup = json!({
        "tool": "open_nodes", "arguments": { "names": ["{/entities/0/name}"] },
        "at": "/entities", "matches": { "/name": "{/entities/0/name}" },
    });
    let mut server = npm("server-memory", &json!([]));
    server["env"] = json!({ "MEMORY_FILE_PATH": memory });
    server["tools"] = json!({
        "open_nodes": { "effect": "read_only" },
        "create_entities": {
            "effect": "memory_write", "contract": "natural_key", "timeout": "5 s", "settle": "5 s", "lookup": lookup,
        },
    });
    desk.configure(&json!({ "memory": server }));
    let entity = json!({ "name": "Ann", "entityType": "person", "observations": ["likes tea"] });
    let arguments = json!({ "entities": [entity] });
    let clients = [Client::TypeScript, Client::PythonByHandshake];
    done(&desk.killed_and_made_again(clients, "create_entities", &arguments).await);
    let lines = std::fs::read_to_string(memory).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains("Ann")).count(), 1, "{lines}");
}

#[tokio::test]
async fn a_row_that_nobody_can_look_up_is_inserted_once_and_is_a_question_after_a_kill() {
    let desk = Desk::new();
    let database = desk.path().join("shop.db");
    let server = python("mcp-server-sqlite", &json!(["--db-path", database]));
    desk.configure(&json!({ "shop": server }));
    let query = |sql: &str| ("write_query", json!({ "query": sql }));
    let table = ("create_table", json!({ "query": "CREATE TABLE sale (tea TEXT)" }));
    let insert = query("INSERT INTO sale VALUES ('green')");
    let told = desk.life(Client::Python, false, &[table, insert.clone(), insert]).await.unwrap();
    let answers = &told["answers"];
    assert!(answers.as_array().unwrap().iter().all(|answer| answer["isError"] != true), "{answers}");
    assert!(text(&answers[2]).contains("first result"), "{answers}");

    let insert = json!({ "query": "INSERT INTO sale VALUES ('black')" });
    let clients = [Client::Python, Client::TypeScript];
    for answer in desk.killed_and_made_again(clients, "write_query", &insert).await {
        assert!(text(&answer).contains("Nobody knows"), "{answer}");
    }
    let url = format!("sqlite://{}", database.display());
    let pool = counterfoil::types::sqlx::SqlitePool::connect(&url).await.unwrap();
    let rows = counterfoil::types::sqlx::query_scalar::<_, String>("SELECT tea FROM sale ORDER BY tea");
    assert_eq!(rows.fetch_all(&pool).await.unwrap(), ["black", "green"]);
}

#[tokio::test]
async fn a_commit_is_made_once() {
    let desk = Desk::new();
    let repository = desk.path().join("notes");
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.arg("-C").arg(desk.path()).args(["-c", "user.name=t", "-c", "user.email=t@example.com"]);
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "-q", "notes"]);
    git(&["-C", "notes", "config", "user.name", "t"]);
    git(&["-C", "notes", "config", "user.email", "t@example.com"]);
    git(&["-C", "notes", "commit", "-q", "--allow-empty", "-m", "begin"]);
    let lookup = json!({
        "tool": "git_log", "arguments": { "repo_path": "{/repo_path}", "max_count": 5 }, "contains": "{/message}",
    });
    let mut server = python("mcp-server-git", &json!(["--repository", repository]));
    server["tools"] = json!({
        "git_log": { "effect": "read_only" },
        "git_commit": { "timeout": "5 s", "settle": "5 s", "lookup": lookup },
    });
    desk.configure(&json!({ "notes": server }));
    std::fs::write(repository.join("tea"), "green").unwrap();
    git(&["-C", "notes", "add", "tea"]);
    let arguments = json!({ "repo_path": repository, "message": "Buy tea (o1)" });
    let clients = [Client::TypeScript, Client::TypeScript];
    done(&desk.killed_and_made_again(clients, "git_commit", &arguments).await);
    assert_eq!(git(&["-C", "notes", "log", "--format=%s"]), "Buy tea (o1)\nbegin\n");
}

#[tokio::test]
async fn a_thought_counts_once() {
    let desk = Desk::new();
    desk.configure(&json!({ "thinking": npm("server-sequential-thinking", &json!([])) }));
    let thought = |number: u32| {
        let thought = json!({ "thought": "Tea", "thoughtNumber": number, "totalThoughts": 2, "nextThoughtNeeded": true });
        ("sequentialthinking", thought)
    };
    let told = desk.life(Client::TypeScript, false, &[thought(1), thought(1), thought(2)]).await.unwrap();
    let last = &told["answers"][2];
    assert!(text(last).contains("\"thoughtHistoryLength\": 2"), "{told}");
}

#[tokio::test]
async fn each_client_sees_the_tools_of_all_servers() {
    let desk = Desk::new();
    let mut clock = python("mcp-server-time", &json!(["--local-timezone", "UTC"]));
    clock["tools"] = json!({ "get_current_time": { "effect": "read_only" } });
    let everything = npm("server-everything", &json!(["stdio"]));
    let memory = desk.path().join("memory.jsonl");
    let mut notes = npm("server-memory", &json!([]));
    notes["env"] = json!({ "MEMORY_FILE_PATH": memory });
    desk.configure(&json!({ "clock": clock, "everything": everything, "notes": notes }));
    for client in CLIENTS {
        let calls = [
            ("get_current_time", json!({ "timezone": "UTC" })),
            ("echo", json!({ "message": format!("{client:?}") })),
        ];
        let told = desk.life(client, false, &calls).await.unwrap();
        let tools: Vec<_> = told["tools"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        for tool in ["get_current_time", "echo", "create_entities"] {
            assert!(tools.contains(&tool), "{client:?}: {tools:?}");
        }
        assert!(text(&told["answers"][0]).contains("UTC"), "{told}");
        assert!(text(&told["answers"][1]).contains(&format!("{client:?}")), "{told}");
    }
}
