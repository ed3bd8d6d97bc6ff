//! Short windows: what is sent twice within minutes is made once, and the original is given back, whatever the transport.

#[allow(dead_code, unreachable_pub, reason = "the example is a program, too")]
#[path = "../../../workflows/chat_server.rs"]
mod chat_server;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use counterfoil::ledger::ErrorKind;
use counterfoil::nonce::{Made, Nonce, NonceError, NonceFormError, NonceRequest, Nonces};
use counterfoil::store::{Change, Question, QuestionKind, Resolution, Store, Verdict};
use counterfoil::tool::ToolError;
use counterfoil::{Executor, QuestionId, Tenant, Timestamp};
use futures_util::future::join_all;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message as Frame;

use self::chat_server::{Chat, Posted, app};
use crate::flow::store::Tap;
use crate::world::{TestClock, acme, executor, serve, soon};

const WINDOW: Duration = Duration::from_secs(300);

struct Scene {
    _dir: tempfile::TempDir,
    clock: TestClock,
    executor: Executor,
    messages: Nonces,
    made: Arc<AtomicU32>,
}

impl Scene {
    async fn new() -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        let executor = executor(&dir, &clock).open().await.unwrap();
        let messages = Nonces::new(&executor, "message").unwrap();
        Self { _dir: dir, clock, executor, messages, made: Arc::default() }
    }

    async fn post(&self, tenant: &Tenant, author: &str, nonce: &str, enforce: bool) -> Made<u32> {
        let made = self.made.clone();
        let post = move || async move { Ok(made.fetch_add(1, Ordering::SeqCst) + 1) };
        let nonce = Nonce::try_from(nonce).unwrap();
        self.messages.once(tenant, NonceRequest { author, nonce: Some(&nonce), enforce }, post).await.unwrap()
    }
}

const fn by_ann(nonce: &Nonce) -> NonceRequest<'_> {
    NonceRequest { author: "ann", nonce: Some(nonce), enforce: true }
}

#[tokio::test]
async fn within_the_window_the_original_is_given_back() {
    let scene = Scene::new().await;
    let acme = acme();
    let post = || scene.post(&acme, "ann", "n1", true);
    assert_eq!(post().await, Made::Now(1));
    assert_eq!(post().await, Made::Before(1));
    scene.clock.advance(Duration::from_secs(299));
    assert_eq!(post().await, Made::Before(1));
    // To the second, and without any sweep.
    scene.clock.advance(Duration::from_secs(1));
    assert_eq!(post().await, Made::Now(2));
    assert_eq!(post().await, Made::Before(2));
}

#[tokio::test]
async fn a_nonce_is_its_authors_and_its_tenants() {
    let scene = Scene::new().await;
    let globex = Tenant::new("globex").unwrap();
    assert_eq!(scene.post(&acme(), "ann", "n1", true).await, Made::Now(1));
    assert_eq!(scene.post(&acme(), "bob", "n1", true).await, Made::Now(2));
    assert_eq!(scene.post(&globex, "ann", "n1", true).await, Made::Now(3));
    assert_eq!(scene.post(&acme(), "ann", "n1", true).await, Made::Before(1));
}

#[tokio::test]
async fn without_the_flag_nothing_is_deduplicated() {
    let scene = Scene::new().await;
    assert_eq!(scene.post(&acme(), "ann", "n1", false).await, Made::Now(1));
    assert_eq!(scene.post(&acme(), "ann", "n1", false).await, Made::Now(2));
    assert_eq!(scene.post(&acme(), "ann", "n1", true).await, Made::Now(3), "it was not remembered");
    let made = scene
        .messages
        .once(&acme(), NonceRequest { author: "ann", nonce: None, enforce: true }, || async { Ok(9) })
        .await
        .unwrap();
    assert_eq!(made, Made::Now(9), "there is no nonce");
}

#[test]
fn a_nonce_is_a_short_text_or_an_integer() {
    let read = |value: Value| serde_json::from_value::<Nonce>(value);
    assert_eq!(read(json!(5)).unwrap(), read(json!("5")).unwrap());
    assert_eq!(read(json!(-7)).unwrap().as_str(), "-7");
    assert_eq!(read(json!(u64::MAX)).unwrap().as_str(), u64::MAX.to_string());
    assert_eq!(read(json!("ü".repeat(25))).unwrap().as_str().chars().count(), 25);
    for wrong in
        [json!(""), json!("x".repeat(26)), json!(1.5), json!(true), json!(null), json!("a\nb"), json!([1])]
    {
        assert!(read(wrong.clone()).is_err(), "{wrong}");
    }
    assert_eq!(Nonce::try_from("x".repeat(26)), Err(NonceFormError::TooLong { chars: 26 }));
}

