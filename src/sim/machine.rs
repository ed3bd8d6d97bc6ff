//! One simulation: a machine on which processes die, are paused and are started again, until nothing is left to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::Watch as _;
use super::chance::Seeded;
use super::check::{Checker, Rule, Violation};
use super::clock::Passed;
use super::disk::{Disk, LEASE};
use super::life::{Crossing, Lasting, Life, Process};
use super::question::OpenQuestion;
use super::schedule::{Incident, Schedule, Stop};
use super::timeline::{Event, Happened};
use super::world::World;
use crate::clock::Clock as _;
use crate::flow::{Engine, EngineBuilder};
use crate::id::{QuestionId, RecordId};
use crate::ledger::Look;
use crate::store::{Question, QuestionKind, Resolution, Run};

/// The maximum number of lives. A simulation that needs more never comes to rest.
const MAX_LIVES: u32 = 8;
/// The time without other events than heartbeats after which a shared ledger has nothing left to do. Every worker
/// that died is taken over within this time.
const QUIET: Duration = LEASE.saturating_mul(3);
/// The maximum number of turns without progress. A simulation that takes more never comes to rest.
const RESTLESS: u32 = 2_000;
/// The number of turns without progress after which runs only look again.
const LOOKS_AGAIN: u32 = 100;

/// The content of every life of the process: an engine, and the runs that it is asked for.
pub(super) trait Body {
    /// Registers the workflows and the tools.
    fn engine(&self, builder: EngineBuilder, world: &World) -> EngineBuilder;
    /// The number of processes that share the ledger.
    fn workers(&self) -> u32;
    /// The maximum number of turns in one life, whatever progress they make.
    fn turns(&self) -> u32;
    /// The number of runs that are asked for.
    fn asks(&self) -> usize;
    /// The caller of this index; `None` for an actor beside the runs.
    fn caller(&self, place: usize) -> Option<Caller>;
    /// Asks for the run of this index. Returns the answer that the caller got.
    fn ask(&self, place: usize, engine: Engine, world: &World) -> BoxFuture<'static, Answered>;
    /// The answer of a person to an open question.
    fn answer(&self, question: &OpenQuestion<'_>) -> Option<Resolution>;
}

/// The caller of a run: a tenant, and the run's start key.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) tenant: String,
    pub(super) key: String,
}

impl Caller {
    /// True if the run was started by this caller, or by another one under the same start key.
    pub(super) fn asks_for(&self, run: &Run) -> bool {
        run.tenant.as_str() == self.tenant && run.key.as_deref() == Some(self.key.as_str())
    }
}

/// The answer to a caller.
#[derive(Clone, Debug)]
pub(super) enum Answered {
    /// The run has ended.
    Told(Told),
    /// The store has failed.
    StoreFailed,
    /// Another error, such as an open question about the run. An actor beside the runs gets no more than this.
    Otherwise,
}

/// The result that a caller got.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    /// The output of the workflow.
    Succeeded(Value),
    /// The failure message of the run.
    Failed(String),
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded(output) => write!(f, "{output}"),
            Self::Failed(failure) => write!(f, "failed: {failure}"),
        }
    }
}

/// The result of one simulation.
pub(super) struct Trial {
    /// The results that the callers got, in each life, by the index of the run.
    pub(super) told: Vec<BTreeMap<usize, Told>>,
    /// The points that each life crossed.
    pub(super) crossed: Vec<Vec<Crossing>>,
    /// The number of commits before each life.
    commits_before: Vec<u32>,
    pub(super) requests: u32,
    pub(super) events: Vec<Event>,
    pub(super) world: World,
    pub(super) disk: Arc<Disk>,
    pub(super) violations: Vec<Violation>,
}

impl Trial {
    /// All questions that were ever opened. The row of a pending call is no question: its run waits for its provider,
    /// and for no person.
    pub(super) fn questions(&self) -> Vec<Question> {
        let mut questions = self.disk.model.escalations();
        questions.retain(|question| question.kind != QuestionKind::Pending);
        questions
    }

