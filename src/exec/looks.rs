//! Looks at records: confirming lookups that are due, looks beside questions, and audits.
//!
//! A due look is postponed before it is made, so that a look that hangs is made again later and delays nothing else.
//! Looks that show the expected effect are written off together; their records are not written again.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::agenda::{More, Pages};
use super::asked;
use super::core::Core;
use super::escalate;
use super::lookup::{Copies, Seen, see};
use super::outcome::{ExecError, failed, unless_panicked};
use super::recorded::recorded;
use super::surplus;
use super::undo;
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::ledger::{Contract, Look, LookupOffer, Missing, Record, may_be_missing, removal_key};
use crate::store::{Store as _, StoreError};

/// The maximum number of looks that are made at once.
const AT_ONCE: u32 = 64;
/// The time after the horizon from which the wall clock is believed, however long this process has run; and the time after
/// which a tenant's keys do not come back.
const A_DAY: Duration = Duration::from_hours(24);

/// The result of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// Number of records that were looked up.
    pub looked: u64,
    /// Number of effects among them that the lookup does not show although it should. They are looked up once more, one
    /// settle time later, and a person is asked if they are missing again.
    pub missing: u64,
    /// Number of effects among them that happened more than once. The surplus is undone, or a person is asked.
    pub duplicated: u64,
    /// Number of lookups among them that had no answer. Audit again.
    pub unanswered: u64,
    /// Number of records that were not looked up, because a person has been asked about them before.
    pub asked_before: u64,
    /// Number of records that were not looked up, because their tool is not registered here or cannot read the stored
    /// request. Audit again where it can.
    pub without_tool: u64,
}

/// A look and its record.
struct Taken {
    look: Look,
    record: Box<Record>,
    contract: Contract,
    /// The rest of the settle time, if not all of it is certain to have passed since the sender ended.
    early: Option<Duration>,
}

/// Takes up the looks that are due.
pub(super) async fn take_up(core: &Arc<Core>, now: Timestamp) -> More {
    let (mut pages, mut last) = (Pages::default(), None::<Look>);
    loop {
        let looks = match core.group.look_due(now, last.as_ref(), AT_ONCE).await {
            Ok(looks) => looks,
            Err(error) => {
                log_trouble!(error, "due lookups not read, will retry");
                return More::No;
            }
        };
        let listed = looks.len();
        last = looks.last().cloned();
        if let ControlFlow::Break(more) = pages.next(listed, take_up_all(core, looks, now).await, AT_ONCE) {
            return more;
        }
    }
}

/// Takes up looks, and returns the number of those that are made.
async fn take_up_all(core: &Arc<Core>, looks: Vec<Look>, now: Timestamp) -> usize {
    let mut postponed = Vec::with_capacity(looks.len());
    for look in looks {
        match taken(core, look, now).await {
            Ok(Some(taken)) => {
                let change = core.change(None).look(taken.look.clone());
                postponed.push((taken, core.group.submit_with_room(change).await));
            }
            Ok(None) => {}
            Err(error) => log_trouble!(error, "due lookup not taken up, will retry"),
        }
    }
    let mut taken = Vec::with_capacity(postponed.len());
    for (one, ticket) in postponed {
        match ticket.durable().await {
            Ok(verdict) if verdict.is_admitted() => taken.push(one),
            Ok(_) => {} // another worker was faster
            Err(error) => {
                log_record!(debug, one.record, %error, "due lookup not postponed, will retry");
            }
        }
    }
    let made = taken.len();
    if !taken.is_empty() {
        let core = core.clone();
        core.tracker.clone().spawn(async move { make_all(&core, &taken).await });
    }
    made
}

/// The look, postponed, if this worker has to make it. The worker that sent a call also looks it up while it lives,
/// because only its clocks tell when the settle time is over.
async fn taken(core: &Core, look: Look, now: Timestamp) -> Result<Option<Taken>, StoreError> {
    let found = core.group.record_at(&look.tenant, look.record).await;
    if found.as_ref().is_err_and(StoreError::is_without_keys)
        && look.due_at.is_some_and(|at| at.until(now) >= A_DAY)
    {
        return give_up(core, &look).await.map(|()| None);
    }
    let Some(record) = found? else { return Ok(None) };
    let contract = core.contract_of(&record).await?;
    let early = if look.reason.is_beside_question() {
        // Nobody sends a call that a person is asked about, so any worker with its tool may look. The look stays due
        // until then.
        if core.registry.known(record.operation.as_str()).is_none() {
            return Ok(None);
        }
        None
    } else if core.is_anothers(record.fence).await? {
        return Ok(None);
    } else {
        early(core, &record, &look, &contract)
    };
    let look = look.taken_up(&contract, now);
    Ok(Some(Taken { look, record: Box::new(record), contract, early }))
}

