//! The command line on the database alone, beside an engine that works on it, on both stores.

mod backup;
mod chain;
mod doctor;
mod encrypted;
mod inspect;
mod pages;
mod probes;
mod questions;
mod serve;
mod slow;
mod watch;
mod workflows;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use counterfoil::Failure;
use counterfoil::ledger::{ApprovalSubject, ReviewPolicy};
use serde_json::{Value, json};

use crate::flow;
use crate::flow::answers::Place;
use crate::flow::tools::Ring;
use crate::flow::world::{Process, World};

/// The command line at a place, for the tenant `acme`.
struct Line(Vec<String>);

impl Line {
    fn at(place: &Place, world: &World) -> Self {
        let mut common = vec!["--tenant".to_owned(), "acme".to_owned(), "--db".to_owned()];
        match place {
            Place::File => common.push(world.path().display().to_string()),
            Place::Schema(schema) => {
                let name = schema.options().schema.unwrap();
                common.extend([crate::server::url(), "--schema".to_owned(), name]);
            }
        }
        Self(common)
    }

    /// The same place, with an option that names a file.
    fn with(&self, option: &str, file: &Path) -> Self {
        Self([&self.0[..], &[option.to_owned(), file.display().to_string()]].concat())
    }

    /// The same place, for the ledger as a whole.
    fn whole(&self) -> Self {
        Self(self.0[2..].to_vec())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        program(arguments).env("USER", "ann").args(&self.0).output().unwrap()
    }

