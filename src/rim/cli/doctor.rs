//! `counterfoil doctor`: names what is wrong with a ledger, and what to do about it. It only reads.

#[cfg(feature = "encryption")]
mod keys;

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::ledger::{Whole, block_on};
use super::shown;
use crate::clock::{Clock as _, SystemClock, Timestamp};
use crate::id::RecordId;
use crate::store::{ClusterStatus, Due, Group, QuestionKind, QuestionLoad, Store as _, StoreError, Worker};

/// The time within which a worker takes up what is due, retires what is over, or takes over what another one left.
const PROMPTLY: Duration = Duration::from_mins(5);
/// The time within which the sweeper looks again, twice.
const SWEPT: Duration = Duration::from_hours(2);
/// The number of failed lookups in a row that are no accident.
const FAILING: u32 = 3;
/// The maximum number of pending events that are looked at.
const PENDING: u32 = 1000;
/// The size of a log that is not emptied, in bytes.
const LARGE_LOG: u64 = 128 << 20;
/// The distance of two clocks at which times in the log and in the ledger no longer fit together.
const APART: Duration = Duration::from_secs(1);

/// The ledger that is examined.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    whole: Whole,
    /// The age, in hours, from which on an open question is a finding
    #[arg(long, default_value_t = 24)]
    older_than: u64,
}

/// Something that is wrong.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    found: String,
    remedy: String,
}

/// Something that is worth knowing, and not wrong.
#[derive(Debug, Serialize)]
#[cfg_attr(not(feature = "encryption"), allow(dead_code, reason = "only keys are worth a note"))]
struct Note {
    check: &'static str,
    note: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  {}", self.check, self.found, self.remedy)
    }
}

pub(super) fn run(options: &Options) -> ExitCode {
    let mut is_healthy = false;
    let done = block_on(async {
        let (findings, notes) = match examine(options).await {
            Ok(Doctor { findings, notes, .. }) => (findings, notes),
            Err(error) => {
                let remedy = "see what the message says; nothing else was examined".to_owned();
                (vec![Finding { check: "database", found: error.to_string(), remedy }], Vec::new())
            }
        };
        is_healthy = findings.is_empty();
        if options.whole.json {
            findings.iter().try_for_each(shown::json)?;
            return Ok(notes.iter().try_for_each(shown::json)?);
        }
        findings.iter().try_for_each(|finding| shown::text(&finding.to_string()))?;
        if is_healthy {
            shown::text("nothing is wrong")?;
        }
        Ok(notes.iter().try_for_each(|note| shown::text(&format!("{}: {}", note.check, note.note)))?)
    });
    if is_healthy { done } else { ExitCode::FAILURE }
}

async fn examine(options: &Options) -> Result<Doctor, Box<dyn std::error::Error>> {
    let parts = options.whole.database.executor()?.for_examination().open_store().await?;
    let mut doctor = Doctor { group: parts.group, findings: Vec::new(), notes: Vec::new() };
    doctor.look_at_database().await?;
    let status = doctor.group.pulse().await?;
    doctor.look_at_clock(status.time);
    doctor.look_at_workers(&status);
    doctor.look_at_questions(Duration::from_secs(options.older_than.saturating_mul(3600))).await?;
    doctor.look_at_work().await?;
    doctor.look_at_lookups().await?;
    #[cfg(feature = "encryption")]
    if let Some(keyring) = options.whole.database.keyring()? {
        doctor.look_at_keys(&keyring).await;
    }
    Ok(doctor)
}

struct Doctor {
    group: Group,
    findings: Vec<Finding>,
    notes: Vec<Note>,
}

impl Doctor {
    fn found(&mut self, check: &'static str, found: impl Into<String>, remedy: impl Into<String>) {
        self.findings.push(Finding { check, found: found.into(), remedy: remedy.into() });
    }

    async fn look_at_database(&mut self) -> Result<(), StoreError> {
        for defect in self.group.examine().await? {
            self.found(defect.part, defect.found, defect.remedy);
        }
        if let Some(bytes) = self.group.load().log_bytes.filter(|bytes| *bytes >= LARGE_LOG) {
            self.found(
                "log",
                format!("the write-ahead log has {} MiB", bytes >> 20),
                "a program reads the file and does not end its transaction: end it (docs/backup.md)",
            );
        }
        Ok(())
    }

    /// Compares the clock of a shared store with the one of this machine. A file has the clock of its machine.
    fn look_at_clock(&mut self, time: Timestamp) {
        let here = SystemClock.now();
        let apart = here.until(time).max(time.until(here));
        if apart >= APART {
            let apart = apart.as_millis();
            self.found(
                "clock",
                format!("the database's clock and the one of this machine are {apart} ms apart"),
                "set both by NTP; leases and timers go by the database's clock",
            );
        }
    }