    /// True if the incident has happened. The simulation may have ended before it, and a fault that nobody could detect is
    /// left out.
    pub(super) fn has_met(&self, incident: &Incident) -> bool {
        if let Incident::StoreFails { commit } | Incident::StoreAnswerLost { commit } = incident {
            return *commit <= self.disk.commits();
        }
        let reached = |count: usize, number: u32| usize::try_from(number).is_ok_and(|number| number <= count);
        match incident {
            Incident::Stop { life, crossing, .. } => {
                let place = (*life as usize).checked_sub(1);
                let crossed = place.and_then(|place| self.crossed.get(place)).map_or(0, Vec::len);
                reached(crossed, *crossing)
            }
            Incident::Fault { request, .. } => self.world.has_met(*request),
            Incident::LookupDown { lookup, .. } => *lookup <= self.world.lookups(),
            Incident::ClockJumps { life, .. }
            | Incident::Down { life, .. }
            | Incident::Restored { life, .. } => reached(self.crossed.len(), *life),
            _ => true,
        }
    }

    /// The number of batches of writes in the ledger.
    pub(super) fn batches(&self) -> u32 {
        u32::try_from(self.disk.model.batches()).unwrap_or(u32::MAX)
    }

    /// The numbers of the commits that were begun from this life on. Empty if there was no such life.
    pub(super) fn commits_since(&self, life: u32) -> RangeInclusive<u32> {
        let all = self.disk.commits();
        let before = self.commits_before.get(life as usize - 1).copied().unwrap_or(all);
        before + 1..=all
    }
}

/// Tries a schedule.
pub(super) fn run(body: &dyn Body, schedule: &Schedule, seed: u64) -> Trial {
    let mut machine = Machine::new(body, schedule, seed);
    for _ in 0..body.workers() {
        machine.begin();
    }
    loop {
        let begins = if machine.runs_out() {
            let begins = machine.newest() < MAX_LIVES;
            if !begins {
                machine.checker.dies_for_ever();
            }
            begins
        } else if machine.answers() || machine.audits() {
            continue;
        } else {
            machine.is_to_be_restored()
        };
        if !begins {
            break;
        }
        machine.begin();
    }
    machine.ends()
}

struct Machine<'a> {
    body: &'a dyn Body,
    schedule: &'a Schedule,
    seed: u64,
    world: World,
    disk: Arc<Disk>,
    checker: Arc<Checker>,
    /// All processes of the simulation, dead ones included.
    processes: Vec<Arc<Process>>,
    /// The processes that still exist. The last one serves; those before it were paused, and taken for dead. In a
    /// shared ledger all of them serve.
    lives: Vec<Life>,
    /// The number of commits before each life.
    commits_before: Vec<u32>,
    turns: u32,
    /// The progress of the ledger, and the turn in which it was last seen to change, or in which something new was begun.
    progress: (u32, u32),
    /// The time since which only heartbeats have happened.
    quiet_since: Duration,
    /// The questions that were answered in this life.
    answered: BTreeSet<QuestionId>,
    /// The number of lives before the last restore of the ledger: they belong to another history.
    lost: usize,
    /// True if a zombie sent a call after the last lookup, and died before it could write the outcome.
    unseen: bool,
}

impl<'a> Machine<'a> {
    fn new(body: &'a dyn Body, schedule: &'a Schedule, seed: u64) -> Self {
        let world = World::new(super::SimClock::default(), schedule);
        let is_shared = body.workers() > 1;
        let checker = Arc::new(Checker::new(world.clock().clone(), is_shared));
        let disk = Arc::new(Disk::new(schedule, world.clone(), checker.clone(), is_shared));
        Self {
            body,
            schedule,
            seed,
            world,
            disk,
            checker,
            processes: Vec::new(),
            lives: Vec::new(),
            commits_before: Vec::new(),
            turns: 0,
            progress: (0, 0),
            quiet_since: Duration::ZERO,
            answered: BTreeSet::new(),
            lost: 0,
            unseen: false,
        }
    }

