//! The declared command tool with real processes: what is started, what is left of it, and what becomes of the call.

use std::path::{Path, PathBuf};
use std::time::Duration;

use counterfoil::ledger::{Backoff, Contract, ContractClass, EffectClass, LookupPolicy, RetryPolicy};
use counterfoil::tool::command_tool::{CommandLookup, CommandTool, CommandToolBuilder, CommandToolError};
use counterfoil::tool::{Done, DynamicTool, Meaning};
use counterfoil::{Clock as _, Executor, Key, Outcome, Secret, SystemClock, Tenant, ToolRequest};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than a process takes to end once it is killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A folder with scripts, and what they have done.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let list = "printf '{\"made\":['; paste -sd, made 2>/dev/null; printf ']}'";
        std::fs::write(folder.path().join("list.sh"), list).unwrap();
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A tool that is this script. It notes each start in a file.
    fn script(&self, script: &str) -> CommandToolBuilder {
        let file = self.path().join("tool.sh");
        std::fs::write(&file, format!("echo start >> started\n{script}\n")).unwrap();
        command(self.path())
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn started(&self) -> usize {
        self.lines("started").len()
    }
}

/// The script of a folder as a tool. A shell reads the file, which is never executed itself.
fn command(folder: &Path) -> CommandToolBuilder {
    CommandTool::new("sh").arg("tool.sh").current_dir(folder).key_env("KEY")
}

/// A lookup in what a script has made.
fn made() -> CommandLookup {
    CommandLookup::list("sh", "/made").arg("list.sh").carries("/key")
}

fn quick(attempts: u32) -> RetryPolicy {
    let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(2) };
    RetryPolicy { attempts, backoff, attempt_timeout: PATIENCE, ..RetryPolicy::default() }
}

/// A tool of whose calls nobody finds out: each unknown outcome is a question.
fn blind(declared: CommandToolBuilder) -> DynamicTool {
    let contract = Contract::new(ContractClass::Blind);
    let tool = declared.build().unwrap().dynamic("refund", EffectClass::InternalMutation, contract).unwrap();
    tool.retry(quick(3))
}

fn request(input: Value) -> ToolRequest {
    let key = Key::of("refund").target("case-1");
    ToolRequest::new(Tenant::new("acme").unwrap(), "refund", input).key(key)
}

async fn called(tool: DynamicTool, input: Value) -> Outcome {
    let executor = Executor::in_memory().dynamic_tool(tool).open().await.unwrap();
    executor.execute(request(input)).await.unwrap()
}

fn output(outcome: &Outcome) -> Value {
    outcome.answer().unwrap_or_else(|| panic!("{outcome:?}")).response.value().unwrap()
}

