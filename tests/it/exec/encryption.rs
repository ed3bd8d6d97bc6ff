//! Encryption at rest (SCALE-7): a known text is nowhere in the database, and everything works as without encryption.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::exec::{EraseError, StartError};
use counterfoil::flow::{EngineBuilder, RunError, TenantClient};
use counterfoil::ledger::{Backoff, Contract, ContractClass, EffectClass};
use counterfoil::outbox::{self, Event, NewEvent, PublishResult, Publisher, Sink, SinkError};
use counterfoil::payload::Limits;
use counterfoil::store::encryption::{EncryptionKey, EncryptionKeys, Keyring, TenantKeys};
use counterfoil::store::{Model, OpenError, QuestionKind, Resolution, StoreError};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key, Outcome, Payload, RunId, Secret, Tenant, ToolRequest};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::mpsc;

use crate::place::Place;
use crate::world::{Chance, Keys, Process, Reply, SETTLE, TestClock, World, brief, until};
use crate::{canary, on_both_stores};

/// A text with the canary, too long for its row if it is repeated.
const TEXT: &str = "canary: the patient is well";
const LIMITS: Limits = Limits { inline_bytes: 1000, max_bytes: 100_000 };

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Letter {
    to: String,
    text: String,
}

/// Keeps letters, and refuses those to nobody.
struct Post(Arc<AtomicU32>);

impl Tool for Post {
    const NAME: &'static str = "post";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = Letter;
    type Output = Letter;

    fn key(&self, letter: &Letter) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&letter.to))
    }

    async fn call(&self, _: &Call, letter: &Letter) -> Result<Done<Letter>, ToolError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        match letter.to.as_str() {
            "nobody" => Err(ToolError::refused(format!("nobody reads {}", letter.text))),
            _ => Ok(Done::new(letter.clone()).external_ref("mail-1")),
        }
    }
}

/// What a safe keeps. Its digest is made with the tenant's key for digests.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Deposit {
    owner: String,
    code: Secret<String>,
}

struct Safe;

impl Tool for Safe {
    const NAME: &'static str = "safe";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = Deposit;
    type Output = String;

    fn key(&self, deposit: &Deposit) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&deposit.owner))
    }

    async fn call(&self, _: &Call, deposit: &Deposit) -> Result<Done<String>, ToolError> {
        Ok(Done::new(deposit.owner.clone()))
    }
}

/// Starts an engine under these keys, and has the safe keep the secret of a tenant.
async fn deposit(place: &Place, keys: &str) -> Result<String, String> {
    let engine = engine(place).0.tool(Safe).encrypted(Keyring::parse(keys).unwrap()).start().await.unwrap();
    let (acme, code) = (Tenant::new("acme").unwrap(), Secret::new("1234".to_owned()));
    let called = engine.executor().call::<Safe>(&acme, Deposit { owner: "ann".into(), code }, None).await;
    engine.shutdown(Duration::from_secs(5)).await;
    called.map_err(|error| error.to_string())?.into_output().map_err(|error| error.to_string())
}

fn letter(to: &str) -> Letter {
    Letter { to: to.into(), text: TEXT.into() }
}

/// A run that leaves the text in each kind of row.
async fn correspond(ctx: Ctx, text: String) -> Result<String, Failure> {
    ctx.step("read", &text, String::clone).await?;
    ctx.publish("progress", &text).await?;
    ctx.emit("letters", "sent", &text).await?;
    let kept = ctx.call::<Post>(letter("ann")).await?;
    let long = Letter { to: "bob".into(), text: TEXT.repeat(100) };
    let long = ctx.call::<Post>(long).await?;
    let refused = ctx.call::<Post>(letter("nobody")).await.unwrap_err();
    let said: String = ctx.signal("reply").await?;
    Ok(format!("{} {} {refused} {said}", kept.text, long.text.len()))
}

fn key(id: &str, byte: u8) -> EncryptionKey {
    EncryptionKey::new(id, [byte; 32]).unwrap()
}