    /// What a command that succeeds prints.
    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The lines of JSON that a command prints.
    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.text(&[arguments, &["--json"]].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.args(arguments).env_remove("COUNTERFOIL_DB");
    command
}

#[test]
fn a_person_starts_a_run_finds_it_and_answers_its_question_beside_the_engine() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, input: u32| ctx.step("twice", &input, |input| input * 2).await);
        let process = Process::start(&world, place.engine(&world).workflow("twice", 1, code));
        let line = Line::at(&place, &world);

        let good = line.json(&["start", "twice", "21", "--key", "order/1"]).remove(0);
        let good = good["id"].as_str().unwrap().to_owned();
        process.on(process.state(good.parse().unwrap(), "succeeded"));
        let shown = line.json(&["run", &good]).remove(0);
        assert_eq!(shown["run"]["state"], "succeeded");
        assert!(shown["turns"][0]["steps"].to_string().contains("twice"), "{shown}");
        assert!(line.text(&["run", &good]).contains("step twice"));
        let again = line.json(&["start", "twice", "21", "--key", "order/1"]).remove(0);
        assert_eq!(again["id"], json!(good), "a repeated start finds the first run");

        let bad = line.json(&["start", "twice", "\"words\"", "--key", "bill/1"]).remove(0);
        let bad = bad["id"].as_str().unwrap().to_owned();
        process.on(process.state(bad.parse().unwrap(), "blocked"));
        let only = |filter: &[&str]| {
            let runs = line.json(&[&["runs"], filter].concat());
            runs.iter().map(|run| run["id"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(only(&[]), format!("{good} {bad}"));
        assert_eq!(only(&["--state", "blocked"]), bad);
        assert_eq!(only(&["--key", "order/"]), good);
        assert_eq!(only(&["--limit", "1"]), good);
        assert_eq!(only(&["--after", &good]), bad);
        assert_eq!(only(&["--workflow", "other"]), "");
        assert_eq!(only(&["--newest-first", "--limit", "1"]), bad);
        assert_eq!(only(&["--key", "", "--after", &bad]), good, "in the order of the keys");
        assert_eq!(only(&["--since", "2026", "--before", "9999-12"]), format!("{good} {bad}"));
        let question = line.json(&["questions"]).remove(0);
        assert_eq!(question["run"]["id"], json!(bad));
        let id = question["id"].as_str().unwrap();
        assert!(line.text(&["questions"]).contains(id));
        assert!(line.text(&["question", id]).contains("abandon"));
        let answered = line.json(&["answer", id, "abandon", "--reason", "a slip"]).remove(0);
        assert_eq!(
            (&answered["answer"]["by"], &answered["answer"]["because"]),
            (&json!("ann"), &json!("a slip"))
        );
        process.on(process.state(bad.parse().unwrap(), "failed"));
        assert_eq!(line.text(&["questions", "--json"]), "");
        process.shut_down();
    }
}

#[test]
fn runs_are_labelled_listed_and_erased_by_their_label() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, input: u32| ctx.step("twice", &input, |input| input * 2).await);
        let paid = flow!(world, |ctx, _input: ()| ctx.signal::<u32>("paid").await);
        let engine = place.engine(&world).workflow("twice", 1, code).workflow("order", 1, paid);
        let process = Process::start(&world, engine);
        let line = Line::at(&place, &world);
        let start = |more: &[&str]| {
            line.json(&[&["start"], more].concat()).remove(0)["id"].as_str().unwrap().to_owned()
        };
        let run = start(&["twice", "21", "--label", "customer=c-7", "--label", "case=a=b"]);
        start(&["twice", "22", "--label", "customer=c-8"]);
        process.on(process.state(run.parse().unwrap(), "succeeded"));
        let waiting = start(&["order", "--label", "customer=c-7"]);
        process.on(process.state(waiting.parse().unwrap(), "waiting"));
        let ids = |filter: &[&str]| {
            let runs = line.json(&[&["runs"], filter].concat());
            runs.iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&["--label", "customer=c-7"]), [run.clone(), waiting.clone()]);
        assert_eq!(ids(&["--label", "customer=c-7", "--after", &run]), std::slice::from_ref(&waiting));
        assert_eq!(ids(&["--label", "case=a=b"]), std::slice::from_ref(&run));
        assert_eq!(line.run(&["runs", "--label", "customer"]).status.code(), Some(2));
        assert_eq!(line.json(&["run", &run])[0]["labels"], json!({ "case": "a=b", "customer": "c-7" }));
        assert!(line.text(&["run", &run]).contains("label customer=c-7"));

        let whole = line.whole();
        let erase = |more: &[&str]| {
            whole.run(&[&["erase", "acme", "--confirm", "acme", "--label", "customer=c-7"], more].concat())
        };
        let kept = erase(&[]);
        let (said, error) = (String::from_utf8_lossy(&kept.stdout), String::from_utf8_lossy(&kept.stderr));
        assert!(
            said.contains("1 runs and 0 calls, which are tombstones") && said.contains(&waiting),
            "{said}"
        );
        assert!(kept.status.code() == Some(1) && error.contains("erase again"), "{error}");
        assert_eq!(ids(&["--label", "customer=c-7"]), std::slice::from_ref(&waiting));
        line.json(&["signal", &waiting, "paid", "7"]);
        process.on(process.state(waiting.parse().unwrap(), "succeeded"));
        let report: Value = serde_json::from_slice(&erase(&["--json"]).stdout).unwrap();
        assert_eq!(report, json!({ "runs": [waiting], "calls": [], "kept": [], "kept_calls": [] }));
        assert_eq!(ids(&["--state", "succeeded"]).len(), 1);
        process.shut_down();
    }
}

