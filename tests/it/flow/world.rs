//! A small outside world for the workflow tests: it counts what happens to it, can hold a call at a named
//! point, and outlives the processes that call it.
//!
//! A [`Process`] is an engine on a runtime of its own with one worker thread. [`Process::crash`] stops that
//! runtime without a word to the engine: no future of it is polled again, as after `kill -9`.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use counterfoil::Clock;
use counterfoil::exec::StartError;
use counterfoil::flow::{EngineBuilder, TenantClient};
use counterfoil::store::{Question, QuestionKind};
use counterfoil::{Ctx, Engine, Failure, RunId};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::flow::store::Tap;
use crate::flow::tools::{Pay, Post, Ring, Tell};
use crate::store::postgres::Schema;
use crate::world::Log;

/// A workflow as a function of the world.
#[macro_export]
macro_rules! flow {
    ($world:ident, |$ctx:ident, $input:ident: $kind:ty| $body:expr) => {{
        let $world = $world.clone();
        move |$ctx: counterfoil::Ctx, $input: $kind| {
            let $world = $world.clone();
            async move {
                let _ = (&$world, &$input);
                $body
            }
        }
    }};
}

/// A step that counts its executions.
pub(crate) async fn counted(world: &World, ctx: &Ctx, name: &str, input: u32) -> Result<u32, Failure> {
    ctx.step(name, &input, |input| {
        world.count(name);
        input + 1
    })
    .await
}

/// What the world saw, by its own books.
#[derive(Default)]
pub(crate) struct Seen {
    /// The effects in their order: tool, key on the wire, content.
    pub(crate) effects: Vec<(&'static str, String, String)>,
    counts: HashMap<String, u32>,
    held: HashSet<String>,
    waiting: HashMap<String, u32>,
}

/// The world and the file of the engines in it.
pub(crate) struct World {
    dir: TempDir,
    seen: watch::Sender<Seen>,
    pub(crate) tap: Tap,
}

impl World {
    pub(crate) fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        Arc::new(Self { dir, seen: watch::Sender::default(), tap: Tap::default() })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("agents.db")
    }

    /// An engine with all tools of this world.
    pub(crate) fn engine(self: &Arc<Self>) -> EngineBuilder {
        self.equip(Engine::sqlite(self.path()), &self.tap)
    }

    /// The same on either store: in this schema of PostgreSQL, if it is shared.
    pub(crate) fn engine_in(self: &Arc<Self>, schema: &Schema, shared: bool) -> EngineBuilder {
        if shared {
            self.equip(
                Engine::postgres_with(crate::server::url(), schema.options()).lease(crate::server::LEASE),
                &self.tap,
            )
        } else {
            self.engine()
        }
    }

    /// The same on any store, behind this tap.
    pub(crate) fn equip(self: &Arc<Self>, engine: EngineBuilder, tap: &Tap) -> EngineBuilder {
        let tap = tap.clone();
        engine
            .wrap_store(move |store| tap.around(store))
            .tool(Post(self.clone()))
            .tool(Pay(self.clone(), OnceLock::new()))
            .tool(Tell(self.clone()))
            .tool(Ring(self.clone()))
    }

    /// An engine with all tools, on another clock.
    pub(crate) fn engine_on(self: &Arc<Self>, clock: impl Clock + 'static) -> EngineBuilder {
        self.engine().clock(clock)
    }

    /// The contents of a tool's effects, in their order.
    pub(crate) fn effects(&self, tool: &str) -> Vec<String> {
        let seen = self.seen.borrow();
        seen.effects.iter().filter(|(by, ..)| *by == tool).map(|(_, _, what)| what.clone()).collect()
    }

