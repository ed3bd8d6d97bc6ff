//! What the tests of the lookups share: calls that are cut off before or after their effect, and servers of their own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use counterfoil::exec::ExecError;
use counterfoil::tool::Tool;
use counterfoil::{Outcome, ToolRequest};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::world::{Process, TestClock, acme, brief, executor, settle, soon};

/// What is sent in all these tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) text: String,
    pub(crate) amount: u64,
}

impl Sent {
    pub(crate) fn new() -> Self {
        Self { text: "the invoice".into(), amount: 4900 }
    }
}

/// Where a call is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    BeforeEffect,
    AfterEffect,
}

/// Cuts the first call off; the others go through.
pub(crate) struct Faults {
    next: Mutex<Option<Cut>>,
    cut: watch::Sender<bool>,
    sends: AtomicUsize,
}

impl Faults {
    pub(crate) fn new(cut: Cut) -> Arc<Self> {
        let next = Mutex::new(Some(cut));
        Arc::new(Self { next, cut: watch::Sender::new(false), sends: AtomicUsize::new(0) })
    }

    /// Lets this take effect, and does not answer where it is cut off.
    pub(crate) async fn around<T>(&self, effect: impl Future<Output = T>) -> T {
        self.sends.fetch_add(1, Ordering::SeqCst);
        let cut = self.next.lock().unwrap().take();
        if cut == Some(Cut::BeforeEffect) {
            self.hang().await;
        }
        let done = effect.await;
        if cut == Some(Cut::AfterEffect) {
            self.hang().await;
        }
        done
    }

    async fn hang(&self) {
        self.cut.send_replace(true);
        std::future::pending::<()>().await;
    }

    pub(crate) fn sends(&self) -> usize {
        self.sends.load(Ordering::SeqCst)
    }

    /// Makes a call whose answer does not come, and lets it time out. What comes of it, and whether it had to settle.
    pub(crate) async fn outcome<T: Tool>(&self, tool: T) -> (Outcome, bool) {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::default());
        let settles = !tool.contract().class.collides();
        let process = Process::start(executor(&dir, &clock).tool(tool)).await.unwrap();
        let call: JoinHandle<Result<Outcome, ExecError>> =
            process.execute(ToolRequest::new(acme(), T::NAME, json!(Sent::new())));
        let mut cut = self.cut.subscribe();
        soon("nothing was cut off".into(), async { cut.wait_for(|cut| *cut).await.map(drop) }).await;
        clock.advance(brief().attempt_timeout);
        if settles { settle(&clock, call).await } else { (call.await.unwrap().unwrap(), false) }
    }
}

/// Serves on a port of its own, and says where.
pub(crate) async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}