#[test]
fn records_are_shown_with_their_labels_listed_and_erased_by_one() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, bell: String| {
            let ring = ctx.call::<Ring>(bell.clone()).id(&bell);
            if bell == "front" { ring.label("customer", "c-7").await } else { ring.await }
        });
        let process = Process::start(&world, place.engine(&world).workflow("rings", 1, code.clone()));
        let line = Line::at(&place, &world);
        for bell in ["front", "back"] {
            process.on(process.acme().run(code.clone(), bell.to_owned()).into_future()).unwrap();
        }
        let keys = |filter: &[&str]| {
            let records = line.json(&[&["records"], filter].concat());
            records.iter().map(|record| record["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let labelled = keys(&["--label", "customer=c-7"]);
        assert_eq!((labelled.len(), keys(&[]).len()), (1, 2));
        assert_eq!(keys(&["--label", "customer=c-7", "--state", "failed"]), [""; 0]);
        assert_eq!(line.run(&["records", "--label", "customer"]).status.code(), Some(2));
        assert_eq!(line.json(&["record", &labelled[0]])[0]["labels"], json!({ "customer": "c-7" }));
        for command in ["record", "evidence"] {
            assert!(line.text(&[command, &labelled[0]]).contains("label         customer=c-7"), "{command}");
        }
        let erased = line.whole().text(&["erase", "acme", "--confirm", "acme", "--label", "customer=c-7"]);
        assert!(erased.contains("0 runs and 1 calls, which are tombstones"), "{erased}");
        assert_eq!(keys(&["--label", "customer=c-7"]), [""; 0]);
        assert_eq!(keys(&["--state", "gone"]), labelled);
        process.shut_down();
    }
}

#[test]
fn commands_reach_a_run_that_waits_and_a_repeated_one_is_the_same() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| ctx.signal::<u32>("paid").await);
        let process = Process::start(&world, place.engine(&world).workflow("order", 1, code));
        let line = Line::at(&place, &world);
        let start = || line.json(&["start", "order"]).remove(0)["id"].as_str().unwrap().to_owned();

        let paid = start();
        let sent = |arguments: &[&str]| line.json(arguments).remove(0)["sent"].clone();
        assert_eq!(sent(&["signal", &paid, "paid", "7", "--key", "evt_1"]), "new");
        assert_eq!(sent(&["signal", &paid, "paid", "7", "--key", "evt_1"]), "before");
        process.on(process.state(paid.parse().unwrap(), "succeeded"));

        let fork = line.json(&["fork", &paid, "--reason", "once more"]).remove(0);
        assert_ne!(fork["id"], json!(paid));

        let stopped = start();
        process.on(process.state(stopped.parse().unwrap(), "waiting"));
        assert_eq!(sent(&["pause", &stopped, "--reason", "a check", "--key", "p1"]), "new");
        process.on(process.state(stopped.parse().unwrap(), "blocked"));
        assert_eq!(sent(&["resume", &stopped, "--reason", "all is well"]), "new");
        process.on(process.state(stopped.parse().unwrap(), "waiting"));
        assert_eq!(sent(&["cancel", &stopped, "--reason", "not wanted", "--key", "c1"]), "new");
        process.on(process.state(stopped.parse().unwrap(), "failed"));
        assert_eq!(sent(&["retry", &stopped, "--reason", "wanted after all"]), "new");
        process.on(process.state(stopped.parse().unwrap(), "waiting"));
        process.shut_down();
    }
}

#[test]
fn escape_sequences_in_what_a_run_says_reach_no_terminal() {
    let (world, place) = (World::new(), Place::File);
    let code = flow!(world, |_ctx, _input: ()| Err::<(), _>(Failure::new("\u{1b}[2Jcleared")));
    let process = Process::start(&world, place.engine(&world).workflow("hostile", 1, code));
    let line = Line::at(&place, &world);
    let run = line.json(&["start", "hostile"]).remove(0)["id"].as_str().unwrap().to_owned();
    process.on(process.state(run.parse().unwrap(), "failed"));
    for shown in [line.text(&["runs"]), line.text(&["run", &run])] {
        assert!(!shown.contains('\u{1b}') && shown.contains("\\u{1b}[2Jcleared"), "{shown}");
    }
    process.shut_down();
}

#[test]
fn what_is_not_there_and_what_is_no_command_end_with_codes_of_their_own() {
    let world = World::new();
    let place = Place::File;
    let process = Process::start(&world, place.engine(&world));
    let line = Line::at(&place, &world);
    for unknown in [
        &["run", "run-1"][..],
        &["question", "question-1"],
        &["pause", "run-1"],
        &["signal", "run-1", "paid"],
    ] {
        let output = line.run(unknown);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{unknown:?}: {error}");
        assert!(error.starts_with("error: ") && output.stdout.is_empty(), "{unknown:?}: {error}");
    }
    for usage in [&["run", "no-run"][..], &["start", "order", "{"], &["runs", "--limit", "x"]] {
        assert_eq!(line.run(usage).status.code(), Some(2), "{usage:?}");
    }
    assert_eq!(program(&["runs"]).output().unwrap().status.code(), Some(2), "no database is named");
    let none = program(&["runs", "--db", "/nowhere/agents.db"]).output().unwrap();
    assert_eq!(none.status.code(), Some(1));
    assert!(!Path::new("/nowhere").exists());
    process.shut_down();
}

