//! Errors that a workflow handles, and waits that have no end: a resumed run meets the same ones.

use std::num::ParseIntError;
use std::time::Duration;

use counterfoil::flow::{FailureCode, RunError, RunState};
use counterfoil::ledger::ErrorKind;
use counterfoil::payload::{Payload, PayloadError};
use counterfoil::sim::{Offer, Simulation};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::tool::ToolError;
use counterfoil::{ApprovalSubject, Ctx, Failure, RunId, Timestamp};
use futures_util::future::{BoxFuture, Either};
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;

use crate::flow;
use crate::flow::lives::{died_at, life, stand};
use crate::flow::tools::Tell;
use crate::flow::world::{World, counted};
use crate::sim::{Looks, quick};

#[test]
fn an_error_that_was_handled_is_the_same_after_a_crash() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let told = ctx.send(RunId(5), "nobody", &1).await.map_err(|failure| failure.code);
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(u32::from(told == Err(FailureCode::Invalid)))
    });
    let run = died_at(&world, "stand", code.clone());
    let process = life(&world, code.clone());
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 1);
    process.shut_down();
}

#[test]
fn a_run_that_was_blocked_for_its_code_is_begun_again_by_a_retry() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let drawn = ctx.step("inexact", &1, |_| u64::MAX * u64::from(world.count("drawn") == 1)).await?;
        Ok::<_, Failure>(u32::try_from(drawn).unwrap() + 3)
    });
    let process = life(&world, code.clone());
    process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        let error = run.result().await.unwrap_err();
        let text = error.to_string();
        assert_eq!(text.matches(&run.id().to_string()).count(), 1, "it names the run once: {text}");
        assert!(text.contains("answered: ") && text.ends_with("[open_question]"), "{text}");
        let RunError::Blocked { message, .. } = error else { panic!("{error}") };
        assert!(message.contains("send it as a string"), "{message}");
        run.retry("ann", "mended").await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
    });
    process.shut_down();
}

#[test]
fn a_sleep_without_an_end_waits_for_ever() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        counted(&world, &ctx, "before", 1).await?;
        ctx.sleep(Duration::MAX).await?;
        counted(&world, &ctx, "after", 1).await
    });
    let mut process = life(&world, code.clone());
    let run = process.on(async { process.acme().run(code.clone(), ()).start().await.unwrap().id() });
    for _life in 1..=2 {
        process.on(process.state(run, "waiting"));
        let row = process.on(async { process.acme().handle::<u32>(run).status().await.unwrap() });
        assert!(
            matches!(row.state, RunState::Waiting { until: None, answer: false, signal: false }),
            "{row:?}"
        );
        process.crash();
        process = life(&world, code.clone());
    }
    process.on(async {
        let handle = process.acme().handle::<u32>(run);
        handle.cancel("ann", "long enough").await.unwrap();
        let RunError::Failed { failure, .. } = handle.result().await.unwrap_err() else { panic!() };
        assert_eq!(failure.code, FailureCode::Cancelled);
    });
    assert_eq!((world.counted("before"), world.counted("after")), (1, 0));
    process.shut_down();
}

#[test]
fn what_waits_beside_a_sleep_without_an_end_wins_after_a_crash() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let endless = ctx.sleep_until("endless", Timestamp::MAX);
        let won = ctx.select("first", ctx.signal::<u32>("said"), endless).await?;
        let Either::Left(said) = won else { return Err(Failure::new("the end of time has come")) };
        stand(&ctx, &world).await?;
        Ok(said? + ctx.timeout("limit", Duration::MAX, async { 1 }).await?.unwrap_or_default())
    });
    let process = life(&world, code.clone());
    let run = process.on(async { process.acme().run(code.clone(), ()).start().await.unwrap().id() });
    process.on(process.state(run, "waiting"));
    process.crash();
    let process = life(&world, code);
    process.on(async {
        let run = process.acme().handle::<u32>(run);
        run.signal("said", 6).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
    });
    process.shut_down();
}

/// Errors as somebody else's code has them: they know nothing of failures.
#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("the order cannot be read")]
    Unreadable(#[from] ParseIntError),
    #[error("the order cannot be written down")]
    Unwritable(#[from] PayloadError),
    #[error("the bank was asked in vain")]
    Declined(#[from] ToolError),
}

fn ordered(text: &str) -> Result<u32, OrderError> {
    match text {
        "huge" => Payload::of(&u64::MAX).map(|_| 0).map_err(OrderError::from),
        "declined" => Err(ToolError::new(ErrorKind::Validation, "no money left").into()),
        text => Ok(text.parse()?),
    }
}

/// The end of a run that passes the error on.
fn orders(text: &'static str) -> Result<u32, RunError> {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let quantity = ordered(text)?;
        counted(&world, &ctx, "ordered", quantity).await
    });
    let process = life(&world, code.clone());
    let ended = process.on(process.acme().run(code, ()));
    process.shut_down();
    ended
}

