//! The guard service: clients in any language begin a call, make it, and seal it; a client that dies leaves no second effect.

mod clients;
mod over_http;

use std::time::Duration;

use counterfoil::guard_service::{
    Begin, CallOutcome, Finding, FoundEffect, GuardError, GuardService, Permitted, Poll, Reconcile, Seal,
    Step, Stop, Tasks,
};
use counterfoil::ledger::{Confirm, ContractClass, EffectClass, ErrorKind};
use counterfoil::store::Resolution;
use counterfoil::{Executor, QuestionId, Tenant};
use serde_json::{Value, json};

use crate::world::{Process, SETTLE, TestClock, acme, executor, until};

const ATTEMPT: Duration = Duration::from_secs(10);

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    process: Process,
    service: GuardService,
}

/// A refund that is waited for without a pause.
fn refund(input: Value) -> Begin {
    let mut begin = Begin::new("refund", "order-9", input);
    (begin.attempt_ms, begin.wait_ms) = (10_000, 0);
    begin
}

fn looked_up(input: Value) -> Begin {
    let mut begin = refund(input);
    begin.lookup = true;
    begin
}

fn done(id: &str) -> CallOutcome {
    CallOutcome::Done { output: json!({ "id": id }), external_ref: Some(id.to_owned()) }
}

fn failed(kind: ErrorKind) -> CallOutcome {
    CallOutcome::Failed { kind, message: "refused".to_owned(), retry_after_ms: None }
}

fn permit(step: Step) -> Permitted {
    match step {
        Step::Send(permitted) | Step::Look(permitted) => permitted,
        step => panic!("no permit but {step:?}"),
    }
}

impl Scene {
    async fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap(), TestClock::breathing()).await
    }

    async fn on(dir: tempfile::TempDir, clock: TestClock) -> Self {
        let process = Process::start(executor(&dir, &clock)).await.unwrap();
        let service = GuardService::new(&process.executor());
        Self { dir, clock, process, service }
    }

    /// The same ledger after `kill -9`, once the dead worker can no longer send.
    async fn restarted(self) -> Self {
        let Self { dir, clock, process, service } = self;
        drop(service);
        process.kill();
        Self::on(dir, clock).await
    }

    fn executor(&self) -> Executor {
        self.process.executor()
    }

    /// The next step of a client that does not give up.
    async fn begin(&self, begin: &Begin) -> Step {
        for _ in 0..1000 {
            let (service, begin) = (self.service.clone(), begin.clone());
            // In the process, with which its calls die.
            let step = self.process.spawn(async move { service.begin(&acme(), begin).await });
            match step.await.unwrap().unwrap() {
                Step::InFlight => {}
                step => return step,
            }
        }
        panic!("in flight for ever: {begin:?}");
    }

    async fn send(&self, begin: &Begin) -> Permitted {
        match self.begin(begin).await {
            Step::Send(permitted) => permitted,
            step => panic!("not to be sent but {step:?}"),
        }
    }

    async fn look(&self, begin: &Begin) -> Permitted {
        match self.begin(begin).await {
            Step::Look(permitted) => permitted,
            step => panic!("not to be looked up but {step:?}"),
        }
    }

    /// The step after a seal, as a client that waits for it gets it.
    async fn seal(&self, begin: &Begin, permit: &str, outcome: CallOutcome) -> Step {
        match self.service.seal(&acme(), Seal::new(permit, outcome)).await.unwrap() {
            Step::InFlight => self.begin(begin).await,
            step => step,
        }
    }

    /// The step after a report, as a client that waits for it gets it.
    async fn report(&self, begin: &Begin, permit: &str, finding: Finding) -> Step {
        let mut report = Reconcile::new(permit, finding);
        report.wait_ms = 0;
        match self.service.reconcile(&acme(), report).await.unwrap() {
            Step::InFlight => self.begin(begin).await,
            step => step,
        }
    }

    /// Lets the client of an attempt die: its time passes.
    fn client_dies(&self) {
        self.clock.advance(ATTEMPT);
    }
}

