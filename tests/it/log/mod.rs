//! The log: what an operator sees of runs, calls, questions and the database, and what nobody sees there.

mod page;

use std::time::Duration;

use counterfoil::SystemClock;
use counterfoil::store::{QuestionKind, Resolution, StoreError};
use counterfoil::{Ctx, Failure};
use serde_json::json;
use tracing::Level;

use crate::flow;
use crate::flow::tools::{Post, Ring};
use crate::flow::world::{Process, World, counted};
use crate::world::Log;

/// No event shows this: it stands in the payloads of all runs here.
const CANARY: &str = "canary";

fn shows_no_payload(log: &Log) {
    let shown: Vec<_> =
        log.lines().iter().map(ToString::to_string).filter(|line| line.contains(CANARY)).collect();
    assert!(shown.is_empty(), "{shown:#?}");
}

/// The events of the engine itself, without those of its runs.
fn of_engine(log: &Log) -> Vec<String> {
    log.about("worker", &[]).into_iter().filter(|line| line.contains(" engine ")).collect()
}

#[test]
fn a_run_that_is_killed_behind_its_call_is_followed_to_its_end() {
    let (world, log) = (World::new(), Log::default());
    let _here = log.listen();
    let code = flow!(world, |ctx, input: String| {
        let said = ctx.signal::<String>("go").await?;
        ctx.call::<Post>(format!("{input} {said}")).await
    });
    let first = Process::start_logged(&world, world.engine().workflow("order", 1, code.clone()), &log);
    world.hold("post after");
    let run = first.on(async {
        let run = first.acme().run(code.clone(), CANARY.to_owned()).start().await.unwrap();
        first.state(run.id(), "waiting").await;
        run.signal("go", CANARY.to_owned()).id("one").await.unwrap();
        world.reached("post after").await;
        run.id()
    });
    first.crash();
    world.release("post after");
    let second = Process::start_logged(&world, world.engine().workflow("order", 1, code), &log);
    second.on(second.state(run, "succeeded"));
    second.shut_down();

    let key = log.lines().iter().find_map(|line| line.field("key").map(ToOwned::to_owned)).unwrap();
    let names = [(key.as_str(), "KEY"), (&*run.to_string(), "RUN")];
    assert_eq!(
        log.about("run", &names),
        [
            "DEBUG run started tenant=acme run=RUN workflow=order",
            "DEBUG run waiting tenant=acme run=RUN workflow=order on=signal",
            "DEBUG run resumed tenant=acme run=RUN workflow=order worker=1 deaths=0",
            "DEBUG call dispatched tenant=acme run=RUN tool=post key=KEY attempt=1",
            "DEBUG run resumed tenant=acme run=RUN workflow=order worker=3 deaths=1",
            "INFO call outcome unknown, reconciling tenant=acme run=RUN tool=post key=KEY next=lookup attempt=1",
            "INFO call reconciled tenant=acme run=RUN tool=post key=KEY result=committed basis=lookup",
            "DEBUG call committed tenant=acme run=RUN tool=post key=KEY basis=lookup attempt=1",
            "DEBUG run succeeded tenant=acme run=RUN workflow=order",
        ]
    );
    let started = |worker, runs| {
        format!("INFO engine started store=sqlite worker={worker} workflows=1 tools=4 runs={runs}")
    };
    assert_eq!(of_engine(&log), [started(1, 0), started(3, 1), "INFO engine shut down worker=3".to_owned()]);
    assert!(log.counts(Level::WARN).is_empty(), "{:?}", log.counts(Level::WARN));
    shows_no_payload(&log);
}

#[test]
fn a_question_is_logged_when_it_is_asked_and_when_it_is_answered() {
    let (world, log) = (World::new(), Log::default());
    let _here = log.listen();
    let code = flow!(world, |ctx, input: String| ctx.call::<Ring>(input).await);
    let first = Process::start_logged(&world, world.engine().workflow("alarm", 1, code.clone()), &log);
    world.hold("ring after");
    let run = first.on(async {
        let run = first.acme().run(code.clone(), CANARY.to_owned()).start().await.unwrap();
        world.reached("ring after").await;
        run.id()
    });
    first.crash();
    world.release("ring after");
    let second = Process::start_logged(&world, world.engine().workflow("alarm", 1, code), &log);
    let question = second.on(async {
        second.state(run, "waiting").await;
        let question = second.question(QuestionKind::Ambiguous).await;
        let happened = Resolution::Happened(json!(7));
        second.acme().answer(question.id, happened, "ann").because(CANARY).await.unwrap();
        second.state(run, "succeeded").await;
        question.id
    });
    second.shut_down();

    let key = log.lines().iter().find_map(|line| line.field("key").map(ToOwned::to_owned)).unwrap();
    let names = [(key.as_str(), "KEY"), (&*run.to_string(), "RUN"), (&*question.to_string(), "QUESTION")];
    let call = "tenant=acme run=RUN tool=ring key=KEY";
    let expected = [
        "DEBUG run resumed tenant=acme run=RUN workflow=alarm worker=3 deaths=1".to_owned(),
        format!("INFO call outcome unknown, reconciling {call} next=question attempt=1"),
        format!("DEBUG call asked about {call} question=QUESTION why=Blind"),
        format!("WARN question asked {call} question=QUESTION kind=ambiguous"),
        format!("INFO call reconciled {call} result=question asked"),
        "DEBUG run waiting tenant=acme run=RUN workflow=alarm on=answer".to_owned(),
        format!("DEBUG call committed {call} basis=decision attempt=1"),
        format!("INFO question answered {call} question=QUESTION kind=ambiguous by=ann decision=happened"),
        "DEBUG run resumed tenant=acme run=RUN workflow=alarm worker=3 deaths=0".to_owned(),
        "DEBUG run succeeded tenant=acme run=RUN workflow=alarm".to_owned(),
    ];
    assert_eq!(log.about("run", &names)[2..], expected);
    shows_no_payload(&log);
}

