//! The outside world of a test: a provider that counts its effects, and does as the test says.
//!
//! The oracle of every test is [`World::count`], never the engine's opinion.

#![allow(unreachable_pub, reason = "shared by all files of this binary")]

mod clock;
mod log;
mod process;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use counterfoil::exec::{ExecError, ExecutorBuilder};
use counterfoil::ledger::{Contract, EffectClass, ErrorKind, LookupOffer, LookupResult, RetryPolicy};
use counterfoil::tool::{Call, Done, DynamicTool, ToolError};
use counterfoil::{Executor, Key, Outcome, Tenant, ToolRequest};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use clock::{Chance, TestClock, soon, until};
pub use log::{Listener, Log};
pub use process::Process;

/// The provider's handling of a key that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// The provider returns the first result.
    Honours,
    /// The provider refuses the request as a duplicate.
    Rejects,
    /// The provider ignores the key: each request is an effect.
    Ignores,
}

/// The provider's reaction to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The request takes effect and is answered.
    Answer,
    /// The request takes effect, with this answer.
    AnswerWith(Value),
    /// No effect, and an error of this kind.
    Fail(ErrorKind),
    /// No effect, and a refusal that the provider repeats for each request under the key.
    Decline,
    /// No effect, and an error that says when to come again.
    FailUntil(Duration),
    /// No effect, but the key is used up.
    Burn,
    /// The request takes effect, and the provider says that it will finish it by itself, under an id.
    Accept,
    /// The request takes effect, and then fails.
    EffectThenFail(ErrorKind),
    /// The request takes effect, and then the tool's code panics.
    EffectThenPanic,
    /// No effect and no answer, until [`World::release`].
    Hang,
    /// The request takes effect, and there is no answer until [`World::release`].
    EffectThenHang,
    /// The answer to a request without its effect.
    Forget,
    /// The answer and two effects: the network has doubled the request.
    Twice,
    /// The request is on its way until [`World::land`], whatever becomes of its sender, who gets no answer.
    Late,
}

/// The answer of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The effects that exist.
    Truth,
    /// No effect, whatever exists.
    NotFound,
    /// The provider cannot tell.
    Unknown,
    /// The provider has refused the request.
    Failed,
    /// The call is not finished.
    Pending,
    /// Something else is there under the key.
    Foreign,
    /// The lookup ends with an error.
    Fail,
    /// The lookup gets no answer.
    Hang,
    /// The tool's code panics.
    Panic,
}

#[derive(Default)]
struct State {
    effects: Vec<(String, String, Value)>,
    used_keys: Vec<String>,
    /// Requests as they arrived: key and body.
    requests: Vec<(String, Value)>,
    /// Lookups as they arrived, each with the external reference that it went by.
    lookups: Vec<Option<String>>,
    on_the_way: Vec<(String, Value)>,
    replies: VecDeque<Reply>,
    looks: VecDeque<Look>,
}

pub struct World {
    keys: Keys,
    state: Mutex<State>,
    /// The numbers of requests and lookups that have arrived.
    arrived: watch::Sender<(usize, usize)>,
    released: watch::Sender<u32>,
}

