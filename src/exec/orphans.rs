//! Calls that died with their process and that nobody will resume: a restart finds out what became of each, or
//! asks a person (invariants 7 and 8).

use std::sync::Arc;
use std::time::Duration;

use super::attempt::Ambiguous;
use super::carry::{Expect, carry_out};
use super::core::Core;
use super::fate::Fate;
use super::lasting::last;
use super::operation::{Gone, Operation};
use super::outcome::{ExecError, admitted, failed, refused};
use super::reconcile;
use super::recorded::{recorded, without_tool};
use super::request::Wait;
use super::{escalate, lookup};
use crate::id::{Name, RecordId, RunId, Tenant};
use crate::ledger::resolve::{Looked, Why};
use crate::ledger::{ErrorKind, Event, LookupOffer, Record, RecordedFailure, State, apply, pause_after};
use crate::store::{Refusal, Store as _, StoreError, Turns, Verdict};
use crate::tool::{RegisterError, Unprepared};

/// So many are read at once.
const PAGE: u32 = 1000;

/// Takes up all that earlier processes left behind, in the background.
pub(crate) async fn take_up_orphans(core: &Arc<Core>) -> Result<(), StoreError> {
    let mut after = RecordId(i64::MIN);
    loop {
        let orphans = core.group.record_orphans(after, PAGE).await?;
        let Some(last) = orphans.last() else { return Ok(()) };
        after = last.id;
        for record in orphans {
            in_background(core, record);
        }
    }
}

/// Makes a tool known that no builder could name, and takes up the calls that waited for it.
pub(super) fn meet(core: &Arc<Core>, tool: Arc<dyn Unprepared>) -> Result<(), RegisterError> {
    let name = tool.spec().name.clone();
    if core.registry.meet(tool)? {
        take_up_orphans_of(core, &name);
    }
    Ok(())
}

/// Takes up the calls that could not be looked up for want of this tool, in the background: the tool is here from now on.
fn take_up_orphans_of(core: &Arc<Core>, tool: &Name) {
    for (tenant, id) in core.toolless.take(tool) {
        let of = tenant.clone();
        let attempt = move |core: Arc<Core>| {
            let tenant = tenant.clone();
            async move {
                if let Some(record) = core.group.record_at(&tenant, id).await? {
                    in_background(&core, record);
                }
                Ok::<_, StoreError>(())
            }
        };
        core.until_stored(attempt, move |error: StoreError| {
            log_trouble!(error, tenant = %of, record = %id, "call not reconciled, next process does it");
        });
    }
}

/// Follows the calls that a run dropped and that outlive it: if one of them ends without an answer, a process that
/// lives on finds out what its restart would.
pub(crate) fn follow_dropped(core: &Arc<Core>, tenant: &Tenant, run: RunId) {
    let (tenant, of) = (tenant.clone(), tenant.clone());
    let attempt = move |core: Arc<Core>| {
        let tenant = tenant.clone();
        async move { follow(&core, &tenant, run).await }
    };
    core.until_stored(attempt, move |error: StoreError| {
        log_trouble!(error, tenant = %of, %run, "dropped calls not reconciled, next process does it");
    });
}

async fn follow(core: &Arc<Core>, tenant: &Tenant, run: RunId) -> Result<(), StoreError> {
    let started = started(core, tenant, run).await?;
    if started.is_empty() {
        return settled(core, tenant, run).await;
    }
    for record in started.into_iter().filter(|record| record.escalation.is_none()) {
        in_background(core, record);
    }
    Ok(())
}

async fn started(core: &Core, tenant: &Tenant, run: RunId) -> Result<Vec<Record>, StoreError> {
    let mut started = Vec::new();
    for call in core.group.run_history(tenant, run, Turns::ALL).await?.calls {
        if call.response.is_none() {
            let record = core.group.record_at(tenant, call.record).await?;
            started.extend(record.filter(|record| record.state == State::Started));
        }
    }
    Ok(started)
}

/// If none of a run's calls is started any more, no restart looks at them again.
async fn settled(core: &Core, tenant: &Tenant, run: RunId) -> Result<(), StoreError> {
    let Some(mut run) = core.group.run_find(tenant, run).await? else { return Ok(()) };
    // The row of a run that goes on is its own to write.
    if !run.unsettled || run.state.code() < 3 || !started(core, tenant, run.id).await?.is_empty() {
        return Ok(());
    }
    (run.unsettled, run.fence, run.updated_at) = (false, core.fence, core.now());
    run.revision += 1;
    // Refused if another of its calls ended at the same moment and wrote it first.
    core.group.commit_one(core.change(None).run(run)).await.map(drop)
}