    fn is_shared(&self) -> bool {
        self.body.workers() > 1
    }

    fn newest(&self) -> u32 {
        self.processes.last().map_or(0, |process| process.life)
    }

    /// Starts a process.
    fn begin(&mut self) {
        let life = self.newest() + 1;
        for incident in self.schedule.incidents() {
            match incident {
                Incident::ClockJumps { life: before, seconds } if *before == life => {
                    self.world.clock().jump(*seconds);
                }
                Incident::Down { life: before, seconds } if *before == life => {
                    self.world.clock().pass(Duration::from_secs(u64::from(*seconds)));
                }
                _ => {}
            }
        }
        if let Some((batches, told)) = self.schedule.restored(life) {
            self.restore(batches, told);
        }
        self.commits_before.push(self.disk.commits());
        self.world.acts(life);
        self.world.note(Happened::Started);
        self.checker.begin_life(life);
        self.disk.is_locked_by(life);
        let process = Arc::new(Process::new(life, self.schedule, self.lasting()));
        let chance = Seeded::new(self.seed.wrapping_add(u64::from(life)));
        self.processes.push(process.clone());
        self.lives.push(Life::new(self.body, process, chance));
        (self.turns, self.answered) = (0, BTreeSet::new());
    }

    fn lasting(&self) -> Lasting {
        Lasting { world: self.world.clone(), disk: self.disk.clone(), checker: self.checker.clone() }
    }

    /// True if nothing is left to do in this life, and the next life begins with a backup.
    fn is_to_be_restored(&self) -> bool {
        !self.is_restless()
            && self.newest() < MAX_LIVES
            && self.schedule.restored(self.newest() + 1).is_some()
    }

    /// Ends every process, and restores an older ledger. Requests in flight arrive in the world all the same.
    fn restore(&mut self, batches: u32, told: bool) {
        for life in &self.lives {
            self.disk.outlives(life.process.life, |_| true);
        }
        self.lives.clear();
        self.disk = Arc::new(self.disk.put_back(batches, told));
        self.checker.restored(&self.disk.model);
        self.lost = self.processes.len();
        self.world.note(Happened::Restored { batches, told });
    }

    /// Runs until no process serves any more, or nothing is left to do. Processes affect one another only through
    /// time: through the disk and through the world. True if a process is to be started.
    fn runs_out(&mut self) -> bool {
        self.progress.1 = self.turns; // a new process, an answer and an audit each have turns of their own
        loop {
            let serving = self.newest();
            for life in self.lives.iter().filter(|life| life.process.runs()) {
                self.world.acts(life.process.life);
                life.work(self.body);
            }
            self.world.acts(serving);
            if !self.is_shared()
                && let Some(stop) = self.lives.last().and_then(|life| life.process.was_stopped())
            {
                self.stopped(stop);
                return true;
            }
            self.buries();
            if !self.lives.iter().any(|life| life.process.runs()) {
                return true;
            }
            if self.is_restless() {
                self.checker.is_restless();
                return false;
            }
            if !self.passes() || self.only_awaits_answers() {
                self.world.note(Happened::AtRest);
                return false;
            }
        }
    }

    /// True if a question is open, and runs have only looked for its answer for hours: nothing more happens until a
    /// person answers.
    fn only_awaits_answers(&mut self) -> bool {
        let progress = self.checker.progress();
        if self.progress.0 != progress {
            self.progress = (progress, self.turns);
        }
        let looked = self.turns - self.progress.1;
        let is_for_a_person = |q: &Question| q.answer.is_none() && q.kind != QuestionKind::Pending;
        let awaits = looked >= LOOKS_AGAIN && self.disk.model.escalations().iter().any(is_for_a_person);
        if awaits && self.is_more_to_come() {
            self.progress.1 = self.turns;
            return false;
        }
        if awaits {
            self.turns -= looked; // they do not count as restless
        }
        awaits
    }

