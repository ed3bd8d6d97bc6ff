//! The Python and the TypeScript client against the real service, killed between begin and seal.

use std::process::Stdio;
use std::time::Duration;

use counterfoil::api::Role;
use counterfoil::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::over_http::Served;

/// The time of an attempt in `desk.py`.
const ATTEMPT: Duration = Duration::from_secs(10);
/// The time after which a refund of `desk.py` can no longer take effect.
const SETTLE: Duration = Duration::from_secs(70);

/// The real time in which a process that is alive has ended its attempt, on a busy machine, too.
const QUIET: Duration = Duration::from_secs(5);

/// A language with a client.
#[derive(Clone, Copy)]
enum Language {
    Python,
    TypeScript,
}

impl Language {
    /// A script of this folder, with the client.
    fn script(self, name: &str) -> Command {
        let root = env!("CARGO_MANIFEST_DIR");
        let (program, extension) = match self {
            Self::Python => ("python3", "py"),
            Self::TypeScript => ("node", "mjs"),
        };
        let mut script = Command::new(program);
        script.arg(format!("{root}/tests/it/rim/guard_service/{name}.{extension}"));
        script.env("PYTHONPATH", format!("{root}/clients/python")).env("PYTHONDONTWRITEBYTECODE", "1");
        script.env("GUARD_CLIENT", std::env::var("GUARD_CLIENT").expect("`./test` builds the client"));
        script
    }
}

/// A desk that makes refunds under the guard, in processes of its own: `desk.py` or `desk.mjs`.
struct Desk {
    language: Language,
    served: Served,
    token: String,
}

impl Desk {
    async fn new(language: Language) -> Self {
        let served = Served::new().await;
        let token = served.token(Role::Call, "acme").await;
        Self { language, served, token }
    }

    fn start(&self, cents: u32, how: &str) -> Child {
        self.start_for("order-9", cents, how)
    }

    fn start_for(&self, order: &str, cents: u32, how: &str) -> Child {
        let mut desk = self.language.script("desk");
        desk.args([&self.served.url, &self.token]).arg(self.book());
        desk.args([order, &cents.to_string(), how]);
        desk.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
    }

    fn book(&self) -> std::path::PathBuf {
        self.served.dir.path().join("refunds")
    }

    /// The effects.
    fn refunds(&self) -> usize {
        std::fs::read_to_string(self.book()).map_or(0, |book| book.lines().count())
    }

    async fn refund(&self, cents: u32, how: &str) -> Value {
        came(self.start(cents, how)).await
    }

    /// The answer for an order whose process was killed. The killed one may have begun its call only now, so whatever the service
    /// waits for has to pass: a time of its own, or the attempt of a process that is dead.
    async fn finished(&self, order: &str) -> Value {
        loop {
            let next = came(self.start_for(order, 1200, "lookup"));
            tokio::pin!(next);
            let answer = loop {
                tokio::select! {
                    biased;
                    answer = &mut next => break answer,
                    () = self.served.clock.slept(SETTLE) => self.served.clock.advance(SETTLE),
                    () = SystemClock.sleep(QUIET) => self.served.clock.advance(ATTEMPT),
                }
            };
            if answer != json!({ "stopped": "in_flight" }) {
                return answer;
            }
            self.served.clock.advance(ATTEMPT);
        }
    }

    /// A process that is killed when it says that it has come to a place. The time of its attempt is over then.
    async fn killed(&self, place: &str) {
        let mut desk = self.start(1200, &format!("lookup,{place}"));
        let mut said = BufReader::new(desk.stdout.take().unwrap()).lines();
        assert_eq!(said.next_line().await.unwrap().as_deref(), Some(place));
        desk.kill().await.unwrap();
        self.served.clock.advance(ATTEMPT);
    }
}

/// The number of processes that are killed at random in each language.
fn rounds() -> u64 {
    if std::env::var_os("COUNTERFOIL_FULL").is_some() { 100 } else { 5 }
}

async fn came(desk: Child) -> Value {
    let ended = desk.wait_with_output().await.unwrap();
    serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
}

/// Tests in each language.
macro_rules! in_each_language {
    ($($name:ident),+ $(,)?) => {
        mod python {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Language::Python).await;
            })+
        }

        mod typescript {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Language::TypeScript).await;
            })+
        }
    };
}