#[tokio::test]
async fn what_failed_may_be_sent_again_and_what_nobody_knows_is_asked() {
    let scene = Scene::new().await;
    let (messages, nonce) = (&scene.messages, Nonce::from(1_u64));
    let refused = || async { Err::<u32, _>(ToolError::new(ErrorKind::Validation, "too long")) };
    let told = messages.once(&acme(), by_ann(&nonce), refused).await;
    assert!(matches!(&told, Err(NonceError::Failed(failure)) if failure.message == "too long"), "{told:?}");
    assert_eq!(messages.once(&acme(), by_ann(&nonce), || async { Ok(1) }).await.unwrap(), Made::Now(1));

    let dies = || async { Err::<u32, _>(ToolError::new(ErrorKind::Disconnected, "the database is gone")) };
    let nonce = Nonce::from(2_u64);
    let told = messages.once(&acme(), by_ann(&nonce), dies).await;
    let Err(NonceError::Unknown(question)) = told else { panic!("{told:?}") };
    let again = messages.once(&acme(), by_ann(&nonce), || async { Ok(7) }).await;
    assert!(matches!(again, Err(NonceError::Unknown(same)) if same == question), "{again:?}");
    // However long ago: whether it was made does not depend on the window.
    scene.clock.advance(WINDOW * 2);
    let again = messages.once(&acme(), by_ann(&nonce), || async { Ok(7) }).await;
    assert!(matches!(again, Err(NonceError::Unknown(same)) if same == question), "{again:?}");
    scene.executor.answer(&acme(), question, Resolution::DidNotHappen, "ann").await.unwrap();
    assert_eq!(messages.once(&acme(), by_ann(&nonce), || async { Ok(7) }).await.unwrap(), Made::Now(7));
}

// Its record is not dropped while a question about it is open, such as one that a late answer has raised.
#[tokio::test]
async fn past_its_window_a_value_that_is_asked_about_is_given_back() {
    let (dir, clock, tap) = (tempfile::tempdir().unwrap(), TestClock::breathing(), Tap::default());
    let store: Arc<OnceLock<Arc<dyn Store>>> = Arc::default();
    let (kept, tapped) = (store.clone(), tap.clone());
    let builder =
        executor(&dir, &clock).wrap_store(move |store| tapped.around(kept.get_or_init(|| store).clone()));
    let executor = builder.open().await.unwrap();
    let messages = Nonces::new(&executor, "message").unwrap();
    let scene = Scene { _dir: dir, clock, executor, messages, made: Arc::default() };
    assert_eq!(scene.post(&acme(), "ann", "n1", true).await, Made::Now(1));

    let begun = |change: &Change| Some((change.fence, change.record.as_ref()?.id));
    let (fence, record) = tap.see(|tapped| tapped.batches.iter().flatten().find_map(begun)).unwrap();
    let question = Question {
        id: QuestionId(7),
        tenant: acme(),
        record: Some(record),
        run: None,
        kind: QuestionKind::Duplicated,
        question: "It was posted once more. What about the other?".to_owned(),
        opened_at: Timestamp(1),
        waiting: None,
        answer: None,
    };
    let opened = Change { fence, escalations: vec![question], ..Change::default() };
    let verdicts = store.get().unwrap().commit(&[opened]).await.unwrap();
    assert!(verdicts.iter().all(Verdict::is_admitted), "{verdicts:?}");

    scene.clock.advance(WINDOW);
    let again = async {
        assert_eq!(scene.post(&acme(), "ann", "n1", true).await, Made::Before(1));
        Ok::<(), std::convert::Infallible>(())
    };
    soon("the request finds the same record again and again".to_owned(), again).await;
}

#[tokio::test]
async fn a_window_that_is_shorter_than_a_try_is_refused() {
    let scene = Scene::new().await;
    let refused = Nonces::within(&scene.executor, "ping", Duration::from_secs(3)).unwrap_err().to_string();
    assert!(refused.contains("retries may come"), "{refused}");
    assert!(Nonces::within(&scene.executor, "ping", Duration::from_secs(10)).is_ok());
}

async fn over_http(url: &str, draft: &Value) -> Posted {
    let request = reqwest::Client::new().post(format!("{url}/ann/messages")).json(draft);
    request.send().await.unwrap().json().await.unwrap()
}

async fn over_websocket(url: &str, draft: &Value) -> Posted {
    let url = format!("{}/ann/socket", url.replace("http", "ws"));
    let (mut socket, _) = connect_async(url).await.unwrap();
    socket.send(Frame::text(draft.to_string())).await.unwrap();
    let Frame::Text(answer) = socket.next().await.unwrap().unwrap() else { panic!("no text") };
    serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer}"))
}

// Both doors at the same time, with the same nonce.
#[tokio::test]
async fn two_transports_post_one_message() {
    let dir = tempfile::tempdir().unwrap();
    let chat = Chat::open(&dir.path().join("chat.db")).await.unwrap();
    let url = serve(app(chat)).await;
    for round in 1..=5 {
        let draft = json!({"text": "hello", "nonce": round, "enforce_nonce": true});
        let http = join_all((0..10).map(|_| over_http(&url, &draft)));
        let socket = join_all((0..10).map(|_| over_websocket(&url, &draft)));
        let (http, socket) = futures_util::future::join(http, socket).await;
        for posted in http.iter().chain(&socket) {
            assert_eq!(posted, &Posted { id: round, author: "ann".into(), text: "hello".into() });
        }
    }
    let plain = json!({"text": "hello", "nonce": 1});
    assert_eq!(over_http(&url, &plain).await.id, 6, "without the flag");
    assert_eq!(over_websocket(&url, &plain).await.id, 7);
}
