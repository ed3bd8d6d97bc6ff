//! The child's side of `doors`: a service behind one of its doors, which notes the crash points that it crosses and dies at one of
//! them. What its messages do is told outside of the ledger by two files, a line for each effect, and inside of it by a table.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Extension, MatchedPath};
use axum::http::Response;
use axum::routing::{post, post_service};
use axum::{Json, Router};
use counterfoil::door::Reaction;
use counterfoil::exec::ToolRequest;
use counterfoil::flow::TenantClient;
use counterfoil::http::{HandlerCall, Idempotency, LedgerTransaction, RequestScope};
use counterfoil::ledger::{Contract, ContractClass, LookupResult};
use counterfoil::queue::{Incoming, NatsQueue, QueueConsumer};
use counterfoil::sim::CrashPoint;
use counterfoil::tool::contract::Contract as _;
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::webhook::{Scheme, Webhook, WebhookEvent};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Ctx, Engine, Executor, Failure, Key, Tenant, Timestamp};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Error};
use tokio::signal::unix::{SignalKind, signal};

use crate::harness::Failed;
use crate::harness::role::{Ended, Lived, Message, Report, TENANT, say};
use crate::harness::sender::SECRET;
use crate::queue::nats;

/// It is looked so often whether something is over.
const LOOK: Duration = Duration::from_millis(5);
/// A confirming lookup that an earlier life was killed in is due again in a minute, and nobody waits for that.
const SOON: Duration = Duration::from_secs(20);

/// By which door messages come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Door {
    Http,
    Webhook,
    Nats,
}

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Does {
    /// A row in the ledger's own database.
    Entry,
    /// A line in a file that can be asked.
    Charge,
    /// A line in a file that nobody can ask.
    Letter,
    /// A run that charges.
    Parcel,
}

/// A message, and the body of a request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) does: Does,
}

/// The service, as its process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Service {
    pub(crate) door: Door,
    /// Of its ledger, and of the files outside of it.
    pub(crate) folder: PathBuf,
    /// Its own, or the broker's.
    pub(crate) port: u16,
    /// The stream and its consumer at the broker.
    pub(crate) stream: String,
    /// Die here, as in `after-processed:1`.
    pub(crate) kill: Option<String>,
}

impl Service {
    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.join("service.db")
    }

    pub(crate) fn charges(&self) -> PathBuf {
        self.folder.join("charges.txt")
    }

    pub(crate) fn letters(&self) -> PathBuf {
        self.folder.join("letters.txt")
    }

    /// Its ledger, beside it.
    pub(crate) async fn own(&self) -> Result<SqliteConnection, Error> {
        let own = SqliteConnectOptions::new().filename(self.ledger());
        own.busy_timeout(Duration::from_secs(20)).connect().await
    }
}

/// An effect: a line in a file. The answer is its place.
pub(crate) fn append(file: &Path, line: &str) -> usize {
    let mut lines = std::fs::File::options().append(true).create(true).open(file).unwrap();
    lines.write_all(format!("{line}\n").as_bytes()).unwrap();
    find(file, line).unwrap()
}

/// The place of a line in a file, if it is there.
pub(crate) fn find(file: &Path, line: &str) -> Option<usize> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().position(|found| found == line).map(|place| place + 1)
}

/// The file can be asked, and nothing arrives in it when its process is dead.
pub(crate) fn lookup() -> Contract {
    Contract::new(ContractClass::Lookup).ends_with_sender().settle(Duration::ZERO)
}

struct Charge(PathBuf);

impl Tool for Charge {
    const NAME: &'static str = "charge";
    type Effect = effect::Payment;
    type Contract = contract::Lookup;
    type Input = Asked;
    type Output = usize;

    fn key(&self, asked: &Asked) -> Option<Key> {
        Some(Key::of(Self::NAME).target(format!("{:?}", asked.does)))
    }

    fn contract(&self) -> Contract {
        lookup()
    }

    async fn call(&self, call: &Call, _: &Asked) -> Result<Done<usize>, ToolError> {
        Ok(Done::new(append(&self.0, call.key())))
    }
}

impl Reconcile for Charge {
    async fn reconcile(&self, call: &Call, _: &Asked) -> Result<LookupResult<usize>, ToolError> {
        let found =
            |output: usize| LookupResult::Committed { output, external_ref: Some(output.to_string()) };
        Ok(find(&self.0, call.key()).map_or(LookupResult::NotFound, found))
    }
}

struct Letter(PathBuf);

impl Tool for Letter {
    const NAME: &'static str = "letter";
    type Effect = effect::InternalMutation;
    type Contract = contract::Blind;
    type Input = Asked;
    type Output = usize;

    fn contract(&self) -> Contract {
        Self::Contract::declaration().settle(Duration::ZERO)
    }

    fn key(&self, asked: &Asked) -> Option<Key> {
        Some(Key::of(Self::NAME).target(format!("{:?}", asked.does)))
    }

    async fn call(&self, call: &Call, _: &Asked) -> Result<Done<usize>, ToolError> {
        Ok(Done::new(append(&self.0, call.key())))
    }
}

async fn parcel(ctx: Ctx, asked: Asked) -> Result<usize, Failure> {
    ctx.call::<Charge>(asked).await
}

fn enter(db: &mut SqliteConnection) -> BoxFuture<'_, Result<(), Error>> {
    Box::pin(async move { sqlx::query("INSERT INTO entry (what) VALUES (1)").execute(db).await.map(drop) })
}

