//! One simulation: a machine on which processes die and are started again, until nothing is left to do.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::Notify;

use super::check::{Checker, Violation};
use super::clock::SimClock;
#[cfg(feature = "sqlite")]
use super::database::Tables;
use super::schedule::{Incident, Schedule};
use super::timeline::{Event, Happened};
use super::world::World;
use super::{CrashPoint, Touch, Watch};
use crate::clock::Clock as _;
use crate::flow::{Engine, EngineBuilder};
use crate::id::Entropy;
use crate::store::{Asked, Change, Model, Store, StoreError, Verdict};
use crate::tool::{Call, ToolSpec};

/// How long a write takes to be durable.
const SYNC: Duration = Duration::from_millis(1);
/// A process that is started this often and never comes to rest is not going to.
const MAX_LIVES: u32 = 8;

/// What every life of the process is: an engine, and what is asked of it.
pub(super) trait Body {
    /// Gives the engine its workflows and tools.
    fn engine(&self, builder: EngineBuilder, world: &World) -> EngineBuilder;
    /// Asks for the work. Whatever it returns is what its caller was told.
    fn work(&self, engine: Engine) -> BoxFuture<'static, Option<Told>>;
}

/// What a caller was told.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    /// The workflow returned this.
    Succeeded(Value),
    /// It failed.
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

/// What came of one simulation.
pub(super) struct Trial {
    /// What the caller was told, in each life in which it was told anything.
    pub(super) told: Vec<Told>,
    /// The points that each life crossed.
    pub(super) crossed: Vec<Vec<CrashPoint>>,
    pub(super) requests: u32,
    pub(super) commits: u32,
    pub(super) events: Vec<Event>,
    pub(super) world: World,
    pub(super) store: Arc<Model>,
    /// The user's own.
    #[cfg(feature = "sqlite")]
    pub(super) tables: Tables,
    pub(super) violations: Vec<Violation>,
}

/// Chance, from a seed (splitmix64).
#[derive(Debug)]
pub(super) struct Seeded(AtomicU64);

impl Seeded {
    pub(super) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Entropy for Seeded {
    fn bits(&self) -> u64 {
        let x =
            self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// Tries a schedule.
pub(super) fn run(body: &dyn Body, schedule: &Schedule, seed: u64) -> Trial {
    let clock = SimClock::default();
    let world = World::new(clock.clone(), schedule);
    let commits = Arc::new(AtomicU32::new(0));
    let checker = Arc::new(Checker::new(clock.clone()));
    let mut store = Arc::new(Model::new());
    #[cfg(feature = "sqlite")]
    let tables = Tables::default();
    let (mut told, mut crossed) = (Vec::new(), Vec::new());
    for life in 1..=MAX_LIVES {
        for incident in schedule.incidents() {
            if let Incident::ClockJumps { life: before, seconds } = incident
                && *before == life
            {
                clock.jump(*seconds);
            }
        }
        world.begin_life(life);
        world.note(Happened::Started);
        checker.begin_life(life);
        let process = Arc::new(Process::new(life, schedule, world.clone(), checker.clone()));
        let disk = Disk {
            store: store.clone(),
            process: process.clone(),
            schedule: schedule.clone(),
            commits: commits.clone(),
            #[cfg(feature = "sqlite")]
            tables: tables.clone(),
        };
        let chance = Seeded::new(seed.wrapping_add(u64::from(life)));
        told.extend(live(body, &process, disk, chance));
        crossed.push(std::mem::take(&mut *process.crossed()));
        if !process.was_killed() {
            break;
        }
        store = Arc::new(store.crash());
    }
    let mut violations = checker.take();
    violations.extend(super::check::at_rest(&store, &world, &told));
    Trial {
        told,
        crossed,
        requests: world.requests(),
        commits: commits.load(Ordering::Relaxed),
        events: world.take_log(),
        store,
        #[cfg(feature = "sqlite")]
        tables,
        violations,
        world,
    }
}

/// One life of the process: until it dies, or nothing is left to do.
fn live(body: &dyn Body, process: &Arc<Process>, disk: Disk, chance: Seeded) -> Option<Told> {
    let world = process.world.clone();
    let clock = world.clock().clone();
    let parked = clock.clone();
    #[allow(clippy::expect_used, reason = "without drivers, a runtime asks the system for nothing")]
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || parked.advance())
        .build()
        .expect("a runtime without drivers");
    let store = disk.store.clone();
    let builder = disk.engine().clock(clock.clone()).entropy(chance);
    let builder = body.engine(builder, &world).watch(process.clone());
    let mut told = None;
    runtime.block_on(async {
        let life = async {
            let Ok(engine) = builder.start().await else {
                return process.kill(); // whoever supervises it starts it again
            };
            let answer = body.work(engine.clone()).await;
            if let Some(answer) = answer.filter(|_| !process.is_dead()) {
                process.checker.told(&store, &answer);
                told = Some(answer);
            }
            // What goes on without its caller (a confirming lookup) is part of this life.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = process.died.notified() => {}
            () = clock.idle() => {
                world.note(Happened::AtRest);
                process.checker.rested(&clock);
            }
            () = life => {}
        }
    });
    // Whatever its tasks do while they are dropped, they do it in a dead process.
    process.dead.store(true, Ordering::Release);
    drop(runtime);
    told
}

/// A simulated process: what crosses its crash points.
pub(super) struct Process {
    life: u32,
    crash_at: Option<usize>,
    crossed: Mutex<Vec<CrashPoint>>,
    killed: AtomicBool,
    dead: AtomicBool,
    died: Notify,
    world: World,
    checker: Arc<Checker>,
}

impl Process {
    fn new(life: u32, schedule: &Schedule, world: World, checker: Arc<Checker>) -> Self {
        let crash_at = schedule.incidents().iter().find_map(|incident| match incident {
            Incident::Crash { life: then, crossing } if *then == life => Some(*crossing as usize),
            _ => None,
        });
        Self {
            life,
            crash_at,
            crossed: Mutex::default(),
            killed: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            died: Notify::new(),
            world,
            checker,
        }
    }

    fn crossed(&self) -> MutexGuard<'_, Vec<CrashPoint>> {
        self.crossed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.dead.store(true, Ordering::Release);
        self.died.notify_one();
    }

    fn was_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }
}