fn keys() -> TenantKeys {
    TenantKeys::new(key("k1", 1))
}

fn engine(place: &Place) -> (EngineBuilder, Arc<AtomicU32>) {
    let sent = Arc::new(AtomicU32::new(0));
    let engine = place.engine().limits(LIMITS).tool(Post(sent.clone())).workflow("correspond", 1, correspond);
    (engine, sent)
}

/// Everything that the database holds, as text.
async fn rows(place: &Place) -> String {
    match place {
        Place::Sqlite(dir) => {
            let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path().join("agents.db"));
            let mut db = options.connect().await.unwrap();
            let tables =
                sqlx::query_scalar::<_, String>("SELECT name FROM sqlite_master WHERE type = 'table'");
            let tables = tables.fetch_all(&mut db).await.unwrap();
            let mut all = String::new();
            for table in tables {
                let rows = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT * FROM \"{table}\"")));
                for row in rows.fetch_all(&mut db).await.unwrap() {
                    for column in 0..row.len() {
                        let bytes = row.try_get_unchecked::<Option<Vec<u8>>, _>(column).ok().flatten();
                        all.push_str(&String::from_utf8_lossy(&bytes.unwrap_or_default()));
                        all.push('\n');
                    }
                }
            }
            db.close().await.unwrap();
            all
        }
        Place::Postgres(schema) => {
            let mut db = schema.plain().await;
            let tables = sqlx::query_scalar::<_, String>(
                "SELECT tablename::text FROM pg_tables WHERE schemaname = $1",
            );
            let tables = tables.bind(schema.name()).fetch_all(&mut db).await.unwrap();
            let mut all = String::new();
            for table in tables {
                let sql = format!("SELECT coalesce(string_agg(t::text, chr(10)), '') FROM \"{table}\" t");
                all += &sqlx::query_scalar::<_, String>(sqlx::AssertSqlSafe(sql))
                    .fetch_one(&mut db)
                    .await
                    .unwrap();
            }
            all
        }
    }
}

/// The canary is in no row, and in no file of the database.
async fn is_nowhere(place: &Place) {
    let rows = rows(place).await;
    assert!(rows.contains("~k1:") && rows.contains("post:ann"), "there was something to search");
    assert!(!rows.contains("canary"), "the canary is in a row: {rows}");
    if let Place::Sqlite(dir) = place {
        canary::is_in_no_file(dir.path(), "");
    }
}

async fn begun(engine: &Engine) -> RunId {
    let acme = engine.tenant("acme").unwrap();
    let run = acme.run(correspond, TEXT.to_owned()).key("case-1").start().await.unwrap();
    run.until_waiting().await.unwrap();
    run.id()
}

async fn replied(engine: &Engine, run: RunId) -> String {
    let run = engine.tenant("acme").unwrap().handle::<String>(run);
    run.signal("reply", TEXT.to_owned()).id("s1").await.unwrap();
    run.result().await.unwrap()
}

/// Makes a call outside of any run.
async fn post(engine: &Engine, tenant: &str, letter: Letter) -> Result<Letter, String> {
    let tenant = Tenant::new(tenant).unwrap();
    let outcome =
        engine.executor().call::<Post>(&tenant, letter, None).await.map_err(|error| error.to_string())?;
    outcome.into_output().map_err(|error| error.to_string())
}

fn refusal(error: StartError) -> OpenError {
    match error {
        StartError::Store(StoreError::Open(refusal)) => refusal,
        error => panic!("{error}"),
    }
}

const DONE: &str = "canary: the patient is well 2700 ";

