//! Schedules: runs that begin at their time, by a cron pattern in a time zone or in even intervals.
//!
//! A tick is an operation key: its run has a start key made of the schedule's name and the instant, and is started in
//! the change that moves the schedule on to its next tick. So one of several workers begins the run, once, whichever
//! process dies. Ticks that come while no worker is there are caught up by one run, for the last tick that was missed.

mod rule;
mod tick;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

pub use self::rule::Overlap;
use self::rule::{Rule, When};
pub use self::tick::Tick;
pub(super) use self::tick::own_queue;
use super::error::RunError;
use super::inner::Inner;
use super::queue::Choice;
use super::tenant::TenantClient;
use super::workflow::WorkflowFn;
use crate::clock::Timestamp;
use crate::exec::to_the_end;
use crate::id::{Name, RunId, Tenant};
use crate::payload::{Payload, Stored};
use crate::store::{Change, Refusal, Schedule, ScheduleState, Store as _, Verdict};
use crate::tool::canonical;

/// The number of schedules that are read at once.
const PAGE: u32 = 256;

impl TenantClient {
    /// A schedule of this name: to be set, looked at, paused or deleted.
    ///
    /// ```no_run
    /// # use counterfoil::{Ctx, Engine, Failure};
    /// # async fn ingest(ctx: Ctx, source: String) -> Result<(), Failure> { Ok(()) }
    /// # async fn set(engine: Engine) -> Result<(), Box<dyn std::error::Error>> {
    /// let acme = engine.tenant("acme")?;
    /// let nightly = acme.schedule("nightly").cron("0 3 * * *").zone("Europe/Berlin");
    /// let set = nightly.run(ingest, "https://example.org".to_owned()).await?;
    /// println!("next at {:?}", set.next);
    /// acme.schedule("nightly").pause().await?;
    /// # Ok(()) }
    /// ```
    pub fn schedule(&self, name: impl Into<String>) -> ScheduleHandle {
        let (inner, tenant) = self.parts();
        ScheduleHandle { inner, tenant, name: name.into() }
    }

    /// The schedules of this tenant, by name.
    pub async fn schedules(&self) -> Result<Vec<ScheduleStatus>, RunError> {
        let (inner, tenant) = self.parts();
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = inner.core.group.schedule_list(&tenant, &after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(all) };
            last.name.as_str().clone_into(&mut after);
            let there = page.iter().filter(|schedule| schedule.state != ScheduleState::Deleted);
            all.extend(there.filter_map(ScheduleStatus::of));
        }
    }

    /// A page of the schedules that a condition takes, by their names from behind `after` on, and the name behind which the next page
    /// begins. Deleted ones have rows: a page looks at a bounded number of rows, so it may be short and have a next page.
    #[cfg(feature = "api")]
    pub(crate) async fn schedule_page(
        &self,
        after: &str,
        limit: u32,
        takes: &(dyn Fn(&ScheduleStatus) -> bool + Sync),
    ) -> Result<(Vec<ScheduleStatus>, Option<String>), RunError> {
        let (inner, tenant) = self.parts();
        let rows = PAGE.max(limit);
        let page = inner.core.group.schedule_list(&tenant, after, rows).await?;
        let (mut found, mut last) = (Vec::new(), None);
        for schedule in &page {
            if found.len() == limit as usize {
                return Ok((found, last));
            }
            last = Some(schedule.name.as_str().to_owned());
            if schedule.state != ScheduleState::Deleted {
                found.extend(ScheduleStatus::of(schedule).filter(takes));
            }
        }
        Ok((found, last.filter(|_| page.len() >= rows as usize)))
    }
}

/// A schedule by its name.
#[derive(Clone)]
pub struct ScheduleHandle {
    inner: Arc<Inner>,
    tenant: Tenant,
    name: String,
}