/// Waits until this process has ended. A zombie has.
async fn ended(pid: &str) {
    let stat = format!("/proc/{pid}/stat");
    let began = SystemClock.boot();
    while let Ok(stat) = std::fs::read_to_string(&stat) {
        let state = stat.rsplit(") ").next().unwrap_or_default();
        if state.starts_with(['Z', 'X']) {
            return;
        }
        assert!(began.until(SystemClock.boot()) < PATIENCE, "{pid} lives: {stat}");
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn the_exit_code_decides_what_happens_next() {
    for (code, declared, starts) in [
        (0, None, 1),
        (1, None, 1),
        (3, Some(Meaning::Refused), 1),
        (75, Some(Meaning::Later), 3),
        (4, Some(Meaning::Duplicate), 1),
        (5, Some(Meaning::Accepted), 1),
        (6, Some(Meaning::Done), 1),
    ] {
        let desk = Desk::new();
        let tool = desk.script(&format!("echo '{{\"id\": \"r1\"}}'; echo why >&2; exit {code}"));
        let tool = match declared {
            Some(meaning) => tool.exit(code, meaning),
            None => tool,
        };
        let outcome = called(blind(tool.external_id("/id")), json!({})).await;
        assert_eq!(desk.started(), starts, "{code}: {outcome:?}");
        match (code, &outcome) {
            (0 | 6, outcome) => assert_eq!(output(outcome), json!({ "id": "r1" }), "{code}"),
            (3 | 75, Outcome::Failed(failure)) => {
                assert!(failure.message.contains(&format!("exit status: {code}: why")), "{failure:?}");
            }
            (1 | 4, Outcome::NeedsDecision { .. }) | (5, Outcome::Pending { .. }) => {}
            _ => panic!("{code}: {outcome:?}"),
        }
    }
}

// R-EXE-5
#[tokio::test]
async fn a_command_of_unknown_outcome_is_started_once() {
    for (what, script) in [
        ("killed by somebody", "kill -9 $$"),
        ("no JSON", "echo '<html>'"),
        ("half of it", "printf '{\"id\"'"),
        ("beyond the limit", "printf '\"%02000d\"' 7"),
    ] {
        let desk = Desk::new();
        let outcome = called(blind(desk.script(script).max_output_bytes(1000)), json!({})).await;
        assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{what}: {outcome:?}");
        assert_eq!(desk.started(), 1, "{what}");
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_tried_again_and_fails_for_certain() {
    let missing = CommandTool::new("/no/such/program");
    let outcome = called(blind(missing), json!({})).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert!(failure.message.contains("was not started"), "{failure:?}");
}

#[tokio::test]
async fn values_arrive_as_they_are_and_the_engine_s_environment_does_not() {
    let desk = Desk::new();
    let evil = "--x $(touch evil) ; touch evil\n'\"";
    let script = "printf %s \"$1\" > arg; cat > stdin; env > env; printf '{\"key\":\"%s\"}' \"$KEY\"";
    let tool = desk
        .script(script)
        .arg("--id={charge}")
        .env("CHARGE", "c-{/charge}")
        .stdin(json!({ "amount": "{cents}", "why": "of {charge}" }));
    let outcome = called(blind(tool), json!({ "charge": evil, "cents": 42 })).await;
    assert!(output(&outcome)["key"].as_str().unwrap().len() > 10);
    let read = |file: &str| std::fs::read_to_string(desk.path().join(file)).unwrap();
    assert_eq!(read("arg"), format!("--id={evil}"));
    let stdin: Value = serde_json::from_str(&read("stdin")).unwrap();
    assert_eq!(stdin, json!({ "amount": 42, "why": format!("of {evil}") }));
    assert!(!desk.path().join("evil").exists());
    let own = std::env::vars()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("CARGO") || name.starts_with("TEST_"));
    let env = read("env");
    for name in own {
        assert!(!env.contains(&format!("\n{name}=")), "{name} is not the command's affair");
    }
}

#[tokio::test]
async fn a_value_that_could_be_an_option_starts_nothing() {
    let desk = Desk::new();
    let outcome = called(blind(desk.script("exit 0").arg("{charge}")), json!({ "charge": "--force" })).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert_eq!(desk.started(), 0);
}

#[tokio::test]
async fn the_time_limit_kills_the_whole_process_group() {
    let desk = Desk::new();
    let script = "sleep 1000 & echo $! > child; echo $$ > own; (sleep 1000; true); wait";
    let outcome = called(blind(desk.script(script).timeout(Duration::from_millis(500))), json!({})).await;
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    for process in ["child", "own"] {
        ended(&desk.lines(process)[0]).await;
    }
}

// A call that is cut off is looked up, and its processes are gone.
#[tokio::test]
async fn a_command_that_is_cut_off_is_killed_and_looked_up() {
    let desk = Desk::new();
    let script = "printf '{\"id\":\"r1\",\"key\":\"%s\",\"cents\":42}\\n' \"$KEY\" >> made\nsleep 1000 & echo $! > child; wait";
    let tool = desk.script(script).lookup(made()).expects("/cents", "{cents}").build().unwrap();
    let contract = Contract::new(ContractClass::Lookup).settle(Duration::from_secs(1));
    let retry = RetryPolicy { attempt_timeout: Duration::from_millis(700), ..quick(3) };
    let tool = tool.dynamic("refund", EffectClass::Payment, contract).unwrap().retry(retry);
    let outcome = called(tool, json!({ "cents": 42 })).await;
    assert_eq!(output(&outcome)["id"], "r1", "{outcome:?}");
    assert_eq!((desk.started(), desk.lines("made").len()), (1, 1));
    ended(&desk.lines("child")[0]).await;
}

// A process that its command has left behind holds the output open. It neither holds the call up nor goes on after it.
#[tokio::test]
async fn a_process_that_is_left_behind_is_killed_with_its_command() {
    let desk = Desk::new();
    let script = "sleep 1000 & echo $! > child; echo '{\"id\": 1}'";
    let outcome = called(blind(desk.script(script)), json!({})).await;
    assert_eq!(output(&outcome), json!({ "id": 1 }));
    ended(&desk.lines("child")[0]).await;
}

#[tokio::test]
async fn a_command_that_floods_both_outputs_and_reads_nothing_ends() {
    let desk = Desk::new();
    let script = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 3";
    let tool = desk.script(script).exit(3, Meaning::Refused);
    let outcome = called(blind(tool), json!({ "text": "x".repeat(1_000_000) })).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert!(failure.message.len() < 2000, "{}", failure.message.len());
}

#[tokio::test]
async fn an_output_may_be_a_text_or_empty() {
    let desk = Desk::new();
    let text = called(blind(desk.script("echo 'r 7'").text_output()), json!({})).await;
    assert_eq!(output(&text), "r 7");
    let empty = called(blind(desk.script("exit 0").without_stdin()), json!({})).await;
    assert_eq!(output(&empty), Value::Null);
    let part =
        called(blind(desk.script("echo '{\"refund\": {\"id\": 7}}'").output("/refund")), json!({})).await;
    assert_eq!(output(&part), json!({ "id": 7 }));
}

#[tokio::test]
async fn a_lookup_that_does_not_clearly_answer_leaves_the_call_ambiguous() {
    let none = CommandLookup::one("sh", 4).arg("-c");
    for (what, lookup, found) in [
        ("one thing", none.clone().arg("echo '{{\"id\": 1, \"cents\": 42}}'"), true),
        ("another code", none.clone().arg("exit 5"), false),
        ("no JSON", none.clone().arg("echo hello"), false),
        ("nothing with success", none.clone().arg("exit 0"), false),
        ("no list", CommandLookup::list("sh", "/made").args(["-c", "echo '{{}}'"]), false),
        ("too slow", none.arg("sleep 1000").timeout(Duration::from_millis(100)), false),
        ("no program", CommandLookup::one("/no/such/program", 4), false),
    ] {
        let desk = Desk::new();
        let tool = desk.script("exit 1").lookup(lookup).expects("/cents", "{cents}").build().unwrap();
        let contract = Contract::new(ContractClass::Lookup).settle(PATIENCE);
        let tool = tool.dynamic("refund", EffectClass::Payment, contract).unwrap().retry(quick(3));
        let once = LookupPolicy { attempts: 1, ..LookupPolicy::default() };
        let outcome = called(tool.lookups(once), json!({ "cents": 42 })).await;
        assert_eq!(found, outcome.answer().is_some(), "{what}: {outcome:?}");
        assert_eq!(desk.started(), 1, "{what}");
    }
}

// R-EXE-5
#[tokio::test]
async fn a_second_start_within_one_attempt_and_a_late_one_are_refused() {
    let desk = Desk::new();
    let declared = desk.script("exit 1").build().unwrap();
    let (kept, mut calls) = tokio::sync::mpsc::unbounded_channel();
    let twice = declared.clone();
    let tool = DynamicTool::new("refund", EffectClass::InternalMutation, Contract::new(ContractClass::Blind))
        .call(move |call, input| {
            let (twice, kept) = (twice.clone(), kept.clone());
            async move {
                kept.send(call.clone()).unwrap();
                match twice.send::<_, Value>(&call, &input).await {
                    Ok(done) => Ok::<Done<Value>, _>(done),
                    Err(_) => twice.send(&call, &input).await, // the mistake
                }
            }
        })
        .retry(quick(3));
    let outcome = called(tool, json!({})).await;
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    let late = declared.send::<_, Value>(&calls.recv().await.unwrap(), &json!({})).await.unwrap_err();
    assert!(late.message.contains("the attempt is over"), "{late}");
    assert_eq!(desk.started(), 1);
}

#[tokio::test]
async fn a_secret_that_the_command_repeats_is_not_recorded() {
    let desk = Desk::new();
    let secret = Secret::new("sk_test_12345678".to_owned());
    let tool = desk
        .script("echo \"bad key $PAY_KEY given\" >&2; exit 3")
        .secret_env("PAY_KEY", secret)
        .exit(3, Meaning::Refused);
    assert!(!format!("{tool:?}").contains("sk_test"));
    let outcome = called(blind(tool), json!({})).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.message, "exit status: 3: bad key … given");
}

#[test]
fn a_declaration_that_cannot_keep_its_promise_is_refused() {
    let replays = || Contract::new(ContractClass::ReplaysKey);
    let keyless = CommandTool::new("pay").build().unwrap();
    let refused = keyless.dynamic("refund", EffectClass::Payment, replays());
    assert!(matches!(refused, Err(CommandToolError::KeyNotSent { .. })));
    let by_argument = CommandTool::new("pay").arg("--key={token}").build().unwrap();
    drop(by_argument.dynamic("refund", EffectClass::Payment, replays()).unwrap());
    let unclosed = CommandTool::new("pay").arg("{charge").build();
    assert!(matches!(unclosed, Err(CommandToolError::Template { part: "argument", .. })), "{unclosed:?}");
    let any =
        CommandTool::new("pay").key_env("KEY").lookup(CommandLookup::list("pay", "").arg("list")).build();
    assert!(matches!(any, Err(CommandToolError::Template { part: "lookup", .. })), "{any:?}");
    let by_key =
        CommandTool::new("pay").lookup(CommandLookup::list("pay", "").carries("/key")).build().unwrap();
    let refused = by_key.dynamic("refund", EffectClass::Payment, Contract::new(ContractClass::Lookup));
    assert!(matches!(refused, Err(CommandToolError::KeyNotSent { .. })));
    let in_lookup = CommandTool::new("pay").lookup(CommandLookup::one("", 4)).build();
    assert!(matches!(in_lookup, Err(CommandToolError::Program { .. })), "{in_lookup:?}");
}

const FOLDER: &str = "COUNTERFOIL_TEST_COMMAND";

/// The tool of an engine that its own command kills.
fn deadly(folder: &Path) -> DynamicTool {
    let tool = command(folder).key_fields(["case"]).lookup(made()).expects("/cents", "{cents}").build();
    let contract = Contract::new(ContractClass::Lookup).settle(Duration::from_secs(2));
    let retry = RetryPolicy { attempt_timeout: Duration::from_secs(2), ..quick(3) };
    tool.unwrap().dynamic("refund", EffectClass::Payment, contract).unwrap().retry(retry)
}

async fn one_call(folder: &Path) -> Outcome {
    let executor =
        Executor::sqlite(folder.join("calls.db")).dynamic_tool(deadly(folder)).open().await.unwrap();
    let request =
        ToolRequest::new(Tenant::new("acme").unwrap(), "refund", json!({ "case": "c1", "cents": 42 }));
    let outcome = executor.execute(request).await.unwrap();
    executor.shutdown(Duration::from_secs(1)).await;
    outcome
}

/// Not a test: an engine, when this program was started as one.
#[tokio::test]
async fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    drop(one_call(&folder).await);
}

// Between the start of the command and the record of its outcome the engine is gone.
#[tokio::test]
async fn an_engine_that_is_killed_while_its_command_runs_makes_the_effect_once() {
    let effect = "printf '{\"id\":\"r1\",\"key\":\"%s\",\"cents\":42}\\n' \"$KEY\" >> made; tail -n1 made";
    for (when, script) in [
        ("before the effect", "kill -9 $PPID; exit 1".to_owned()),
        ("after the effect", format!("{effect}; kill -9 $PPID")),
        ("and its process outlives it", format!("kill -9 $PPID; sleep 0.7; {effect}")),
    ] {
        let desk = Desk::new();
        drop(desk.script(&format!("if [ -e killed ]; then {effect}; exit 0; fi; touch killed\n{script}")));
        let mut engine = tokio::process::Command::new(std::env::current_exe().unwrap());
        engine.args(["tool::command_tool::child", "--exact", "--nocapture"]).env(FOLDER, desk.path());
        let engine = engine.kill_on_drop(true).output().await.unwrap();
        assert!(!engine.status.success(), "{when}: it was not killed: {engine:?}");
        for _ in 0..2 {
            let outcome = one_call(desk.path()).await;
            assert_eq!(output(&outcome)["id"], "r1", "{when}: {outcome:?}");
        }
        assert_eq!(desk.lines("made").len(), 1, "{when}");
        assert_eq!(desk.started(), if when == "before the effect" { 2 } else { 1 }, "{when}");
    }
}