#[tokio::test]
async fn a_call_is_given_labels_that_fit() {
    let scene = Scene::new().await;
    let mut begin = refund(json!({ "cents": 1200 }));
    begin.labels.insert("customer".to_owned(), String::new());
    begin.reviewers = vec!["ann".to_owned()]; // who is not asked
    let refused = scene.service.begin(&acme(), begin.clone()).await.unwrap_err();
    assert!(matches!(refused.code(), counterfoil::ErrorCode::Name), "{refused}");
    assert!(scene.executor().approvals(&acme()).reviews(None).await.unwrap().is_empty());

    begin.reviewers.clear();
    begin.labels.insert("customer".to_owned(), "c-7".to_owned());
    let sent = scene.send(&begin).await;
    scene.seal(&begin, &sent.permit, done("re_7")).await;
    let evidence = scene.executor().evidence(&acme(), "refund:~key:order-9").await.unwrap().unwrap();
    assert_eq!(evidence.labels["customer"], "c-7");
    let report = scene.executor().erase_labelled(&acme(), "customer", "c-7").await.unwrap();
    assert_eq!(report.calls, ["refund:~key:order-9"]);
}

#[tokio::test]
async fn a_call_is_sent_once_and_each_later_client_gets_its_result() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let permitted = scene.send(&begin).await;
    assert_eq!((permitted.attempt, permitted.use_ms), (1, 10_000));
    assert_eq!(permitted.input, json!({ "cents": 1200 }));
    let sealed = scene.seal(&begin, &permitted.permit, done("re_7")).await;
    let result =
        |first| Step::Done { output: json!({ "id": "re_7" }), external_ref: Some("re_7".to_owned()), first };
    assert_eq!(sealed, result(true));
    assert_eq!(scene.begin(&begin).await, result(false));
}

#[tokio::test]
async fn while_one_client_has_the_call_another_one_waits() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let permitted = scene.send(&begin).await;
    assert_eq!(scene.service.begin(&acme(), begin.clone()).await.unwrap(), Step::InFlight);
    let (sealed, other) =
        tokio::join!(scene.seal(&begin, &permitted.permit, done("re_7")), scene.begin(&begin));
    assert!(matches!(sealed, Step::Done { first: true, .. }), "{sealed:?}");
    assert!(matches!(other, Step::Done { first: false, .. }), "{other:?}");
}

#[tokio::test]
async fn another_input_under_the_key_is_a_conflict() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let permitted = scene.send(&begin).await;
    let _ = scene.seal(&begin, &permitted.permit, done("re_7")).await;
    let conflict = scene.begin(&refund(json!({ "cents": 1300 }))).await;
    assert!(
        matches!(&conflict, Step::Stopped { reason: Stop::Conflict, text, .. } if text.contains("cents")),
        "{conflict:?}"
    );
}

#[tokio::test]
async fn a_failure_for_certain_is_sent_again_and_a_refusal_is_not() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let first = scene.send(&begin).await;
    let second = permit(scene.seal(&begin, &first.permit, failed(ErrorKind::Unreachable)).await);
    assert_eq!((second.attempt, second.idempotency_key), (2, first.idempotency_key));
    let refused = scene.seal(&begin, &second.permit, failed(ErrorKind::Validation)).await;
    assert!(matches!(refused, Step::Stopped { reason: Stop::Failed, .. }), "{refused:?}");
}

#[tokio::test]
async fn a_call_of_a_blind_tool_that_lost_its_client_is_a_question() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let lost = scene.send(&begin).await;
    scene.client_dies();
    let Step::Stopped { reason: Stop::NeedsDecision, question: Some(question), .. } =
        scene.begin(&begin).await
    else {
        panic!("a blind call of unknown outcome is asked about");
    };
    // A person's answer lets it go out once more, and the lost client is told so.
    let answer = Resolution::SendWithoutLooking { reason: "the bank says no".to_owned() };
    scene.executor().answer(&acme(), question, answer, "ann").await.unwrap();
    let second = scene.send(&begin).await;
    assert_ne!(second.permit, lost.permit);
    let _ = scene.seal(&begin, &second.permit, done("re_8")).await;
}

#[tokio::test]
async fn the_next_client_looks_up_the_call_of_a_dead_one() {
    let scene = Scene::new().await;
    let begin = looked_up(json!({ "cents": 1200 }));
    let lost = scene.send(&begin).await;
    scene.client_dies();
    let look = scene.look(&begin).await;
    assert_eq!(look.idempotency_key, lost.idempotency_key);
    let finding = Finding::Happened { output: json!({ "id": "re_7" }), external_ref: None };
    let found = scene.report(&begin, &look.permit, finding).await;
    assert_eq!(found, Step::Done { output: json!({ "id": "re_7" }), external_ref: None, first: false });
}