/// A schedule to be set. Nothing happens until its [`run`](Self::run) is awaited.
#[must_use = "a schedule is not set until its run is awaited"]
pub struct SetSchedule {
    handle: ScheduleHandle,
    when: When,
    overlap: Overlap,
    choice: Choice,
}

/// The status of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleStatus {
    /// The name of the schedule.
    pub name: String,
    /// The name of the workflow that the schedule begins.
    pub workflow: String,
    /// The rule of the schedule, in words.
    pub when: String,
    /// The handling of runs that overlap.
    pub overlap: Overlap,
    /// True if the schedule is paused: no tick comes.
    pub paused: bool,
    /// The instant of the next tick (UTC).
    pub next: Option<Timestamp>,
    /// The instant of the last tick that began a run (UTC).
    pub last: Option<Timestamp>,
    /// The id of the run that this tick began.
    pub last_run: Option<RunId>,
    /// The number of ticks that began no run, because no worker was there or because the run before was under way. An
    /// outage of more than ten thousand ticks is not counted to its end.
    pub missed: u32,
    rule: Rule,
}

impl ScheduleStatus {
    fn of(schedule: &Schedule) -> Option<Self> {
        let rule: Rule = serde_json::from_str(&schedule.rule)
            .inspect_err(
                |error| tracing::error!(tenant = %schedule.tenant, schedule = %schedule.name, %error, "schedule not readable"),
            )
            .ok()?;
        Some(Self {
            name: schedule.name.as_str().to_owned(),
            workflow: schedule.workflow.as_str().to_owned(),
            when: rule.when.text(),
            overlap: rule.overlap,
            paused: schedule.state == ScheduleState::Paused,
            next: schedule.next_at,
            last: schedule.last_at,
            last_run: schedule.last_run,
            missed: schedule.missed,
            rule,
        })
    }

    /// The instants of the next ticks (UTC), at most `ticks` of them.
    pub fn upcoming(&self, ticks: usize) -> Vec<Timestamp> {
        let after = |at: &Timestamp| self.rule.when.next(*at).ok().flatten();
        std::iter::successors(self.next, after).take(ticks).collect()
    }
}

impl ScheduleHandle {
    /// Sets the schedule by a cron pattern: minute, hour, day of month, month, day of week; with six fields seconds
    /// come first. The pattern is in UTC, or in a [zone](SetSchedule::zone). A time of day that a clock change leaves
    /// out comes after the gap, and a time that comes twice is one tick.
    pub fn cron(self, pattern: impl Into<String>) -> SetSchedule {
        self.set(When::Cron { pattern: pattern.into(), zone: "UTC".into() })
    }

    /// Sets the schedule in even intervals. The first interval begins when the schedule is set for the first time.
    pub fn every(self, interval: Duration) -> SetSchedule {
        let micros = i64::try_from(interval.as_micros()).unwrap_or(i64::MAX);
        let from = self.inner.core.now();
        self.set(When::Every { micros, from })
    }

    fn set(self, when: When) -> SetSchedule {
        SetSchedule { handle: self, when, overlap: Overlap::default(), choice: Choice::default() }
    }

    /// The status of the schedule.
    ///
    /// # Errors
    /// [`RunError::NoSchedule`] if there is no schedule of this name.
    pub async fn status(&self) -> Result<ScheduleStatus, RunError> {
        let found = self.find().await?.and_then(|schedule| ScheduleStatus::of(&schedule));
        found.ok_or_else(|| self.unknown())
    }

    /// Pauses the schedule: no tick comes until it is [resumed](Self::resume). Runs that have begun go on.
    pub async fn pause(&self) -> Result<ScheduleStatus, RunError> {
        self.change(|schedule, _, _| (schedule.state, schedule.next_at) = (ScheduleState::Paused, None)).await
    }

    /// Lets ticks come again, from now on. The ticks in between are not caught up.
    pub async fn resume(&self) -> Result<ScheduleStatus, RunError> {
        let resumed = |schedule: &mut Schedule, rule: &Rule, now: Timestamp| {
            if schedule.state == ScheduleState::Paused {
                schedule.next_at = rule.when.next(now).ok().flatten();
            }
            schedule.state = ScheduleState::Active;
        };
        self.change(resumed).await
    }