in_each_language! {
    a_guarded_function_is_called_once_by_however_many_processes,
    a_function_that_raises_after_its_effect_is_looked_up_or_asked_about,
    a_function_that_knows_that_it_did_nothing_may_be_called_again,
    an_output_that_is_no_json_does_not_lose_the_call,
    an_output_that_the_guard_cannot_record_does_not_lose_the_call,
    a_failure_that_the_guard_cannot_record_leaves_the_outcome_unknown,
    an_external_reference_may_be_a_number,
    a_call_that_needs_an_approval_sends_nothing_before_it,
    a_process_that_is_killed_after_the_effect_leaves_no_second_one,
    a_process_that_is_killed_before_the_effect_loses_nothing,
    processes_that_are_killed_at_random_make_each_refund_once,
    a_token_without_the_right_to_call_is_refused_before_the_function_runs,
    a_machine_that_sleeps_over_the_time_of_a_permit_does_not_call_the_function,
    a_guard_that_is_busy_for_a_while_takes_nothing_from_the_time_of_a_permit,
    a_seal_that_the_guard_fails_to_take_is_told_again,
    a_finding_under_a_permit_that_the_guard_does_not_know_begins_the_call_again,
    lookups_are_served_again_when_the_guard_has_recovered,
}

/// What a script says of a permit and its time, on clocks of its own.
async fn said_of_times(language: Language, case: &str) -> Value {
    said_by(language, "times", case).await
}

async fn said_by(language: Language, script: &str, case: &str) -> Value {
    let ended = language.script(script).arg(case).output().await.unwrap();
    serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
}

async fn a_machine_that_sleeps_over_the_time_of_a_permit_does_not_call_the_function(language: Language) {
    let said = said_of_times(language, "sleeps").await;
    assert_eq!(said, json!({ "done": "by another", "calls": 0 }));
}

async fn a_guarded_function_is_called_once_by_however_many_processes(language: Language) {
    let desk = Desk::new(language).await;
    let desks = ["lookup", "lookup,async", "lookup", "lookup,async"].map(|how| desk.start(1200, how));
    let [first, others @ ..] = &futures_util::future::join_all(desks.map(came)).await[..] else {
        unreachable!()
    };
    assert_eq!(first["done"]["refund"], "order-9");
    assert!(others.iter().all(|other| other == first), "{first} {others:?}");
    assert_eq!(desk.refunds(), 1);
    assert_eq!(desk.refund(1300, "lookup").await, json!({ "stopped": "conflict" }));
    desk.served.end().await;
}

async fn a_function_that_raises_after_its_effect_is_looked_up_or_asked_about(language: Language) {
    for how in ["", "async,"] {
        let desk = Desk::new(language).await;
        assert_eq!(
            desk.refund(1200, &format!("{how}lookup,raise")).await,
            json!({ "done": { "refund": "order-9" } })
        );
        assert_eq!(desk.refunds(), 1);
        desk.served.end().await;

        let desk = Desk::new(language).await;
        for _ in 0..2 {
            let asked = desk.refund(1200, &format!("{how}raise")).await;
            assert_eq!(asked, json!({ "stopped": "needs_decision" }));
        }
        assert_eq!(desk.refunds(), 1);
        desk.served.end().await;
    }
}

async fn a_function_that_knows_that_it_did_nothing_may_be_called_again(language: Language) {
    let desk = Desk::new(language).await;
    assert_eq!(desk.refund(1200, "refuse").await, json!({ "stopped": "failed" }));
    assert_eq!(desk.refund(1200, "").await["done"]["refund"], "order-9");
    assert_eq!(desk.refunds(), 1);
    desk.served.end().await;
}

async fn an_output_that_is_no_json_does_not_lose_the_call(language: Language) {
    let desk = Desk::new(language).await;
    assert_eq!(desk.refund(1200, "no-json").await, json!({ "no_json": true }));
    assert_eq!(desk.refund(1200, "").await, json!({ "done": null }));
    assert_eq!(desk.refunds(), 1);
    desk.served.end().await;
}

async fn an_output_that_the_guard_cannot_record_does_not_lose_the_call(language: Language) {
    let desk = Desk::new(language).await;
    assert_eq!(desk.refund(1200, "big").await, json!({ "no_json": true }));
    assert_eq!(desk.refund(1200, "").await, json!({ "done": null }));
    assert_eq!(desk.refunds(), 1);
    desk.served.end().await;
}

