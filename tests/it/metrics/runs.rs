//! The metrics of runs, queues, events and effects that are undone.

use std::time::Duration;

use counterfoil::ledger::{Backoff, Compensation};
use counterfoil::outbox::{Event, PublishResult, Publisher, Sink, SinkError};
use counterfoil::{Ctx, Failure, Queue};

use super::recorder::Recorded;
use crate::flow;
use crate::flow::compensation::{Book, Way};
use crate::flow::tools::Post;
use crate::flow::world::{Process, World};

#[test]
fn a_run_is_counted_from_its_start_to_its_end() {
    let (world, seen) = (World::new(), Recorded::default());
    let code = flow!(world, |ctx, input: String| {
        ctx.call::<Post>(input.clone()).await?;
        if input == "sold out" { Err(Failure::new("sold out")) } else { Ok(1_u32) }
    });
    let engine = world.engine().workflow("order", 1, code.clone()).metrics(seen.metrics());
    let process = Process::start(&world, engine);
    process.on(async {
        process.acme().run(code.clone(), "one".to_owned()).await.unwrap();
        process.acme().run(code.clone(), "sold out".to_owned()).await.unwrap_err();
    });
    seen.shows(&[
        ("counterfoil_runs_total{workflow=order,event=started}", 2.0),
        ("counterfoil_runs_total{workflow=order,event=succeeded}", 1.0),
        ("counterfoil_runs_total{workflow=order,event=failed}", 1.0),
        ("counterfoil_run_seconds{workflow=order,result=succeeded}", 1.0),
        ("counterfoil_run_seconds{workflow=order,result=failed}", 1.0),
        ("counterfoil_call_seconds{tool=post,basis=answer}", 2.0),
    ]);
    process.shut_down();
}

#[test]
fn tenants_are_told_apart_only_if_that_is_wanted() {
    for by_tenant in [false, true] {
        let (world, seen) = (World::new(), Recorded::default());
        let code = flow!(world, |ctx, input: String| ctx.call::<Post>(input).await);
        let metrics = if by_tenant { seen.metrics().by_tenant() } else { seen.metrics() };
        let process =
            Process::start(&world, world.engine().workflow("order", 1, code.clone()).metrics(metrics));
        process.on(process.acme().run(code, "one".to_owned())).unwrap();
        let tenant = if by_tenant { ",tenant=acme" } else { "" };
        let started = format!("counterfoil_runs_total{{workflow=order,event=started{tenant}}}");
        seen.shows(&[(&started, 1.0)]);
        process.shut_down();
    }
}

#[test]
fn an_effect_that_is_undone_is_counted() {
    async fn trip(ctx: Ctx, (): ()) -> Result<u32, Failure> {
        ctx.call::<Book>("train".to_owned()).await?;
        ctx.call::<Book>("sold out".to_owned()).await
    }
    let (world, seen) = (World::new(), Recorded::default());
    let book = Book(world.clone(), Way::by(Compensation::Automatic));
    let engine = world.engine().tool(book).workflow("trip", 1, trip).metrics(seen.metrics());
    let process = Process::start(&world, engine);
    process.on(process.acme().run(trip, ())).unwrap_err();
    seen.shows(&[("counterfoil_compensations_total{tool=book,result=whole}", 1.0)]);
    process.shut_down();
}

#[test]
fn the_runs_of_a_queue_show_as_waiting_and_as_running() {
    let (world, seen) = (World::new(), Recorded::default());
    let code = flow!(world, |_ctx, input: u32| {
        world.pass("work").await;
        Ok::<_, Failure>(input)
    });
    let engine = world.engine().workflow("work", 1, code.clone()).queue(Queue::new("mail").concurrency(1));
    let process = Process::start(&world, engine.metrics(seen.metrics()));
    world.hold("work");
    process.on(async {
        let mut runs = Vec::new();
        for n in 0..3 {
            runs.push(process.acme().run(code.clone(), n).queue("mail").start().await.unwrap());
        }
        seen.until("counterfoil_queue_runs{queue=mail,state=queued}", |runs| runs == 2.0).await;
        seen.until("counterfoil_queue_runs{queue=mail,state=running}", |runs| runs == 1.0).await;
        world.release("work");
        for run in runs {
            run.result().await.unwrap();
        }
        seen.until("counterfoil_queue_runs{queue=mail,state=queued}", |runs| runs == 0.0).await;
        seen.until("counterfoil_queue_runs{queue=mail,state=running}", |runs| runs == 0.0).await;
    });
    process.shut_down();
}

/// Takes what is good.
struct Picky;

impl Sink for Picky {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        let bad = batch.iter().enumerate().filter(|(_, event)| event.kind == "bad");
        Ok(bad.fold(PublishResult::all(), |taken, (place, _)| taken.except(place, SinkError::refused("422"))))
    }
}

#[test]
fn the_events_of_the_outbox_are_counted_by_what_the_sink_makes_of_them() {
    async fn tells(ctx: Ctx, kind: String) -> Result<(), Failure> {
        ctx.emit(&kind, &kind, &1).await
    }
    let (world, seen) = (World::new(), Recorded::default());
    let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(1) };
    let sink = Publisher::new(Picky).backoff(backoff).tries(2);
    let engine = world.engine().workflow("tells", 1, tells).sink(sink).metrics(seen.metrics());
    let process = Process::start(&world, engine);
    process.on(async {
        process.acme().run(tells, "good".to_owned()).await.unwrap();
        process.acme().run(tells, "bad".to_owned()).await.unwrap();
        seen.until("counterfoil_events_total{result=set aside}", |events| events == 1.0).await;
        seen.until("counterfoil_events_total{result=taken}", |events| events == 1.0).await;
    });
    seen.shows(&[("counterfoil_events_total{result=not taken}", 2.0)]);
    process.shut_down();
}