    /// Deletes the schedule. Runs that have begun go on.
    pub async fn delete(&self) -> Result<(), RunError> {
        let gone = self.change(|schedule, _, _| {
            (schedule.state, schedule.next_at) = (ScheduleState::Deleted, None);
        });
        gone.await.map(drop)
    }

    fn unknown(&self) -> RunError {
        RunError::NoSchedule { name: self.name.clone() }
    }

    async fn find(&self) -> Result<Option<Schedule>, RunError> {
        let found = self.inner.core.group.schedule_find(&self.tenant, &self.name).await?;
        Ok(found.filter(|schedule| schedule.state != ScheduleState::Deleted))
    }

    async fn change(
        &self,
        change: impl Fn(&mut Schedule, &Rule, Timestamp),
    ) -> Result<ScheduleStatus, RunError> {
        loop {
            let mut schedule = self.find().await?.ok_or_else(|| self.unknown())?;
            let status = ScheduleStatus::of(&schedule).ok_or_else(|| self.unknown())?;
            let before = (schedule.state, schedule.next_at);
            let now = self.inner.core.now();
            change(&mut schedule, &status.rule, now);
            if (schedule.state, schedule.next_at) == before {
                return Ok(status);
            }
            schedule.revision += 1;
            schedule.updated_at = now;
            if self.inner.write_schedule(&schedule, None).await? {
                return ScheduleStatus::of(&schedule).ok_or_else(|| self.unknown());
            }
        }
    }
}

impl SetSchedule {
    /// The time zone of a cron pattern, by its name in the time zone database: `Europe/Berlin`.
    pub fn zone(mut self, name: impl Into<String>) -> Self {
        if let When::Cron { zone, .. } = &mut self.when {
            *zone = name.into();
        }
        self
    }

    /// The handling of a tick while the run of the tick before is under way. Default: the tick is skipped.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Puts the schedule's runs into a queue.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.choice.queue = Some(name.into());
        self
    }

    /// The queue key of the schedule's runs.
    pub fn queue_key(mut self, key: impl Into<String>) -> Self {
        self.choice.key = Some(key.into());
        self
    }

    /// The priority of the schedule's runs in their queue.
    pub fn priority(mut self, priority: i32) -> Self {
        self.choice.priority = priority;
        self
    }

    /// Sets the schedule to begin runs of this workflow with this input. A run learns of its tick by
    /// [`Ctx::tick`](crate::Ctx::tick). An existing schedule that says the same stays as it is, so that every start of
    /// a program may set it. An existing schedule that says something else is changed, and goes on from now.
    ///
    /// # Errors
    /// [`RunError::Schedule`] if the pattern, the zone or the interval makes no sense. Nothing was changed.
    pub async fn run<W, I, O>(self, _workflow: W, input: I) -> Result<ScheduleStatus, RunError>
    where
        W: WorkflowFn<I, O>,
        I: Serialize + Send + Sync + 'static,
    {
        let Self { handle, when, overlap, choice } = self;
        let ScheduleHandle { inner, tenant, name } = handle;
        let workflow = inner.registered::<W>()?.clone();
        let refused = |reason: String| RunError::Schedule { name: name.clone(), reason };
        if overlap == Overlap::After && (choice.queue.is_some() || workflow.queue.is_some()) {
            return Err(refused("runs that begin one after the other are in a queue of their own".into()));
        }
        inner.queues.place(workflow.queue.as_ref(), choice.clone())?;
        let now = inner.core.now();
        if matches!(when, When::Every { micros, .. } if micros <= 0) {
            return Err(refused("an interval of nothing".into()));
        }
        let next = when.next(now).map_err(refused)?;
        let input: Result<_, RunError> =
            inner.core.canonical(&tenant, &|key: Option<&_>| canonical(&input, key)).await;
        let (input, large) = inner.core.storable(input?.within(&inner.core.limits)?);
        let Choice { queue, key: queue_key, priority } = choice;
        let rule = Rule { when, overlap, queue, queue_key, priority };
        let schedule = Schedule {
            tenant,
            name: Name::new(&name)?,
            workflow: workflow.name.clone(),
            version: workflow.version,
            rule: serde_json::to_string(&rule).unwrap_or_default(),
            input,
            state: ScheduleState::Active,
            next_at: next,
            last_at: None,
            last_run: None,
            missed: 0,
            revision: 1,
            created_at: now,
            updated_at: now,
        };
        // A future dropped in between would leave a schedule whose first tick no worker here waits for.
        let tracker = inner.core.tracker.clone();
        to_the_end(&tracker, async move { inner.set_schedule(schedule, &rule, large).await }).await
    }
}

