//! Signals, children and commands in the simulator: whatever dies, each is received, begun and obeyed once.

use counterfoil::sim::{CrashPoint, Offer, Simulation};
use counterfoil::{Ctx, Failure};
use futures_util::future::try_join;

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