#[tokio::test]
async fn a_call_that_is_not_found_is_sent_again_once_nothing_can_be_under_way() {
    let scene = Scene::new().await;
    let begin = looked_up(json!({ "cents": 1200 }));
    let _lost = scene.send(&begin).await;
    scene.client_dies();
    let early = scene.look(&begin).await;
    let mut early = Reconcile::new(early.permit, Finding::NotFound);
    early.wait_ms = 0;
    assert_eq!(scene.service.reconcile(&acme(), early).await.unwrap(), Step::InFlight);
    scene.clock.slept(SETTLE).await;
    scene.clock.advance(SETTLE);
    let settled = scene.look(&begin).await;
    let Step::Send(second) = scene.report(&begin, &settled.permit, Finding::NotFound).await else {
        panic!("nothing can be under way any more");
    };
    assert_eq!(second.attempt, 2);
}

#[tokio::test]
async fn the_finding_of_a_lookup_whose_time_is_over_does_not_count_for_the_next_one() {
    let scene = Scene::new().await;
    let begin = looked_up(json!({ "cents": 1200 }));
    let _lost = scene.send(&begin).await;
    scene.client_dies();
    let early = scene.look(&begin).await;
    scene.clock.advance(ATTEMPT);
    let next = scene.look(&begin).await;
    let outdated = scene.service.reconcile(&acme(), Reconcile::new(early.permit, Finding::NotFound)).await;
    assert_eq!(outdated.unwrap(), Step::InFlight);
    let finding = Finding::Happened { output: json!(7), external_ref: None };
    assert!(matches!(scene.report(&begin, &next.permit, finding).await, Step::Done { .. }));
}

#[tokio::test]
async fn a_finding_may_be_reported_again_when_its_answer_was_lost() {
    let scene = Scene::new().await;
    let begin = looked_up(json!({ "cents": 1200 }));
    let _lost = scene.send(&begin).await;
    scene.client_dies();
    let look = scene.look(&begin).await;
    let happened = || Finding::Happened { output: json!(7), external_ref: None };
    for _ in 0..2 {
        let found = scene.report(&begin, &look.permit, happened()).await;
        assert!(matches!(found, Step::Done { first: false, .. }), "{found:?}");
    }
    let evil = Tenant::new("evil").unwrap();
    for (tenant, permit) in [(&evil, look.permit.as_str()), (&acme(), "bG9vay4xLjEucmVmdW5k.AAAA")] {
        let refused = scene.service.reconcile(tenant, Reconcile::new(permit, happened())).await;
        assert!(matches!(refused, Err(GuardError::Permit)), "{refused:?}");
    }
}

#[tokio::test]
async fn a_poll_takes_the_lookup_of_a_call_that_nobody_asks_for() {
    let scene = Scene::new().await;
    let begin = looked_up(json!({ "cents": 1200 }));
    let _lost = scene.send(&begin).await;
    scene.client_dies();
    let look = permit(scene.service.poll(&acme(), Poll::new("refund")).await.unwrap());
    assert_eq!((look.tool.as_str(), look.input), ("refund", json!({ "cents": 1200 })));
    let finding = Finding::Happened { output: json!(7), external_ref: None };
    assert!(matches!(scene.report(&begin, &look.permit, finding).await, Step::Done { .. }));

    let mut now = Poll::new("refund");
    now.wait_ms = 0;
    assert_eq!(scene.service.poll(&acme(), now.clone()).await.unwrap(), Step::Idle);
    assert_eq!(scene.service.poll(&Tenant::new("evil").unwrap(), now).await.unwrap(), Step::Idle);
}

/// The question about a call whose lookup cannot tell.
async fn asked_about(scene: &Scene, begin: &Begin) -> QuestionId {
    let _lost = scene.send(begin).await;
    scene.client_dies();
    let mut step = scene.begin(begin).await;
    for _ in 0..1000 {
        step = match step {
            Step::Look(look) => {
                let mut report = Reconcile::new(look.permit, Finding::Unknown);
                report.wait_ms = 0;
                scene.service.reconcile(&acme(), report).await.unwrap()
            }
            Step::InFlight => {
                scene.clock.advance(Duration::from_secs(1));
                scene.service.begin(&acme(), begin.clone()).await.unwrap()
            }
            Step::Stopped { question: Some(question), .. } => return question,
            step => panic!("neither looked up nor asked about but {step:?}"),
        };
    }
    panic!("nobody is asked")
}

