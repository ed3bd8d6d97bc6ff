//! The disk of a simulated machine: writes take time, fail on schedule, and are reported to the checker when they are
//! durable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;

use super::Watch as _;
use super::check::Checker;
#[cfg(feature = "sqlite")]
use super::database::Tables;
use super::life::Process;
use super::schedule::{Incident, Schedule};
use super::timeline::Happened;
use super::world::World;
use crate::clock::{Clock as _, Timestamp};
use crate::flow::{Engine, EngineBuilder};
use crate::store::{
    Change, FIRST_LATE_QUESTION, LEDGER_KIND, Model, Question, Store, StoreError, StoreFuture, Verdict,
    WorkerChange,
};

/// The time until a write is durable.
const SYNC: Duration = Duration::from_millis(1);
/// The lease of a worker of a shared ledger. Longer than a usual pause, and so long that the heartbeats of a day are
/// few enough to simulate.
pub(super) const LEASE: Duration = Duration::from_mins(2);

/// The state that survives the death of every process.
pub(super) struct Disk {
    pub(super) model: Model,
    /// The user's own tables.
    #[cfg(feature = "sqlite")]
    pub(super) tables: Tables,
    schedule: Schedule,
    world: World,
    checker: Arc<Checker>,
    commits: AtomicU32,
    /// The life that has the lock.
    locked_by: AtomicU32,
    /// The time of each batch of writes, preceded by the start time of the empty disk.
    written_at: Mutex<Vec<Timestamp>>,
    /// The time until which all commits fail.
    down_until: Mutex<Duration>,
    /// The origin of the ledger, if it is a restored older state.
    put_back: Option<PutBack>,
    /// The writes in flight, each by its number, with the life that writes it. Nobody can read them yet, and a crash
    /// decides if they reach the disk.
    writing: Mutex<BTreeMap<u32, (u32, Vec<Change>)>>,
}

/// A ledger that is older than the world.
struct PutBack {
    /// The instant of the backup, if the engine is told. Otherwise the disk is in doubt, as a copied file is.
    as_of: Option<Timestamp>,
    /// True once the doubt is noted in the ledger: from then on the disk does not report it again.
    noted: AtomicBool,
}

impl Disk {
    /// A disk of one process, or of a server that several processes share.
    pub(super) fn new(schedule: &Schedule, world: World, checker: Arc<Checker>, is_shared: bool) -> Self {
        let began = world.clock().now();
        let model = if is_shared { Model::shared(Arc::new(world.clock().clone())) } else { Model::new() };
        Self {
            written_at: Mutex::new(vec![began]),
            down_until: Mutex::default(),
            put_back: None,
            model,
            #[cfg(feature = "sqlite")]
            tables: Tables::default(),
            schedule: schedule.clone(),
            world,
            checker,
            commits: AtomicU32::new(0),
            locked_by: AtomicU32::new(0),
            writing: Mutex::default(),
        }
    }

    /// The same disk with its ledger as it was after this number of batches. The user's own tables are unchanged.
    pub(super) fn put_back(&self, batches: u32, told: bool) -> Self {
        let model = self.model.backup(batches as usize);
        let mut written_at = locked(&self.written_at).clone();
        written_at.truncate(model.batches() + 1);
        let as_of = written_at.last().copied().filter(|_| told);
        Self {
            model,
            #[cfg(feature = "sqlite")]
            tables: self.tables.clone(),
            schedule: self.schedule.clone(),
            world: self.world.clone(),
            checker: self.checker.clone(),
            commits: AtomicU32::new(self.commits()),
            locked_by: AtomicU32::new(0),
            written_at: Mutex::new(written_at),
            down_until: Mutex::default(),
            put_back: Some(PutBack { as_of, noted: AtomicBool::new(false) }),
            writing: Mutex::default(),
        }
    }

    pub(super) fn commits(&self) -> u32 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Gives the lock to a process that starts: its former holder is taken for dead.
    pub(super) fn is_locked_by(&self, life: u32) {
        self.locked_by.store(life, Ordering::Relaxed);
    }

    /// True if a process without the lock enrols or ends a worker: a real process would not get so far.
    fn refuses(&self, life: u32, changes: &[Change]) -> bool {
        !self.model.is_shared()
            && life < self.locked_by.load(Ordering::Relaxed)
            && changes.iter().any(|change| change.worker.is_some())
    }

    /// True if this commit fails, and nothing of it is written.
    fn fails(&self, number: u32) -> bool {
        let now = self.world.clock().elapsed();
        let mut down_until = locked(&self.down_until);
        let mut fails = false;
        for incident in self.schedule.incidents() {
            match *incident {
                Incident::StoreFails { commit } if commit == number => fails = true,
                Incident::StoreDown { commit, seconds } if commit == number => {
                    *down_until = now.saturating_add(Duration::from_secs(u64::from(seconds)));
                }
                _ => {}
            }
        }
        fails || now < *down_until
    }

