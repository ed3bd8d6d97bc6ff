//! What the random programs have found, each as small as it was made.

use std::time::Duration;

use counterfoil::flow::Failure;
use counterfoil::sim::{Offer, Simulation};
use counterfoil::{Ctx, Turn};
use futures_util::future::{BoxFuture, Either, try_join};

use crate::sim::{Looks, Rejects};

const HOUR: Duration = Duration::from_hours(1);

async fn pays(ctx: Ctx, invoice: String) -> Result<String, Failure> {
    ctx.call::<Looks>(invoice.clone()).await?;
    Ok(invoice)
}

/// Waits for a word, but not for ever.
async fn listens(ctx: Ctx, _: u32) -> Result<String, Failure> {
    let word = ctx.timeout("word", HOUR, ctx.signal::<String>("word")).await?;
    word.unwrap_or_else(|_| Ok("nothing".to_owned()))
}

fn of<I, O, W>(workflow: W, input: I) -> Simulation
where
    W: counterfoil::flow::WorkflowFn<I, O> + Clone,
    I: serde::Serialize + serde::de::DeserializeOwned + Clone + Send + Sync + 'static,
    O: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    Simulation::of(workflow, input).engine(|engine, world| {
        let engine = engine.tool(Looks(world.service("bank", Offer::Lookup)));
        let engine = engine.tool(Rejects(world.service("post", Offer::RejectsKey)));
        engine.workflow("pays", 1, pays).workflow("listens", 1, listens)
    })
}

// The row of the child that lost was durable, and it had no task: it was carried out by the next process, if ever.
#[test]
fn a_child_whose_start_loses_a_select_is_carried_out() {
    async fn hasty(ctx: Ctx, (): ()) -> Result<String, Failure> {
        let begin = |which: &str| ctx.child(pays, which.to_owned()).id(which).start();
        let both: Vec<BoxFuture<'_, _>> = vec![Box::pin(begin("one")), Box::pin(begin("two"))];
        let (_, first) = ctx.select_all("first", both).await?;
        first?.result().await
    }
    // That no run is left lying is an invariant.
    of(hasty, ()).single_crashes().explore().assert_ok();
}

// The signal that lost was durable, and its receiver was not told.
#[test]
fn who_is_sent_a_signal_that_loses_a_select_is_told() {
    async fn hasty(ctx: Ctx, (): ()) -> Result<[String; 2], Failure> {
        let begin = |id| ctx.child(listens, id).id(id).start();
        let (one, two) = try_join(begin(1), begin(2)).await?;
        let sent =
            ctx.select("sent", ctx.send(one.id(), ("word", 1), "go"), ctx.send(two.id(), ("word", 2), "go"));
        assert!(matches!(sent.await?, Either::Left(_)), "both are one transaction, and the first wins");
        let (one, two) = try_join(one.result(), two.result()).await?;
        Ok([one, two])
    }
    let simulation = of(hasty, ()).check("both were told", |end| match end.results()[0].as_ref() {
        Some(told) if *told != serde_json::json!(["go", "go"]) => Err(told.to_string()),
        _ => Ok(()),
    });
    let replay = simulation.replay(&counterfoil::sim::Schedule::default());
    assert_eq!(replay.violations, [], "{}", replay.timeline());
}

// Written, its answer lost, written again by the queue and refused: the child had its row, and no task.
#[test]
fn a_child_is_carried_out_whose_start_seemed_to_fail() {
    async fn turns(ctx: Ctx, (): ()) -> Result<String, Failure> {
        let last = ctx.turns("loop", 1, |n: u32, ctx: Ctx| async move {
            ctx.call::<Looks>(format!("turn {n}")).await?;
            Ok(if n == 2 { Turn::Done(n) } else { Turn::Next(n + 1) })
        });
        let last = last.await?;
        ctx.child(pays, format!("after {last}")).await
    }
    let report = of(turns, ())
        .check("it is paid once", |end| end.exactly_once_if_succeeded("bank", "after 2"))
        .check("it ends", |end| {
            let waits = |run: &counterfoil::store::Run| !run.state.is_final() && end.questions().is_empty();
            end.rows().iter().find(|run| waits(run)).map_or(Ok(()), |run| Err(format!("{:?}", run.state)))
        })
        .single_crashes()
        .random(100)
        .explore();
    report.assert_ok();
}

// The effect was the first turn's: resumed in the second one, the run took its call for a new one, and the call behind it,
// which had begun, for one that is not asked for any more.
#[test]
fn a_call_that_an_earlier_turn_made_is_known_in_a_later_one() {
    async fn turns(ctx: Ctx, (): ()) -> Result<u32, Failure> {
        let last = ctx.turns("loop", 1, |n: u32, ctx: Ctx| async move {
            ctx.call::<Rejects>("shared".to_owned()).await?;
            ctx.call::<Looks>(format!("turn {n}")).await?;
            Ok(if n == 2 { Turn::Done(n) } else { Turn::Next(n + 1) })
        });
        let last = last.await?;
        ctx.call::<Looks>("turn 1".to_owned()).await?; // known outside of the loop, too
        ctx.call::<Looks>("end".to_owned()).await?;
        Ok(last)
    }
    let report = of(turns, ())
        .check("nothing is asked", |end| match end.questions().as_slice() {
            [first, ..] if first.question.contains("does not ask for it") => Err(first.question.clone()),
            _ => Ok(()),
        })
        .single_crashes()
        .explore();
    report.assert_ok();
}