impl World {
    pub fn new(keys: Keys) -> Arc<Self> {
        let (arrived, released) = (watch::Sender::new((0, 0)), watch::Sender::new(0));
        Arc::new(Self { keys, state: Mutex::default(), arrived, released })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sets the reactions to the next requests. After them every request is answered.
    pub fn replies(&self, replies: impl IntoIterator<Item = Reply>) {
        self.state().replies.extend(replies);
    }

    /// Sets the answers of the next lookups. After them every lookup tells the truth.
    pub fn looks(&self, looks: impl IntoIterator<Item = Look>) {
        self.state().looks.extend(looks);
    }

    /// The number of effects in the world.
    pub fn count(&self) -> usize {
        self.state().effects.len()
    }

    /// The number of requests that reached the provider.
    pub fn requests(&self) -> usize {
        self.state().requests.len()
    }

    /// The distinct keys that reached the provider.
    pub fn wire_keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.state().requests.iter().map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// The lookups, each with the external reference that it went by.
    pub fn lookups(&self) -> Vec<Option<String>> {
        self.state().lookups.clone()
    }

    /// Waits until `count` requests have reached the provider.
    pub async fn requested(&self, count: usize) {
        let mut arrived = self.arrived.subscribe();
        let come = async { arrived.wait_for(|(requests, _)| *requests >= count).await.map(drop) };
        clock::soon(format!("there is no request number {count}"), come).await;
    }

    /// Waits until `count` lookups have reached the provider.
    pub async fn looked_up(&self, count: usize) {
        let mut arrived = self.arrived.subscribe();
        let come = async { arrived.wait_for(|(_, lookups)| *lookups >= count).await.map(drop) };
        clock::soon(format!("there is no lookup number {count}"), come).await;
    }

    /// Lets every request that hangs go on.
    pub fn release(&self) {
        self.released.send_modify(|times| *times += 1);
    }

    /// Lets the requests that were on their way arrive.
    pub fn land(&self) {
        let mut state = self.state();
        for (key, body) in std::mem::take(&mut state.on_the_way) {
            let _ = self.take_effect(&mut state, &key, &body);
        }
    }

    /// Lets the provider forget the keys that it has seen.
    pub fn forget_keys(&self) {
        self.state().used_keys.clear();
    }

    /// Lets a job fail that the provider had accepted: no lookup by our key shows it any more.
    pub fn fails(&self, id: &str) {
        for (key, ..) in self.state().effects.iter_mut().filter(|(_, known, _)| known == id) {
            key.clear();
        }
    }

    fn take_effect(&self, state: &mut State, key: &str, body: &Value) -> Result<String, ToolError> {
        let known = state.used_keys.iter().any(|used| used == key);
        let first = state.effects.iter().find(|(used, ..)| used == key).map(|(_, id, _)| id.clone());
        match (self.keys, known, first) {
            (Keys::Honours, true, Some(id)) => return Ok(id),
            (Keys::Rejects, true, _) => return Err(ToolError::new(ErrorKind::Duplicate, "known already")),
            _ => {}
        }
        let id = format!("effect-{}", state.effects.len() + 1);
        state.used_keys.push(key.to_owned());
        state.effects.push((key.to_owned(), id.clone(), body.clone()));
        Ok(id)
    }

    /// The provider's endpoint that creates an effect.
    pub async fn request(&self, key: &str, body: Value) -> Result<Done<Value>, ToolError> {
        let mut released = self.released.subscribe();
        released.mark_unchanged();
        let reply = {
            let mut state = self.state();
            state.requests.push((key.to_owned(), body.clone()));
            state.replies.pop_front().unwrap_or(Reply::Answer)
        };
        let effect = |body: &Value| self.take_effect(&mut self.state(), key, body);
        let (taken, after) = match reply {
            Reply::Fail(kind) => (Err(ToolError::new(kind, "as told")), None),
            Reply::Decline => (Err(ToolError::replayed(ErrorKind::Validation, "declined")), None),
            Reply::FailUntil(after) => {
                (Err(ToolError::new(ErrorKind::RateLimited, "as told").retry_after(after)), None)
            }
            Reply::Burn => {
                self.state().used_keys.push(key.to_owned());
                (Err(ToolError::new(ErrorKind::Server, "failed after it had noted the key")), None)
            }
            Reply::Late => {
                self.state().on_the_way.push((key.to_owned(), body.clone()));
                (Err(ToolError::new(ErrorKind::Disconnected, "sent, no answer")), Some(Reply::Hang))
            }
            Reply::Hang => (Err(ToolError::new(ErrorKind::Disconnected, "hung up")), Some(Reply::Hang)),
            Reply::Forget => (Ok("effect-0".to_owned()), None),
            Reply::Twice => {
                drop(effect(&body));
                (effect(&body), None)
            }
            reply => (effect(&body), Some(reply)),
        };
        self.arrived.send_modify(|(requests, _)| *requests += 1);
        if matches!(after, Some(Reply::Hang | Reply::EffectThenHang)) {
            released.changed().await.ok();
        }
        let id = taken?;
        match after {
            Some(Reply::EffectThenFail(kind)) => Err(ToolError::new(kind, "as told")),
            Some(Reply::EffectThenPanic) => panic!("as told"),
            Some(Reply::Accept) => Err(ToolError::accepted(Some(id)).retry_after(LOOK_AGAIN)),
            Some(Reply::AnswerWith(answer)) => Ok(Done::new(answer).external_ref(id)),
            _ => Ok(Done::new(json!({"id": id, "body": body})).external_ref(id)),
        }
    }

    /// A page of the provider's list, two effects to a page; the lookup reads all pages (C07).
    fn page(&self, page: usize) -> Vec<(String, String, Value)> {
        self.state().effects.chunks(2).nth(page).map(<[_]>::to_vec).unwrap_or_default()
    }

    /// A lookup by the provider's id if one was noted, else by our key.
    pub async fn lookup(
        &self,
        key: &str,
        external_ref: Option<&str>,
    ) -> Result<LookupResult<Value>, ToolError> {
        let look = {
            let mut state = self.state();
            state.lookups.push(external_ref.map(str::to_owned));
            state.looks.pop_front().unwrap_or(Look::Truth)
        };
        self.arrived.send_modify(|(_, lookups)| *lookups += 1);
        match look {
            Look::Truth => {}
            Look::NotFound => return Ok(LookupResult::NotFound),
            Look::Unknown => return Ok(LookupResult::Unknown),
            Look::Failed => {
                return Ok(LookupResult::Failed { kind: ErrorKind::Validation, message: "declined".into() });
            }
            Look::Pending => {
                let external_ref = external_ref.map(str::to_owned);
                return Ok(LookupResult::Pending { external_ref, look_again: LOOK_AGAIN });
            }
            Look::Foreign => return Ok(LookupResult::Foreign { what: "case c1 of another author".into() }),
            Look::Fail => return Err(ToolError::new(ErrorKind::Server, "as told")),
            Look::Hang => std::future::pending().await,
            Look::Panic => panic!("as told"),
        }
        let pages = (0..).map(|page| self.page(page)).take_while(|page| !page.is_empty());
        let found: Vec<_> = pages
            .flatten()
            .filter(|(used, id, _)| used == key || Some(id.as_str()) == external_ref)
            .collect();
        let output = |(_, id, body): &(String, String, Value)| json!({"id": id, "body": body});
        Ok(match found.as_slice() {
            [] => LookupResult::NotFound,
            [one] => LookupResult::Committed { output: output(one), external_ref: Some(one.1.clone()) },
            all => LookupResult::duplicated(all.iter().map(|one| (one.1.clone(), output(one)))),
        })
    }

    /// A tool of this contract over the provider, keyed by its input's `case`. It has a lookup if the contract offers
    /// one.
    pub fn tool(self: &Arc<Self>, name: &str, effect: EffectClass, contract: Contract) -> DynamicTool {
        let (kind, can_look) = (name.to_owned(), contract.lookup != LookupOffer::None);
        let (create, look) = (self.clone(), self.clone());
        let tool = DynamicTool::new(name, effect, contract)
            .key(move |input| Some(Key::of(&kind).target(input["case"].as_str()?)))
            .call(move |call: Call, input| {
                let (world, key) = (create.clone(), call.key().to_owned());
                async move { world.request(&key, input).await }
            });
        if !can_look {
            return tool;
        }
        tool.reconcile(move |call: Call, _| {
            let (world, key) = (look.clone(), call.key().to_owned());
            let id = call.external_ref().map(str::to_owned);
            async move { world.lookup(&key, id.as_deref()).await }
        })
    }
}

/// The pause that the provider wants before it is asked about a call that it has accepted.
pub const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The default settle time. Nothing else in these tests takes as long.
pub const SETTLE: Duration = Duration::from_mins(1);

/// Three quick attempts, each cut off after ten seconds; `Retry-After` is obeyed up to fifty.
pub fn brief() -> RetryPolicy {
    let mut policy = RetryPolicy { attempts: 3, ..RetryPolicy::default() };
    policy.attempt_timeout = Duration::from_secs(10);
    policy.retry_after_cap = Duration::from_secs(50);
    policy
}

pub fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

/// A request for the case `c1`.
pub fn request(tool: &str) -> ToolRequest {
    ToolRequest::new(acme(), tool, json!({"case": "c1"}))
}

/// An executor in `dir` with the test's clock, whose delays are as short as chance allows.
pub fn executor(dir: &tempfile::TempDir, clock: &TestClock) -> ExecutorBuilder {
    Executor::sqlite(dir.path().join("agents.db")).clock(clock.clone()).entropy(Chance::least())
}

/// Waits for a call's outcome, and lets the settle time pass if the call waits for it; returns true in that case. Only
/// once: after a send, a confirming lookup waits as long.
pub async fn settle(clock: &TestClock, mut call: JoinHandle<Result<Outcome, ExecError>>) -> (Outcome, bool) {
    tokio::select! {
        biased;
        outcome = &mut call => (outcome.unwrap().unwrap(), false),
        () = clock.slept(SETTLE) => {
            clock.advance(SETTLE);
            (call.await.unwrap().unwrap(), true)
        }
    }
}

/// Serves the app on a port of its own, and returns its address.
pub async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}