    fn look_at_workers(&mut self, status: &ClusterStatus) {
        let is_over = |worker: &&Worker| worker.lease_until.is_some_and(|until| until < status.time);
        let open = || status.workers.iter().filter(|worker| worker.ended_at.is_none());
        for worker in open().filter(is_over) {
            let since = worker.lease_until.unwrap_or(status.time);
            self.found(
                "workers",
                format!("the lease of worker {} ({}) is over since {since}", worker.fence, worker.name),
                "it died or is cut off: another worker takes its work over, if there is one",
            );
        }
        for worker in &status.workers {
            if let Some(at) = worker.ended_at.filter(|at| at.until(status.time) > PROMPTLY) {
                self.found(
                    "workers",
                    format!(
                        "worker {} ({}) ended at {at}, and its work is not settled",
                        worker.fence, worker.name
                    ),
                    "start an engine that has its workflows and tools",
                );
            }
        }
        let is_attended = self.group.has_engine().unwrap_or_else(|| open().any(|worker| !is_over(&worker)));
        let is_due = status.next_due.is_some_and(|at| at < status.time);
        if !is_attended && (is_due || status.queued || status.resumable || status.unpublished) {
            self.found("workers", "there is work, and no engine is there", "start an engine");
        }
        if status.restored {
            self.found(
                "restored",
                "the ledger may be older than the world: each first send is looked up",
                "see to what its question lists (`questions --tenant '~counterfoil'`); then `lift-restored`",
            );
        }
    }

    async fn look_at_questions(&mut self, old: Duration) -> Result<(), StoreError> {
        let now = SystemClock.now();
        for QuestionLoad { kind, open, oldest } in self.group.escalation_load().await? {
            let (check, is_wrong) = match kind {
                QuestionKind::Restored => continue,
                QuestionKind::Unpublished => ("outbox", true),
                kind if kind.blocks_its_run() && kind != QuestionKind::Paused => ("blocked", true),
                _ => ("questions", oldest.until(now) >= old),
            };
            if is_wrong {
                self.found(
                    check,
                    format!("{open} of kind {:?} open, the oldest since {oldest}", kind.name()),
                    match check {
                        "outbox" => "`outbox list` of its tenant; then `outbox release` or `outbox skip`",
                        "blocked" => "`runs --state blocked` and `questions` of its tenant; then `answer`",
                        _ => "`questions` of its tenant; then `answer` (docs/questions.md)",
                    },
                );
            }
        }
        Ok(())
    }

    /// Looks for what a worker should have taken up by now.
    async fn look_at_work(&mut self) -> Result<(), StoreError> {
        let now = self.group.pulse().await?.time;
        let ago = |time: Duration| {
            Timestamp(now.0.saturating_sub(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)))
        };
        if let Some(run) = self.group.run_due(ago(PROMPTLY), None, 1).await?.first() {
            let found = format!("{} of tenant {} waits, and its time has come", run.id, run.tenant);
            self.found("runs", found, "start an engine with its workflow, or look why none takes it up");
        }
        if let Some(run) = self.group.run_overdue(ago(PROMPTLY), None, 1).await?.first() {
            let found = format!("the deadline of {} of tenant {} has passed", run.id, run.tenant);
            self.found("runs", found, "start an engine: it cancels the run");
        }
        let orphans = self.group.record_orphans(RecordId(i64::MIN), 1000).await?;
        let left: Vec<_> = orphans.iter().filter(|record| record.updated_at < ago(PROMPTLY)).collect();
        if let Some(first) = left.first() {
            let found = format!(
                "{} calls of workers that are gone are of unknown outcome, such as {} of tenant {}",
                left.len(),
                first.key,
                first.tenant
            );
            self.found("calls", found, "start an engine with their tools: it looks them up, or asks");
        }
        if let Some(record) = self.group.record_expired(Timestamp::MIN, ago(SWEPT), 1).await?.first() {
            let until = record.kept_until.unwrap_or(now);
            let found = format!("records are over and were not retired, the first since {until}");
            self.found(
                "retention",
                found,
                "let one worker sweep (`.sweep(true)`); `retention` shows how many there are",
            );
        }
        let late = self.group.outbox_due(ago(PROMPTLY), 1).await?;
        // An aggregate that is tried again and again is never due for long, and its first event grows old.
        let pending = self.group.outbox_due(Timestamp::MAX, PENDING).await?;
        let is_old = |due: &&Due| due.events.first().is_none_or(|event| event.created_at < ago(PROMPTLY));
        if let Some(due) = late.first().or_else(|| pending.iter().find(is_old)) {
            let found = format!(
                "events of {} of tenant {} are not published",
                due.aggregate.name, due.aggregate.tenant
            );
            self.found(
                "outbox",
                found,
                "start an engine with a sink, or look in its log why they are not taken",
            );
        }
        Ok(())
    }

    async fn look_at_lookups(&mut self) -> Result<(), StoreError> {
        if let Some(look) = self.group.look_failing().await?.filter(|look| look.tries >= FAILING) {
            let record = self.group.record_at(&look.tenant, look.record).await?;
            let key = record.map_or_else(|| look.record.to_string(), |record| record.key.to_string());
            self.found(
                "lookups",
                format!("the lookup of {key} of tenant {} failed {} times in a row", look.tenant, look.tries),
                "see `evidence` of the call: the provider, or the right to ask it, is gone",
            );
        }
        Ok(())
    }
}