#[test]
fn an_error_of_any_kind_fails_its_run_with_its_text_and_its_causes() {
    let failure = |text| match orders(text) {
        Err(RunError::Failed { failure, .. }) => failure,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(orders("3").unwrap(), 4);
    let unreadable = failure("three");
    assert_eq!(unreadable.code, FailureCode::Workflow);
    assert_eq!(unreadable.message, "the order cannot be read: invalid digit found in string");
    let declined = failure("declined");
    assert_eq!((declined.code, &declined.detail["kind"]), (FailureCode::ToolFailed, &"validation".into()));
    assert_eq!(declined.message, "the bank was asked in vain: validation: no money left");
}

// What a new build can mend is not what the world said, in whatever error it comes: nothing is undone.
#[test]
fn an_error_that_rests_on_a_fault_of_the_code_blocks_its_run() {
    match orders("huge") {
        Err(RunError::Blocked { message, .. }) => {
            assert!(message.contains("the order cannot be written down: "), "{message}");
            assert!(message.contains("send it as a string"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

/// Something of another database.
fn elsewhere(_: &mut PgConnection) -> BoxFuture<'_, Result<u32, Failure>> {
    Box::pin(async { Ok(1) })
}

fn here(_: &mut SqliteConnection) -> BoxFuture<'_, Result<u32, Failure>> {
    Box::pin(async { Ok(2) })
}

#[test]
fn a_transaction_on_another_kind_of_connection_blocks_its_run_until_the_code_is_mended() {
    let world = World::new();
    let wrong = flow!(world, |ctx, _n: ()| {
        let handled = ctx.transaction("book", elsewhere).await;
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(handled.unwrap_or(0))
    });
    let mut process = life(&world, wrong.clone());
    let run = process.on(async { process.acme().run(wrong.clone(), ()).start().await.unwrap().id() });
    process.on(process.state(run, "blocked"));
    process.crash();
    process = life(&world, wrong);
    let asked = process.on(process.question(QuestionKind::Quarantined));
    assert!(asked.question.contains("transaction \"book\"") && asked.question.contains("another database"));
    process.shut_down();
    let mended = flow!(world, |ctx, _n: ()| {
        let booked = ctx.transaction("book", here).await;
        stand(&ctx, &world).await?;
        booked
    });
    let process = life(&world, mended);
    process.on(async {
        process.acme().answer(asked.id, Resolution::Resume, "ann").await.unwrap();
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 2);
    });
    process.shut_down();
}

#[test]
fn the_error_of_a_transaction_is_the_same_after_a_crash_even_if_its_detail_cannot_be_recorded() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let failed = ctx.transaction("book", |_: &mut SqliteConnection| {
            let times = world.count("tried");
            Box::pin(async move {
                Err::<u32, _>(
                    Failure::new(format!("try {times}")).detail(serde_json::json!({"id": u64::MAX})),
                )
            })
        });
        let failure = failed.await.unwrap_err();
        stand(&ctx, &world).await?;
        Err::<u32, _>(failure)
    });
    let run = died_at(&world, "stand", code.clone());
    let process = life(&world, code);
    let failed = process.on(async { process.acme().handle::<u32>(run).result().await.unwrap_err() });
    assert!(failed.to_string().contains("try 1"), "{failed}");
    assert_eq!(world.counted("tried"), 1);
    process.shut_down();
}

#[test]
fn an_approval_that_is_valid_for_ever_can_be_given() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let ask = ctx.approval(ApprovalSubject::of("notice", "granted"));
        let approval = ask.valid_for(Duration::MAX).expires_in(Duration::MAX).await?;
        ctx.call::<Tell>("granted".to_owned()).approved_by(&approval).await
    });
    let process = life(&world, code.clone());
    process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        process.until(async |acme| acme.reviews(None).await.unwrap().len() == 1).await;
        let review = process.acme().reviews(None).await.unwrap().remove(0);
        process.acme().decide(&review.id, review.version).approve("ann").await.unwrap();
        run.result().await.unwrap();
    });
    assert_eq!(world.effects("tell").len(), 1);
    process.shut_down();
}

/// Handles what fails, limits what has no limit, and goes on.
async fn handles(ctx: Ctx, what: String) -> Result<(), Failure> {
    let nobody = ctx.send(RunId(5), "nobody", &1).await;
    let called = ctx.timeout("limit", Duration::MAX, ctx.call::<Looks>(what)).await?;
    match (nobody, called) {
        (Err(_), Ok(Ok(_))) => Ok(()),
        (_, called) => Err(Failure::new(format!("{called:?}"))),
    }
}

#[test]
fn a_run_that_handles_its_errors_ends_wherever_it_is_crashed() {
    let simulation = Simulation::of(handles, "o1".to_owned())
        .engine(|engine, world| engine.tool(Looks(world.service("desk", Offer::Lookup))));
    quick(simulation).explore().assert_ok();
}