/// The next lookup that a process that polls is given.
async fn polled_look(scene: &Scene) -> Permitted {
    let mut poll = Poll::new("refund");
    poll.wait_ms = 0;
    for _ in 0..1000 {
        if let Step::Look(look) = scene.service.poll(&acme(), poll.clone()).await.unwrap() {
            return look;
        }
        scene.clock.advance(Duration::from_secs(1));
    }
    panic!("no lookup")
}

/// A payment that is done, with the provider's id `re_7`.
async fn paid(scene: &Scene, confirm: Option<Confirm>) {
    let mut begin = looked_up(json!({ "cents": 1200 }));
    (begin.effect, begin.confirm) = (EffectClass::Payment, confirm);
    let permitted = scene.send(&begin).await;
    assert!(matches!(
        scene.seal(&begin, &permitted.permit, done("re_7")).await,
        Step::Done { first: true, .. }
    ));
}

#[tokio::test]
async fn a_payment_without_a_doubt_is_not_looked_up_where_nobody_polls() {
    let scene = Scene::new().await;
    paid(&scene, None).await;
    let mut poll = Poll::new("refund");
    poll.wait_ms = 0;
    for _ in 0..20 {
        scene.clock.advance(SETTLE);
        assert_eq!(scene.service.poll(&acme(), poll.clone()).await.unwrap(), Step::Idle);
    }
}

#[tokio::test]
async fn a_lookup_of_a_payment_that_shows_another_effect_is_a_question_about_the_duplicate() {
    let effect = |id: &str| FoundEffect::new(json!({ "id": id }), id);
    let both = Finding::Duplicated { effects: vec![effect("re_7"), effect("re_8")] };
    let other = Finding::Happened { output: json!({ "id": "re_8" }), external_ref: Some("re_8".to_owned()) };
    for finding in [both, other] {
        let scene = Scene::new().await;
        paid(&scene, Some(Confirm::Always)).await;
        let look = polled_look(&scene).await;
        let taken = scene.service.reconcile(&acme(), Reconcile::new(look.permit, finding)).await.unwrap();
        assert!(matches!(taken, Step::Stopped { reason: Stop::Recorded, .. }), "{taken:?}");
        let asked = async || scene.executor().questions(&acme()).await.unwrap();
        until("the question", async || !asked().await.is_empty()).await;
        let [question] = &asked().await[..] else { panic!("one question") };
        assert!(question.question.contains("re_8"), "{question:?}");
    }
}

#[tokio::test]
async fn the_wait_for_a_step_takes_nothing_from_the_time_of_its_permit() {
    let scene = Scene::new().await;
    let mut begin = refund(json!({ "cents": 1200 }));
    begin.attempt_ms = 5_000;
    let first = scene.send(&begin).await;
    let later = CallOutcome::Failed {
        kind: ErrorKind::Unreachable,
        message: "no route".to_owned(),
        retry_after_ms: Some(8_000),
    };
    let mut seal = Seal::new(first.permit, later);
    seal.wait_ms = 0;
    assert_eq!(scene.service.seal(&acme(), seal).await.unwrap(), Step::InFlight);
    begin.wait_ms = 47_000;
    let service = scene.service.clone();
    let waits = scene.process.spawn(async move { service.begin(&acme(), begin).await });
    scene.clock.slept(Duration::from_secs(47)).await;
    scene.clock.slept(Duration::from_secs(8)).await;
    scene.clock.advance(Duration::from_secs(8));
    let second = permit(waits.await.unwrap().unwrap());
    assert_eq!(second.attempt, 2);
    // The client counts from before its request, which has waited for 8 s.
    assert!((13_000..=13_100).contains(&second.use_ms), "{second:?}");
}

#[tokio::test]
async fn a_process_that_polls_for_lookups_leaves_the_attempts_to_their_clients() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let first = scene.send(&begin).await;
    let later = CallOutcome::Failed {
        kind: ErrorKind::Unreachable,
        message: "no route".to_owned(),
        retry_after_ms: Some(2_000),
    };
    let mut seal = Seal::new(first.permit, later);
    seal.wait_ms = 0;
    assert_eq!(scene.service.seal(&acme(), seal).await.unwrap(), Step::InFlight);
    let mut looks = Poll::new("refund");
    looks.wait_ms = 0;
    let mut all = looks.clone();
    all.tasks = Tasks::All;
    for _ in 0..1000 {
        scene.clock.advance(Duration::from_millis(250));
        assert_eq!(scene.service.poll(&acme(), looks.clone()).await.unwrap(), Step::Idle);
        if let Step::Send(second) = scene.service.poll(&acme(), all.clone()).await.unwrap() {
            assert_eq!(second.attempt, 2);
            return;
        }
    }
    panic!("the second attempt was not offered")
}