    /// True if a request is on its way, or the next look at an effect is still to come: what they show may be asked
    /// about. A look that is overdue is made by nobody.
    fn is_more_to_come(&self) -> bool {
        let clock = self.world.clock();
        let now = clock.now();
        let comes = |look: &Look| look.due_at.is_some_and(|at| at > now) && !look.reason.is_beside_question();
        clock.carries_requests() || self.disk.model.looks().iter().any(comes)
    }

    /// Lets time pass until something happens. False if nothing is left to do.
    fn passes(&mut self) -> bool {
        let clock = self.world.clock();
        match clock.advance() {
            Passed::Nothing => return false,
            Passed::Heartbeat => {
                return clock.elapsed() < self.quiet_since.saturating_add(QUIET) || clock.is_awaited();
            }
            Passed::Something => {
                self.quiet_since = clock.elapsed();
                self.turns += 1;
            }
        }
        true
    }

    /// Removes the zombies that were stopped. No process is started in their place.
    fn buries(&mut self) {
        for process in self.lives.iter().map(|zombie| zombie.process.clone()).collect::<Vec<_>>() {
            let Some(stop) = process.was_stopped() else { continue };
            match stop.pause() {
                Some(pause) => self.pauses(&process, pause),
                None => self.dies(process.life, stop),
            }
        }
        self.lives.retain(|life| !life.process.is_dead());
    }

    /// Ends a process that was stopped. The data that it handed to the operating system survives a kill, and no power
    /// failure.
    fn dies(&mut self, life: u32, stop: Stop) {
        self.disk.outlives(life, |write| stop.spares(write));
        self.unseen |= self.is_unseen(life);
    }

    /// True if the life sent a call that no later lookup will show.
    fn is_unseen(&self, life: u32) -> bool {
        let looks = self.disk.model.looks();
        let is_looked_at = |record: &RecordId| looks.iter().any(|look| look.record == *record);
        !self.checker.sent_late(life).iter().all(is_looked_at)
    }

    fn pauses(&self, process: &Arc<Process>, pause: Duration) {
        let process = process.clone();
        self.world.clock().later(pause, move || process.goes_on());
    }

    /// Handles a stop of the serving process.
    fn stopped(&mut self, stop: Stop) {
        let Some(process) = self.lives.last().map(|life| life.process.clone()) else { return };
        match stop.pause() {
            Some(pause) => self.pauses(&process, pause),
            None if stop == Stop::Kill => {
                self.dies(process.life, stop);
                self.lives.pop();
            }
            // A power failure ends the zombies, too.
            None => {
                let lives = std::mem::take(&mut self.lives);
                for life in &lives {
                    self.dies(life.process.life, stop);
                }
            }
        }
    }

    /// The newest process that is neither paused nor dead.
    fn serving(&self) -> Option<&Life> {
        self.lives.iter().rev().find(|life| life.process.runs())
    }

    /// True if the life makes no progress any more, or has used up its turns, also if each answer raises the next
    /// question.
    fn is_restless(&self) -> bool {
        self.turns.saturating_sub(self.progress.1) >= RESTLESS || self.turns >= self.body.turns()
    }

    /// Lets a person answer an open question. False if there is none to answer.
    fn answers(&mut self) -> bool {
        let Some(life) = self.serving().filter(|_| !self.is_restless()) else { return false };
        let open = |q: &Question| q.answer.is_none() && !self.answered.contains(&q.id);
        let mut open: Vec<_> = self.disk.model.escalations().into_iter().filter(open).collect();
        open.truncate(1); // one at a time, because an answer may answer other questions, too
        let Some(asked) = open.pop() else { return false };
        let records = self.disk.model.records();
        let record = records.iter().find(|record| Some(record.id) == asked.record);
        let question = OpenQuestion { question: &asked, record, world: &self.world };
        if let Some(resolution) = self.body.answer(&question) {
            life.answer(&asked, resolution);
        }
        self.answered.insert(asked.id);
        true
    }