/// Ends the look at a record whose tenant has had no key for a day. Its keys were dropped, and nobody can read the request
/// that would be looked up. The look would stop the tenant's erasure and its retention for ever. Keys that are missing by
/// mistake come back within the day, and then the look is made.
async fn give_up(core: &Core, look: &Look) -> Result<(), StoreError> {
    if core.group.commit_one(core.change(None).look(look.done())).await?.is_admitted() {
        tracing::warn!(tenant = %look.tenant, record = %look.record, "lookup given up: tenant has no key");
    }
    Ok(())
}

/// The rest of the pause before a look whose instant an earlier process has written by the wall clock. That clock may
/// have been set forward since; it is only certain that the sends came before this process. So this process waits for
/// the distance between the look and the one before it.
fn early(core: &Core, record: &Record, look: &Look, contract: &Contract) -> Option<Duration> {
    let (lived, distance) = (core.cut(record.fence).until(core.clock.boot()), look.distance(contract));
    // After a day the wall clock is believed all the same: where processes live shortly, no series of looks would end.
    let believed = look.since.until(core.now()) > contract.horizon() + A_DAY;
    let is_early = record.fence != core.fence && !look.was_tried() && lived < distance && !believed;
    is_early.then(|| distance.saturating_sub(lived))
}

/// Makes looks, and writes the next rows of those that show the expected effect together.
async fn make_all(core: &Arc<Core>, taken: &[Taken]) {
    let mut tickets = Vec::new();
    for next in join_all(taken.iter().map(|one| make(core, one))).await.into_iter().flatten() {
        let due_at = next.due_at;
        tickets.push((due_at, core.group.submit_with_room(core.change(None).look(next)).await));
    }
    for (due_at, ticket) in tickets {
        if ticket.durable().await.is_ok_and(|verdict| verdict.is_admitted())
            && let Some(at) = due_at
        {
            core.agenda.note(at);
        }
    }
}

/// Makes a look. Returns its next row if the look shows the expected effect or has to be repeated; the other cases are
/// dealt with here.
async fn make(core: &Arc<Core>, taken: &Taken) -> Option<Look> {
    // One look whose tool's code panics must not take the others with it, which are made together.
    let followed = unless_panicked(&taken.record.key, Box::pin(follow(core, taken))).await;
    followed.unwrap_or_else(|error| {
        log_record!(error, taken.record, %error, "lookup result not recorded, will retry");
        None
    })
}

async fn follow(core: &Arc<Core>, taken: &Taken) -> Result<Option<Look>, ExecError> {
    let Taken { look, record, contract, early } = taken;
    if look.reason.is_beside_question() {
        return asked::follow(core, look, record).await;
    }
    let op = recorded(core, record).await?;
    let seen = match &op {
        Ok(op) => see(core, op, record).await?,
        Err(_gone) => Seen::Unanswered, // its tool is not registered here, so nobody can be asked
    };
    let now = core.now();
    let as_it_should_be = || match early {
        Some(left) => look.too_early(*left, now),
        None => look.answered(contract, now),
    };
    match (seen, op) {
        (Seen::One, _) => Ok(Some(as_it_should_be())),
        (Seen::Nothing, _) if may_miss(core, record, contract, look.since).await? => {
            Ok(Some(as_it_should_be()))
        }
        (Seen::Nothing, _) => match look.missed(contract, now) {
            Missing::LookAgain(again) => Ok(Some(again)),
            Missing::Ask(done) if escalate::was_asked(core, record).await? => Ok(Some(done)),
            Missing::Ask(done) => escalate::missing(core, record, done).await.map(|()| None),
        },
        (Seen::More(copies), Ok(_)) => {
            // In a task of its own: an undoing takes time, and the other looks must not wait for it.
            let (core, record, done) = (core.clone(), record.clone(), look.done());
            core.tracker.clone().spawn(async move {
                let recording = more_than_one(&core, &record, Some(done), copies);
                if let Err(error) = unless_panicked(&record.key, recording).await {
                    log_record!(error, record, %error, "duplicate not recorded, will retry");
                }
            });
            Ok(None)
        }
        (Seen::Unanswered, _) if look.is_last_try(contract) => {
            escalate::unconfirmed(core, record, look.done()).await.map(|()| None)
        }
        (Seen::Unanswered | Seen::More(_), _) => Ok(None), // the look is due again
    }
}