#[tokio::test]
async fn the_end_of_a_lookup_leaves_the_permit_of_an_attempt_good() {
    let scene = Scene::new().await;
    let begin = looked_up(json!({ "cents": 1200 }));
    let question = asked_about(&scene, &begin).await;
    let look = polled_look(&scene).await;
    let answer = Resolution::SendWithoutLooking { reason: "the bank says no".to_owned() };
    scene.executor().answer(&acme(), question, answer, "ann").await.unwrap();
    let second = scene.send(&begin).await;
    let mut ended = Reconcile::new(look.permit, Finding::Unknown);
    ended.wait_ms = 0;
    let _ = scene.service.reconcile(&acme(), ended).await;
    // The second attempt is still in hand: another client is not told to send.
    let other = scene.service.begin(&acme(), begin.clone()).await.unwrap();
    assert_eq!(other, Step::InFlight);
    assert!(matches!(scene.seal(&begin, &second.permit, done("re_8")).await, Step::Done { first: true, .. }));
}

#[tokio::test]
async fn a_permit_counts_once_for_its_task_and_its_tenant() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let permitted = scene.send(&begin).await;
    let seal = |permit: &str| Seal::new(permit, done("re_7"));
    let evil = Tenant::new("evil").unwrap();
    for (tenant, seal) in
        [(&evil, seal(&permitted.permit)), (&acme(), seal("c2VuZC4xLjEucmVmdW5k.AAAA")), (&acme(), seal(""))]
    {
        let refused = scene.service.seal(tenant, seal).await;
        assert!(matches!(refused, Err(GuardError::Permit)), "{refused:?}");
    }
    let report = Reconcile::new(permitted.permit.as_str(), Finding::NotFound);
    assert!(matches!(scene.service.reconcile(&acme(), report).await, Err(GuardError::Permit)));
    assert!(matches!(
        scene.seal(&begin, &permitted.permit, done("re_7")).await,
        Step::Done { first: true, .. }
    ));
    // Twice: the second seal tells nothing new.
    assert!(matches!(
        scene.seal(&begin, &permitted.permit, done("re_7")).await,
        Step::Done { first: false, .. }
    ));
    assert!(scene.executor().questions(&acme()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_late_seal_answers_the_question_about_its_call() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let lost = scene.send(&begin).await;
    scene.client_dies();
    assert!(matches!(scene.begin(&begin).await, Step::Stopped { reason: Stop::NeedsDecision, .. }));
    let late = scene.seal(&begin, &lost.permit, done("re_7")).await;
    assert_eq!(
        late,
        Step::Done { output: json!({ "id": "re_7" }), external_ref: late_ref(&late), first: false }
    );
    assert!(scene.executor().questions(&acme()).await.unwrap().is_empty());
}

fn late_ref(step: &Step) -> Option<String> {
    match step {
        Step::Done { external_ref, .. } => external_ref.clone(),
        _ => None,
    }
}

#[tokio::test]
async fn a_late_seal_of_another_effect_opens_a_question_about_the_duplicate() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let lost = scene.send(&begin).await;
    scene.client_dies();
    let Step::Stopped { question: Some(question), .. } = scene.begin(&begin).await else {
        panic!("a question")
    };
    let answer = Resolution::SendWithoutLooking { reason: "the bank says no".to_owned() };
    scene.executor().answer(&acme(), question, answer, "ann").await.unwrap();
    let second = scene.send(&begin).await;
    assert!(matches!(scene.seal(&begin, &second.permit, done("re_8")).await, Step::Done { first: true, .. }));
    let _ = scene.seal(&begin, &lost.permit, done("re_7")).await;
    let open = scene.executor().questions(&acme()).await.unwrap();
    assert_eq!(open.len(), 1, "{open:?}");
}

