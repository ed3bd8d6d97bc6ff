//! The lookup in a stream, against a log of its own that is read over HTTP by offset.

use std::sync::{Arc, Mutex};

use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use counterfoil::ledger::{Basis, Contract, ErrorKind, LookupResult};
use counterfoil::tool::lookup::{Batch, Log, Match, StreamFrom};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Key, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::tool::lookup::world::{Cut, Faults, Sent};
use crate::world::{brief, serve};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Message {
    id: String,
    text: String,
}

fn message(id: &str, text: &str) -> Message {
    Message { id: id.into(), text: text.into() }
}

/// A log that shows three messages at a time. A `None` has been compacted away.
#[derive(Default)]
struct Topic {
    messages: Mutex<Vec<Option<Message>>>,
    oldest: Mutex<u64>,
    faults: Option<Arc<Faults>>,
    /// Retention passes up to here once something was appended.
    drops: u64,
}

async fn append(State(topic): State<Arc<Topic>>, Json(message): Json<Message>) -> Json<usize> {
    let effect = async {
        let mut messages = topic.messages.lock().unwrap();
        messages.push(Some(message));
        *topic.oldest.lock().unwrap() = topic.drops;
        Json(messages.len() - 1)
    };
    match &topic.faults {
        Some(faults) => faults.around(effect).await,
        None => effect.await,
    }
}

async fn read(State(topic): State<Arc<Topic>>, Query(query): Query<Value>) -> Json<Value> {
    let messages = topic.messages.lock().unwrap();
    let oldest = *topic.oldest.lock().unwrap();
    let from: u64 = query["from"].as_str().unwrap().parse().unwrap();
    let shown: Vec<_> =
        (0..).zip(messages.iter()).skip(usize::try_from(from.max(oldest)).unwrap()).take(3).collect();
    let next = shown.last().map_or(from, |(offset, _)| offset + 1);
    let shown: Vec<_> = shown.into_iter().filter(|(_, message)| message.is_some()).collect();
    Json(json!({"messages": shown, "next": next, "oldest": oldest, "end": messages.len()}))
}

/// The log as its reader sees it.
struct Feed {
    client: reqwest::Client,
    url: String,
}

#[derive(Deserialize)]
struct Shown {
    messages: Vec<(u64, Message)>,
    next: u64,
    oldest: u64,
    end: u64,
}

#[allow(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn broken(error: reqwest::Error) -> ToolError {
    ToolError::new(ErrorKind::Disconnected, error.to_string())
}

impl Feed {
    async fn of(topic: &Arc<Topic>) -> Self {
        let app = Router::new().route("/log", get(read).post(append)).with_state(topic.clone());
        Self { client: reqwest::Client::new(), url: format!("{}/log", serve(app).await) }
    }

    async fn shown(&self, from: u64) -> Result<Shown, ToolError> {
        let answer = self.client.get(format!("{}?from={from}", self.url)).send().await.map_err(broken)?;
        answer.json().await.map_err(broken)
    }

    async fn append(&self, message: &Message) -> Result<u64, ToolError> {
        let answer = self.client.post(&self.url).json(message).send().await.map_err(broken)?;
        answer.json().await.map_err(broken)
    }
}

impl Log for Feed {
    type Message = Message;

    async fn end(&self) -> Result<u64, ToolError> {
        self.shown(0).await.map(|shown| shown.end)
    }

    async fn read(&self, from: u64) -> Result<Batch<Message>, ToolError> {
        let Shown { messages, next, oldest, .. } = self.shown(from).await?;
        Ok(Batch { messages, next, oldest })
    }
}

fn same(id: &str, text: &str) -> impl Fn(u64, Message) -> Match<u64> + Send {
    move |offset, message| match message.id == id {
        false => Match::Another,
        true if message.text == text => Match::ours(offset, offset.to_string()),
        true => Match::Conflict(format!("it says {:?}", message.text)),
    }
}

struct Announce(Feed, StreamFrom);

impl Tool for Announce {
    const NAME: &'static str = "announce";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = Sent;
    type Output = u64;

    fn key(&self, sent: &Sent) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&sent.text))
    }

    fn contract(&self) -> Contract {
        <Self::Contract as contract::Contract>::declaration().sight(&StreamFrom::SIGHT)
    }

    fn retry(&self) -> counterfoil::ledger::RetryPolicy {
        brief()
    }

    async fn call(&self, call: &Call, sent: &Sent) -> Result<Done<u64>, ToolError> {
        StreamFrom::remember(call, &self.0).await?;
        Ok(Done::new(self.0.append(&message(call.key(), &sent.text)).await?))
    }
}

impl Reconcile for Announce {
    async fn reconcile(&self, call: &Call, sent: &Sent) -> Result<LookupResult<u64>, ToolError> {
        self.1.find(call, &self.0, same(call.key(), &sent.text)).await
    }
}

/// What was in the log before, of which the first has been dropped.
fn topic(faults: Option<Arc<Faults>>, drops: u64) -> Arc<Topic> {
    let before = (0..7).map(|n| Some(message(&format!("m{n}"), "before"))).collect();
    Arc::new(Topic { messages: Mutex::new(before), oldest: Mutex::new(1), faults, drops })
}

fn count(topic: &Topic) -> usize {
    topic.messages.lock().unwrap().len() - 7
}

