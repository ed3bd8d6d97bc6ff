//! Retention: records, runs, signals and messages are retired when their time is over, a few at a time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::core::Core;
use super::operation::Operation;
use super::outcome::{ExecError, admitted};
use crate::clock::{SharedClock, Timestamp};
use crate::id::{Name, Tenant};
use crate::ledger::{Record, Retention, RetentionMode, State};
use crate::payload::DigestKey;
use crate::store::{Change, ExpiredSignal, Refusal, Retired, RetiredRun, Store as _, StoreError, Verdict};
use crate::tool::{ToolSpec, compensation_key};

/// The number of rows that are retired in one transaction. Other writes wait while it runs.
const AT_ONCE: u32 = 16;
/// The pause after a transaction, as a multiple of the time that it took.
const REST: u32 = 4;
/// The longest interval between sweeps while operations are being started: this, or the shortest retention if that is
/// less.
const OFTEN: Duration = Duration::from_hours(1);
const AT_MOST: Duration = Duration::from_secs(1);

/// The retention of each workflow's runs, counted from their end.
type Kept = Vec<(Name, Retention)>;

impl Core {
    /// Begins the sweeper, which retires records, runs and messages, unless it is switched off. Logs the retentions.
    pub(crate) fn begin_sweeping(self: &Arc<Self>, sweeps: bool, runs: Kept) {
        if !sweeps {
            tracing::info!("retention off, records and runs are kept for ever");
            return;
        }
        let kept = |spec: &&ToolSpec| format!("{}: {}", spec.name, spec.retention);
        let tools: Vec<_> = self.registry.specs().iter().map(kept).collect();
        let workflows: Vec<_> = runs.iter().map(|(name, kept)| format!("{name}: {kept}")).collect();
        let (tools, workflows) = (tools.join("; "), workflows.join("; "));
        tracing::info!(tools, workflows, "retention on");
        self.lasting("sweeper", move |core| sweep(core, runs.clone()));
    }
}

/// Retires all expired rows, until this worker ends. Several workers may do so: a row that one has retired is not there
/// for the others.
///
/// # Crash
/// A row that was not retired is found again.
async fn sweep(weak: Weak<Core>, runs: Kept) {
    while let Some(core) = weak.upgrade() {
        let mut next = match sweep_all(&core, &runs).await {
            Ok(next) => next,
            Err(Stop::Fenced) => return,
            Err(Stop::Failed(error)) => {
                log_trouble!(error, "expired records not retired, will retry");
                None
            }
        };
        if core.is_closing() {
            return;
        }
        let (clocks, begun, often) = (Clocks::of(&core), core.begun.clone(), often(&core, &runs));
        drop(core); // or this worker would live as long as its records
        let mut is_soon = false; // or each call would wake this task
        loop {
            let sleep = next.map(|at| clocks.ours.sleep(clocks.now().until(at)));
            tokio::select! {
                biased; // no random choice, so that a simulation is repeatable
                () = async { if let Some(sleep) = sleep { sleep.await } }, if next.is_some() => break,
                () = begun.notified(), if !is_soon => {}
            }
            if weak.strong_count() == 0 {
                return;
            }
            // A row that began meanwhile may expire sooner, and one that ended meanwhile may be retired.
            let look = clocks.now().after(often);
            next = Some(next.map_or(look, |next| next.min(look)));
            is_soon = true;
        }
    }
}

/// The clocks by which retention is counted. A clock that runs ahead would make keys new before their time; in a shared
/// store both the database's and this machine's would have to.
struct Clocks {
    ours: SharedClock,
    machine: SharedClock,
}

impl Clocks {
    fn of(core: &Core) -> Self {
        Self { ours: core.clock.clone(), machine: core.machine().clone() }
    }

    fn now(&self) -> Timestamp {
        self.ours.now().min(self.machine.now())
    }
}

fn often(core: &Core, runs: &Kept) -> Duration {
    let registered = core.registry.specs().into_iter().map(|spec| spec.retention.keep_for);
    let met = core.registry.met_specs().into_iter().map(|spec| spec.retention.keep_for);
    let runs = runs.iter().map(|(_, retention)| retention.keep_for);
    let messages = core.consumers.all().into_iter().map(|(_, retention)| retention.keep_for);
    registered.chain(met).chain(runs).chain(messages).min().unwrap_or(OFTEN).clamp(AT_MOST, OFTEN)
}

enum Stop {
    /// Another worker has taken over.
    Fenced,
    Failed(ExecError),
}