    pub(crate) fn see<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.borrow())
    }

    pub(crate) fn happen(&self, tool: &'static str, key: &str, what: &str) -> u32 {
        self.seen.send_modify(|seen| seen.effects.push((tool, key.to_owned(), what.to_owned())));
        u32::try_from(self.effects(tool).len()).unwrap()
    }

    /// Counts one more of something (an executed step, a draw) and says how many there are.
    pub(crate) fn count(&self, what: &str) -> u32 {
        self.seen.send_modify(|seen| *seen.counts.entry(what.to_owned()).or_default() += 1);
        self.counted(what)
    }

    pub(crate) fn counted(&self, what: &str) -> u32 {
        self.seen.borrow().counts.get(what).copied().unwrap_or_default()
    }

    /// From now on whoever comes to this point waits there.
    pub(crate) fn hold(&self, point: &str) {
        self.seen.send_modify(|seen| {
            seen.held.insert(point.to_owned());
        });
    }

    pub(crate) fn release(&self, point: &str) {
        self.seen.send_modify(|seen| {
            seen.held.remove(point);
        });
    }

    /// Goes past a point, or waits there while it is held.
    pub(crate) async fn pass(&self, point: &str) {
        if !self.seen.borrow().held.contains(point) {
            return;
        }
        let _waiting = Waiting::at(self, point);
        self.until(|seen| !seen.held.contains(point)).await;
    }

    /// Resolves when somebody waits at a held point.
    pub(crate) async fn reached(&self, point: &str) {
        self.until(|seen| seen.waiting.get(point).is_some_and(|waiting| *waiting > 0)).await;
    }

    /// Resolves when something has been counted so often.
    pub(crate) async fn counts(&self, what: &str, times: u32) {
        self.until(|seen| seen.counts.get(what).is_some_and(|count| *count >= times)).await;
    }

    async fn until(&self, condition: impl FnMut(&Seen) -> bool) {
        self.seen.subscribe().wait_for(condition).await.map(drop).unwrap();
    }
}

struct Waiting<'a>(&'a World, String);

impl<'a> Waiting<'a> {
    fn at(world: &'a World, point: &str) -> Self {
        world.seen.send_modify(|seen| *seen.waiting.entry(point.to_owned()).or_default() += 1);
        Self(world, point.to_owned())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.seen.send_modify(|seen| *seen.waiting.entry(self.1.clone()).or_default() -= 1);
    }
}

/// One life of an engine.
pub(crate) struct Process {
    engine: Engine,
    runtime: Runtime,
    world: Arc<World>,
}

impl Process {
    pub(crate) fn start(world: &Arc<World>, builder: EngineBuilder) -> Self {
        Self::try_start(world, builder).unwrap()
    }

    pub(crate) fn try_start(world: &Arc<World>, builder: EngineBuilder) -> Result<Self, StartError> {
        Self::start_with(world, builder, || {})
    }

    /// The same where the log listens on each thread of the process. The caller has it listen on its own thread.
    pub(crate) fn start_logged(world: &Arc<World>, builder: EngineBuilder, log: &Log) -> Self {
        let log = log.clone();
        Self::start_with(world, builder, move || std::mem::forget(log.listen())).unwrap()
    }

    fn start_with(
        world: &Arc<World>,
        builder: EngineBuilder,
        on_thread: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        // One worker: once it stops, no task of this process can be polled by another one.
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).on_thread_start(on_thread).enable_all().build().unwrap();
        let engine = runtime.block_on(builder.start())?;
        Ok(Self { engine, runtime, world: world.clone() })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn acme(&self) -> TenantClient {
        self.engine.tenant("acme").unwrap()
    }

    /// Does something in this process, as its main thread.
    #[allow(clippy::disallowed_methods, reason = "a watchdog for tests that hang, not a synchronisation")]
    #[track_caller] // a test that hangs says where
    pub(crate) fn on<T>(&self, work: impl IntoFuture<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(20), work).await })
            .expect("the test hangs: what it waits for does not happen")
    }

    /// Does something in this process beside what else it does.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Dies where it stands. Returns when nothing of it is left, so that its lock is free.
    pub(crate) fn crash(self) {
        let Self { engine, runtime, .. } = self;
        drop(engine);
        runtime.shutdown_timeout(Duration::from_secs(10));
    }

    /// Ends in order.
    pub(crate) fn shut_down(self) {
        let Self { engine, runtime, .. } = self;
        runtime.block_on(engine.shutdown(Duration::from_secs(10)));
        runtime.shutdown_timeout(Duration::from_secs(10));
    }

    /// Resolves when a condition on what is durable holds; looked at again after each commit.
    pub(crate) async fn until(&self, condition: impl AsyncFn(&TenantClient) -> bool) {
        let mut commits = self.world.tap.watch();
        let acme = self.acme();
        while !condition(&acme).await {
            commits.changed().await.unwrap();
        }
    }

    /// Resolves when the run is in this state.
    pub(crate) async fn state(&self, run: RunId, state: &str) {
        self.until(async |acme| acme.handle::<()>(run).status().await.unwrap().state.name() == state).await;
    }

    /// The one open question of this kind.
    pub(crate) async fn question(&self, kind: QuestionKind) -> Question {
        let open = self.questions(kind).await;
        assert_eq!(open.len(), 1, "exactly one open question: {open:#?}");
        open.into_iter().next().unwrap()
    }

    pub(crate) async fn questions(&self, kind: QuestionKind) -> Vec<Question> {
        let open = self.acme().questions().await.unwrap();
        open.into_iter().filter(|question| question.kind == kind).collect()
    }
}