/// Undoes the effects beyond the first one, or asks a person.
async fn more_than_one(
    core: &Arc<Core>,
    record: &Record,
    done: Option<Look>,
    copies: Copies,
) -> Result<(), ExecError> {
    if surplus::undoes(core, record, &copies.surplus) {
        return undo_surplus(core, record, done, copies).await;
    }
    let mut change = core.change(None).escalation(*copies.question);
    change.look = done.map(Box::new);
    core.commit(&record.key, change).await
}

/// Undoes the effects beyond the first one. The question about the duplicate is opened all the same, and answered, so
/// that no duplicate goes unlisted.
///
/// # Crash
/// The look stays due until all surplus effects are undone: it finds them again, and each compensation has a record.
async fn undo_surplus(
    core: &Arc<Core>,
    record: &Record,
    done: Option<Look>,
    Copies { mut question, surplus }: Copies,
) -> Result<(), ExecError> {
    let left = undo::undo_surplus(core, record, &surplus).await?;
    if !left.is_empty() {
        let _ = write!(question.question, " What is beyond the first was to be undone: {}.", left.join("; "));
    }
    let mut change = core.change(None).escalation((*question).clone());
    change.look = done.map(Box::new);
    core.commit(&record.key, change).await?;
    if left.is_empty() {
        let answered =
            escalate::settled(core, *question, serde_json::json!({ "undone": surplus::ids(&surplus) }));
        core.commit(&record.key, core.change(None).escalation(answered)).await?;
    }
    Ok(())
}

/// True if the lookup need not show the effect.
async fn may_miss(
    core: &Core,
    record: &Record,
    contract: &Contract,
    since: Timestamp,
) -> Result<bool, ExecError> {
    let mut removed = false;
    for key in contract.removed_by.iter().filter_map(|operation| removal_key(&record.key, operation)) {
        let found = core.group.record_removed(&record.tenant, &key, since).await;
        removed |= found.map_err(|source| failed(&record.key, source))?;
    }
    Ok(may_be_missing(record, contract, since.until(core.now()), removed))
}

/// Looks up a tenant's committed records once more that were written at `since` or later.
pub(super) async fn audit(core: &Arc<Core>, tenant: &Tenant, since: Timestamp) -> Result<Audit, ExecError> {
    let mut audit = Audit::default();
    let mut after = String::new();
    loop {
        let page = core.group.record_committed(tenant, since, &after, AT_ONCE).await;
        let page = page.map_err(|source| ExecError::Store { key: tenant.to_string(), source })?;
        let Some(last) = page.last() else { return Ok(audit) };
        last.key.as_str().clone_into(&mut after);
        for record in &page {
            audit_one(core, record, &mut audit).await?;
        }
    }
}

async fn audit_one(core: &Arc<Core>, record: &Record, audit: &mut Audit) -> Result<(), ExecError> {
    let contract = core.contract_of(record).await.map_err(|source| failed(&record.key, source))?;
    if contract.lookup == LookupOffer::None || !record.class.leaves_mark() {
        return Ok(());
    }
    if escalate::was_asked(core, record).await? {
        audit.asked_before += 1;
        return Ok(());
    }
    let Ok(op) = recorded(core, record).await? else {
        audit.without_tool += 1;
        return Ok(());
    };
    audit.looked += 1;
    match see(core, &op, record).await? {
        Seen::One => {}
        Seen::Unanswered => audit.unanswered += 1,
        Seen::More(copies) => {
            audit.duplicated += 1;
            let done = escalate::to_come(core, record).await?.map(|look| look.done());
            more_than_one(core, record, done, copies).await?;
        }
        Seen::Nothing if may_miss(core, record, &contract, record.updated_at).await? => {}
        Seen::Nothing => {
            audit.missing += 1;
            let now = core.now();
            let look = escalate::to_come(core, record).await?;
            let again = match look.map(|look| look.missed(&contract, now)) {
                None => Look::after_audit(record, &contract, now),
                Some(Missing::LookAgain(again)) => again,
                Some(Missing::Ask(_)) => return Ok(()), // a look at this record is due already
            };
            let at = again.due_at;
            core.commit(&op.key, core.change(None).look(again)).await?;
            if let Some(at) = at {
                core.agenda.note(at);
            }
        }
    }
    Ok(())
}