on_both_stores! {
    async fn a_known_text_is_nowhere_and_a_run_goes_on_in_another_process(place) {
        let (builder, sent) = engine(&place);
        let first = builder.encrypted(keys()).start().await.unwrap();
        let run = begun(&first).await;
        let acme = first.tenant("acme").unwrap();
        assert_eq!(acme.run_of(correspond, "case-1").published::<String>("progress").await.unwrap().unwrap(), TEXT);
        first.shutdown(Duration::from_secs(5)).await;
        is_nowhere(&place).await;
        let (builder, resent) = engine(&place);
        let second = builder.encrypted(keys()).start().await.unwrap();
        let result = replied(&second, run).await;
        assert!(result.starts_with(DONE) && result.ends_with(TEXT), "{result}");
        assert_eq!((sent.load(Ordering::Relaxed), resent.load(Ordering::Relaxed)), (3, 0));
        // The same start and the same call are answered from their records, and others are conflicts with a diff.
        let acme = second.tenant("acme").unwrap();
        let again = acme.run(correspond, TEXT.to_owned()).key("case-1").start().await.unwrap();
        assert_eq!(again.id(), run);
        let other = acme.run(correspond, "another".to_owned()).key("case-1").start().await;
        assert!(matches!(other, Err(RunError::Conflict { .. })));
        let changed = Letter { text: "canary: changed".into(), ..letter("ann") };
        let conflict = post(&second, "acme", changed).await.unwrap_err();
        assert!(conflict.contains("changed") && conflict.contains("text"), "{conflict}");
        second.shutdown(Duration::from_secs(5)).await;
        is_nowhere(&place).await;
    }

    async fn a_process_without_the_right_keys_is_refused(place) {
        let (builder, _) = engine(&place);
        let first = builder.encrypted(keys()).start().await.unwrap();
        let run = begun(&first).await;
        first.shutdown(Duration::from_secs(5)).await;
        let refused = refusal(engine(&place).0.start().await.err().unwrap());
        assert!(matches!(refused, OpenError::Encrypted), "{refused}");
        let wrong = TenantKeys::new(key("k1", 2)).reads(key("k0", 1));
        let refused = refusal(engine(&place).0.encrypted(wrong).start().await.err().unwrap());
        assert!(matches!(refused, OpenError::WrongKey), "{refused}");
        let second = engine(&place).0.encrypted(keys()).start().await.unwrap();
        assert!(replied(&second, run).await.starts_with(DONE));
        second.shutdown(Duration::from_secs(5)).await;
    }

    async fn rows_in_the_clear_are_not_mixed_with_encrypted_ones(place) {
        let plain = engine(&place).0.start().await.unwrap();
        let run = begun(&plain).await;
        plain.shutdown(Duration::from_secs(5)).await;
        let refused = refusal(engine(&place).0.encrypted(keys()).start().await.err().unwrap());
        assert!(matches!(refused, OpenError::InTheClear), "{refused}");
        let plain = engine(&place).0.start().await.unwrap();
        assert!(replied(&plain, run).await.starts_with(DONE));
        plain.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_key_is_changed_while_runs_are_in_flight(place) {
        let text = |more: &str| format!("* k1 {}\n{more}", "01".repeat(32));
        let second_key = |mark: &str| text(&format!("* k2 {} {mark}\n", "02".repeat(32)));
        let keyring = Arc::new(Keyring::parse(&text("")).unwrap());
        let engine = engine(&place).0.encrypted(keyring.clone()).start().await.unwrap();
        let run = begun(&engine).await;
        keyring.replace(&second_key("")).unwrap();
        keyring.replace(&second_key("write")).unwrap();
        assert!(replied(&engine, run).await.starts_with(DONE));
        let acme = engine.tenant("acme").unwrap();
        let again = acme.run(correspond, TEXT.to_owned()).key("case-1").start().await.unwrap();
        assert_eq!(again.id(), run, "the digest of its input is the same as before");
        assert_eq!(post(&engine, "acme", letter("ann")).await.unwrap(), letter("ann"));
        engine.shutdown(Duration::from_secs(5)).await;
        let rows = rows(&place).await;
        assert!(rows.contains("~k1:") && rows.contains("~k2:") && !rows.contains("canary"));
    }

    async fn a_tenant_whose_keys_are_dropped_is_erased_and_others_go_on(place) {
        let (acme, globex) = (line("acme", "0a"), line("globex", "0b"));
        let keyring = Arc::new(Keyring::parse(&(acme + &globex)).unwrap());
        let engine = engine(&place).0.encrypted(keyring.clone()).start().await.unwrap();
        begun(&engine).await;
        keyring.replace(&globex).unwrap();
        let acme = engine.tenant("acme").unwrap();
        for error in [
            post(&engine, "acme", letter("ann")).await.unwrap_err(),
            post(&engine, "acme", letter("new")).await.unwrap_err(),
            acme.run(correspond, String::new()).key("case-1").start().await.err().unwrap().to_string(),
            acme.run(correspond, String::new()).key("case-2").start().await.err().unwrap().to_string(),
        ] {
            assert!(error.contains("key for encryption"), "{error}");
        }
        assert_eq!(post(&engine, "globex", letter("ann")).await.unwrap(), letter("ann"));
        // A list shows the run, whose input nobody can read.
        assert_eq!(acme.runs(None).await.unwrap().len(), 1);
        engine.shutdown(Duration::from_secs(5)).await;
    }

    async fn an_answer_and_its_reason_are_encrypted(place) {
        let (builder, _) = engine(&place);
        let engine = builder.workflow("broken", 1, broken).encrypted(keys()).start().await.unwrap();
        let acme = engine.tenant("acme").unwrap();
        let run = acme.run(broken, ()).start().await.unwrap();
        run.until_waiting().await.unwrap();
        let asked = acme.questions().await.unwrap().remove(0);
        assert!(asked.kind == QuestionKind::Quarantined && asked.question.contains("canary"), "{asked:?}");
        acme.answer(asked.id, Resolution::Abandon, "ann").because("canary: hopeless").await.unwrap();
        run.result().await.unwrap_err();
        engine.shutdown(Duration::from_secs(5)).await;
        let rows = rows(&place).await;
        assert!(!rows.contains("canary") && rows.contains("ann"), "{rows}");
    }

    async fn an_event_of_a_transaction_of_the_hosts_own_is_encrypted(place) {
        let engine = engine(&place).0.encrypted(keys()).start().await.unwrap();
        let tenant = Tenant::new("acme").unwrap();
        let event = |text: &str| NewEvent {
            id: "e1".into(), aggregate: "a1".into(), kind: "told".into(), payload: Payload::of(text).unwrap(),
        };
        let long = TEXT.repeat(100);
        let rotated = keys().writes(key("k2", 2));
        add(&place, &tenant, event(&long), &keys()).await.unwrap();
        add(&place, &tenant, event(&long), &rotated).await.unwrap(); // the same event again, after a rotation
        let conflict = add(&place, &tenant, event("another"), &rotated).await;
        assert!(matches!(conflict, Err(outbox::AddError::Conflict { .. })));
        begun(&engine).await;
        engine.shutdown(Duration::from_secs(5)).await;
        is_nowhere(&place).await;
    }

    async fn another_first_key_of_a_tenant_is_refused(place) {
        let (one, two) = (format!("acme a1 {}\n", "0a".repeat(32)), format!("acme a2 {}\n", "0b".repeat(32)));
        let (right, swapped) = (one.clone() + &two, two + &one);
        assert_eq!(deposit(&place, &right).await.unwrap(), "ann");
        let refused = deposit(&place, &swapped).await.unwrap_err();
        assert!(refused.contains("the first key of tenant acme is another one"), "{refused}");
        assert_eq!(deposit(&place, &right).await.unwrap(), "ann");
        // A tenant that was erased may come back with other keys.
        let engine = engine(&place).0.encrypted(Keyring::parse(&right).unwrap()).start().await.unwrap();
        engine.executor().erase_tenant(&Tenant::new("acme").unwrap()).await.unwrap();
        engine.shutdown(Duration::from_secs(5)).await;
        assert_eq!(deposit(&place, &swapped).await.unwrap(), "ann");
    }

    async fn an_event_whose_key_is_missing_waits_and_is_published_in_the_clear(place) {
        let (acme, globex) = (line("acme", "0a"), line("globex", "0b"));
        let keyring = Arc::new(Keyring::parse(&(acme.clone() + &globex)).unwrap());
        let quiet = engine(&place).0.encrypted(keyring.clone()).start().await.unwrap();
        for name in ["acme", "globex"] {
            let payload = Payload::of(name).unwrap();
            let event = NewEvent { id: "e1".into(), aggregate: "a1".into(), kind: "told".into(), payload };
            add(&place, &Tenant::new(name).unwrap(), event, &*keyring).await.unwrap();
        }
        quiet.shutdown(Duration::from_secs(5)).await;
        keyring.replace(&globex).unwrap();
        let (publisher, mut events) = recorded();
        let engine = engine(&place).0.encrypted(keyring.clone()).sink(publisher).start().await.unwrap();
        assert_eq!(published(&mut events).await, ("globex".into(), "\"globex\"".into()));
        keyring.replace(&(acme + &globex)).unwrap();
        engine.executor().notify_publisher();
        assert_eq!(published(&mut events).await, ("acme".into(), "\"acme\"".into()));
        engine.shutdown(Duration::from_secs(5)).await;
    }

    async fn large_events_whose_key_was_dropped_hold_back_no_other_tenant(place) {
        let (acme, globex) = (line("acme", "0a"), line("globex", "0b"));
        let keyring = Arc::new(Keyring::parse(&(acme + &globex)).unwrap());
        let quiet = engine(&place).0.encrypted(keyring.clone()).start().await.unwrap();
        for name in ["acme", "globex"] {
            let payload = Payload::of(&name.repeat(1000)).unwrap();
            let event = NewEvent { id: "e1".into(), aggregate: "a1".into(), kind: "told".into(), payload };
            add(&place, &Tenant::new(name).unwrap(), event, &*keyring).await.unwrap();
        }
        quiet.shutdown(Duration::from_secs(5)).await;
        keyring.replace(&globex).unwrap();
        let (publisher, mut events) = recorded();
        let builder = engine(&place).0.encrypted(keyring.clone()).sink(publisher.batch(1));
        let engine = builder.start().await.unwrap(); // the event of acme fills the batch
        assert_eq!(published(&mut events).await.0, "globex");
        engine.shutdown(Duration::from_secs(5)).await;
    }
}

/// A line of a key file: the one key of a tenant.
fn line(tenant: &str, digits: &str) -> String {
    format!("{tenant} {tenant}-1 {}\n", digits.repeat(32))
}

/// A sink that takes all events and hands them on.
struct Recorder(mpsc::UnboundedSender<Event>);

impl Sink for Recorder {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        for event in batch {
            self.0.send(event.clone()).unwrap();
        }
        Ok(PublishResult::all())
    }
}