impl Watch for Process {
    fn at(&self, point: CrashPoint) {
        if self.is_dead() {
            return;
        }
        self.world.note(Happened::Crossed(point));
        let count = {
            let mut crossed = self.crossed();
            crossed.push(point);
            crossed.len()
        };
        if self.crash_at == Some(count) {
            self.world.note(Happened::Died(point));
            self.kill();
        }
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    fn touches(&self, touch: Touch, call: &Call, tool: &ToolSpec) {
        self.checker.touched(self.life, touch, call, tool);
    }
}

/// The disk under the store: it takes its time, fails as told, and tells the checker what became durable.
struct Disk {
    store: Arc<Model>,
    process: Arc<Process>,
    schedule: Schedule,
    commits: Arc<AtomicU32>,
    #[cfg(feature = "sqlite")]
    tables: Tables,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("life", &self.process.life).finish_non_exhaustive()
    }
}

impl Disk {
    /// An engine on this disk, and on the user's tables beside it.
    fn engine(self) -> EngineBuilder {
        let disk = Arc::new(self);
        let engine = Engine::store(disk.clone());
        #[cfg(feature = "sqlite")]
        let engine = engine.database(disk.tables.on(disk.clone()));
        engine
    }

    /// In a dead process nobody comes back from here.
    async fn or_dead(&self) {
        if self.process.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    fn note(&self, changes: &[Change], verdicts: &[Verdict]) {
        let world = &self.process.world;
        for (change, _) in changes.iter().zip(verdicts).filter(|(_, verdict)| verdict.is_admitted()) {
            self.process.checker.wrote(change);
            if let Some(record) = &change.record {
                let state = record.state.name();
                world.note(Happened::Recorded { operation: record.key.clone(), state });
            }
            if let Some(run) = &change.run {
                world.note(Happened::Run { state: run.state.name() });
            }
            for asked in change.escalations.iter().filter(|asked| asked.answer.is_none()) {
                world.note(Happened::Asked { question: asked.question.clone() });
            }
        }
    }
}

impl Store for Disk {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> Asked<'a, Vec<Verdict>> {
        Box::pin(async move {
            self.or_dead().await;
            let number = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
            self.process.world.clock().sleep(SYNC).await;
            self.or_dead().await;
            let failed = |written| {
                self.process.world.note(Happened::StoreFailed { written });
                Err(StoreError::Io { detail: "simulated".into() })
            };
            if self.schedule.incidents().contains(&Incident::StoreFails { commit: number }) {
                return failed(false);
            }
            let verdicts = self.store.commit(changes).await?;
            self.note(changes, &verdicts);
            if self.schedule.incidents().contains(&Incident::StoreAnswerLost { commit: number }) {
                return failed(true);
            }
            Ok(verdicts)
        })
    }

    crate::delegate_reads!(self => self.store; all);
}
