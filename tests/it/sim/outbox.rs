//! The outbox in the simulator: wherever a process dies, no event is lost and none comes out of its order.

use counterfoil::ledger::Backoff;
use counterfoil::outbox::{self, NewEvent, Publisher};
use counterfoil::sim::{CrashPoint, Offer, Report, Simulation, truthful};
use counterfoil::{Ctx, Failure, Payload};
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::sim::Looks;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

/// Tells of an order, in the workflow and in a transaction of its own; two of one kind at once.
async fn order(ctx: Ctx, number: String) -> Result<(), Failure> {
    let aggregate = format!("order/{number}");
    ctx.emit(&aggregate, "placed", &number).await?;
    ctx.call::<Looks>(number.clone()).await?;
    let (tenant, about) = (ctx.tenant().clone(), aggregate.clone());
    ctx.transaction("pay", move |db: &mut SqliteConnection| {
        Box::pin(async move {
            db.execute("CREATE TABLE IF NOT EXISTS paid (number TEXT NOT NULL)").await.map_err(failed)?;
            db.execute("INSERT INTO paid VALUES ('1')").await.map_err(failed)?;
            let (id, kind, payload) = (format!("{about}/paid"), "paid".to_owned(), Payload::of(&1999)?);
            outbox::add(db, &tenant, NewEvent { id, aggregate: about, kind, payload }).await.map_err(failed)
        })
    })
    .await?;
    futures_util::try_join!(
        ctx.emit(&aggregate, ("packed", "a"), "a"),
        ctx.emit("warehouse", ("packed", "b"), "b"),
    )?;
    ctx.emit(&aggregate, "sent", &()).await
}

pub(crate) fn simulation() -> Simulation {
    Simulation::of(order, "17".to_owned())
        .with_run(Simulation::TENANT, "other", order, "18".to_owned())
        .engine(|engine, world| {
            let backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(20) };
            let publisher = Publisher::new(world.sink()).batch(3).tries(2).backoff(backoff);
            engine.tool(Looks(world.service("shop", Offer::Lookup))).sink(publisher)
        })
        .operator(truthful)
        .check("what is told is told of what happened", |end| {
            let told: BTreeSet<_> = end.published().into_iter().map(|event| event.id).collect();
            let kinds = end.published();
            let sent = kinds.iter().filter(|event| event.kind == "sent").map(|event| &event.aggregate);
            let sent = sent.collect::<BTreeSet<_>>().len();
            if end.succeeded() && end.questions().is_empty() && (sent, told.len()) != (2, 10) {
                return Err(format!("{sent} orders were sent, and {} events published", told.len()));
            }
            Ok(())
        })
}

fn assert_crossed(report: &Report) {
    for point in [
        CrashPoint::BeforePublish,
        CrashPoint::AfterPublish,
        CrashPoint::BeforePublished,
        CrashPoint::AfterPublished,
        CrashPoint::BeforeCheckpoint,
    ] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}: {report}");
    }
}

// GUARD-5, invariant 5: the event is there if its checkpoint is; what was published is marked, or published again.
#[test]
fn nothing_is_lost_wherever_it_is_crashed() {
    let report = crate::sim::quick(simulation()).explore();
    report.assert_ok();
    assert_crossed(&report);
}
