//! A worker that is stopped at a known point until another one has taken its run over, and then goes on (HAZARDS B01,
//! B02, B03, B05): real processes, a real SIGSTOP, one PostgreSQL.

use std::time::Duration;

use counterfoil::ledger::{Record, State};
use counterfoil::store::{QuestionKind, RunState};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{QuestionId, Tenant};
use rustix::process::Signal;

use crate::harness::case_notice::classes::{Class, operation, reference};
use crate::harness::process::{Process, Program, World};
use crate::harness::role::{Message, Role, TENANT};
use crate::harness::worker::{FENCED, Shift, case};
use crate::{healthy, on_postgres, run};

const CASE: &str = "case-1";

/// What is left of it.
struct Aftermath {
    /// How often the notice was sent, and how often somebody tried to.
    sent: u64,
    requests: u64,
    record: Record,
    evidence: usize,
    questions: Vec<QuestionKind>,
}

/// When a worker that stands still goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GoesOn {
    /// When another one has ended its run.
    TakenOver,
    /// When that one has looked once more, too.
    Confirmed,
}

/// A worker stands still where it first crosses `point`. When another one has ended its run, it goes on, finds that it
/// was fenced, and ends.
async fn stopped_at(point: &str) -> Aftermath {
    stopped_until(point, GoesOn::TakenOver).await
}

async fn stopped_until(point: &str, goes_on: GoesOn) -> Aftermath {
    let ledger = on_postgres();
    ledger.prepare().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
    let world =
        World::start(&program, &folder.path().join("provider.db"), &healthy(Class::Lookup)).await.unwrap();
    let shift = Shift {
        ledger: ledger.clone(),
        provider: world.url.clone(),
        cases: vec![CASE.to_owned()],
        from: SystemClock.now(),
        lasting: Duration::ZERO,
        stop: Some(point.to_owned()),
        lease: Duration::from_secs(2),
        settle: Duration::from_secs(5),
    };
    let mut zombie = program.start(&Role::Worker(shift.clone())).unwrap();
    stands_still(&mut zombie).await;
    let mut heir = program.start(&Role::Worker(Shift { stop: None, ..shift })).unwrap();
    while !matches!(heir.hear().await.unwrap(), Some(Message::Through)) {}

    let store = ledger.open().await.unwrap();
    let tenant = Tenant::new(TENANT).unwrap();
    let key = operation(&case(CASE)).unwrap();
    // After its second send an heir looks once more, one settle time later.
    let confirmed = async || loop {
        let record = store.record_find(&tenant, &key).await.unwrap().unwrap();
        let look = store.look_find(&tenant, record.id).await.unwrap();
        if look.is_none_or(|look| look.made > 0) {
            return record;
        }
        SystemClock.sleep(Duration::from_millis(20)).await;
    };
    if goes_on == GoesOn::Confirmed {
        confirmed().await;
    }
    zombie.signal(Signal::CONT).unwrap();
    let death = zombie.death().await.unwrap();
    assert_eq!(death.status.code(), Some(FENCED), "it has noticed: {death:?}");
    let record = confirmed().await;
    heir.signal(Signal::TERM).unwrap();
    assert!(heir.death().await.unwrap().status.success());
    let run = store.run_keyed(&tenant, "case_notice", CASE).await.unwrap().unwrap();
    assert!(matches!(run.state, RunState::Succeeded { .. }), "{run:?}");
    assert!(matches!(record.state, State::Committed { .. }), "{record:?}");
    let counted = world.counted().await.unwrap();
    let questions = store.escalation_open(&tenant, QuestionId(i64::MIN), 100).await.unwrap();
    Aftermath {
        sent: counted.effects.get(&reference(&tenant, &case(CASE)).unwrap()).copied().unwrap_or(0),
        requests: counted.requests,
        evidence: store.record_evidence(&tenant, record.id).await.unwrap().len(),
        questions: questions.into_iter().map(|question| question.kind).collect(),
        record,
    }
}

/// Waits until the kernel says so.
async fn stands_still(process: &mut Process) {
    let stat = format!("/proc/{}/stat", process.id().unwrap());
    loop {
        let text = std::fs::read_to_string(&stat).expect("it is there");
        let state = text.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
        if state == Some('T') {
            return;
        }
        assert!(!process.has_ended().unwrap(), "it ended before it stood still");
        SystemClock.sleep(Duration::from_millis(2)).await;
    }
}

// B01: stopped with its intent durable and nothing sent: what it sends is nothing, for it looks at its clocks first.
#[test]
fn who_has_not_sent_sends_nothing() {
    run(async {
        let after = stopped_at("after-started").await;
        assert_eq!((after.sent, after.requests), (1, 1), "the heir alone has sent");
        assert_eq!((after.evidence, after.questions.len()), (0, 0), "{:?}", after.questions);
    });
}

// B02: stopped between that look and the send. Nothing here can prevent it: the heir, which found nothing and sent,
// looks once more, finds two, and says so.
#[test]
fn who_was_about_to_send_is_found_out() {
    run(async {
        let after = stopped_at("before-call").await;
        let told = after.questions.contains(&QuestionKind::Duplicated);
        assert!(
            after.sent == 1 || told,
            "{} sent, {:?} asked, {:?}",
            after.sent,
            after.questions,
            after.record
        );
    });
}

// The same, and it goes on when its heir has looked once more: its own answer, kept as evidence, tells of the second
// notice, and a person is asked.
#[test]
fn who_sends_after_everybody_has_looked_is_found_out_by_its_answer() {
    run(async {
        let after = stopped_until("before-call", GoesOn::Confirmed).await;
        assert_eq!((after.sent, after.requests, after.evidence), (2, 2, 1), "{:?}", after.record);
        assert_eq!(after.questions, [QuestionKind::Duplicated]);
    });
}

// B03: stopped with the answer in its hands. The heir finds the notice; what the zombie brings is kept as evidence.
#[test]
fn whose_answer_comes_late_leaves_evidence() {
    run(async {
        let after = stopped_at("after-call").await;
        assert_eq!((after.sent, after.requests), (1, 1));
        assert_eq!((after.evidence, after.questions.len()), (1, 0), "{:?}", after.questions);
    });
}

// B05: stopped before it has begun anything but its run: the run has another owner when it comes back.
#[test]
fn whose_run_was_taken_over_writes_nothing() {
    run(async {
        let after = stopped_at("after-run-start").await;
        assert_eq!((after.sent, after.requests), (1, 1));
        assert_eq!((after.record.attempts, after.evidence, after.questions.len()), (1, 0, 0));
    });
}
