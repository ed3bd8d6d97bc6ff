//! The child's side of `boundaries`: a day of an office, which crosses every durable boundary of the flow layer. The
//! office has a clerk as its child, in a queue, and tells it by signals whom to write to; the clerk writes one notice a
//! turn. A manager pauses the office, lets it go on and tells it to close. A schedule sends a bulletin at each tick.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{FailureCode, RunError, RunHandle, RunState, RunStatus, Sent, TenantClient};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Ctx, Engine, Failure, Queue, Turn};
use serde::{Deserialize, Serialize};

use crate::harness::Failed;
use crate::harness::case_notice::classes::{Class, SendLookup};
use crate::harness::case_notice::{Case, Receipt, approve, draft};
use crate::harness::role::{Ended, Lived, Message, Order, Report, TENANT, say};

/// The provider ignores keys and can be asked: nothing there stands between a second send and a duplicate.
pub(crate) const CLASS: Class = Class::Lookup;
/// Whom the office writes to, in this order; to the last one only when it is told to close.
pub(crate) const PEOPLE: [&str; 3] = ["ann", "bob", "cleo"];
/// What a life says when the pause that it asked for is a new one, and when it has ended it.
pub(crate) const PAUSED: &str = "paused";
pub(crate) const WENT_ON: &str = "went on";

/// One works at a time, and whoever waits makes room.
const DESK: &str = "desk";
const BULLETIN: &str = "bulletin";
const TICK: Duration = Duration::from_millis(100);
/// So often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(5);

/// What only this program can be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Own {
    /// One life of the process in which the office has its day; the order's case is the office's name.
    Day(Order),
}

/// What is written to somebody, or at a tick.
pub(crate) fn case(office: &str, about: &str) -> Case {
    let finding = "we are open".to_owned();
    Case { id: format!("{office}-{about}"), recipient: "ann".to_owned(), finding }
}

async fn office(ctx: Ctx, name: String) -> Result<Vec<String>, Failure> {
    let clerk = ctx.child(clerk, name).queue(DESK).start().await?;
    for person in &PEOPLE[..2] {
        ctx.send(clerk.id(), ("letter", person), person).await?;
    }
    let last: String = ctx.signal("closing").await?;
    ctx.send(clerk.id(), ("letter", &last), &last).await?;
    clerk.result().await
}

async fn clerk(ctx: Ctx, office: String) -> Result<Vec<String>, Failure> {
    let writing = ctx.turns("letters", Vec::new(), |mut written: Vec<String>, ctx: Ctx| {
        let office = office.clone();
        async move {
            let person: String = ctx.signal("letter").await?;
            send(&ctx, case(&office, &person)).await?;
            written.push(person);
            Ok(if written.len() < PEOPLE.len() { Turn::Next(written) } else { Turn::Done(written) })
        }
    });
    writing.await
}

async fn bulletin(ctx: Ctx, office: String) -> Result<Receipt, Failure> {
    let tick =
        ctx.tick().ok_or_else(|| Failure::coded(FailureCode::Invalid, "nothing but a tick begins it"))?;
    send(&ctx, case(&office, &tick.at.0.to_string())).await
}

async fn send(ctx: &Ctx, case: Case) -> Result<Receipt, Failure> {
    let notice = ctx.step("draft", &case, draft).await?;
    let approval = ctx.step("approve", &notice, approve).await??;
    ctx.call::<SendLookup>(notice).approved_by(&approval).await
}

pub(crate) async fn play(own: Own) -> Result<i32, Failed> {
    let Own::Day(order) = own;
    let watch = Arc::new(Lived::new(order.kill()?));
    let engine = Engine::sqlite(&order.ledger)
        .queue(Queue::new(DESK).concurrency(1).free_while_waiting())
        .workflow("office", 1, office)
        .workflow("clerk", 1, clerk)
        .workflow("bulletin", 1, bulletin)
        .tool(SendLookup { provider: order.client()? })
        .watch(watch.clone());
    let engine = engine.start().await?;
    let tenant = engine.tenant(TENANT)?;
    day(&tenant, &order.case).await?;
    let questions = tenant.questions().await?.iter().map(|question| question.kind).collect();
    engine.shutdown(order.drain).await;
    let (crossed, taken_over_after) = watch.told();
    let report = Report { ended: Ended::Succeeded, record: None, questions, crossed, taken_over_after };
    say(&Message::Lived(report))?;
    Ok(0)
}

/// The same in each life: what an earlier one has done is found.
async fn day(tenant: &TenantClient, name: &str) -> Result<(), Failed> {
    let office = tenant.run(office, name.to_owned()).key("day").start().await?;
    tenant.schedule(BULLETIN).every(TICK).queue(DESK).run(bulletin, name.to_owned()).await?;
    lunch(&office).await?;
    while tenant.schedule(BULLETIN).status().await?.last.is_none() {
        SystemClock.sleep(LOOK).await;
    }
    tenant.schedule(BULLETIN).pause().await?; // from here on there are no more runs than there are
    while tenant.runs(None).await?.iter().any(is_at_work) {
        SystemClock.sleep(LOOK).await;
    }
    unless_over(office.signal("closing", PEOPLE[2]).id("closing").await)?;
    while let Err(error) = office.result().await {
        match error {
            RunError::Blocked { .. } => resume(&office).await?, // an earlier life has paused it and got no further
            error => return Err(error.into()),
        }
    }
    for run in tenant.runs(None).await?.iter().filter(|run| !run.state.is_final()) {
        tenant.handle::<Receipt>(run.id).result().await?; // a bulletin whose call's outcome is being found out
    }
    Ok(())
}

/// The manager pauses the office and lets it go on.
async fn lunch(office: &RunHandle<Vec<String>>) -> Result<(), Failed> {
    let paused = unless_over(office.pause("manager", "lunch").key("lunch").await)?;
    if paused == Some(Sent::New) {
        say(&Message::Told(PAUSED.to_owned()))?;
        // It does not end before it is told to, so this is the pause.
        if let Err(RunError::Blocked { .. }) = office.result().await {
            resume(office).await?;
        }
    }
    Ok(())
}

async fn resume(office: &RunHandle<Vec<String>>) -> Result<(), Failed> {
    office.resume("manager", "back to work").await?;
    say(&Message::Told(WENT_ON.to_owned()))
}

/// Not yet a row that waits, or is over.
fn is_at_work(run: &RunStatus) -> bool {
    matches!(run.state, RunState::Queued | RunState::Active)
}

/// What became of something that was said to a run; nothing if the run has ended.
fn unless_over(sent: Result<Sent, RunError>) -> Result<Option<Sent>, RunError> {
    match sent {
        Err(RunError::Over { .. }) => Ok(None),
        sent => sent.map(Some),
    }
}