    /// Starts an audit, if only an audit can find an effect. False if there is nothing to audit.
    fn audits(&mut self) -> bool {
        let Some(life) = self.serving().filter(|_| self.unseen && !self.is_restless()) else { return false };
        self.world.note(Happened::Audited);
        life.audit(self.disk.model.records().into_iter().map(|record| record.tenant).collect());
        self.unseen = false;
        true
    }

    /// Checks that each caller got an answer. The newest process answers alone, because it has read the ledger of all
    /// before it. Of several workers, any one may have answered, because a worker that was fenced answers nobody.
    fn untold(&self) -> Vec<Violation> {
        let runs = |life: &&Life| life.process.runs();
        let serves = match self.lives.iter().rfind(runs) {
            Some(serving) => self.is_shared() || serving.process.life == self.newest(),
            None => false,
        };
        // A worker that was paused for longer than its lease may be the only one left, and a restored ledger begins
        // nothing before a person has answered.
        let paused =
            |incident: &Incident| matches!(incident, Incident::Stop { stop, .. } if stop.pause().is_some());
        let is_fenced = self.is_shared() && self.schedule.incidents().iter().any(paused);
        if !serves || is_fenced || self.is_restless() || self.lost > 0 {
            return Vec::new();
        }
        let store_works = self.schedule.incidents().iter().all(spares_the_store);
        let answering = if self.is_shared() { self.processes.len() } else { 1 };
        let runs = self.disk.model.runs();
        let untold = |place: usize| {
            let caller = self.body.caller(place)?;
            // Of a run that has not ended, the rules at rest say what it waits for.
            if runs.iter().any(|run| caller.asks_for(run) && !run.state.is_final()) {
                return None;
            }
            let mut why = "nothing";
            for process in self.processes.iter().rev().take(answering) {
                match process.answer(place) {
                    Some(Answered::StoreFailed) if store_works => {
                        why = "that the store failed, which it did not";
                    }
                    Some(_) => return None,
                    None => {}
                }
            }
            let what = format!("the caller of {} ({}) was told {why}", caller.key, caller.tenant);
            Some(Violation { rule: Rule::CallerTold, what })
        };
        (0..self.body.asks()).filter_map(untold).collect()
    }

    fn ends(self) -> Trial {
        let is_restless = self.is_restless();
        let lasting = self.lasting();
        let untold = self.untold();
        drop(self.lives);
        let told: Vec<_> = self.processes.iter().map(|process| process.told()).collect();
        let mut violations = self.checker.take();
        let (told_since, restored) = (&told[self.lost..], self.lost > 0);
        let rest = super::rest::at_rest(&lasting, told_since, restored);
        // A restless run was not dropped: its lack of progress is reported already.
        violations
            .extend(rest.into_iter().filter(|found| !is_restless || found.rule != Rule::NothingDropped));
        violations.extend(untold);
        Trial {
            told,
            crossed: self.processes.iter().map(|process| process.crossed()).collect(),
            commits_before: self.commits_before,
            requests: self.world.requests(),
            events: self.world.take_log(),
            disk: self.disk,
            violations,
            world: self.world,
        }
    }
}

/// True if no commit fails by this incident.
const fn spares_the_store(incident: &Incident) -> bool {
    matches!(
        incident,
        Incident::Stop { .. }
            | Incident::Fault { .. }
            | Incident::ClockJumps { .. }
            | Incident::Down { .. }
            | Incident::LookupDown { .. }
            | Incident::Restored { .. }
    )
}