/// Takes one up, in the background.
pub(super) fn in_background(core: &Arc<Core>, record: Record) {
    take_up_after(core, record, 0);
}

/// The same after so many looks that have shown nothing.
fn take_up_after(core: &Arc<Core>, record: Record, looks: u32) {
    let record = Arc::new(record);
    let left = record.clone();
    let attempt = move |core: Arc<Core>| {
        let record = record.clone();
        async move {
            let taking_up = || taken_up(&core, &record, looks);
            let ended = Box::pin(last(&Arc::downgrade(&core), "reconciliation", taking_up)).await;
            ended.unwrap_or(Ok(()))
        }
    };
    core.until_stored(attempt, move |error: ExecError| {
        log_record!(error, left, %error, "call not reconciled, next process does it");
    });
}

async fn taken_up(core: &Arc<Core>, record: &Record, looks: u32) -> Result<(), ExecError> {
    if let Some(pause) = take_up_or_inherit(core, record, looks).await? {
        later(core, record.clone(), looks + 1, pause);
        return Ok(());
    }
    let Some(run) = record.owner.run else { return Ok(()) };
    match settled(core, &record.tenant, run).await {
        Err(error) if !error.is_transient() => {
            log_trouble!(error, tenant = %record.tenant, %run, "run not marked as settled, next process does it");
            Ok(())
        }
        settled => settled.map_err(|source| failed(&record.key, source)),
    }
}

/// A request that was not there may arrive yet. Closing does not wait for that: the next process begins anew.
fn later(core: &Arc<Core>, record: Record, looks: u32, pause: Duration) {
    let (core, clock) = (Arc::downgrade(core), core.clock.clone());
    tokio::spawn(async move {
        clock.sleep(pause).await;
        if let Some(core) = core.upgrade().filter(|core| !core.is_closing()) {
            take_up_after(&core, record, looks);
        }
    });
}

async fn take_up_or_inherit(
    core: &Arc<Core>,
    record: &Record,
    looks: u32,
) -> Result<Option<Duration>, ExecError> {
    let pause = take_up(core, record, looks).await?;
    if record.escalation.is_some() && core.is_shared() {
        inherit(core, record).await?;
    }
    Ok(pause)
}

/// Takes a record whose question stays open over from a worker that has ended. Otherwise some work of that worker would
/// be left for ever, and all workers would take the question up again and again.
async fn inherit(core: &Core, record: &Record) -> Result<(), ExecError> {
    let read = |source| failed(&record.key, source);
    let Some(found) = core.group.record_at(&record.tenant, record.id).await.map_err(read)? else {
        return Ok(());
    };
    if found.fence == core.fence || core.is_anothers(found.fence).await.map_err(read)? {
        return Ok(());
    }
    let event = Event::Inherit { fence: core.fence };
    let Ok(mine) = apply(&found, event, core.fence, core.now()) else { return Ok(()) };
    match core.group.commit_one(core.change(None).record(mine)).await {
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(()), // another worker was faster, or the question was answered
        verdict => admitted(&record.key, verdict),
    }
}

/// Finds out what became of a started call whose process is gone or whose run is over, after so many looks that have shown nothing.
/// When the next one is to be made, if it is to be looked at again.
pub(super) async fn take_up(
    core: &Arc<Core>,
    record: &Record,
    looks: u32,
) -> Result<Option<Duration>, ExecError> {
    match recorded(core, record).await? {
        // Somebody wanted it done: it is carried to its end, as it would have been.
        Ok(op) if record.owner.run.is_none() && !op.tool.needs_caller() => {
            let op = Arc::new(op);
            let key = op.key.clone();
            let answered = carry_out(core, op, Expect::Anything, Wait::ForOutcome).await?;
            answered.durable(&key).await.map(|()| None)
        }
        // Its run dropped it, and is over; or its caller is gone with what it takes to send it.
        Ok(op) => Dropped { core, op: &op, looks }.settle().await,
        Err(gone @ Gone::Unregistered) => {
            let settled = Dropped { core, op: &without_tool(record, gone), looks }.settle().await?;
            core.toolless.note(record);
            if core.registry.known(record.operation.as_str()).is_some() {
                take_up_orphans_of(core, &record.operation); // the tool came meanwhile, and did not find this call
            }
            Ok(settled)
        }
        Err(gone) => Dropped { core, op: &without_tool(record, gone), looks }.settle().await,
    }
}