/// What a message does, whichever door it comes by.
fn reaction(shop: &TenantClient, asked: Asked) -> Result<Reaction<SqliteConnection>, Failed> {
    let (tenant, input) = (Tenant::new(TENANT)?, serde_json::to_value(asked)?);
    let call = |tool: &str| Reaction::call(ToolRequest::new(tenant, tool, input));
    Ok(match asked.does {
        Does::Entry => Reaction::transaction(enter),
        Does::Charge => call(Charge::NAME),
        Does::Letter => call(Letter::NAME),
        Does::Parcel => Reaction::start(shop.run(parcel, asked)),
    })
}

/// One life: until it is killed, or asked to end when it has done everything.
pub(crate) async fn play(own: Service) -> Result<i32, Failed> {
    let mut term = signal(SignalKind::terminate())?;
    say(&Message::Working)?;
    let watch = Arc::new(Lived::new(own.kill.as_deref().map(str::parse).transpose()?));
    let engine = Engine::sqlite(own.ledger())
        .workflow("parcel", 1, parcel)
        .tool(Charge(own.charges()))
        .tool(Letter(own.letters()))
        .watch(watch.clone());
    let engine = engine.start().await?;
    let shop = engine.tenant(TENANT)?;
    let opened = open(&own, &engine.executor(), &shop).await?;
    term.recv().await;
    while is_at_work(&own, &shop, &watch).await? {
        SystemClock.sleep(LOOK).await;
    }
    opened.close().await;
    let questions = shop.questions().await?.iter().map(|question| question.kind).collect();
    engine.shutdown(Duration::from_secs(5)).await;
    let (crossed, taken_over_after) = watch.told();
    let report = Report { ended: Ended::Succeeded, record: None, questions, crossed, taken_over_after };
    say(&Message::Lived(report))?;
    Ok(0)
}

/// Runs that have not ended, or confirming lookups that are due.
async fn is_at_work(own: &Service, shop: &TenantClient, watch: &Lived) -> Result<bool, Failed> {
    if shop.runs(None).await?.iter().any(|run| !run.state.is_final()) {
        return Ok(true);
    }
    let first = "SELECT min(due_at) FROM look WHERE made = 0";
    let due: Option<i64> = sqlx::query_scalar(first).fetch_one(&mut own.own().await?).await?;
    let soon = |due: i64| SystemClock.now().until(Timestamp(due)) < SOON;
    // One that is being made is due later, too, in case nothing comes of it. That is waited for if this life has sealed what is looked
    // up: what an earlier one has left may be of a route that is not known yet, and then nobody is asked.
    let (crossed, _) = watch.told();
    let crossed = |name: CrashPoint| crossed.iter().filter(|point| *point == name.name()).count();
    let is_made = crossed(CrashPoint::BeforeConfirming) > crossed(CrashPoint::AfterConfirmed);
    Ok(is_made && crossed(CrashPoint::AfterSeal) > 0 || due.is_some_and(soon))
}

/// A door that is open.
enum Open {
    Serving,
    Consuming(counterfoil::queue::Consuming),
}

impl Open {
    async fn close(self) {
        if let Self::Consuming(consuming) = self {
            consuming.shutdown(Duration::from_secs(5)).await;
        }
    }
}

async fn open(own: &Service, executor: &Executor, shop: &TenantClient) -> Result<Open, Failed> {
    let app = match own.door {
        Door::Http => behind_http(own, executor)?,
        Door::Webhook => behind_webhook(executor, shop.clone())?,
        Door::Nats => return behind_queue(own, executor, shop.clone()).await,
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", own.port)).await?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(Open::Serving)
}

fn behind_webhook(executor: &Executor, shop: TenantClient) -> Result<Router, Failed> {
    let source = Webhook::source("shop", Scheme::standard_webhooks(), [SECRET], Tenant::new(TENANT)?)?;
    let webhook = source.on(executor, move |event: WebhookEvent| {
        let shop = shop.clone();
        async move { reaction(&shop, event.json()?) }
    })?;
    Ok(Router::new().route("/hook", post_service(webhook)))
}

async fn behind_queue(own: &Service, executor: &Executor, shop: TenantClient) -> Result<Open, Failed> {
    let queue = NatsQueue::new(nats(own.port).await?, &*own.stream, &*own.stream);
    let consumer = QueueConsumer::new(executor, &Tenant::new(TENANT)?, "service", queue).in_order();
    let consuming = consumer.start(move |message: Incoming| {
        let shop = shop.clone();
        async move { reaction(&shop, message.json()?) }
    });
    Ok(Open::Consuming(consuming.await?))
}

fn behind_http(own: &Service, executor: &Executor) -> Result<Router, Failed> {
    let guard = || {
        Idempotency::new(executor, |request| {
            let route = request.extensions.get::<MatchedPath>()?;
            Some(RequestScope::new(Tenant::new(TENANT).ok()?, route.as_str()))
        })
    };
    let asked = own.charges();
    let charges = guard().reconcile(lookup(), move |call, _| {
        let found = find(&asked, &call.key).map(|place| place.to_string());
        async move {
            Ok(found.map_or(LookupResult::NotFound, |place| LookupResult::Committed {
                output: Response::new(Bytes::from(place.clone())),
                external_ref: Some(place),
            }))
        }
    });
    let writes = |file: PathBuf| {
        post(
            move |Extension(call): Extension<HandlerCall>| async move { append(&file, &call.key).to_string() },
        )
    };
    Ok(Router::new()
        .route("/entry", post(entry).layer(guard().transactional::<SqliteConnection>().layer()?))
        .route("/charge", writes(own.charges()).layer(charges.layer()?))
        .route("/letter", writes(own.letters()).layer(guard().layer()?)))
}

async fn entry(
    Extension(transaction): Extension<LedgerTransaction<SqliteConnection>>,
    Json(_): Json<Asked>,
) -> &'static str {
    transaction.run(|db: &mut SqliteConnection| enter(db)).await.unwrap();
    "entered"
}