impl Inner {
    async fn set_schedule(
        &self,
        wanted: Schedule,
        rule: &Rule,
        large: Option<Payload>,
    ) -> Result<ScheduleStatus, RunError> {
        loop {
            let found = self.core.group.schedule_find(&wanted.tenant, wanted.name.as_str()).await?;
            let schedule = match found {
                None => wanted.clone(),
                Some(stored) => match ScheduleStatus::of(&stored) {
                    Some(status) if says_the_same(&stored, &status.rule, &wanted, rule) => {
                        if let Some(next) = status.next {
                            self.core.agenda.note(next); // another worker may have set it
                        }
                        return Ok(status);
                    }
                    _ => changed(stored, &wanted),
                },
            };
            if self.write_schedule(&schedule, large.clone()).await? {
                let unreadable = || RunError::NoSchedule { name: schedule.name.as_str().to_owned() };
                return ScheduleStatus::of(&schedule).ok_or_else(unreadable);
            }
        }
    }

    /// Writes the row of a schedule. Returns false if another writer was first.
    async fn write_schedule(&self, schedule: &Schedule, large: Option<Payload>) -> Result<bool, RunError> {
        let mut change = Change { schedule: Some(Box::new(schedule.clone())), ..self.core.change(None) };
        change.payloads.extend(large.map(|payload| (schedule.tenant.clone(), payload)));
        match self.core.group.commit_one(change).await? {
            Verdict::Admitted => {
                if let Some(next) = schedule.next_at {
                    self.core.agenda.note(next);
                }
                Ok(true)
            }
            Verdict::Refused(Refusal::Exists | Refusal::Stale) => Ok(false),
            Verdict::Refused(refusal) => {
                let reason = refusal.to_string();
                Err(RunError::Schedule { name: schedule.name.as_str().to_owned(), reason })
            }
        }
    }
}

fn says_the_same(stored: &Schedule, present: &Rule, wanted: &Schedule, rule: &Rule) -> bool {
    let begins = |schedule: &Schedule| -> (Name, u32, Stored) {
        (schedule.workflow.clone(), schedule.version, schedule.input.clone())
    };
    let same = Rule { when: rule.when.clone(), ..present.clone() } == *rule;
    stored.state != ScheduleState::Deleted
        && begins(stored) == begins(wanted)
        && present.when.is_like(&rule.when)
        && same
}

/// The next row of a stored schedule. A deleted schedule begins anew, and a paused one stays paused.
fn changed(stored: Schedule, wanted: &Schedule) -> Schedule {
    let revision = stored.revision + 1;
    if stored.state == ScheduleState::Deleted {
        return Schedule { revision, ..wanted.clone() };
    }
    let next_at = wanted.next_at.filter(|_| stored.state == ScheduleState::Active);
    Schedule {
        workflow: wanted.workflow.clone(),
        version: wanted.version,
        rule: wanted.rule.clone(),
        input: wanted.input.clone(),
        next_at,
        revision,
        updated_at: wanted.updated_at,
        ..stored
    }
}
