//! The library's own HTTP clients send one request in each attempt: who sends again is the executor, and nobody below it.
//! (R-EXE-5. The client of model calls is tested beside its server, in `agent/http.rs`.)

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::ledger::{Backoff, LookupResult};
use counterfoil::outbox::{Event, PublishResult, Publisher, Sink, SinkError};
use counterfoil::tool::lookup::{Expected, HttpGet};
use counterfoil::{Ctx, Engine, Failure, HttpSink};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::wire::request;

const SOON: Duration = Duration::from_secs(5);

/// What becomes of a request that has arrived.
#[derive(Clone, Copy)]
enum Becomes {
    /// It is answered, and the connection stays open.
    Answered(u16),
    /// The connection is closed without an answer: a client that sends by itself again would do it here.
    HangUp,
}

/// A server that counts what arrives, byte by byte: an HTTP library would hide what its connections do.
#[derive(Clone)]
struct Wire {
    url: String,
    script: Arc<Mutex<VecDeque<Becomes>>>,
    arrived: Arc<AtomicUsize>,
}

impl Wire {
    async fn with(script: impl IntoIterator<Item = Becomes>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/things/1", listener.local_addr().unwrap());
        let script = Arc::new(Mutex::new(script.into_iter().collect()));
        let wire = Self { url, script, arrived: Arc::default() };
        let serving = wire.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        wire
    }

    fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    async fn serve(self, mut stream: TcpStream) {
        while request(&mut stream).await.is_some() {
            self.arrived.fetch_add(1, Ordering::SeqCst);
            let becomes = self.script.lock().unwrap().pop_front().unwrap_or(Becomes::Answered(200));
            let Becomes::Answered(status) = becomes else { return };
            let body = r#"{"id":"t1"}"#;
            let answer = format!(
                "HTTP/1.1 {status} X\r\nlocation: {}\r\nretry-after: 0\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n{body}",
                self.url,
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

/// The second request of a connection is the dangerous one: a client may take a connection that closes for one that was closed.
const SCRIPT: [Becomes; 7] = [
    Becomes::Answered(200),
    Becomes::HangUp,
    Becomes::HangUp,
    Becomes::Answered(307),
    Becomes::Answered(421),
    Becomes::Answered(503),
    Becomes::Answered(200),
];

#[tokio::test]
async fn a_lookup_sends_one_request() {
    let wire = Wire::with(SCRIPT).await;
    let lookup = HttpGet::one(&wire.url, SOON).unwrap();
    for (place, becomes) in SCRIPT.into_iter().enumerate() {
        let id = |thing: Value| serde_json::from_value::<String>(thing["id"].clone());
        let found = lookup.find("ours", &Expected::new(), id).await;
        let is_found = matches!(found, Ok(LookupResult::Committed { .. }));
        assert_eq!(is_found, matches!(becomes, Becomes::Answered(200)), "{place}: {found:?}");
        assert_eq!(wire.arrived(), place + 1);
    }
}

/// The sink, with a count of what it was asked to publish.
struct Counted {
    sink: HttpSink,
    asked: Arc<AtomicUsize>,
}

impl Sink for Counted {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        assert_eq!(batch.len(), 1, "one event is written");
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.sink.publish(batch).await
    }
}

async fn tells(ctx: Ctx, of: u32) -> Result<(), Failure> {
    ctx.emit("order/9", "placed", &json!(of)).await
}

#[tokio::test]
async fn a_sink_posts_an_event_once_each_time_that_it_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let wire = Wire::with(SCRIPT).await;
    let asked: Arc<AtomicUsize> = Arc::default();
    let sink = Counted { sink: HttpSink::new(&wire.url, SOON).unwrap(), asked: asked.clone() };
    let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(2) };
    let publisher = Publisher::new(sink).tries(20).backoff(backoff);
    let engine = Engine::sqlite(folder.path().join("test.db")).workflow("tells", 1, tells).sink(publisher);
    let engine = engine.start().await.unwrap();
    let acme = engine.tenant("acme").unwrap();
    // The first event is taken at once, the second when the script ends well, and the third at once.
    for (of, sends) in [(1, 1), (2, SCRIPT.len()), (3, SCRIPT.len() + 1)] {
        acme.run(tells, of).key(of.to_string()).await.unwrap();
        while asked.load(Ordering::SeqCst) < sends || wire.arrived() < sends {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!((asked.load(Ordering::SeqCst), wire.arrived()), (SCRIPT.len() + 1, SCRIPT.len() + 1));
}
