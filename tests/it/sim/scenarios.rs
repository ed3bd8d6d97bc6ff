//! The scenarios of SIM-4, each a test to be read: what goes wrong, and what becomes of it. Most of them go on to
//! crash the scenario wherever a process can die.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::flow::{FailureCode, RunError, Workflow, WorkflowFn};
use counterfoil::ledger::{LookupResult, Retention};
use counterfoil::payload::Stored;
use counterfoil::sim::{
    CrashPoint, End, Happened, Offer, Replay, Rule, Schedule, Service, Simulation, Stop, World, truthful,
};
use counterfoil::store::{QuestionKind, Resolution, RunState};
use counterfoil::tool::{Call, Done, NeedsApproval, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{ApprovalSubject, Ctx, Engine, Failure, Key};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::sim::{Blind, Looks, Natural, Rejects, Replays, ReplaysAndLooks, quick};

/// A bill: its number says which one it is, and the amount is what can be got wrong about it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Bill {
    number: String,
    cents: u32,
}

fn bill(cents: u32) -> Bill {
    Bill { number: "7".into(), cents }
}

/// Pays at a bank that takes no key, and can be asked. Its records are kept for so long.
struct Pay(Service, Retention);

impl Tool for Pay {
    const NAME: &'static str = "pay";
    type Effect = effect::Payment;
    type Contract = contract::Lookup;
    type Input = Bill;
    type Output = Value;

    fn key(&self, bill: &Bill) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&bill.number))
    }

    fn retention(&self) -> Retention {
        self.1
    }

    async fn call(&self, call: &Call, bill: &Bill) -> Result<Done<Value>, ToolError> {
        self.0.create(call, &bill.number).await
    }
}

impl Reconcile for Pay {
    async fn reconcile(&self, call: &Call, bill: &Bill) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, &bill.number).await
    }
}

async fn pay(ctx: Ctx, bill: Bill) -> Result<Value, Failure> {
    ctx.call::<Pay>(bill).await
}

/// A workflow that pays, and must not pay bill 7 twice.
fn paying<W, O>(workflow: W) -> Simulation
where
    W: WorkflowFn<Bill, O> + Clone,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    Simulation::of(workflow, bill(100))
        .engine(|engine, world| engine.tool(Pay(world.service("bank", Offer::Lookup), Retention::default())))
        .check("paid once", |end| end.exactly_once_if_succeeded("bank", "7"))
}

async fn call_once<T>(ctx: Ctx, case: String) -> Result<Value, Failure>
where
    T: Tool<Input = String, Output = Value, Effect = effect::InternalMutation>,
{
    ctx.call::<T>(case).await
}

/// One call, at a provider of some class.
fn once<T>(offer: Offer, tool: fn(Service) -> T) -> (Offer, Simulation)
where
    T: Tool<Input = String, Output = Value, Effect = effect::InternalMutation>,
{
    let simulation = Simulation::of(call_once::<T>, "case".to_owned())
        .engine(move |engine, world| engine.tool(tool(world.service("desk", offer))));
    (offer, simulation)
}

fn each_class() -> [(Offer, Simulation); 6] {
    [
        once(Offer::ReplaysKey, Replays),
        once(Offer::ReplaysKeyAndLookup, ReplaysAndLooks),
        once(Offer::RejectsKey, Rejects),
        once(Offer::NaturalKey, Natural),
        once(Offer::Lookup, Looks),
        once(Offer::Blind, Blind),
    ]
}

/// Asks for a run of its own, and says what it was told.
async fn ask<W, O>(engine: Engine, workflow: W, bill: Bill, key: &'static str) -> String
where
    W: WorkflowFn<Bill, O>,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    match tenant.run(workflow, bill).key(key).await {
        Ok(output) => json!(output).to_string(),
        Err(RunError::Failed { failure, .. }) => format!("{} {}", failure.message, failure.detail),
        Err(RunError::Conflict { diff, .. }) => format!("conflict {diff}"),
        Err(error) => error.to_string(),
    }
}

