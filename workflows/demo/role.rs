//! The child's side: what a process does that was started again by this program, and what it says to its parent.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use counterfoil::exec::StartError;
use counterfoil::flow::{RunError, RunHandle, RunState, TenantClient};
use counterfoil::ledger::{Basis, Look, Reason, Record, State};
use counterfoil::sim::{CrashPoint, KillAt, Watch};
use counterfoil::store::{OpenError, QuestionKind, Resolution, StoreError};
use counterfoil::{Boot, Clock as _, SystemClock};
use counterfoil::{Engine, Executor, Tenant};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::case_notice::classes::{Class, operation};
use super::case_notice::client::{Http, Place, Provider};
use super::case_notice::{Case, Receipt, provider};
use super::shop::Shop;
use super::worker::{Ledger, Shift};
use super::{Failed, desk, naive, worker};

/// The environment variable that makes a process a child.
pub const ROLE: &str = "COUNTERFOIL_ROLE";
/// What a line to the parent begins with: a test runner writes on the same stream.
pub const MARK: &str = "counterfoil-child ";
/// Whose runs they are.
pub const TENANT: &str = "acme";
/// The exit code of a life that was asked to end, and left a call behind whose outcome is unknown.
pub const LEFT_AMBIGUOUS: i32 = 75;

/// What a child is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// The provider, on a free port of the loopback.
    Provider { db: PathBuf },
    /// One life of the workflow.
    Life(Order),
    /// One life of the naive loop.
    Naive(Order),
    /// Makes the tables of many workers.
    Prepare(Ledger),
    /// One of many workers.
    Worker(Shift),
    /// One life of the whole desk.
    Desk(Order),
    /// One life of an order service.
    Shop(Shop),
}

/// What a life has to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The ledger, or the journal.
    pub ledger: PathBuf,
    /// Where the provider is.
    pub provider: String,
    pub class: Class,
    pub case: String,
    /// Die here: a crash point, as in `after-call:1`.
    pub kill: Option<String>,
    /// See [`Provider`].
    pub settle: Duration,
    pub patience: Duration,
    /// How long a life that is asked to end may take to finish its calls.
    pub drain: Duration,
    /// Answer the open questions first: it did not happen, go on.
    pub resume: bool,
}

impl Order {
    pub fn case(&self) -> Case {
        let finding = "your permit is granted".to_owned();
        Case { id: self.case.clone(), recipient: "ann".to_owned(), finding }
    }

    pub fn kill(&self) -> Result<Option<KillAt>, Failed> {
        Ok(self.kill.as_deref().map(str::parse).transpose()?)
    }

    pub fn client(&self) -> Result<Provider, Failed> {
        let mut provider = Provider::new(Place::Http(Http::new(&self.provider)?), self.settle);
        provider.patience = self.patience;
        Ok(provider)
    }
}

/// What a child says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    /// The provider takes requests here.
    Listening { url: String },
    /// The store belongs to a process that is alive.
    Owned { message: String },
    /// It is known what becomes of the run: it has ended, or asks a person.
    Known,
    /// The life is over.
    Lived(Report),
    /// A worker is at work.
    Working,
    /// All runs that this worker has begun have ended.
    Through,
    /// Something that its parent has to hear at once, whatever becomes of this life.
    Told(String),
    /// The naive loop is through, or has given up.
    Looped { succeeded: bool },
}

/// What came of a life, as the engine sees it. What happened in the world is not its to say.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub ended: Ended,
    pub record: Option<Recorded>,
    /// The kinds of the open questions.
    pub questions: Vec<QuestionKind>,
    /// The crash points that were crossed, by name, in their order.
    pub crossed: Vec<String>,
    /// From the start of the process until the run was taken over, if one was.
    pub taken_over_after: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    Succeeded,
    /// The run waits for a person.
    Asked,
    /// The run was blocked, and waits for a person.
    Blocked(String),
    Failed(String),
    /// The process was asked to end before the run did.
    Terminated,
}