/// Retires all rows that have expired by now. Returns the instant at which the next one expires, if there is one.
async fn sweep_all(core: &Core, runs: &Kept) -> Result<Option<Timestamp>, Stop> {
    let records = sweep_records(core).await?;
    let mut next = records.into_iter().chain(sweep_runs(core, runs).await?).min();
    next = next.into_iter().chain(sweep_signals(core, runs).await?).min();
    for (consumer, retention) in core.consumers.all() {
        let over = sweep_messages(core, &consumer, retention).await?;
        next = next.into_iter().chain(over).min();
    }
    Ok(next)
}

async fn sweep_records(core: &Core) -> Result<Option<Timestamp>, Stop> {
    let now = Clocks::of(core).now();
    let mut after = Timestamp::MIN;
    loop {
        let page = core.group.record_expired(after, now, AT_ONCE).await.map_err(failed)?;
        let Some(last) = page.last() else {
            return core.group.record_expiring(now).await.map_err(failed);
        };
        after = last.kept_until.unwrap_or(after);
        write(core, retire(core, &page, now).await?).await?;
    }
}

/// Retires runs. A child goes after its parent, whose workflow may come later in the list. So once any run has gone,
/// all workflows are looked at again; otherwise the child would stay until another event wakes the sweeper.
async fn sweep_runs(core: &Core, runs: &Kept) -> Result<Option<Timestamp>, Stop> {
    loop {
        let (mut next, mut have_gone) = (None, false);
        for (workflow, retention) in runs {
            let (over, gone) = sweep_workflow(core, workflow, *retention).await?;
            next = next.into_iter().chain(over).min();
            have_gone |= gone;
        }
        if !have_gone {
            return Ok(next);
        }
    }
}

/// Retires the runs of a workflow. The flag is true if any have gone. A page is listed again if only part of a long run
/// has gone.
async fn sweep_workflow(
    core: &Core,
    workflow: &Name,
    retention: Retention,
) -> Result<(Option<Timestamp>, bool), Stop> {
    if retention.mode == RetentionMode::Keep {
        return Ok((None, false));
    }
    let ended_by = Clocks::of(core).now().before(retention.keep_for);
    let (mut after, mut gone) = (Timestamp::MIN, false);
    loop {
        let page = core.group.run_over(workflow.as_str(), after, ended_by, AT_ONCE).await.map_err(failed)?;
        let Some(last) = page.last() else {
            let next = core.group.run_over_next(workflow.as_str(), ended_by).await.map_err(failed)?;
            return Ok((next.map(|ended| ended.after(retention.keep_for)), gone));
        };
        after = last.updated_at;
        let mut change = Change { beside: true, ..core.change(None) };
        for run in &page {
            let key = digest_key(core, &run.tenant).await?;
            tracing::debug!(tenant = %run.tenant, run = %run.id, "run expired");
            change.retired_runs.extend(RetiredRun::of(run, retention.mode == RetentionMode::Tombstone, &key));
        }
        write(core, change).await?;
        gone = true;
    }
}

/// Retires the signals that living runs have received. A digest and the id are left in each mode but `keep`.
async fn sweep_signals(core: &Core, runs: &Kept) -> Result<Option<Timestamp>, Stop> {
    let mut next = None;
    for (workflow, retention) in runs.iter().filter(|(_, retention)| retention.mode != RetentionMode::Keep) {
        let sent_by = Clocks::of(core).now().before(retention.keep_for);
        let mut after = Timestamp::MIN;
        loop {
            let page =
                core.group.signal_over(workflow.as_str(), after, sent_by, AT_ONCE).await.map_err(failed)?;
            let Some(last) = page.last() else { break };
            after = last.at;
            let mut change = Change { beside: true, ..core.change(None) };
            for signal in page {
                let key = digest_key(core, &signal.tenant).await?;
                tracing::debug!(tenant = %signal.tenant, run = %signal.run, name = signal.name, "signal expired");
                change.expired_signals.push(ExpiredSignal::of(signal, &key));
            }
            write(core, change).await?;
        }
        let first =
            core.group.signal_over(workflow.as_str(), after, Timestamp::MAX, 1).await.map_err(failed)?;
        next = next.into_iter().chain(first.first().map(|signal| signal.at.after(retention.keep_for))).min();
    }
    Ok(next)
}

/// Retires the processed messages of a consumer.
async fn sweep_messages(
    core: &Core,
    consumer: &str,
    retention: Retention,
) -> Result<Option<Timestamp>, Stop> {
    let Some(database) = core.database.as_deref().filter(|_| retention.mode != RetentionMode::Keep) else {
        return Ok(None);
    };
    let is_left = retention.mode == RetentionMode::Tombstone;
    let processed_by = Clocks::of(core).now().before(retention.keep_for);
    loop {
        let began = core.clock.boot();
        if !database.inbox_retire(consumer, processed_by, is_left).await.map_err(failed)? {
            let next = database.inbox_next_over(consumer, processed_by, is_left).await.map_err(failed)?;
            return Ok(next.map(|at| at.after(retention.keep_for)));
        }
        core.clock.sleep(began.until(core.clock.boot()) * REST).await;
    }
}