/// What happened when a schedule was tried; no rule was broken.
fn tried(simulation: &Simulation, schedule: &str) -> Replay {
    let replay = simulation.replay(&schedule.parse().unwrap());
    assert_eq!(replay.violations, [], "{schedule}\n{}", replay.timeline());
    replay
}

/// What happened when the process died where it first crosses this point.
fn died_at(simulation: &Simulation, point: CrashPoint) -> Replay {
    let clean = tried(simulation, "");
    let crossed = clean.events.iter().filter(|event| matches!(event.what, Happened::Crossed(_)));
    let place = crossed.clone().position(|event| event.what == Happened::Crossed(point));
    let place = place.unwrap_or_else(|| panic!("{point} is never crossed"));
    let replay = tried(simulation, &format!("crash@1.{}", place + 1));
    let died = Happened::Stopped { stop: Stop::Crash, point };
    assert!(replay.events.iter().any(|event| event.what == died), "{}", replay.timeline());
    replay
}

/// What the world saw: requests, effects, lookups; and how many questions were asked.
fn seen(replay: &Replay) -> [usize; 4] {
    let count = |kind: fn(&Happened) -> bool| replay.events.iter().filter(|event| kind(&event.what)).count();
    [
        count(|what| matches!(what, Happened::Sent { .. })),
        count(|what| matches!(what, Happened::Effect { .. })),
        count(|what| matches!(what, Happened::LookedUp { .. })),
        count(|what| matches!(what, Happened::Asked { .. })),
    ]
}

/// What somebody was told.
fn heard<'a>(replay: &'a Replay, by: &str) -> &'a str {
    let told = replay.events.iter().find_map(|event| match &event.what {
        Happened::Told { who, what } if who == by => Some(what.as_str()),
        _ => None,
    });
    told.unwrap_or_else(|| panic!("{by} was told nothing\n{}", replay.timeline()))
}

/// What the runs that succeeded have returned.
fn answers(end: &End<'_>) -> BTreeSet<String> {
    let succeeded = end.rows().into_iter().filter_map(|run| match run.state {
        RunState::Succeeded { output: Stored::Inline(output) } => Some(output.as_str().to_owned()),
        _ => None,
    });
    succeeded.collect()
}

