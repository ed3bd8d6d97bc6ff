//! Retention: records go when their time is over, a few at a time (REC-6).

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::core::Core;
use super::operation::Operation;
use super::outcome::{ExecError, admitted};
use crate::clock::{SharedClock, Timestamp};
use crate::ledger::{Record, State};
use crate::store::{Change, Refusal, Retired, Store as _, StoreError, Verdict};
use crate::tool::ToolSpec;

/// So many are retired in one transaction. They hold up what others write for as long as that takes.
const AT_ONCE: u32 = 16;
/// For so many times as long as a transaction took, nothing is swept.
const REST: u32 = 4;
/// While anything is begun, what may go by now is looked for so often, or as often as the shortest retention asks for.
const OFTEN: Duration = Duration::from_hours(1);
const AT_MOST: Duration = Duration::from_secs(1);

impl Core {
    /// Retires records from now on, unless that is switched off, and says how long they are kept.
    pub(crate) fn begin_sweeping(self: &Arc<Self>, sweeps: bool) {
        if !sweeps {
            tracing::info!("records are kept for ever: this worker retires none");
            return;
        }
        let kept = |spec: &&ToolSpec| format!("{}: {}", spec.name, spec.retention);
        let kept: Vec<_> = self.registry.specs().iter().map(kept).collect();
        tracing::info!(tools = kept.join("; "), "records are retired when their time is over");
        self.lasting("sweeper", sweep);
    }
}

/// Retires what may go, until this worker ends. Several workers may: what one has retired is not there for the others.
///
/// # Crash
/// What was not retired is found again.
async fn sweep(weak: Weak<Core>) {
    while let Some(core) = weak.upgrade() {
        let mut next = match sweep_all(&core).await {
            Ok(next) => next,
            Err(Stop::Fenced) => return,
            Err(Stop::Failed(error)) => {
                tracing::warn!(%error, "records whose time is over could not be retired, and will be later");
                None
            }
        };
        if core.is_closing() {
            return;
        }
        let (clocks, begun, often) = (Clocks::of(&core), core.begun.clone(), often(&core));
        drop(core); // or this worker would live for as long as its records
        let mut is_soon = false; // or each call would wake this task
        loop {
            let sleep = next.map(|at| clocks.ours.sleep(clocks.now().until(at)));
            tokio::select! {
                biased; // chance is drawn in one place only, or no simulation could be repeated
                () = async { if let Some(sleep) = sleep { sleep.await } }, if next.is_some() => break,
                () = begun.notified(), if !is_soon => {}
            }
            if weak.strong_count() == 0 {
                return;
            }
            // Its time may come sooner; and what has come to its end meanwhile may go.
            let look = clocks.now().after(often);
            next = Some(next.map_or(look, |next| next.min(look)));
            is_soon = true;
        }
    }
}

/// A clock that runs ahead would make keys new before their time. In a shared store it takes two of them: the database's
/// and this machine's.
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

fn often(core: &Core) -> Duration {
    let registered = core.registry.specs().into_iter().map(|spec| spec.retention.keep_for);
    let met = core.registry.met_specs().into_iter().map(|spec| spec.retention.keep_for);
    registered.chain(met).min().unwrap_or(OFTEN).clamp(AT_MOST, OFTEN)
}

enum Stop {
    /// Another worker has taken over.
    Fenced,
    Failed(ExecError),
}

/// Retires all that may go by now. When the time of the next one is over, if one's is.
async fn sweep_all(core: &Core) -> Result<Option<Timestamp>, Stop> {
    let now = Clocks::of(core).now();
    let mut after = Timestamp::MIN;
    loop {
        let page = core.group.record_expired(after, now, AT_ONCE).await.map_err(failed)?;
        let Some(last) = page.last() else {
            return core.group.record_expiring(now).await.map_err(failed);
        };
        after = last.kept_until.unwrap_or(after);
        let began = core.clock.boot();
        let change = retire(core, &page, now).await?;
        // Not through the queue, where it would wait for the disk with others, and they for it.
        match core.group.store().commit(&[change]).await.map_err(failed)?.as_slice() {
            [Verdict::Refused(Refusal::Fenced)] => return Err(Stop::Fenced),
            [Verdict::Refused(refusal)] => {
                return Err(failed(StoreError::Io { detail: refusal.to_string() }));
            }
            _ => {}
        }
        core.clock.sleep(began.until(core.clock.boot()) * REST).await;
    }
}

/// What is left of each.
async fn retire(core: &Core, page: &[Record], now: Timestamp) -> Result<Change, Stop> {
    let mut change = Change { beside: true, ..core.change(None) };
    for record in page {
        let key = core.tenant_key(&record.tenant).await.map_err(Stop::Failed)?;
        let tool = core.registry.known(record.operation.as_str());
        // Of a tool that is not here it is not known that its keys may be taken for new.
        let (retention, horizon) = tool.map_or_else(Default::default, |tool| {
            let spec = tool.spec();
            // Inside a key's window nothing is touched: the provider answers for the key, and the record for what it answered.
            (spec.retention, spec.retry.horizon().max(spec.contract.key_window.unwrap_or_default()))
        });
        let left = retention.left(record, horizon, &key, now);
        tracing::debug!(tenant = %record.tenant, key = %record.key, left = left.is_some(), "its time is over");
        change.retired.push(Retired::of(record, left));
    }
    Ok(change)
}

/// Removes a settled record that no longer binds its key, for the request that meets it. Whether the record may have changed.
///
/// # Crash
/// Before: the next request meets it. After: the key is new.
pub(super) async fn let_go(core: &Core, op: &Operation, found: &Record) -> Result<bool, ExecError> {
    let is_settled = found.state != State::Started && found.escalation.is_none();
    if !is_settled || !op.tool.outlives(found, &op.hash, core.now()) {
        return Ok(false);
    }
    tracing::debug!(tenant = %op.tenant, key = %op.key, "an earlier request is let go");
    let mut change = Change { beside: true, ..core.change(None) };
    change.retired.push(Retired::of(found, None));
    match core.group.commit_one(change).await {
        // Another request has met it first.
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(true),
        verdict => admitted(&op.key, verdict).map(|()| true),
    }
}

fn failed(source: StoreError) -> Stop {
    Stop::Failed(ExecError::Store { key: "the records whose time is over".to_owned(), source })
}