/// Writes past the queue, where this change and other writes would wait for each other.
async fn write(core: &Core, change: Change) -> Result<(), Stop> {
    let began = core.clock.boot();
    match core.group.store().commit(&[change]).await.map_err(failed)?.as_slice() {
        [Verdict::Refused(Refusal::Fenced)] => return Err(Stop::Fenced),
        [Verdict::Refused(refusal)] => {
            return Err(failed(StoreError::Io { detail: refusal.to_string() }));
        }
        _ => {}
    }
    core.clock.sleep(began.until(core.clock.boot()) * REST).await;
    Ok(())
}

/// The key for the digests that are left of what a tenant's rows said. A tenant whose keys for encryption were dropped gets
/// a key of chance: nobody can compare with its rows any more, and the rows of other tenants must not wait for them.
async fn digest_key(core: &Core, tenant: &Tenant) -> Result<DigestKey, Stop> {
    match core.tenant_key(tenant).await {
        Err(ExecError::Store { source: StoreError::NoKey { .. }, .. }) => Ok(core.new_digest_key()),
        key => key.map_err(Stop::Failed),
    }
}

/// The change that retires these records, with the tombstones that are left.
async fn retire(core: &Core, page: &[Record], now: Timestamp) -> Result<Change, Stop> {
    let mut change = Change { beside: true, ..core.change(None) };
    for record in page {
        let key = digest_key(core, &record.tenant).await?;
        let tool = core.registry.known(record.operation.as_str());
        // For a tool that is not registered it is unknown if its keys may be taken for new.
        let (retention, horizon) = tool.as_ref().map_or_else(Default::default, |tool| {
            let spec = tool.spec();
            // Nothing is retired inside a key's window: the provider answers for the key, and the record for the first
            // answer.
            (spec.retention, spec.retry.horizon().max(spec.contract.key_window.unwrap_or_default()))
        });
        let mut left = retention.left(record, horizon, &key, now);
        if left.is_none() && tool.is_some_and(|tool| tool.spec().compensation.is_some()) {
            left = kept_beside_compensation(core, record, retention.keep_for, now).await?;
        }
        log_record!(debug, record, left = left.is_some(), "record expired");
        change.retired.push(Retired::of(record, left));
    }
    Ok(change)
}

/// A record whose key would count as new, kept for longer because the record of its compensation is there. `None` if
/// there is no such record.
///
/// The key of a compensation is made of the tool and the key of the call. An undoing of a later call under the forgotten
/// key would be answered from the record of the earlier undoing, and nothing would be sent.
async fn kept_beside_compensation(
    core: &Core,
    record: &Record,
    window: Duration,
    now: Timestamp,
) -> Result<Option<Record>, Stop> {
    let Some(key) = compensation_key(record) else { return Ok(None) };
    let undoing = core.find(&record.tenant, &key).await.map_err(Stop::Failed)?;
    Ok(undoing.map(|undoing| {
        let until = match undoing.kept_until {
            Some(over) if over > now => over.after(AT_MOST),
            // Its time is over: it goes with this sweep, or is needed for longer.
            _ => now.after(window.clamp(AT_MOST, OFTEN)),
        };
        Retention::kept(record, until)
    }))
}

/// Removes a settled record that no longer binds its key, for a new request under the key. True if the record has
/// changed or is gone. The store leaves a record about which a question is open, or on which a run rests: the request is
/// then answered from the record.
///
/// # Crash
/// Before: the next request finds the record. After: the key is new.
pub(super) async fn let_go(core: &Core, op: &Operation, found: &Record) -> Result<bool, ExecError> {
    let is_settled = found.state != State::Started && found.escalation.is_none();
    if !is_settled || !op.tool.outlives(found, &op.hash, core.now()) {
        return Ok(false);
    }
    let mut change = Change { beside: true, ..core.change(None) };
    change.retired.push(Retired::of(found, None));
    match core.group.commit_one(change).await {
        // Another request has removed the record first.
        Ok(Verdict::Refused(Refusal::Stale)) => return Ok(true),
        verdict => admitted(&op.key, verdict)?,
    }
    // A record that was left would be found again and again, without a pause. Boxed because this case is rare: every call
    // would reserve its memory.
    let left = Box::pin(core.find(&op.tenant, &op.key)).await?;
    if left.is_some_and(|left| (left.id, left.revision) == (found.id, found.revision)) {
        return Ok(false);
    }
    log_call!(debug, op, "record of an earlier request dropped");
    Ok(true)
}

fn failed(source: StoreError) -> Stop {
    Stop::Failed(ExecError::Store { key: "what has expired".to_owned(), source })
}
