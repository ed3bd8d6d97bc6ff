//! A simulated process: a runtime that runs until it is quiet, is stopped on schedule, and is dropped when it is
//! dead.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::runtime::Runtime;

use super::chance::Seeded;
use super::check::Checker;
use super::disk::{Disk, Mounted};
use super::machine::{Answered, Body, Caller, Told};
use super::schedule::{Schedule, Stop};
use super::timeline::Happened;
use super::world::World;
use super::{CrashPoint, Watch};
use crate::clock::{Clock as _, Timestamp};
use crate::flow::Engine;
use crate::id::Tenant;
use crate::store::{Question, Resolution};
use crate::tool::{Call, ToolSpec, Touch, Witness};

/// The pause before a process that could not start is started again, and before a person whose answer was not taken tries
/// again.
const RESTART: Duration = Duration::from_secs(1);

/// A process with everything that runs in it.
pub(super) struct Life {
    pub(super) process: Arc<Process>,
    runtime: Runtime,
}

impl Life {
    /// Starts a process.
    pub(super) fn new(body: &dyn Body, process: Arc<Process>, chance: Seeded) -> Self {
        let parked = process.clone();
        #[allow(clippy::expect_used, reason = "without drivers, a runtime asks the system for nothing")]
        let runtime = tokio::runtime::Builder::new_current_thread()
            .on_thread_park(move || parked.is_quiet())
            .event_interval(1) // a stopped process does not continue before the others had their turn
            .build()
            .expect("a runtime without drivers");
        let mounted = Mounted { disk: process.disk.clone(), process: process.clone() };
        let builder = mounted.engine().clock(process.world.clock().clone()).entropy(chance);
        let builder = body.engine(builder, &process.world);
        #[cfg(feature = "encryption")]
        let builder = builder.with(crate::exec::ExecutorBuilder::unprotected); // the rules read the rows
        let builder = builder.watch(process.clone()).witnessed_by(process.clone());
        let starting = process.clone();
        runtime.spawn(async move {
            match builder.start().await {
                Ok(engine) => starting.is_asked(engine),
                // A supervisor starts the process again, after a pause: a store that is away would use up all lives at once.
                Err(_) => {
                    starting.world.clock().sleep(RESTART).await;
                    starting.stop(Stop::Kill);
                }
            }
        });
        Self { process, runtime }
    }

    /// Runs the process until it has to wait for time to pass, or is stopped.
    pub(super) fn work(&self, body: &dyn Body) {
        loop {
            self.until_quiet();
            let Some(engine) = locked(&self.process.asked).take() else { return };
            for place in 0..body.asks() {
                let (process, answer) =
                    (self.process.clone(), body.ask(place, engine.clone(), &self.process.world));
                let caller = body.caller(place);
                self.runtime.spawn(async move {
                    let answer = answer.await;
                    if let Some(caller) = caller {
                        process.tell(place, &caller, answer);
                    }
                });
            }
        }
    }

    fn until_quiet(&self) {
        let process = &self.process;
        process.quiet.store(false, Ordering::Release);
        self.runtime.block_on(poll_fn(|cx| {
            process.main.register(cx.waker());
            if process.quiet.load(Ordering::Acquire) || !process.runs() {
                return Poll::Ready(());
            }
            Poll::Pending
        }));
    }

    /// Answers a question as a person, and lets the callers of the runs ask again.
    pub(super) fn answer(&self, question: &Question, resolution: Resolution) {
        let Some(engine) = locked(&self.process.engine).clone() else { return };
        let (process, tenant, id) = (self.process.clone(), question.tenant.clone(), question.id);
        self.runtime.spawn(async move {
            // If the answer fails, the question is still open. While the store is away, the person tries again.
            while let Err(error) = engine.executor().answer(&tenant, id, resolution.clone(), "operator").await
            {
                process.world.note(Happened::Refused { why: error.to_string() });
                if !error.is_transient() {
                    break;
                }
                process.world.clock().sleep(RESTART).await;
            }
            process.is_asked(engine);
        });
    }

    /// Starts an audit of all committed records, as an operator does.
    pub(super) fn audit(&self, tenants: BTreeSet<Tenant>) {
        let Some(engine) = locked(&self.process.engine).clone() else { return };
        self.runtime.spawn(async move {
            for tenant in tenants {
                // If the audit fails, the effects that it did not check stay unchecked, and a rule is broken.
                let _ = engine.executor().audit(&tenant, Timestamp::MIN).await;
            }
        });
    }
}

impl Drop for Life {
    /// Marks the process as dead before its tasks are dropped. The engine and the runtime hold the process, which
    /// must release them: otherwise a cycle would keep all of them alive.
    fn drop(&mut self) {
        self.process.state.store(DEAD, Ordering::Release);
        drop((locked(&self.process.engine).take(), locked(&self.process.asked).take()));
        drop(self.process.main.take());
    }
}

const RUNS: u8 = 0;
const PAUSED: u8 = 1;
const DEAD: u8 = 2;