/// Checks a value by a JSON Schema, as far as the schema of `export` goes.
fn fits(root: &Value, schema: &Value, value: &Value) {
    if let Some(named) = schema["$ref"].as_str() {
        return fits(root, root.pointer(named.trim_start_matches('#')).expect(named), value);
    }
    let is = |name: &Value| match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    };
    match &schema["type"] {
        Value::Null => {}
        Value::Array(names) => assert!(names.iter().any(is), "{value}: {schema}"),
        name => assert!(is(name), "{value}: {schema}"),
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{name} is missing: {value}");
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(name) {
            fits(root, property, value);
        }
    }
    for item in value.as_array().into_iter().flatten() {
        fits(root, &schema["items"], item);
    }
}

#[test]
fn the_evidence_of_a_call_is_shown_and_an_exported_run_brings_it() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| ctx.call::<Ring>("door".into()).await);
        let process = Process::start(&world, place.engine(&world).workflow("ring", 1, code));
        let line = Line::at(&place, &world);
        let run = line.json(&["start", "ring"]).remove(0)["id"].as_str().unwrap().to_owned();
        process.on(process.state(run.parse().unwrap(), "succeeded"));

        let exported = line.json(&["export", &run]);
        let (told, turn, evidence) = match &exported[..] {
            [run, turn, evidence] => (&run["run"], &turn["turn"], &evidence["evidence"]),
            _ => panic!("{exported:?}"),
        };
        assert_eq!((&told["id"], &told["state"]), (&json!(run), &json!("succeeded")));
        let schema = serde_json::from_str(&line.text(&["export", "--json-schema"])).unwrap();
        for line in &exported {
            fits(&schema, &schema, line);
        }
        // A time range, and the other conditions of a list of runs.
        assert_eq!(line.json(&["export", "--since", "2020", "--workflow", "ring"]).len(), 3);
        assert_eq!(line.json(&["export", "--before", "2020"]), Vec::<Value>::new());
        assert_eq!(line.run(&["export", &run, "--since", "2020"]).status.code(), Some(2));
        let key = turn["calls"][0]["key"].as_str().unwrap();
        assert_eq!(evidence["outcome"]["state"], "committed");
        let mut same = line.json(&["evidence", key]).remove(0);
        same["as_of"] = evidence["as_of"].clone(); // each says when the ledger was read
        assert_eq!(&same, evidence);
        let text = line.text(&["evidence", key]);
        assert!(text.contains(&run) && text.contains("attempt       1") && !text.ends_with("\n\n"), "{text}");

        let nothing = line.run(&["evidence", "nothing"]);
        assert_eq!((nothing.status.code(), &nothing.stdout[..]), (Some(1), &b""[..]));
        process.shut_down();
    }
}

#[test]
fn what_waits_for_people_is_shown_and_a_version_of_it_is_approved() {
    for place in Place::both() {
        let world = World::new();
        let process = Process::start(&world, place.engine(&world));
        let tenant = process.engine().tenant("acme").unwrap();
        process.on(async move {
            for id in ["refund/1", "refund/2"] {
                let refund = ApprovalSubject::of("refund", &json!({ "cents": 1200 }));
                tenant.approvals().ask(id, refund, ReviewPolicy::by(["ann"])).await.unwrap();
            }
        });
        let line = Line::at(&place, &world);
        let open = line.json(&["approvals"]);
        let ids: Vec<_> = open.iter().map(|open| open["id"].as_str().unwrap()).collect();
        assert!(line.text(&["approvals"]).contains(ids[0]));
        assert!(line.text(&["approval", ids[0]]).contains("1200"));
        assert_eq!(
            line.run(&["approve", ids[0], "2"]).status.code(),
            Some(1),
            "nobody has seen that version"
        );
        assert_eq!(line.run(&["approve", ids[0], "1", "--author", "eve"]).status.code(), Some(1));
        assert!(line.text(&["approve", ids[0], "1", "--reason", "it is owed"]).contains("1 of 1"));
        assert_eq!(line.json(&["approval", ids[0]])[0]["votes"][0]["reason"], "it is owed");
        assert!(line.text(&["approval", ids[0]]).contains("approved by ann: it is owed"));
        assert!(line.text(&["reject", ids[1], "1", "--reason", "too much"]).contains("rejected"));
        assert_eq!(line.text(&["approvals", "--json"]), "");
        assert_eq!(line.run(&["approval", "none"]).status.code(), Some(1));
        process.shut_down();
    }
}