// The same command and payload: one effect, and whoever asks gets the first result.
#[test]
fn the_same_command_and_payload() {
    let simulation = paying(pay).with_actor("again", |engine, _| ask(engine, pay, bill(100), "again")).check(
        "one answer for all",
        |end| match answers(end) {
            answers if answers.len() > 1 => Err(format!("{answers:?}")),
            _ => Ok(()),
        },
    );
    assert_eq!(heard(&tried(&simulation, ""), "again"), r#"{"id":"bank-1"}"#);
    quick(simulation).explore().assert_ok();
}

/// Bill 7 is paid; a second later another amount is to be paid for it.
pub(crate) fn another_amount() -> Simulation {
    paying(pay)
        .with_actor("another amount", |engine, world| async move {
            world.sleep(Duration::from_secs(1)).await;
            ask(engine, pay, bill(999), "other").await
        })
        .check("one amount", |end| {
            let wins = end.rows().iter().filter(|run| run.state.name() == "succeeded").count();
            let paid = end.count("bank", "7");
            if wins < 2 && (paid < 2 || !end.questions().is_empty()) {
                Ok(())
            } else {
                Err(format!("{wins} amounts, {paid} payments"))
            }
        })
        .check("the first is untouched", |end| {
            let requests = end.records().into_iter().map(|record| format!("{:?}", record.request));
            match requests.last() {
                Some(first) if end.succeeded() && !first.contains("100") => Err(first),
                _ => Ok(()),
            }
        })
}

// The same key with another payload: nothing is done. The conflict shows what differs, the record what was first.
#[test]
fn the_same_key_and_another_payload() {
    let simulation = another_amount();
    let told = tried(&simulation, "");
    let conflict = heard(&told, "another amount");
    assert!(conflict.contains("another payload") && conflict.contains("999"), "{conflict}");
    quick(simulation).explore().assert_ok();
}

// A crash before the call: nothing was sent. Whoever can be asked is asked; then it is sent, once.
#[test]
fn a_crash_before_the_call() {
    for (offer, simulation) in each_class() {
        let [sent, happened, _, asked] = seen(&died_at(&simulation, CrashPoint::BeforeCall));
        match offer {
            // Nobody can find out that nothing was sent.
            Offer::Blind => assert_eq!([sent, happened, asked], [0, 0, 1]),
            _ => assert_eq!([sent, happened, asked], [1, 1, 0], "{offer:?}"),
        }
    }
}

// A crash after success, before its checkpoint: the window that this engine is about.
#[test]
fn a_crash_after_success_before_the_checkpoint() {
    for (offer, simulation) in each_class() {
        let [sent, happened, lookups, asked] = seen(&died_at(&simulation, CrashPoint::AfterCall));
        assert_eq!(happened, 1, "{offer:?}");
        match offer {
            Offer::ReplaysKey => assert_eq!([sent, lookups, asked], [2, 0, 0], "sent again, same key"),
            Offer::NaturalKey => assert_eq!([sent, lookups, asked], [2, 0, 1], "refused: but what is there?"),
            Offer::Blind => assert_eq!([sent, lookups, asked], [1, 0, 1], "nobody can tell"),
            _ => assert_eq!([sent, lookups, asked], [1, 1, 0], "{offer:?}: looked up, and there"),
        }
        // With the record durable, nobody in the world is asked anything more.
        assert_eq!(seen(&died_at(&simulation, CrashPoint::AfterSeal)), [1, 1, 0, 0], "{offer:?}");
    }
}

// An event comes twice, also across a crash: its id is the start key, so that it is one run.
#[test]
fn an_event_twice() {
    let one_run = |end: &End<'_>| match end.rows().len() {
        0 | 1 => Ok(()),
        runs => Err(format!("{runs} runs")),
    };
    let simulation = paying(pay)
        .with_actor("second delivery", |engine, world| async move {
            world.sleep(Duration::from_millis(2)).await;
            ask(engine, pay, bill(100), Simulation::KEY).await
        })
        .check("one run", one_run);
    assert_eq!(heard(&tried(&simulation, ""), "second delivery"), r#"{"id":"bank-1"}"#);
    quick(simulation).explore().assert_ok();

    // Under one event id, another content is no redelivery.
    let forged = paying(pay)
        .with_actor("forged", |engine, world| async move {
            world.sleep(Duration::from_millis(2)).await;
            ask(engine, pay, bill(999), Simulation::KEY).await
        })
        .check("one run", one_run);
    let told = tried(&forged, "");
    let conflict = heard(&told, "forged");
    assert!(conflict.starts_with("conflict") && conflict.contains("999"), "{conflict}");
}

/// Tells Ann something, if somebody approved it.
struct Tell(Service);

impl Tool for Tell {
    const NAME: &'static str = "tell";
    type Effect = effect::Notification;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = Value;

    fn key(&self, text: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target("ann").operation(text))
    }

    async fn call(&self, call: &Call, text: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, text).await
    }
}

impl Reconcile for Tell {
    async fn reconcile(&self, call: &Call, text: &String) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, text).await
    }
}

impl NeedsApproval for Tell {
    fn package(&self, text: &String) -> ApprovalSubject {
        ApprovalSubject::of("notice", text)
    }
}