async fn a_failure_that_the_guard_cannot_record_leaves_the_outcome_unknown(language: Language) {
    let desk = Desk::new(language).await;
    assert_eq!(desk.refund(1200, "lookup,kind").await, json!({ "done": { "refund": "order-9" } }));
    assert_eq!(desk.refunds(), 1);
    desk.served.end().await;
}

async fn an_external_reference_may_be_a_number(language: Language) {
    let desk = Desk::new(language).await;
    assert_eq!(desk.refund(1200, "number").await["done"]["refund"], "order-9");
    assert_eq!(desk.refund(1200, "").await["done"]["refund"], "order-9");
    assert_eq!(desk.refunds(), 1);
    desk.served.end().await;
}

async fn a_call_that_needs_an_approval_sends_nothing_before_it(language: Language) {
    let desk = Desk::new(language).await;
    assert_eq!(desk.refund(1200, "review").await, json!({ "approve": 1 }));
    assert_eq!(desk.refunds(), 0);
    desk.served.end().await;
}

async fn a_process_that_is_killed_after_the_effect_leaves_no_second_one(language: Language) {
    let desk = Desk::new(language).await;
    desk.killed("after").await;
    assert_eq!(desk.refund(1200, "lookup").await, json!({ "done": { "refund": "order-9" } }));
    assert_eq!(desk.refunds(), 1);
    desk.served.end().await;
}

async fn a_process_that_is_killed_before_the_effect_loses_nothing(language: Language) {
    let desk = Desk::new(language).await;
    desk.killed("before").await;
    let next = desk.start(1200, "lookup");
    desk.served.clock.slept(SETTLE).await;
    desk.served.clock.advance(SETTLE);
    assert_eq!(came(next).await["done"]["refund"], "order-9");
    assert_eq!(desk.refunds(), 1);
    desk.served.end().await;
}

// Each refund has a process that is killed at a moment that nobody chose, and others after it until one has the answer.
async fn processes_that_are_killed_at_random_make_each_refund_once(language: Language) {
    let desk = Desk::new(language).await;
    for round in 0..rounds() {
        let order = format!("order-{round:03}");
        let mut killed = desk.start_for(&order, 1200, "lookup");
        SystemClock.sleep(Duration::from_millis(round * 67 % 401)).await;
        killed.kill().await.unwrap();
        desk.served.clock.advance(ATTEMPT);
        assert_eq!(desk.finished(&order).await["done"]["refund"], order);
    }
    let book = std::fs::read_to_string(desk.book()).unwrap();
    let orders: Vec<_> = (0..rounds()).map(|round| format!("order-{round:03}")).collect();
    assert_eq!(book.lines().collect::<Vec<_>>(), orders, "each once, and none is missing");
    assert!(!desk.served.asks().await, "nobody is asked");
    desk.served.end().await;
}

async fn a_token_without_the_right_to_call_is_refused_before_the_function_runs(language: Language) {
    let mut desk = Desk::new(language).await;
    desk.token = desk.served.token(Role::Operate, "acme").await;
    assert_eq!(desk.refund(1200, "").await, json!({ "refused": "forbidden" }));
    assert_eq!(desk.refunds(), 0);
    desk.served.end().await;
}

async fn a_guard_that_is_busy_for_a_while_takes_nothing_from_the_time_of_a_permit(language: Language) {
    let said = said_of_times(language, "busy").await;
    assert_eq!(said, json!({ "done": "sealed", "calls": 1 }));
}

async fn a_seal_that_the_guard_fails_to_take_is_told_again(language: Language) {
    let said = said_by(language, "failures", "seal").await;
    assert_eq!(said, json!({ "done": "sealed", "asked": ["begin", "seal", "seal"] }));
}

async fn a_finding_under_a_permit_that_the_guard_does_not_know_begins_the_call_again(language: Language) {
    let said = said_by(language, "failures", "reconcile").await;
    assert_eq!(said, json!({ "done": "by another", "asked": ["begin", "reconcile", "begin"] }));
}

async fn lookups_are_served_again_when_the_guard_has_recovered(language: Language) {
    let said = said_by(language, "lookups", "").await;
    assert_eq!(said, json!({ "found": ["9", "9"], "asked": ["poll", "reconcile", "poll", "reconcile"] }));
}