    fn writing(&self) -> MutexGuard<'_, BTreeMap<u32, (u32, Vec<Change>)>> {
        locked(&self.writing)
    }

    /// The number of writes that a process has in flight.
    pub(super) fn writing_of(&self, life: u32) -> usize {
        self.writing().values().filter(|(by, _)| *by == life).count()
    }

    /// Ends the writes that a dead process had in flight. Each of them reached the disk all the same, or is lost:
    /// `reached` decides, by the position of the write among them.
    pub(super) fn outlives(&self, life: u32, reached: impl Fn(usize) -> bool) {
        let left: Vec<_> = self.writing().extract_if(.., |_, (by, _)| *by == life).collect();
        for (_, (_, (_, changes))) in left.into_iter().enumerate().filter(|(place, _)| reached(*place)) {
            // The model's write is durable at once, and never pending.
            let _ = self.write(life, &changes).now_or_never();
        }
    }

    async fn write(&self, life: u32, changes: &[Change]) -> Result<Vec<Verdict>, StoreError> {
        let known: BTreeSet<_> = self.late_questions(changes).into_iter().map(|asked| asked.id).collect();
        let verdicts = self.model.commit(changes).await?;
        locked(&self.written_at).push(self.world.clock().now());
        for (change, verdict) in changes.iter().zip(&verdicts) {
            match verdict {
                Verdict::Admitted => self.note(change),
                Verdict::Refused(refusal) => self.world.note(Happened::Refused { why: refusal.to_string() }),
            }
        }
        for asked in self.late_questions(changes).into_iter().filter(|asked| !known.contains(&asked.id)) {
            self.world.note(Happened::Asked { question: asked.question });
        }
        let admitted = changes.iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_admitted());
        self.checker.wrote(life, admitted.map(|(change, _)| change));
        Ok(verdicts)
    }

    /// The questions that the store itself may open, if one of these changes makes the store compare.
    fn late_questions(&self, changes: &[Change]) -> Vec<Question> {
        let looks = changes.iter().any(|change| change.compared().is_some());
        let mut questions = if looks { self.model.escalations() } else { Vec::new() };
        questions.retain(|asked| asked.id >= FIRST_LATE_QUESTION);
        questions
    }

    fn note(&self, change: &Change) {
        if let Some(put_back) = &self.put_back
            && change.documents.iter().any(|document| document.kind.as_str() == LEDGER_KIND)
        {
            put_back.noted.store(true, Ordering::Relaxed);
        }
        if let Some(record) = &change.record {
            let state = record.state.name();
            self.world.note(Happened::Recorded { operation: record.key.clone(), state });
        }
        if let Some(run) = &change.run {
            self.world.note(Happened::Run { state: run.state.name() });
        }
        for asked in &change.escalations {
            let question = asked.question.clone();
            self.world.note(match &asked.answer {
                None => Happened::Asked { question },
                Some(answer) => Happened::Answered { question, by: answer.by.clone() },
            });
        }
    }
}

/// The disk as one process sees it.
pub(super) struct Mounted {
    pub(super) disk: Arc<Disk>,
    pub(super) process: Arc<Process>,
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounted").field("life", &self.process.life).finish_non_exhaustive()
    }
}

impl Mounted {
    /// The builder of an engine on this disk.
    pub(super) fn engine(self) -> EngineBuilder {
        let mounted = Arc::new(self);
        // The sweeper is off: retention takes years, and each simulated hour would have a sweep.
        let engine = Engine::store(mounted.clone()).sweep(false).lease(LEASE);
        let engine = match &mounted.disk.put_back {
            Some(PutBack { as_of: Some(as_of), .. }) => engine.restored(Some(*as_of)),
            Some(PutBack { noted, .. }) if !noted.load(Ordering::Relaxed) => {
                engine.with(|executor| executor.doubtful("it is an older state of itself"))
            }
            _ => engine,
        };
        #[cfg(feature = "sqlite")]
        let engine =
            engine.database(mounted.disk.tables.on(mounted.clone(), mounted.disk.world.clock().clone()));
        engine
    }

    /// Never returns in a dead process.
    async fn or_dead(&self) {
        if self.process.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}

impl Store for Mounted {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            self.or_dead().await;
            let (disk, life) = (&*self.disk, self.process.life);
            if disk.refuses(life, changes) {
                return Err(StoreError::Closed);
            }
            let number = disk.commits.fetch_add(1, Ordering::Relaxed) + 1;
            let failed = |written| {
                disk.world.note(Happened::StoreFailed { written });
                Err(StoreError::Io { detail: "simulated".into() })
            };
            let fails = disk.fails(number);
            if !fails {
                disk.writing().insert(number, (life, changes.to_vec()));
            }
            let clock = disk.world.clock();
            if changes.iter().all(is_heartbeat) { clock.rest(SYNC) } else { clock.sleep(SYNC) }.await;
            self.or_dead().await;
            if fails {
                return failed(false);
            }
            disk.writing().remove(&number);
            let verdicts = disk.write(life, changes).await?;
            if disk.schedule.incidents().contains(&Incident::StoreAnswerLost { commit: number }) {
                return failed(true);
            }
            Ok(verdicts)
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&self.disk.model)
    }
}

/// True if a change only renews a worker's lease.
fn is_heartbeat(change: &Change) -> bool {
    matches!(change.worker, Some(WorkerChange::Renew { .. }))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