// One approval, two dispatches: one notice. For another text it is no approval: somebody is asked for that, and says no.
#[test]
fn an_approval_twice() {
    async fn tell_twice(ctx: Ctx, text: String) -> Result<bool, Failure> {
        let approval =
            ctx.approval(ApprovalSubject::of("notice", &text)).reviewers(["bob"]).single_use().await?;
        let first = ctx.call::<Tell>(text.clone()).approved_by(&approval).await?;
        let second = ctx.call::<Tell>(text).approved_by(&approval).await?;
        let other = ctx.call::<Tell>("something else".to_owned()).approved_by(&approval).await;
        Ok(first == second && other.is_err_and(|failure| failure.code == FailureCode::Rejected))
    }
    /// Bob approves of one text alone, as often as he is asked.
    async fn bob(engine: Engine, world: World) -> String {
        let tenant = engine.tenant(Simulation::TENANT).unwrap();
        for _ in 0..100 {
            for open in tenant.reviews(None).await.unwrap_or_default() {
                let decide = tenant.decide(&open.id, open.version);
                // If that fails, it is still open.
                let _ = if open.review.content == "hello" {
                    decide.approve("bob").await
                } else {
                    decide.reject("bob", "never seen").await
                };
            }
            world.sleep(Duration::from_secs(30)).await;
        }
        "nothing is asked any more".to_owned()
    }
    let simulation = Simulation::of(tell_twice, "hello".to_owned())
        .engine(|engine, world| engine.tool(Tell(world.service("mail", Offer::Lookup))))
        .with_actor("bob", bob)
        .check("told once", |end| end.exactly_once_if_succeeded("mail", "hello"))
        .check("nothing unapproved", |end| match end.count("mail", "something else") {
            0 => Ok(()),
            _ => Err("an unapproved text went out".to_owned()),
        })
        .check("the same answer", |end| {
            let succeeded = end.rows().into_iter().find_map(|run| match run.state {
                RunState::Succeeded { output } => Some(format!("{output:?}").contains("true")),
                _ => None,
            });
            if succeeded == Some(false) { Err("another answer".to_owned()) } else { Ok(()) }
        });
    simulation.single_crashes().explore().assert_ok();
}

/// Answers the question about the call by what is in the world, once nothing can be on its way any more.
async fn answer(engine: Engine, world: World, by: &'static str) -> String {
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    for _ in 0..5 {
        world.sleep(Duration::from_secs(300)).await;
        let open = tenant.questions().await.unwrap();
        let Some(asked) = open.iter().find(|asked| asked.kind == QuestionKind::Ambiguous) else { continue };
        let found = world.found("desk", "case");
        let resolution = match found.first() {
            Some(effect) => Resolution::Happened(json!({ "id": effect.id })),
            None => Resolution::DidNotHappen,
        };
        return match tenant.answer(asked.id, resolution, by).await {
            Ok(()) => "thank you".to_owned(),
            Err(error) => error.to_string(),
        };
    }
    "nothing was asked".to_owned()
}

// The same question answered twice: the first answer stands, and the second one is told so.
#[test]
fn a_decision_twice() {
    let (_, simulation) = once(Offer::Blind, Blind);
    let simulation = simulation
        .with_actor("ann", |engine, world| answer(engine, world, "ann"))
        .with_actor("bob", |engine, world| answer(engine, world, "bob"))
        .check("once", |end| end.exactly_once_if_succeeded("desk", "case"));
    let told = tried(&simulation, "answer-lost@1");
    assert_eq!(seen(&told), [1, 1, 0, 1]);
    let mut said = [heard(&told, "ann"), heard(&told, "bob")];
    said.sort_by_key(|said| said.len());
    assert_eq!(said[0], "thank you");
    assert!(said[1].contains("has been answered"), "{said:?}");
    quick(simulation).explore().assert_ok();
}

/// A model: it never says the same twice.
#[derive(Clone, Default)]
struct Whimsical(Arc<AtomicU32>);