/// A publisher with short pauses, and the events that its sink takes.
fn recorded() -> (Publisher, mpsc::UnboundedReceiver<Event>) {
    let (sent, events) = mpsc::unbounded_channel();
    let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(20) };
    (Publisher::new(Recorder(sent)).backoff(backoff), events)
}

/// The tenant and the payload of the next event that the sink takes.
async fn published(events: &mut mpsc::UnboundedReceiver<Event>) -> (String, String) {
    let event = events.recv().await.unwrap();
    (event.tenant.to_string(), event.payload.as_str().to_owned())
}

async fn echo(_: Ctx, text: String) -> Result<String, Failure> {
    Ok(text)
}

#[tokio::test]
async fn a_tick_whose_key_is_missing_waits_and_begins_its_run_with_the_input() {
    let hour = Duration::from_hours(1);
    let first = format!("acme acme-0 {}\n", "0c".repeat(32));
    let (written, globex) = (first.clone() + line("acme", "0a").trim() + " write\n", line("globex", "0b"));
    let keyring = Arc::new(Keyring::parse(&(written.clone() + &globex)).unwrap());
    let (hands, store) = (TestClock::breathing(), Arc::new(Model::new()));
    let engine =
        Engine::store(store).clock(hands.clone()).workflow("echo", 1, echo).encrypted(keyring.clone());
    let engine = engine.start().await.unwrap();
    let (acme, other) = (engine.tenant("acme").unwrap(), engine.tenant("globex").unwrap());
    for tenant in [&acme, &other] {
        tenant.schedule("hourly").every(hour).run(echo, TEXT.to_owned()).await.unwrap();
    }
    // The process can encrypt for the tenant, but lacks the key that the input is encrypted under.
    keyring.replace(&(first + &globex)).unwrap();
    until_it_began(&hands, &other).await; // at one instant, the ticks come in the order of their tenants
    assert!(acme.runs(None).await.unwrap().is_empty(), "the tick of acme was tried, and began no run");
    keyring.replace(&(written + &globex)).unwrap();
    let run = until_it_began(&hands, &acme).await;
    assert_eq!(acme.handle::<String>(run).result().await.unwrap(), TEXT);
}