/// The record of the notice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorded {
    pub state: String,
    pub basis: String,
    pub attempts: u32,
    /// A question about it is open.
    pub asked: bool,
}

impl Recorded {
    fn of(record: &Record) -> Self {
        Self {
            state: record.state.name().to_owned(),
            basis: format!("{:?}", record.basis),
            attempts: record.attempts,
            asked: record.escalation.is_some(),
        }
    }

    /// It rests on the provider's word alone, and says so.
    pub fn is_marked(&self) -> bool {
        self.basis == format!("{:?}", Basis::Declaration)
    }
}

impl Report {
    pub fn crossed(&self, point: CrashPoint) -> u32 {
        self.crossed.iter().map(|name| u32::from(name == point.name())).sum()
    }
}

/// Does what the environment asks for and ends the process, if it is a child's.
pub fn play_if_child() {
    play_if_child_by(play);
}

/// The same for a program that has roles of its own.
pub fn play_if_child_by<R: DeserializeOwned>(play: impl AsyncFnOnce(R) -> Result<i32, Failed>) {
    let Ok(role) = std::env::var(ROLE) else { return };
    let code = cast(&role, play).unwrap_or_else(|error| {
        eprintln!("a child failed: {error}\nit was to be {role}");
        1
    });
    std::process::exit(code);
}

fn cast<R: DeserializeOwned>(
    role: &str,
    play: impl AsyncFnOnce(R) -> Result<i32, Failed>,
) -> Result<i32, Failed> {
    end_with_parent();
    // One thread for the engine and one for each connection: enough, and steps follow one another as written.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(play(serde_json::from_str(role)?))
}

/// Plays one of the roles that all programs have.
pub async fn play(role: Role) -> Result<i32, Failed> {
    match role {
        Role::Provider { db } => serve(&db).await,
        Role::Life(order) => live(&order).await,
        Role::Naive(order) => naive::live(&order).await,
        Role::Prepare(ledger) => ledger.prepare().await.map(|()| 0),
        Role::Worker(shift) => worker::work(&shift).await,
        Role::Desk(order) => desk::live(&order).await,
        Role::Shop(shop) => shop.serve().await,
    }
}

/// A child whose parent is gone must not linger: the pipe to its standard input breaks when that happens.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
}

pub fn say(message: &Message) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{}", serde_json::to_string(message)?)?;
    Ok(out.flush()?)
}

async fn serve(db: &Path) -> Result<i32, Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(&Message::Listening { url: format!("http://{}", listener.local_addr()?) })?;
    provider::serve(db, listener).await?;
    Ok(0)
}

/// One life: start the engine, start the workflow or find the run that an earlier life left, wait until it is
/// known what becomes of it, clear up, go.
async fn live(order: &Order) -> Result<i32, Failed> {
    let watch = Arc::new(Lived::new(order.kill()?));
    let mut term = signal(SignalKind::terminate())?;
    let started = order.class.engine(&order.ledger, order.client()?).watch(watch.clone()).start().await;
    let engine = match started {
        Err(StartError::Store(StoreError::Open(owned @ OpenError::Owned { .. }))) => {
            say(&Message::Owned { message: owned.to_string() })?;
            return Ok(0);
        }
        started => started?,
    };
    let tenant = engine.tenant(TENANT)?;
    if order.resume {
        for question in tenant.questions().await? {
            tenant.answer(question.id, Resolution::Resume, "the test").await?;
        }
    }
    let run = order.class.start(&tenant, order.case()).await?;
    let ended = tokio::select! {
        ended = ended(&tenant, &run) => ended?,
        _ = term.recv() => Ended::Terminated,
    };
    say(&Message::Known)?;

    let executor = engine.executor();
    if ended != Ended::Terminated {
        quiet(&executor, &run, order, &watch).await?;
    }
    let questions = tenant.questions().await?.iter().map(|question| question.kind).collect();
    shut_down(engine, order).await;
    let record = record(&executor, order).await?;
    let left =
        ended == Ended::Terminated && record.as_ref().is_some_and(|record| record.state == State::Started);
    let record = record.as_ref().map(Recorded::of);
    let (crossed, taken_over_after) = watch.told();
    say(&Message::Lived(Report { ended, record, questions, crossed, taken_over_after }))?;
    Ok(if left { LEFT_AMBIGUOUS } else { 0 })
}

