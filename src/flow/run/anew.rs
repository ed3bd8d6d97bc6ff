//! A run that goes on as new, with another input.

use std::sync::Arc;

use super::end::End;
use crate::exec::ExecError;
use crate::flow::again::Mark;
use crate::flow::budget;
use crate::flow::command::TOLD;
use crate::flow::identity::{Identity, Kind};
use crate::flow::live::{Live, Stop};
use crate::flow::resume::{self, Asked};
use crate::flow::workflow::Body;
use crate::payload::{Payload, Stored};
use crate::store::{CANCEL, Change, StepKind};

/// Lets the run go on as new: from now on it has this input, and no records.
///
/// # Crash
/// The new input and the number under which its history begins are one transaction. Before that is durable the run
/// comes here again, from its records.
pub(super) async fn continued(live: &Arc<Live>, body: Body, input: Payload) -> End {
    match resume::unasked(live, resume::When::Continued).await {
        Ok(None) => {}
        Ok(Some(Stop::Block { kind, question, record, kept, detail })) => {
            return resume::block_on(live, Asked { record, kept, detail, ..Asked::of(kind, question) }).await;
        }
        Ok(Some(_)) => return End::Again,
        Err(error) => return End::Failed(error),
    }
    drop(body); // dropped by the run's own will: a call under way leaves its mark, and the engine finds out its outcome
    live.end();
    let dropped = live.has_dropped_call();
    let base = live.run().turn + 1;
    let change = match beginning(live, base, input) {
        Ok(change) => change,
        Err(error) => return End::Failed(error),
    };
    let ticket = live.change_run_with(change, |run| {
        (run.base, run.turn, run.deaths) = (base, base + 1, 0);
        run.unsettled |= dropped;
    });
    match live.written(ticket.durable().await) {
        Ok(()) => End::Again,
        Err(error) => End::Failed(error),
    }
}

/// The checkpoints with which the run begins anew under this number: its input, and what else it carries on.
fn beginning(live: &Live, base: u32, input: Payload) -> Result<Change, ExecError> {
    let core = &live.core;
    let (value, large) = core.storable(input);
    let identity = Identity { turn: base, kind: Kind::Step, name: "input".into(), id: "0".into() };
    let mut change = core.change(Some(live.lane)).step(live.step(&identity, StepKind::Input, None, value));
    change.payloads.extend(large.map(|payload| (live.tenant.clone(), payload)));
    // The decisions of retries and forks hold for everything that the run does from now on, too.
    let marks: Vec<_> =
        live.with_replay(|replay| replay.again.marks().iter().map(Mark::carried_on).collect());
    for (n, mark) in marks.into_iter().enumerate() {
        let identity = Identity { name: "again".into(), id: n.to_string(), ..identity.clone() };
        let mark = Stored::Inline(Payload::of(&mark)?);
        change.steps.push(live.step(&identity, StepKind::Again, None, mark));
    }
    // So does a cancellation that the run was told of.
    if let Some(command) = live.told_command() {
        let identity = Identity { name: CANCEL.into(), id: format!("{TOLD}{base}"), ..identity };
        change.steps.push(live.step(&identity, StepKind::Signal, None, command));
    }
    // From now on the records of what the run has done may expire.
    if let Some((spent, large)) = budget::carried_on(live)? {
        change.steps.push(spent);
        change.payloads.extend(large.map(|payload| (live.tenant.clone(), payload)));
    }
    Ok(change)
}