impl Whimsical {
    fn says(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

// Model output is repaired after a crash, or comes out otherwise: what was recorded stands …
#[test]
fn a_repaired_model_output_that_is_recorded() {
    let model = Whimsical::default();
    let simulation = paying(move |ctx: Ctx, bill: Bill| {
        let model = model.clone();
        async move {
            let cents = ctx.step("amount", &bill, |_| model.says()).await?;
            ctx.call::<Pay>(Bill { cents, ..bill }).await
        }
    })
    .check("never asked about", |end| {
        let diverged = end.questions().into_iter().find(|asked| asked.kind == QuestionKind::Diverged);
        diverged.map_or(Ok(()), |asked| Err(asked.question))
    });
    quick(simulation).explore().assert_ok();
}

// … and where nothing was recorded, the key's conflict prevents a second payment, and shows both amounts.
#[test]
fn a_repaired_model_output_that_is_not_recorded() {
    let model = Whimsical::default();
    let simulation = paying(move |ctx: Ctx, bill: Bill| {
        let cents = model.says();
        async move { ctx.call::<Pay>(Bill { cents, ..bill }).await }
    })
    .check("never two", |end| match end.effects().len() {
        0 | 1 => Ok(()),
        _ if !end.questions().is_empty() => Ok(()),
        payments => Err(format!("{payments} payments")),
    });
    let simulation = quick(simulation);
    simulation.explore().assert_ok();
    let replay = died_at(&simulation, CrashPoint::AfterCall);
    assert_eq!(seen(&replay)[..2], [1, 1], "{}", replay.timeline());
    println!("{}", replay.timeline());
}

// The provider times out after it has committed: a timeout says nothing, so it is found out.
#[test]
fn a_provider_timeout_after_commit() {
    for (offer, simulation) in each_class() {
        let [sent, happened, lookups, asked] = seen(&tried(&simulation, "hangs@1"));
        assert_eq!(happened, 1, "{offer:?}");
        match offer {
            Offer::ReplaysKey => assert_eq!([sent, asked], [2, 0], "sent again, same key"),
            Offer::NaturalKey => assert_eq!([sent, asked], [2, 1], "refused: but what is there?"),
            Offer::Blind => assert_eq!([sent, asked], [1, 1], "nobody can tell"),
            _ => assert!(sent + lookups > 1 && asked == 0, "{offer:?}: found out"),
        }
    }
}

/// Bill 7 is paid, and somebody asks for it again five and ten days later: does the record still stand?
pub(crate) fn asked_again_later(retention: Retention) -> Simulation {
    Simulation::of(pay, bill(100))
        .engine(move |engine, world| {
            engine.tool(Pay(world.service("bank", Offer::Lookup), retention)).sweep(true)
        })
        .check("paid once", |end| end.exactly_once_if_succeeded("bank", "7"))
        .single_crashes()
        .with_actor("late retry", |engine, world| async move {
            world.sleep(5 * DAY).await;
            let _ = ask(engine.clone(), pay, bill(100), "later").await;
            world.sleep(5 * DAY).await;
            ask(engine, pay, bill(100), "late").await
        })
}

const DAY: Duration = Duration::from_hours(24);

// The record expires before the last retry has come: in `forget` mode the key is new then, and the bill is paid
// twice. That is the risk, and it is a check that fails with nothing else going wrong.
#[test]
fn a_record_that_expired_too_early() {
    let report = asked_again_later(Retention::forget_after(DAY)).explore();
    let broken: Vec<_> = report.failures().iter().flat_map(|f| &f.violations).map(|v| &v.rule).collect();
    // The look after the second payment shows both, so that the duplicate is asked about; the send was blind all the same.
    assert!(broken.contains(&&Rule::NoBlindRepeat), "{report}");
    assert_eq!(report.failures()[0].schedule, Schedule::default(), "{report}");
}

// A window that outlives the retries forgets nothing that is asked for; nor does a record that is kept.
#[test]
fn a_record_that_outlives_its_retries() {
    for retention in [Retention::forget_after(100 * DAY), Retention::keep()] {
        let kept = asked_again_later(retention);
        assert_eq!(heard(&tried(&kept, ""), "late retry"), r#"{"id":"bank-1"}"#);
        kept.explore().assert_ok();
    }
}

// Under tombstones the same shows nothing of the kind: whoever comes too late is told that it is done, and that its answer is
// no longer kept.
#[test]
fn a_record_that_expired_and_left_a_tombstone() {
    let left = asked_again_later(Retention::tombstone_after(DAY));
    let first = tried(&left, "");
    let told = heard(&first, "late retry");
    assert!(told.contains("is committed since long, and its answer is no longer kept"), "{told}");
    left.explore().assert_ok();
}

/// Books at a desk that takes no key, and has no key but what is made of its run.
struct Book(Service);

impl Tool for Book {
    const NAME: &'static str = "book";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = Bill;
    type Output = Value;

    async fn call(&self, call: &Call, bill: &Bill) -> Result<Done<Value>, ToolError> {
        self.0.create(call, &bill.number).await
    }
}

impl Reconcile for Book {
    async fn reconcile(&self, call: &Call, bill: &Bill) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, &bill.number).await
    }
}

async fn book(ctx: Ctx, bill: Bill) -> Result<Value, Failure> {
    ctx.call::<Book>(bill).await
}

/// Bill 7 is booked by a run with a start key, and somebody starts it again five and ten days later: is the run still known?
pub(crate) fn started_again_later(retention: Retention) -> Simulation {
    Simulation::of(pay, bill(100))
        .engine(move |engine, world| {
            let engine = engine.tool(Pay(world.service("bank", Offer::Lookup), Retention::default()));
            let engine = engine.tool(Book(world.service("desk", Offer::Lookup)));
            engine.register(Workflow::new("book", book).retention(retention)).sweep(true)
        })
        .check("booked once", |end| {
            match end.effects().iter().filter(|effect| effect.system == "desk").count() {
                0 | 1 => Ok(()),
                _ if !end.questions().is_empty() => Ok(()), // a zombie came late, and somebody is asked
                bookings => Err(format!("{bookings} bookings")),
            }
        })
        .single_crashes()
        .with_actor("late start", |engine, world| async move {
            for _ in 0..2 {
                let _ = ask(engine.clone(), book, bill(100), "bill 7").await;
                world.sleep(5 * DAY).await;
            }
            ask(engine, book, bill(100), "bill 7").await
        })
}

// REC-8: a run that is forgotten before its last start has come is begun anew, and books a second time. A tombstone keeps it from that.
#[test]
fn a_run_that_expired_too_early() {
    let forgotten = started_again_later(Retention::forget_after(DAY)).explore();
    let own = Rule::Own("booked once".to_owned());
    assert!(forgotten.failures().iter().flat_map(|f| &f.violations).any(|v| v.rule == own), "{forgotten}");
    let left = started_again_later(Retention::tombstone_after(DAY));
    let told = tried(&left, "");
    let told = heard(&told, "late start");
    assert!(told.contains("has expired: it ended"), "{told}");
    left.explore().assert_ok();
}

// Two runs share one effect: the first owns it, and that the other uses it is recorded.
#[test]
fn two_runs_sharing_one_effect() {
    async fn remind_and_pay(ctx: Ctx, bill: Bill) -> Result<Value, Failure> {
        ctx.step("remind", &bill, |_| ()).await?;
        ctx.call::<Pay>(bill).await
    }
    let simulation = paying(pay)
        .engine(|engine, _| engine.workflow("remind_and_pay", 1, remind_and_pay))
        .with_run(Simulation::TENANT, "another", remind_and_pay, bill(100))
        .check("owned once, used once", |end| {
            let owners: Vec<_> = end.records().iter().filter_map(|record| record.owner.run).collect();
            let ended = end.rows().iter().filter(|run| run.state.name() == "succeeded").count();
            let users: Vec<_> = end.uses().iter().map(|used| used.run).collect();
            let is_shared = users.len() == 1 && owners.len() == 1 && users != owners;
            if ended < 2 || is_shared { Ok(()) } else { Err(format!("{owners:?} own, {users:?} use")) }
        });
    quick(simulation).explore().assert_ok();
}

// One run fails, another one carries its call on and fails, too: the effect is left behind, and asked about.
#[test]
fn an_effect_shared_by_runs_that_fail() {
    async fn pay_and_fail(ctx: Ctx, bill: Bill) -> Result<Value, Failure> {
        ctx.call::<Pay>(bill).await?;
        Err(Failure::new("out of ideas"))
    }
    let simulation = paying(pay)
        .engine(|engine, _| engine.workflow("pay_and_fail", 1, pay_and_fail))
        .with_actor("another run", |engine, world| async move {
            world.sleep(Duration::from_secs(1)).await;
            ask(engine, pay_and_fail, bill(100), "another").await
        });
    let replay = tried(&simulation, "refused@1");
    assert_eq!(seen(&replay), [2, 1, 1, 1], "{}", replay.timeline());
    quick(simulation).explore().assert_ok();
}

// Two runs wait for one answer, across crashes, and both go on with it.
#[test]
fn two_runs_waiting_for_one_answer() {
    let (_, simulation) = once(Offer::Blind, Blind);
    let simulation = simulation
        .with_run(Simulation::TENANT, "another", call_once::<Blind>, "case".to_owned())
        .operator(truthful)
        .check("whoever was answered goes on", |end| {
            let waiting = end.rows().iter().filter(|run| run.state.name() == "waiting").count();
            let answered = end.questions().is_empty();
            if waiting == 0 || !answered { Ok(()) } else { Err(format!("{waiting} runs wait for nothing")) }
        });
    quick(simulation).explore().assert_ok();
}

// A request comes late, after "not found". Inside the settle time, "not found" was not believed …
#[test]
fn a_late_request_inside_the_settle_time() {
    let [sent, happened, lookups, asked] = seen(&tried(&paying(pay), "late@1"));
    assert_eq!([sent, happened, asked], [1, 1, 0]);
    assert!(lookups > 0);
}

// … and beyond it, it was: the payment is made twice. Nobody could have prevented it; it is found, and asked about.
#[test]
fn a_late_request_after_a_believed_not_found() {
    let replay = tried(&paying(pay), "too-late@1");
    let [sent, happened, _, asked] = seen(&replay);
    assert_eq!([sent, happened, asked], [2, 2, 1], "{}", replay.timeline());
    assert!(replay.timeline().contains("bank-1") && replay.timeline().contains("bank-2"));
}

// Another path after resume: the model chooses another bill. What was paid for the first is asked about before
// anything new is paid.
#[test]
fn another_path_after_resume() {
    let model = Whimsical::default();
    let choose = move |ctx: Ctx, (): ()| {
        let number = format!("choice {}", model.says());
        async move {
            let paid = ctx.call::<Pay>(Bill { number, cents: 100 }).await?;
            ctx.step("booked", &(), |()| ()).await?;
            Ok::<_, Failure>(paid)
        }
    };
    let simulation = Simulation::of(choose, ())
        .engine(|engine, world| engine.tool(Pay(world.service("bank", Offer::Lookup), Retention::default())))
        .check("one choice is paid for", |end| {
            let chosen: BTreeSet<_> = end.effects().into_iter().map(|effect| effect.reference).collect();
            if chosen.len() < 2 { Ok(()) } else { Err(format!("{chosen:?}")) }
        });
    let replay = died_at(&simulation, CrashPoint::AfterCall);
    assert_eq!(seen(&replay), [1, 1, 2, 1], "{}", replay.timeline());
    assert!(replay.timeline().contains("which is new"), "{}", replay.timeline());
    quick(simulation).explore().assert_ok();
}