async fn shut_down(engine: Engine, order: &Order) {
    engine.shutdown(order.drain).await;
}

/// Waits until the run has ended, or asks a person.
async fn ended(tenant: &TenantClient, run: &RunHandle<Receipt>) -> Result<Ended, Failed> {
    let mut result = std::pin::pin!(run.result());
    loop {
        tokio::select! {
            result = &mut result => return Ok(match result {
                Ok(_) => Ended::Succeeded,
                Err(RunError::Blocked { message, .. }) => Ended::Blocked(message),
                Err(RunError::Failed { failure, .. }) => Ended::Failed(failure.to_string()),
                Err(error) => return Err(error.into()),
            }),
            () = SystemClock.sleep(Duration::from_millis(5)) => {
                // A run that waits for a person has no result, for as long as that takes.
                let asked = |kind: QuestionKind| kind == QuestionKind::Ambiguous;
                if tenant.questions().await?.iter().any(|question| asked(question.kind)) {
                    return Ok(Ended::Asked);
                }
            }
        }
    }
}

/// Waits for what the engine still does in the background: parking, and the first confirming lookup that is due soon. One
/// that was under way when an earlier life died is due again only in a minute.
async fn quiet(
    executor: &Executor,
    run: &RunHandle<Receipt>,
    order: &Order,
    watch: &Lived,
) -> Result<(), Failed> {
    loop {
        let parked = !matches!(run.status().await?.state, RunState::Active);
        let look = next_look(executor, order).await?;
        let first = look.filter(|look| look.reason == Reason::Doubt && look.made == 0);
        let soon = |at| SystemClock.now().until(at) < Duration::from_secs(20);
        // Before and not after: its postponement can be read a moment earlier than this process hears that it is
        // durable, and would then be taken for an earlier life's.
        let ours = |at| soon(at) || watch.crossed(CrashPoint::BeforeConfirming).is_some();
        if parked && !first.and_then(|look| look.due_at).is_some_and(ours) {
            return Ok(());
        }
        SystemClock.sleep(Duration::from_millis(5)).await;
    }
}

async fn next_look(executor: &Executor, order: &Order) -> Result<Option<Look>, Failed> {
    Ok(executor.next_look(&Tenant::new(TENANT)?, &operation(&order.case())?).await?)
}

async fn record(executor: &Executor, order: &Order) -> Result<Option<Record>, Failed> {
    let found = executor.record(&Tenant::new(TENANT)?, &operation(&order.case())?).await?;
    Ok(found.map(|(record, _)| record))
}

/// Notes which points a life has crossed, and when, and kills it where it is to die.
pub struct Lived {
    kill: Option<KillAt>,
    born: Boot,
    crossed: Mutex<Vec<(CrashPoint, Duration)>>,
}

impl Lived {
    pub fn new(kill: Option<KillAt>) -> Self {
        Self { kill, born: SystemClock.boot(), crossed: Mutex::default() }
    }

    /// When this point was crossed for the first time.
    fn crossed(&self, point: CrashPoint) -> Option<Duration> {
        self.lock().iter().find(|(crossed, _)| *crossed == point).map(|(_, after)| *after)
    }

    /// What was crossed, and when a run was first taken over.
    pub fn told(&self) -> (Vec<String>, Option<Duration>) {
        let names = self.lock().iter().map(|(point, _)| point.name().to_owned()).collect();
        (names, self.crossed(CrashPoint::AfterTakeover))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(CrashPoint, Duration)>> {
        self.crossed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for Lived {
    fn at(&self, point: CrashPoint) {
        let after = self.born.until(SystemClock.boot());
        self.lock().push((point, after));
        if let Some(kill) = &self.kill {
            kill.at(point);
        }
    }
}
