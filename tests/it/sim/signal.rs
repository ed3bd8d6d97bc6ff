//! Signals, children and commands in the simulator: whatever dies, each is received, begun and obeyed once.

use std::time::Duration;

use counterfoil::flow::{Child, SignalName};
use counterfoil::sim::{CrashPoint, Offer, Simulation};
use counterfoil::{Ctx, Failure};
use futures_util::future::{try_join, try_join_all};

use crate::sim::Looks;

/// Waits until it may, pays, and says what it paid.
async fn clerk(ctx: Ctx, invoice: String) -> Result<String, Failure> {
    let word: String = ctx.signal("go").await?;
    ctx.call::<Looks>(format!("{invoice} {word}")).await?;
    Ok(format!("{invoice} {word}"))
}

/// Has two clerks pay, and tells each what.
async fn office(ctx: Ctx, _order: String) -> Result<String, Failure> {
    let (one, two) = try_join(
        ctx.child(clerk, "A".to_owned()).id(1).start(),
        ctx.child(clerk, "B".to_owned()).id(2).start(),
    )
    .await?;
    ctx.send(one.id(), "go", "now").await?;
    ctx.send(two.id(), "go", "later").await?;
    let (one, two) = try_join(one.result(), two.result()).await?;
    Ok(format!("{one}, {two}"))
}

fn simulation() -> Simulation {
    Simulation::of(office, "order".to_owned())
        .engine(|engine, world| {
            engine.tool(Looks(world.service("bank", Offer::Lookup))).workflow("clerk", 1, clerk)
        })
        .check("each clerk paid once", |end| {
            end.exactly_once_if_succeeded("bank", "A now")?;
            end.exactly_once_if_succeeded("bank", "B later")
        })
}

// FLOW-4: a child is begun once, a signal received once, and no end of a child is lost, wherever a process dies.
#[test]
fn children_and_signals_survive_every_crash() {
    let report = simulation().single_crashes().random(200).explore();
    report.assert_ok();
    let missed = report.never_crossed();
    for point in [
        CrashPoint::BeforeSignal,
        CrashPoint::AfterSignal,
        CrashPoint::BeforeReceipt,
        CrashPoint::AfterReceipt,
    ] {
        assert!(!missed.contains(&point), "{} was not tried", point.name());
    }
}

const GO: SignalName<String> = SignalName::new("go");

/// Waits for a word that comes, and for one that does not.
async fn patient(ctx: Ctx, invoice: String) -> Result<String, Failure> {
    let cents = ctx.try_step("cents", &invoice, |invoice| invoice.len().try_into()).await;
    let cents: u8 = cents?;
    let word = ctx.signal(GO).timeout(Duration::from_hours(24 * 30)).await?;
    let nothing: Option<String> = ctx.signal("never sent").timeout(Duration::from_mins(1)).await?;
    let paid = format!("{invoice} {cents} {word:?} {nothing:?}");
    ctx.call::<Looks>(paid.clone()).await?;
    Ok(paid)
}

/// Has two of them pay, and waits for each for a while.
async fn desk(ctx: Ctx, _order: String) -> Result<String, Failure> {
    let children = ["A", "B"].map(|invoice| ctx.child(patient, invoice.to_owned()).id(invoice).start());
    let children = try_join_all(children).await?;
    ctx.send(children[0].id(), "go", "now").await?;
    let ended = try_join_all(children.iter().map(Child::result)).await?;
    let late = ctx.child(patient, "C".to_owned()).timeout(Duration::from_secs(5)).await?;
    Ok(format!("{} {late:?}", ended.join(", ")))
}

// A wait that has a limit comes to the same in every life: what was given up stays given up, and what was received stays received.
#[test]
fn waits_with_a_limit_come_to_the_same_after_every_crash() {
    let simulation = Simulation::of(desk, "order".to_owned())
        .engine(|engine, world| {
            engine.tool(Looks(world.service("bank", Offer::Lookup))).workflow("patient", 1, patient)
        })
        .check("each child paid once", |end| {
            end.exactly_once_if_succeeded("bank", "A 1 Some(\"now\") None")?;
            end.exactly_once_if_succeeded("bank", "B 1 None None")
        });
    simulation.single_crashes().random(100).explore().assert_ok();
}