/// The parts of a simulation that outlive its processes.
#[derive(Clone)]
pub(super) struct Lasting {
    pub(super) world: World,
    pub(super) disk: Arc<Disk>,
    /// The checker that watches all lives.
    pub(super) checker: Arc<Checker>,
}

/// A simulated process, which its crash points report to.
pub(super) struct Process {
    pub(super) life: u32,
    pub(super) disk: Arc<Disk>,
    world: World,
    checker: Arc<Checker>,
    /// The crossings at which the process is stopped, and the kind of each stop.
    stops: BTreeMap<usize, Stop>,
    state: AtomicU8,
    stopped: Mutex<Option<Stop>>,
    crossed: Mutex<Vec<Crossing>>,
    /// The answers that callers got, by the index of the run. A result stays, whatever the same caller is told later.
    answers: Mutex<BTreeMap<usize, Answered>>,
    engine: Mutex<Option<Engine>>,
    /// The engine, if the runs are to be asked for.
    asked: Mutex<Option<Engine>>,
    /// True if no task of the process can continue before time has passed.
    quiet: AtomicBool,
    main: AtomicWaker,
}

/// A crash point that was crossed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crossing {
    pub(super) point: CrashPoint,
    /// The number of writes that were in flight to the disk.
    pub(super) writing: usize,
}

impl Process {
    pub(super) fn new(life: u32, schedule: &Schedule, lasting: Lasting) -> Self {
        let Lasting { world, disk, checker } = lasting;
        Self {
            life,
            disk,
            world,
            checker,
            stops: schedule.stops(life),
            state: AtomicU8::new(RUNS),
            stopped: Mutex::default(),
            crossed: Mutex::default(),
            answers: Mutex::default(),
            engine: Mutex::default(),
            asked: Mutex::default(),
            quiet: AtomicBool::new(false),
            main: AtomicWaker::new(),
        }
    }

    fn is_quiet(&self) {
        self.quiet.store(true, Ordering::Release);
        self.main.wake();
    }

    fn is_asked(&self, engine: Engine) {
        *locked(&self.engine) = Some(engine.clone());
        *locked(&self.asked) = Some(engine);
    }

    /// True if the process is neither paused nor dead.
    pub(super) fn runs(&self) -> bool {
        self.state.load(Ordering::Acquire) == RUNS
    }

    fn stop(&self, stop: Stop) {
        *locked(&self.stopped) = Some(stop);
        self.state.store(if stop.pause().is_some() { PAUSED } else { DEAD }, Ordering::Release);
        self.main.wake();
    }

    /// Takes the stop that happened, if any.
    pub(super) fn was_stopped(&self) -> Option<Stop> {
        locked(&self.stopped).take()
    }

    /// Ends a pause. A process that died during its pause stays dead.
    pub(super) fn goes_on(&self) {
        let went_on = self.state.compare_exchange(PAUSED, RUNS, Ordering::AcqRel, Ordering::Acquire);
        if went_on.is_ok() {
            self.world.acts(self.life);
            self.world.note(Happened::GoesOn);
        }
    }

    fn tell(&self, place: usize, caller: &Caller, answer: Answered) {
        if !self.runs() {
            return;
        }
        if let Answered::Told(told) = &answer {
            self.checker.told(&self.disk.model, caller, told);
        }
        let mut answers = locked(&self.answers);
        let is_result = matches!(answer, Answered::Told(_));
        if is_result || !matches!(answers.get(&place), Some(Answered::Told(_))) {
            answers.insert(place, answer);
        }
    }

    /// The answer that the caller of this index got in this life.
    pub(super) fn answer(&self, place: usize) -> Option<Answered> {
        locked(&self.answers).get(&place).cloned()
    }

    /// The results that callers got in this life.
    pub(super) fn told(&self) -> BTreeMap<usize, Told> {
        let answers = locked(&self.answers);
        let told = answers.iter().filter_map(|(place, answer)| match answer {
            Answered::Told(told) => Some((*place, told.clone())),
            Answered::StoreFailed | Answered::Otherwise => None,
        });
        told.collect()
    }

    pub(super) fn crossed(&self) -> Vec<Crossing> {
        locked(&self.crossed).clone()
    }
}

impl Watch for Process {
    fn at(&self, point: CrashPoint) {
        if self.is_dead() {
            return;
        }
        self.world.note(Happened::Crossed(point));
        let count = {
            let mut crossed = locked(&self.crossed);
            crossed.push(Crossing { point, writing: self.disk.writing_of(self.life) });
            crossed.len()
        };
        if let Some(stop) = self.stops.get(&count) {
            self.world.note(Happened::Stopped { stop: *stop, point });
            self.stop(*stop);
        }
    }

    fn is_dead(&self) -> bool {
        self.state.load(Ordering::Acquire) == DEAD
    }

    fn is_paused(&self) -> bool {
        self.state.load(Ordering::Acquire) == PAUSED
    }
}

impl Witness for Process {
    fn touches(&self, touch: Touch, call: &Call, tool: &ToolSpec) {
        if touch == Touch::Call {
            self.world.is_asked(call, tool);
        }
        self.checker.touched(self.life, touch, call, tool);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