// R-EXE-10: a message whose acknowledgement never came.
#[tokio::test]
async fn a_message_is_found_or_sent_once_more() {
    for (cut, sends, settled, basis) in
        [(Cut::AfterEffect, 1, false, Basis::Lookup), (Cut::BeforeEffect, 2, true, Basis::Answer)]
    {
        let faults = Faults::new(cut);
        let topic = topic(Some(faults.clone()), 5);
        let (outcome, had_to) = faults.outcome(Announce(Feed::of(&topic).await, StreamFrom::default())).await;
        let answer = outcome.answer().unwrap_or_else(|| panic!("{outcome:?}"));
        assert_eq!((faults.sends(), had_to, answer.basis), (sends, settled, basis), "{cut:?}");
        assert_eq!((count(&topic), answer.response.as_str()), (1, "7"), "{cut:?}");
    }
}

// Its retention has passed the remembered offset: nobody can know, and nothing is sent again.
#[tokio::test]
async fn what_retention_may_have_dropped_is_asked() {
    let faults = Faults::new(Cut::AfterEffect);
    let topic = topic(Some(faults.clone()), 8);
    let (outcome, _) = faults.outcome(Announce(Feed::of(&topic).await, StreamFrom::default())).await;
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    assert_eq!((faults.sends(), count(&topic)), (1, 1));
}

async fn find(feed: &Feed, from: u64, lookup: StreamFrom) -> Result<LookupResult<u64>, ToolError> {
    lookup.find_from(feed, from, same("ours", "text")).await
}

#[tokio::test]
async fn a_log_is_read_to_its_end_or_not_believed() {
    let (topic, lookup) = (topic(None, 1), StreamFrom::default());
    let feed = Feed::of(&topic).await;
    let feed = &feed;
    assert_eq!(find(feed, 1, lookup).await.unwrap(), LookupResult::NotFound);
    assert_eq!(find(feed, 7, lookup).await.unwrap(), LookupResult::NotFound, "from its end");
    let refused = async |from, lookup, why: &str| {
        let error = find(feed, from, lookup).await.unwrap_err();
        assert!(error.message.contains(why), "{error}");
    };
    refused(0, lookup, "begins at 1").await;
    refused(8, lookup, "another log").await;
    refused(1, lookup.at_most(3), "there are more").await;
    assert_eq!(
        find(feed, 1, lookup.at_most(6)).await.unwrap(),
        LookupResult::NotFound,
        "the bound is the end"
    );
    assert!(
        lookup.find("ours", feed, same("ours", "text")).await.is_err(),
        "nothing remembered, and its beginning is gone"
    );
    *topic.oldest.lock().unwrap() = 0;
    let found = lookup.find("ours", feed, same("ours", "text")).await;
    assert_eq!(found.unwrap(), LookupResult::NotFound, "nothing remembered, and all is there");

    topic.messages.lock().unwrap().extend([None, None, None, Some(message("ours", "text"))]);
    let committed = LookupResult::Committed { output: 10, external_ref: Some("10".into()) };
    assert_eq!(find(feed, 1, lookup).await.unwrap(), committed, "behind a gap");
    topic.messages.lock().unwrap().push(Some(message("ours", "text")));
    let twice = LookupResult::duplicated([("10", 10), ("11", 11)]);
    assert_eq!(find(feed, 1, lookup).await.unwrap(), twice);
    topic.messages.lock().unwrap().push(Some(message("ours", "another text")));
    assert!(matches!(find(feed, 1, lookup).await.unwrap(), LookupResult::Foreign { .. }));
}

/// A log that stands still in the middle.
struct Stuck;

impl Log for Stuck {
    type Message = Message;

    async fn end(&self) -> Result<u64, ToolError> {
        Ok(9)
    }

    async fn read(&self, from: u64) -> Result<Batch<Message>, ToolError> {
        Ok(Batch { messages: vec![], next: from.max(4), oldest: 0 })
    }
}

#[tokio::test]
async fn a_log_that_does_not_go_on_is_not_believed() {
    let found = StreamFrom::default().find_from(&Stuck, 2, same("ours", "text")).await;
    assert!(found.unwrap_err().message.contains("does not go on at 4"));
}

/// A log in this process that counts from 1, and has lost nothing.
struct FromOne(Vec<Message>, bool);

impl Log for FromOne {
    type Message = Message;

    fn first(&self) -> u64 {
        u64::from(self.1)
    }

    async fn end(&self) -> Result<u64, ToolError> {
        Ok(self.0.len() as u64 + 1)
    }

    async fn read(&self, from: u64) -> Result<Batch<Message>, ToolError> {
        let all = (1..).zip(self.0.iter().cloned());
        let messages = all.filter(|(offset, _)| *offset >= from).collect();
        Ok(Batch { messages, next: self.end().await?, oldest: 1 })
    }
}

// Without a remembered offset a log is read from its first entry, which need not be number 0.
#[tokio::test]
async fn a_log_may_count_from_one() {
    let log = |says| FromOne(vec![message("a", "1"), message("ours", "2")], says);
    let found = StreamFrom::default().find("ours", &log(true), same("ours", "2")).await.unwrap();
    assert_eq!(found, LookupResult::Committed { output: 2, external_ref: Some("2".into()) });
    let from = StreamFrom::default().find_from(&log(true), 0, same("ours", "2")).await.unwrap();
    assert_eq!(from, found);
    let nothing =
        StreamFrom::default().find("ours", &FromOne(vec![], true), same("ours", "2")).await.unwrap();
    assert_eq!(nothing, LookupResult::NotFound);
    let error = StreamFrom::default().find("ours", &log(false), same("ours", "2")).await.unwrap_err();
    assert!(error.message.contains("begins at 1 by now, and had to be read from 0"), "{error}");
    // A log that ends before what was remembered is another one.
    let error = StreamFrom::default().find_from(&log(true), 9, same("ours", "2")).await.unwrap_err();
    assert!(error.message.contains("it is another log"), "{error}");
}