#[test]
fn runs_that_fail_or_are_blocked_or_cancelled_say_so() {
    let (world, log) = (World::new(), Log::default());
    let _here = log.listen();
    let code = flow!(world, |ctx, how: String| {
        match how.as_str() {
            "fail" => Err(Failure::new(CANARY)),
            "panic" => panic!("{CANARY}"),
            _ => ctx.signal::<u32>("never").await,
        }
    });
    let process = Process::start_logged(&world, world.engine().workflow("flow", 1, code.clone()), &log);
    let [failed, blocked, cancelled] = process.on(async {
        let start = async |how: &str| process.acme().run(code.clone(), how.to_owned()).start().await.unwrap();
        let [failed, blocked, cancelled] = [start("fail").await, start("panic").await, start("wait").await];
        process.state(failed.id(), "failed").await;
        process.state(blocked.id(), "blocked").await;
        cancelled.cancel("ann", CANARY).await.unwrap();
        process.state(cancelled.id(), "failed").await;
        let question = process.question(QuestionKind::Quarantined).await.id;
        process.acme().answer(question, Resolution::Abandon, "bob").await.unwrap();
        [failed, blocked, cancelled].map(|run| run.id().to_string())
    });
    process.shut_down();
    let question = log.lines().iter().find_map(|line| line.field("question").map(ToOwned::to_owned)).unwrap();
    let names = [(&*failed, "ONE"), (&*blocked, "TWO"), (&*cancelled, "THREE"), (&*question, "QUESTION")];
    let of = |run: &str| -> Vec<_> {
        let about = log.about("run", &names);
        about.into_iter().filter(|line| !line.starts_with("DEBUG") && line.contains(run)).collect()
    };
    assert_eq!(of("ONE"), ["WARN run failed tenant=acme run=ONE workflow=flow code=workflow"]);
    assert_eq!(
        of("TWO"),
        [
            "WARN question asked tenant=acme run=TWO question=QUESTION kind=quarantined",
            "WARN run blocked tenant=acme run=TWO workflow=flow question=QUESTION kind=quarantined",
            "INFO question answered tenant=acme run=TWO question=QUESTION kind=quarantined by=bob decision=abandon",
            "WARN run failed tenant=acme run=TWO workflow=flow code=abandoned",
        ]
    );
    assert_eq!(
        of("THREE"),
        [
            "INFO cancel command obeyed tenant=acme run=THREE by=ann",
            "INFO run cancelled tenant=acme run=THREE workflow=flow",
        ]
    );
    shows_no_payload(&log);
}

/// A run that makes two steps, held between them.
async fn two_steps(world: &World, ctx: &Ctx) -> Result<u32, Failure> {
    let first = counted(world, ctx, "first", 0).await?;
    world.pass("between").await;
    counted(world, ctx, "second", first).await
}

#[test]
fn a_database_that_is_away_is_logged_once_away_and_once_back() {
    let (world, log) = (World::new(), Log::default());
    let _here = log.listen();
    let code = flow!(world, |ctx, _input: String| two_steps(&world, &ctx).await);
    let engine = world.engine_on(SystemClock).workflow("flow", 1, code.clone());
    let process = Process::start_logged(&world, engine, &log);
    world.hold("between");
    process.on(async {
        let run = process.acme().run(code.clone(), CANARY.to_owned()).start().await.unwrap();
        world.reached("between").await;
        // Four tries are one write, which is given up. The run begins the next one.
        world.tap.fail(Some(StoreError::Unreachable { detail: "cut off".into() }));
        world.release("between");
        world.tap.until(|tapped| tapped.failed >= 6).await;
        world.tap.fail(None);
        assert_eq!(run.result().await.unwrap(), 2);
    });
    process.shut_down();
    let away: Vec<_> = log.lines().into_iter().filter(|line| line.message.starts_with("database")).collect();
    let messages: Vec<_> = away.iter().map(|line| (line.level, line.message.as_str())).collect();
    assert_eq!(messages, [(Level::WARN, "database away"), (Level::INFO, "database back")]);
    assert!(away[0].field("error").unwrap().contains("cut off"));
    assert!(away[1].field("tries").unwrap().parse::<u32>().unwrap() >= 6);
    assert_eq!(log.counts(Level::WARN).into_iter().collect::<Vec<_>>(), [("database away".to_owned(), 1)]);
}

#[test]
fn an_orderly_shutdown_hands_runs_over_without_a_warning() {
    let (world, log) = (World::new(), Log::default());
    let _here = log.listen();
    let code = flow!(world, |ctx, waits: bool| {
        if waits {
            return ctx.signal::<u32>("never").await;
        }
        two_steps(&world, &ctx).await?;
        ctx.call::<Post>(CANARY.to_owned()).await
    });
    let process = Process::start_logged(&world, world.engine().workflow("flow", 1, code.clone()), &log);
    world.hold("between");
    process.on(async {
        for waits in [true, false] {
            process.acme().run(code.clone(), waits).start().await.unwrap();
        }
        world.reached("between").await;
        let engine = process.engine().clone();
        let closing = process.spawn(engine.shutdown(Duration::from_secs(10)));
        world.release("between");
        closing.await.unwrap();
    });
    assert!(log.counts(Level::WARN).is_empty(), "{:?}", log.counts(Level::WARN));
    let handed_over = log.lines().iter().filter(|line| line.message == "run handed over at shutdown").count();
    assert!(handed_over > 0, "{:#?}", log.about("run", &[]));
    shows_no_payload(&log);
}