/// Lets time pass until the schedule of the tenant has begun a run.
async fn until_it_began(hands: &TestClock, tenant: &TenantClient) -> RunId {
    loop {
        if let Some(run) = tenant.schedule("hourly").status().await.unwrap().last_run {
            return run;
        }
        hands.advance(Duration::from_secs(10));
        tokio::task::yield_now().await;
    }
}

// The lookups of a tenant whose keys were dropped hold up neither the lookups of others nor the tenant's erasure.
#[tokio::test]
async fn lookups_of_a_tenant_without_keys_are_given_up_after_a_day() {
    let line = |tenant: &str, digits: &str| format!("{tenant} {tenant}-1 {}\n", digits.repeat(32));
    let (ours, theirs) = (line("acme", "0a"), line("globex", "0b"));
    let keyring = Arc::new(Keyring::parse(&(ours + &theirs)).unwrap());
    let (place, clock, world) = (Place::sqlite(), TestClock::breathing(), World::new(Keys::Ignores));
    let tool = world.tool("pay_out", EffectClass::Payment, Contract::new(ContractClass::Lookup));
    let builder = place.executor().clock(clock.clone()).entropy(Chance::least()).encrypted(keyring.clone());
    let process = Process::start(builder.dynamic_tool(tool.retry(brief()))).await.unwrap();
    let executor = process.executor();
    let [acme, globex] = ["acme", "globex"].map(|name| Tenant::new(name).unwrap());
    for (tenant, case) in [(&acme, "c1"), (&globex, "c2")] {
        world.replies([Reply::Answer]);
        let request = ToolRequest::new(tenant.clone(), "pay_out", json!({ "case": case }));
        let outcome = process.execute(request).await.unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }
    let case = Key::of("pay_out").target("c1").render().unwrap();
    assert!(executor.next_look(&acme, &case).await.unwrap().is_some());
    keyring.replace(&theirs).unwrap();
    clock.advance(SETTLE);
    world.looked_up(1).await;
    let refused = executor.erase_tenant(&acme).await;
    assert!(matches!(refused, Err(EraseError::UnderWay { .. })), "its key may come back: {refused:?}");
    clock.advance(Duration::from_hours(24));
    until("the lookup to be given up", async || executor.erase_tenant(&acme).await.is_ok()).await;
    assert_eq!(world.lookups().len(), 1, "nobody could read the request of the other one");
}

async fn broken(_: Ctx, (): ()) -> Result<(), Failure> {
    panic!("{TEXT}")
}

async fn add(
    place: &Place,
    tenant: &Tenant,
    event: NewEvent,
    keys: &dyn EncryptionKeys,
) -> Result<(), outbox::AddError> {
    match place {
        Place::Sqlite(dir) => {
            let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path().join("agents.db"));
            let mut db = options.connect().await.unwrap();
            let added = outbox::add_encrypted(&mut db, tenant, event, &LIMITS, keys).await;
            db.close().await.unwrap();
            added
        }
        Place::Postgres(schema) => {
            outbox::add_encrypted(&mut schema.plain().await, tenant, event, &LIMITS, keys).await
        }
    }
}