/// A started call that nobody wants done any more.
struct Dropped<'a> {
    core: &'a Arc<Core>,
    op: &'a Operation,
    /// The number of looks that have shown nothing.
    looks: u32,
}

impl Dropped<'_> {
    /// Finds out what became of a started call and sends nothing: nobody wants it done any more. If that cannot be
    /// found out without sending it again, a person is asked.
    async fn settle(self) -> Result<Option<Duration>, ExecError> {
        let Self { core, op, .. } = self;
        // Once it is adopted, its fence no longer tells when its sender ceased to send.
        let mut first_cut = None;
        let mut attempts = None;
        loop {
            // Whoever comes back with its key at this moment has it in hand, and does more than could be done here.
            let slot = core.in_flight.enter(&op.tenant, &op.key, Wait::ForOutcome, &*core.clock).await;
            let Some(record) = core.find(&op.tenant, &op.key).await? else { return Ok(None) };
            // Not as it was when it was dropped: it may have been sent once more before its sender saw that nobody waits.
            let taken_up = record.attempts != *attempts.get_or_insert(record.attempts);
            if record.state != State::Started || taken_up {
                return Ok(None); // settled, or taken up, by whoever had it in hand
            }
            if let Some(question) = record.escalation {
                if reconcile::unpark(core, op, &record, question).await? {
                    continue;
                }
                return Ok(None);
            }
            let cut = *first_cut.get_or_insert_with(|| core.ceased(&record));
            match reconcile::reconcile(core, op, Ambiguous::new(record, cut), || true).await? {
                Fate::Committed(_, ticket) => {
                    return admitted(&op.key, ticket.durable().await).map(|()| None);
                }
                Fate::Failed(_) | Fate::Parked(_) | Fate::Pending(_) | Fate::Send(_) => return Ok(None),
                Fate::Changed => {}
                Fate::Later(wait) => {
                    drop(slot);
                    core.clock.sleep(wait).await;
                }
                // It may still be on its way. Nobody is kept from the key while it settles.
                Fate::Left(record, Looked::MissedEarly) => {
                    drop(slot);
                    let bound = core.bound(op, &record).await?;
                    let contract = bound.contract(op);
                    core.clock.sleep(lookup::unsettled(core, contract, cut)).await;
                }
                Fate::Left(record, looked) => return self.unsent(&record, looked).await,
            }
        }
    }

    /// What becomes of a call that only another send could settle, and that nobody wants sent. When it is looked at again, if it is.
    async fn unsent(&self, record: &Record, looked: Looked) -> Result<Option<Duration>, ExecError> {
        let Self { core, op, looks } = *self;
        if !record.class.leaves_mark() {
            return self.given_up(record).await.map(|()| None);
        }
        let bound = core.bound(op, record).await?;
        let contract = bound.contract(op);
        if contract.sealed_with_effect {
            return Ok(None); // nothing happened: whoever asks again has it done
        }
        let why = match (looked, contract.lookup) {
            // It did not happen, as far as anybody knows. It stays `started`: should somebody want it after all, it is
            // looked up first, and after the send once more. A failed one would be sent without either. Until the horizon its
            // request may arrive.
            (Looked::MissedSettled, LookupOffer::Strong) => {
                log_call!(info, op, "dropped call: lookup found nothing");
                return Ok(pause_after(contract, looks));
            }
            (Looked::MissedSettled, _) => Why::LookupLags,
            (Looked::Unanswered, _) => Why::LookupUnanswered,
            _ => Why::Unwanted,
        };
        escalate::park(core, op, record, why.into()).await.map(|_| None)
    }

    /// A call that leaves no mark is over, whether it has run or not.
    async fn given_up(&self, record: &Record) -> Result<(), ExecError> {
        let Self { core, op, .. } = self;
        let failure = RecordedFailure {
            kind: ErrorKind::Unknown,
            message: "nobody waits for it any more".to_owned(),
            detail: serde_json::Value::Null,
        };
        let event = Event::Fail { failure, not_before: None };
        let failed =
            apply(record, event, core.fence, core.now()).map_err(|_| refused(&op.key, Refusal::Stale))?;
        core.commit(&op.key, core.change(None).record(failed)).await
    }
}