/// A second attempt that a person has let go out, with the first one, whose seal comes while the second is under way.
async fn late_seal_beside_a_second_attempt(scene: &Scene, begin: &Begin) -> Permitted {
    let lost = scene.send(begin).await;
    scene.client_dies();
    let Step::Stopped { question: Some(question), .. } = scene.begin(begin).await else {
        panic!("a question")
    };
    let answer = Resolution::SendWithoutLooking { reason: "the bank says no".to_owned() };
    scene.executor().answer(&acme(), question, answer, "ann").await.unwrap();
    let second = scene.send(begin).await;
    let late = scene.service.seal(&acme(), Seal::new(lost.permit, done("re_7"))).await.unwrap();
    assert_eq!(late, Step::InFlight);
    second
}

#[tokio::test]
async fn a_late_seal_is_compared_with_the_attempt_that_was_under_way_when_it_came() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let second = late_seal_beside_a_second_attempt(&scene, &begin).await;
    assert!(matches!(scene.seal(&begin, &second.permit, done("re_8")).await, Step::Done { first: true, .. }));
    let open = scene.executor().questions(&acme()).await.unwrap();
    assert_eq!(open.len(), 1, "{open:?}");
}

#[tokio::test]
async fn an_attempt_that_fails_beside_a_late_seal_is_not_made_again() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let second = late_seal_beside_a_second_attempt(&scene, &begin).await;
    let next = scene.seal(&begin, &second.permit, failed(ErrorKind::Unreachable)).await;
    let expected =
        Step::Done { output: json!({ "id": "re_7" }), external_ref: Some("re_7".to_owned()), first: false };
    assert_eq!(next, expected);
    assert!(scene.executor().questions(&acme()).await.unwrap().is_empty());
}

