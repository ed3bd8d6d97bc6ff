//! One look at what a stream is about, and the difference between two looks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::cursor::{Cursor, OPEN};
use crate::clock::Timestamp;
use crate::flow::{PastTurn, RunFilter, RunStatus, TenantClient};
use crate::guard::approval::OpenReview;
use crate::id::{QuestionId, RunId};
use crate::ledger::Review;
use crate::rim::api::{Failed, Listed};
use crate::store::{Document, Question, RunState, Store as _};

/// The greatest number of open reviews that one look at a tenant reads: their rows hold what is to be approved.
const REVIEWS: usize = 100;
/// The number of runs that one look at a tenant reads: those that were started last.
const RUNS: u32 = 50;
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

impl Event {
    /// The event by which a client knows that it must list anew: something may have changed that the stream does not name.
    pub(super) fn gap() -> Self {
        Self { kind: "gap", data: json!({}) }
    }
}

/// What there was at one look.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    runs: BTreeMap<RunId, RunStatus>,
    open: BTreeMap<QuestionId, Question>,
    /// The calls of a run by their keys, as the API shows them.
    calls: Arc<BTreeMap<String, Value>>,
    /// The revision of the run's row, if nothing about its calls changes before the row does: nobody carries the run out.
    at_rest: Option<u32>,
    /// The rows of the open reviews, by their ids.
    reviews: BTreeMap<String, Document>,
    /// True if there may be more open questions or reviews than one look reads.
    is_cut: bool,
}

impl Look {
    /// Looks at the subject. `before`: the look before, of which a look at a run takes over what cannot have changed.
    pub(super) async fn at(
        client: &TenantClient,
        subject: Subject,
        before: Option<&Self>,
    ) -> Result<Self, Failed> {
        match subject {
            Subject::Run(run) => Self::at_run(client, run, before).await,
            Subject::Tenant => Self::at_tenant(client).await,
        }
    }

    async fn at_run(client: &TenantClient, run: RunId, before: Option<&Self>) -> Result<Self, Failed> {
        let handle = client.handle::<Value>(run);
        let row = handle.row().await?;
        let is_at_rest = !matches!(row.state, RunState::Active) && !row.unsettled;
        let at_rest = is_at_rest.then_some(row.revision);
        let status = RunStatus::from(row);
        let (core, tenant) = client.core();
        let open = core.group.escalation_open_about(&tenant, run, rows(OPEN)).await?;
        let is_cut = open.len() >= OPEN;
        let open: BTreeMap<_, _> = open.into_iter().map(|asked| (asked.id, asked)).collect();
        let same =
            before.filter(|before| at_rest.is_some() && before.at_rest == at_rest && before.open == open);
        let calls = match same {
            Some(before) => before.calls.clone(),
            None => {
                // The turn before the present one, whose calls may have been settled since the last look. A run without loops
                // is one turn, however long it is.
                let turns = handle.history(status.turn.checked_sub(2)).await?;
                Arc::new(turns.iter().flat_map(calls).collect())
            }
        };
        Ok(Self { runs: BTreeMap::from([(run, status)]), open, calls, at_rest, is_cut, ..Self::default() })
    }

    async fn at_tenant(client: &TenantClient) -> Result<Self, Failed> {
        let open = client.questions().limit(rows(OPEN)).await?;
        let (core, tenant) = client.core();
        let reviews = core.group.document_open(&tenant, Review::KIND, "", rows(REVIEWS)).await?;
        let runs = client.list_runs(&RunFilter::new().newest_first(), None, RUNS).await?.runs;
        Ok(Self {
            is_cut: open.len() >= OPEN || reviews.len() >= REVIEWS,
            runs: runs.into_iter().map(|run| (run.id, run)).collect(),
            open: open.into_iter().map(|asked| (asked.id, asked)).collect(),
            reviews: reviews.into_iter().map(|row| (row.id.clone(), row)).collect(),
            ..Self::default()
        })
    }

    /// The place in the stream after this look.
    pub(super) fn cursor(&self, at: Timestamp) -> Cursor {
        Cursor {
            at,
            calls: self.calls_digest(),
            reviews: self.reviews_digest(),
            is_whole: !self.is_cut,
            open: self.open.keys().copied().collect(),
        }
    }

    fn calls_digest(&self) -> u64 {
        digest(self.calls.values().map(Value::to_string))
    }

    fn reviews_digest(&self) -> u64 {
        digest(self.reviews.values().map(|row| format!("{}/{}", row.revision, row.id)))
    }

    /// True if there may be more open questions or reviews than one look reads: those are not told of.
    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
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
        let now = client.core().0.now();
        let is_new = |row: &&Document| before.reviews.get(&row.id) != Some(*row);
        events.extend(self.reviews.values().filter(is_new).filter_map(|row| reviewed(row, now)));
        let gone: Vec<_> = before.reviews.keys().filter(|id| !self.reviews.contains_key(*id)).collect();
        for id in gone {
            events.extend(decided(client, id).await?);
        }
        if self.is_cut && !before.is_cut {
            events.push(Event::gap());
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
        // A digest does not tell which reviews were decided.
        let reviews_changed = cursor.reviews != self.reviews_digest();
        if reviews_changed {
            let now = client.core().0.now();
            events.extend(self.reviews.values().filter_map(|row| reviewed(row, now)));
        }
        if reviews_changed || self.is_cut || !cursor.is_whole {
            events.push(Event::gap());
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

/// The number of rows that a look reads of a sort.
fn rows(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn digest(texts: impl Iterator<Item = String>) -> u64 {
    let mut hasher = Sha256::new();
    texts.for_each(|text| hasher.update(text));
    let digest = hasher.finalize();
    u64::from_be_bytes(std::array::from_fn(|at| digest[at]))
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

/// A review that is open.
fn reviewed(row: &Document, now: Timestamp) -> Option<Event> {
    OpenReview::of_row(row, now).map(|open| Event { kind: "approval", data: json!(open) })
}

/// A review that is open no more: decided, withdrawn, or no longer kept.
async fn decided(client: &TenantClient, id: &str) -> Result<Option<Event>, Failed> {
    let review = client.review(id).await?.filter(|review| review.review.outcome.is_some());
    Ok(review.map(|review| Event { kind: "approval", data: json!(review) }))
}
