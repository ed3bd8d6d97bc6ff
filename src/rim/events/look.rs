//! One look at what a stream is about, and the difference between two looks.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::cursor::Cursor;
use crate::clock::Timestamp;
use crate::flow::{PastTurn, RunStatus, TenantClient};
use crate::id::{QuestionId, RunId};
use crate::rim::api::{Failed, Listed};
use crate::store::{Question, Store as _};

/// The greatest number of open questions, and of runs of each sort, that one look reads.
const MOST: u32 = 100;
/// What was written at an instant can be read a little later. A resumed stream tells of this much once more.
const OVERLAP: Duration = Duration::from_secs(10);

/// The subject of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rim) enum Subject {
    Run(RunId),
    Tenant,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(run) => write!(f, "{run}"),
            Self::Tenant => f.write_str("tenant"),
        }
    }
}

/// Something that has changed, in the form in which the API shows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) data: Value,
}

/// What there was at one look.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    runs: BTreeMap<RunId, RunStatus>,
    open: BTreeMap<QuestionId, Question>,
    /// The calls of a run by their keys, as the API shows them.
    calls: BTreeMap<String, Value>,
}

impl Look {
    pub(super) async fn at(client: &TenantClient, subject: Subject) -> Result<Self, Failed> {
        match subject {
            Subject::Run(run) => Self::at_run(client, run).await,
            Subject::Tenant => Self::at_tenant(client).await,
        }
    }

    async fn at_run(client: &TenantClient, run: RunId) -> Result<Self, Failed> {
        let handle = client.handle::<Value>(run);
        let status = handle.status().await?;
        let (core, tenant) = client.core();
        let open = core.group.escalation_about(&tenant, run).await?;
        // The turn before the present one, whose calls may have been settled since the last look.
        let turns = handle.history(status.turn.checked_sub(2)).await?;
        Ok(Self {
            runs: BTreeMap::from([(run, status)]),
            open: open.into_iter().map(|asked| (asked.id, asked)).collect(),
            calls: turns.iter().flat_map(calls).collect(),
        })
    }

    async fn at_tenant(client: &TenantClient) -> Result<Self, Failed> {
        let open = client.questions().limit(MOST).await?;
        Ok(Self { open: open.into_iter().map(|asked| (asked.id, asked)).collect(), ..Self::default() })
    }

    /// The place in the stream after this look.
    pub(super) fn cursor(&self, at: Timestamp) -> Cursor {
        Cursor { at, calls: self.calls_digest(), open: self.open.keys().copied().collect() }
    }

    fn calls_digest(&self) -> u64 {
        let mut hasher = Sha256::new();
        self.calls.values().for_each(|call| hasher.update(call.to_string()));
        let digest = hasher.finalize();
        u64::from_be_bytes(std::array::from_fn(|at| digest[at]))
    }

    /// What has changed since the look before.
    pub(super) async fn since(&self, before: &Self, client: &TenantClient) -> Result<Vec<Event>, Failed> {
        let is_new = |run: &&RunStatus| before.runs.get(&run.id) != Some(*run);
        let mut events: Vec<_> = self.runs.values().filter(is_new).map(changed).collect();
        let calls = self.calls.iter().filter(|(key, call)| before.calls.get(*key) != Some(*call));
        events.extend(calls.map(|(_, call)| Event { kind: "call", data: call.clone() }));
        let asked = self.open.values().filter(|asked| before.open.get(&asked.id) != Some(*asked));
        events.extend(asked.map(opened));
        let gone = before.open.keys().filter(|id| !self.open.contains_key(*id));
        for id in gone {
            events.extend(answered(client, *id).await?);
        }
        for run in before.runs.keys().filter(|run| !self.runs.contains_key(*run)) {
            events.extend(client.handle::<Value>(*run).status().await.ok().as_ref().map(changed));
        }
        Ok(events)
    }

    /// What has changed since a cursor.
    pub(super) async fn since_cursor(
        &self,
        cursor: &Cursor,
        client: &TenantClient,
    ) -> Result<Vec<Event>, Failed> {
        let since = cursor.at.before(OVERLAP);
        let mut events: Vec<_> =
            self.runs.values().filter(|run| run.updated_at >= since).map(changed).collect();
        if cursor.calls != self.calls_digest() {
            events.extend(self.calls.values().map(|call| Event { kind: "call", data: call.clone() }));
        }
        let is_new = |asked: &&Question| asked.opened_at >= since || !cursor.open.contains(&asked.id);
        events.extend(self.open.values().filter(is_new).map(opened));
        for id in cursor.open.iter().filter(|id| !self.open.contains_key(*id)) {
            events.extend(answered(client, *id).await?);
        }
        Ok(events)
    }

    /// True if nothing will change any more.
    pub(super) fn is_over(&self, subject: Subject) -> bool {
        matches!(subject, Subject::Run(_))
            && self.open.is_empty()
            && self.runs.values().all(|run| run.state.is_final())
    }
}

/// The calls of a turn, by their keys.
fn calls(turn: &PastTurn) -> impl Iterator<Item = (String, Value)> {
    turn.calls.iter().map(|call| (call.key.as_str().to_owned(), json!(call)))
}

fn changed(run: &RunStatus) -> Event {
    Event { kind: "run", data: json!(run) }
}

fn opened(asked: &Question) -> Event {
    Event { kind: "question", data: json!(Listed::from(asked.clone())) }
}

/// A question that is open no more: answered, or no longer kept.
async fn answered(client: &TenantClient, id: QuestionId) -> Result<Option<Event>, Failed> {
    let view = client.question(id).await?.filter(|view| view.answer.is_some());
    Ok(view.map(|view| Event { kind: "answer", data: json!(view) }))
}