#[test]
fn a_token_is_made_shown_once_listed_and_revoked() {
    for place in Place::both() {
        let world = World::new();
        let process = Process::start(&world, place.engine(&world));
        let line = Line::at(&place, &world);
        let token = line.json(&["token", "create", "bot", "--role", "read"]).remove(0);
        let (id, secret) = (token["id"].as_str().unwrap(), token["token"].as_str().unwrap());
        let listed = line.json(&["token", "list"]).remove(0);
        assert_eq!(
            (&listed["name"], &listed["role"], &listed["revoked_by"]),
            (&json!("bot"), &json!("read"), &json!(null))
        );
        assert!(!line.text(&["token", "list"]).contains(secret));
        line.text(&["token", "revoke", id]);
        assert_eq!(line.json(&["token", "list"])[0]["revoked_by"], "ann");
        assert_eq!(line.run(&["token", "revoke", "0000000000000000"]).status.code(), Some(1));
        assert_eq!(line.run(&["token", "create", "bot", "--role", "king"]).status.code(), Some(2));
        assert_eq!(
            line.run(&["token", "create", "bot", "--role", "read", "--all-tenants"]).status.code(),
            Some(2)
        );
        process.shut_down();
    }
}

/// A server that is killed with the test.
struct Server {
    process: std::process::Child,
    url: String,
}

impl Server {
    fn start(line: &Line, more: &[&str]) -> Self {
        let database = line.0.iter().skip(2); // a server has no tenant
        let mut command = program(&["serve", "--listen", "127.0.0.1:0"]);
        let mut process = command.args(more).args(database).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let url = said.trim().strip_prefix("listening at ").unwrap().to_owned();
        Self { process, url }
    }

    /// Tells the server to end, and returns its exit code.
    fn end(mut self) -> Option<i32> {
        let id = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        self.process.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

#[test]
fn the_api_is_served_beside_the_engine_until_the_server_is_told_to_end() {
    for place in Place::both() {
        let world = World::new();
        let process = Process::start(&world, place.engine(&world));
        let line = Line::at(&place, &world);
        let token = line.text(&["token", "create", "bot", "--role", "read"]);
        let server = Server::start(&line, &[]);
        let (url, token) = (server.url.clone(), token.trim().to_owned());
        process.on(async move {
            let runs =
                |token: String| reqwest::Client::new().get(format!("{url}/runs")).bearer_auth(token).send();
            assert_eq!(runs(token).await.unwrap().status(), 200);
            assert_eq!(runs("cft_none".to_owned()).await.unwrap().status(), 401);
        });
        assert_eq!(server.end(), Some(0));
        process.shut_down();
    }
}

#[test]
fn the_guard_is_served_to_programs_in_other_languages() {
    for place in Place::both() {
        let world = World::new();
        Process::start(&world, place.engine(&world)).shut_down(); // makes the database
        let line = Line::at(&place, &world);
        let token = line.text(&["token", "create", "bot", "--role", "call"]);
        let server = Server::start(&line, &["--guard"]);
        let (url, token) = (server.url.clone(), token.trim().to_owned());
        let begin = async move {
            let begin = reqwest::Client::new().post(format!("{url}/guard/begin")).bearer_auth(token);
            let answer = begin.json(&json!({ "tool": "refund", "key": "order-9" })).send().await.unwrap();
            answer.json::<Value>().await.unwrap()
        };
        let step = tokio::runtime::Runtime::new().unwrap().block_on(begin);
        assert_eq!(step["step"], "send", "{step}");
        assert_eq!(server.end(), Some(0));
    }
}

#[test]
fn an_address_that_others_can_reach_is_not_served_without_tls_in_front() {
    let refused = program(&["serve", "--db", "agents.db", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("--behind-tls"));
}

#[test]
fn completions_are_printed_for_a_shell() {
    let printed = program(&["completions", "bash"]).output().unwrap();
    assert!(String::from_utf8(printed.stdout).unwrap().contains("questions"));
}

#[test]
fn the_guide_names_each_command_and_no_other() {
    let help = String::from_utf8(program(&["--help"]).output().unwrap().stdout).unwrap();
    let of_program: BTreeSet<_> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()))
        .filter(|name| *name != "help")
        .collect();
    let guide = include_str!("../../../docs/cli.md");
    let of_guide: BTreeSet<_> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(['`', ' ']).next())
        .filter(|name| !name.starts_with('-'))
        .collect();
    assert!(of_program.contains("runs"));
    assert_eq!(of_guide, of_program);
}