#[tokio::test]
async fn of_two_late_seals_the_first_answers_the_question_and_the_other_is_a_duplicate() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let lost = scene.send(&begin).await;
    scene.client_dies();
    let Step::Stopped { question: Some(question), .. } = scene.begin(&begin).await else {
        panic!("a question")
    };
    let answer = Resolution::SendWithoutLooking { reason: "the bank says no".to_owned() };
    scene.executor().answer(&acme(), question, answer, "ann").await.unwrap();
    let second = scene.send(&begin).await;
    scene.client_dies();
    assert!(matches!(scene.begin(&begin).await, Step::Stopped { reason: Stop::NeedsDecision, .. }));
    let first = scene.seal(&begin, &lost.permit, done("re_7")).await;
    assert_eq!(late_ref(&first).as_deref(), Some("re_7"));
    // The seal that answers the question is no duplicate of itself.
    assert!(scene.executor().questions(&acme()).await.unwrap().is_empty());
    let _ = scene.seal(&begin, &second.permit, done("re_8")).await;
    assert_eq!(scene.executor().questions(&acme()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_seal_counts_after_the_service_was_killed() {
    let scene = Scene::new().await;
    let begin = refund(json!({ "cents": 1200 }));
    let lost = scene.send(&begin).await;
    let scene = scene.restarted().await;
    // The new process knows the tool again once a client begins a call of it.
    let _ = scene.seal(&begin, &lost.permit, done("re_7")).await;
    let found = scene.begin(&begin).await;
    assert!(matches!(&found, Step::Done { output, .. } if *output == json!({ "id": "re_7" })), "{found:?}");
}

#[tokio::test]
async fn a_call_of_unknown_outcome_is_not_sent_under_a_key_that_its_provider_has_forgotten() {
    let mut begin = refund(json!({ "cents": 1200 }));
    begin.contract = Some(ContractClass::ReplaysKey);
    begin.key_window_ms = Some(24 * 60 * 60 * 1000);
    let scene = Scene::new().await;
    let _lost = scene.send(&begin).await;
    let Scene { dir, clock, process, service } = scene;
    drop(service);
    process.kill();
    clock.advance(Duration::from_hours(25));
    let scene = Scene::on(dir, clock).await;
    let next = scene.begin(&begin).await;
    assert!(matches!(next, Step::Stopped { reason: Stop::NeedsDecision, .. }), "{next:?}");
}

#[tokio::test]
async fn after_the_service_was_killed_the_next_client_looks_the_call_up() {
    let scene = Scene::new().await;
    let begin = looked_up(json!({ "cents": 1200 }));
    let lost = scene.send(&begin).await;
    let scene = scene.restarted().await;
    let look = scene.look(&begin).await;
    assert_eq!(look.idempotency_key, lost.idempotency_key);
    let finding = Finding::Happened { output: json!(7), external_ref: None };
    assert!(matches!(scene.report(&begin, &look.permit, finding).await, Step::Done { .. }));
}

#[tokio::test]
async fn a_reviewer_approves_the_call_before_it_goes_out() {
    let scene = Scene::new().await;
    let mut begin = refund(json!({ "cents": 1200 }));
    (begin.effect, begin.contract) = (EffectClass::Payment, Some(ContractClass::ReplaysKey));
    begin.reviewers = vec!["ann".to_owned()];
    let Step::Approve { review, version } = scene.begin(&begin).await else {
        panic!("nobody has approved it")
    };
    scene.executor().approvals(&acme()).decide(&review, version).approve("ann").await.unwrap();
    let permitted = scene.send(&begin).await;
    assert!(matches!(scene.seal(&begin, &permitted.permit, done("re_7")).await, Step::Done { .. }));
}

/// A call that waits for Ann's approval, with the id and the version of its review.
async fn waits_for_ann(scene: &Scene) -> (Begin, String, u32) {
    let mut begin = refund(json!({ "cents": 1200 }));
    begin.reviewers = vec!["ann".to_owned()];
    let Step::Approve { review, version } = scene.begin(&begin).await else {
        panic!("nobody has approved it")
    };
    (begin, review, version)
}

#[tokio::test]
async fn a_call_that_a_reviewer_rejects_stops_with_the_reason() {
    let scene = Scene::new().await;
    let (begin, review, version) = waits_for_ann(&scene).await;
    let approvals = scene.executor().approvals(&acme());
    approvals.decide(&review, version).reject("ann", "the customer has it already").await.unwrap();
    let Step::Stopped { reason: Stop::Refused, text, question: None } = scene.begin(&begin).await else {
        panic!("the call waits for an approval that does not come")
    };
    assert!(text.contains("ann has rejected it: the customer has it already"), "{text}");
}

#[tokio::test]
async fn another_input_under_the_key_of_a_call_that_people_are_asked_about_is_a_conflict() {
    let scene = Scene::new().await;
    let (begin, review, version) = waits_for_ann(&scene).await;
    let mut other = begin.clone();
    other.input = json!({ "cents": 1300 });
    let conflict = |step: Step| match step {
        Step::Stopped { reason: Stop::Conflict, text, .. } => assert!(text.contains("1300"), "{text}"),
        step => panic!("{step:?}"),
    };
    conflict(scene.begin(&other).await);
    scene.executor().approvals(&acme()).decide(&review, version).approve("ann").await.unwrap();
    let permitted = scene.send(&begin).await;
    let _ = scene.seal(&begin, &permitted.permit, done("re_7")).await;
    conflict(scene.begin(&other).await);
}

#[tokio::test]
async fn a_call_that_is_done_needs_no_review_to_be_answered() {
    let scene = Scene::new().await;
    let mut begin = refund(json!({ "cents": 1200 }));
    let permitted = scene.send(&begin).await;
    let _ = scene.seal(&begin, &permitted.permit, done("re_7")).await;
    begin.reviewers = vec!["ann".to_owned()];
    assert!(matches!(scene.begin(&begin).await, Step::Done { first: false, .. }));
    assert!(scene.executor().approvals(&acme()).reviews(None).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused_before_anything_is_recorded() {
    let scene = Scene::new().await;
    let refused = |begin: Begin| async { scene.service.begin(&acme(), begin).await.unwrap_err() };
    let mut transactional = refund(json!({}));
    transactional.contract = Some(ContractClass::Transactional);
    assert!(matches!(refused(transactional).await, GuardError::Transactional));
    assert!(matches!(refused(Begin::new("", "order-9", json!({}))).await, GuardError::Key(_)));
    assert!(matches!(refused(Begin::new("refund", "", json!({}))).await, GuardError::Key(_)));
    let mut notice = refund(json!({}));
    notice.effect = EffectClass::Notification;
    let unapproved = scene.service.begin(&acme(), notice).await;
    assert!(!matches!(unapproved, Ok(Step::Send(_))), "{unapproved:?}");
    let unknown = serde_json::from_value::<Begin>(json!({ "tool": "t", "key": "k", "efect": "payment" }));
    assert!(unknown.unwrap_err().to_string().contains("efect"));
}
