//! How runs stand in their table, and what is asked of it.

use std::hash::Hash;
use std::sync::Arc;

use super::{InQueue, Run, RunState, WaitsOn};
use crate::clock::Timestamp;
use crate::id::{Fence, Name, RunId, RunNumber, Tenant};
use crate::payload::{Payload, Stored};
use crate::store::ask::{Queries, Reader};
use crate::store::row::{Form, Put, Readable, Row, Take};
use crate::store::table::{Law, Table, bytes, flag, number, text};
use crate::store::{COMMAND, EscalationKind, StoreError};

impl Readable for Run {
    const TABLE: &'static Table = &Table {
        name: "run",
        key: &["id"],
        with: &["tenant"],
        law: Law::Moves,
        columns: &[
            number("id"),
            text("tenant"),
            text("workflow").fixed(),
            number("version"),
            text("key").fixed(),
            number("parent").fixed(),
            text("input").fixed(),
            bytes("input_hash").fixed(),
            number("state"),
            number("wake_at"),
            number("waits_on"),
            text("outcome"),
            number("fence"),
            number("revision"),
            number("deaths"),
            number("created_at").fixed(),
            number("updated_at"),
            flag("unsettled"),
            number("number").fixed(),
            number("base"),
            number("turn"),
            text("queue").fixed(),
            text("queue_key").fixed(),
            number("priority").fixed(),
            number("admitted_at"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            id: RunId(values.number()?),
            tenant: values.tenant()?,
            workflow: values.name()?,
            version: values.count()?,
            key: values.some_text()?,
            parent: values.some_number()?.map(RunId),
            input: values.parsed_text(Stored::from_column)?,
            input_hash: values.hash()?,
            state: state(values)?,
            fence: Fence(values.number()?),
            revision: values.count()?,
            deaths: values.count()?,
            created_at: values.time()?,
            updated_at: values.time()?,
            unsettled: values.flag()?,
            number: RunNumber(values.number()?),
            base: values.count()?,
            turn: values.count()?,
            queue: queue(values)?,
        })
    }
}

impl Row for Run {
    /// One that has been in no loop and in no queue, and has not gone on as new. A turn's number only rises and a queue is for good, so
    /// its row never had others in these columns.
    const FORMS: &'static [Form] = &[&[
        ("base", "0"),
        ("turn", "1"),
        ("queue", "NULL"),
        ("queue_key", "NULL"),
        ("priority", "NULL"),
        ("admitted_at", "NULL"),
    ]];

    fn has(&self, _: usize) -> bool {
        self.base == 0 && self.turn == 1 && self.queue.is_none()
    }

    /// A new one is told by its start key, the others by their places.
    fn key(&self) -> impl Ord + Hash {
        (&self.tenant, (self.revision == 1).then_some((self.workflow.as_str(), &self.key)), self.id)
    }

    fn revision(&self) -> u32 {
        self.revision
    }

    fn put(&self, values: &mut impl Put) {
        let (wake_at, waits_on, outcome) = self.state.columns();
        let queue = self.queue.as_deref();
        values
            .number(self.id.0)
            .shared(self.tenant.text())
            .shared(self.workflow.text())
            .number(self.version)
            .some_text(self.key.as_deref())
            .some_number(self.parent.map(|parent| parent.0))
            .shared(self.input.column())
            .bytes(&self.input_hash.column())
            .number(self.state.code())
            .some_number(wake_at)
            .number(waits_on)
            .some_shared(outcome)
            .number(self.fence.0)
            .number(self.revision)
            .number(self.deaths)
            .number(self.created_at.0)
            .number(self.updated_at.0)
            .flag(self.unsettled)
            .number(self.number.0)
            .number(self.base)
            .number(self.turn)
            .some_shared(queue.map(|queue| queue.name.text()))
            .some_text(queue.and_then(|queue| queue.key.as_deref()))
            .some_number(queue.map(|queue| queue.priority.into()))
            .some_number(queue.and_then(|queue| queue.admitted_at).map(|at| at.0));
    }
}

fn state(values: &mut impl Take) -> Result<RunState, StoreError> {
    let code = values.number()?;
    let (until, waits_on, outcome) = (values.some_number()?, values.number()?, values.some_text()?);
    run_state(code, until, waits_on, outcome)
        .ok_or_else(|| values.damaged(&format!("state {code} does not fit its outcome")))
}

/// The state that these columns say; nothing if they do not fit one another.
fn run_state(code: i64, until: Option<i64>, waits_on: i64, outcome: Option<String>) -> Option<RunState> {
    Some(match (code, until, waits_on, outcome) {
        (0, None, 0, None) => RunState::Queued,
        (1, None, 0, None) => RunState::Active,
        (2, until, on, None) => {
            RunState::Waiting { until: until.map(Timestamp), on: WaitsOn::from_code(on)? }
        }
        (3, None, 0, Some(output)) => RunState::Succeeded { output: Stored::from_column(&output)? },
        (4, None, 0, Some(failure)) => RunState::Failed { failure: Payload::stored(failure) },
        (5, None, 0, Some(failure)) => RunState::Halted { failure: Payload::stored(failure) },
        _ => return None,
    })
}

impl RunState {
    /// When the run is to be woken, what else wakes it, and its outcome; beside its [`code`](Self::code).
    pub(in crate::store) fn columns(&self) -> (Option<i64>, i64, Option<Arc<str>>) {
        match self {
            Self::Queued | Self::Active => (None, 0, None),
            Self::Waiting { until, on } => (until.map(|at| at.0), on.code(), None),
            Self::Succeeded { output } => (None, 0, Some(output.column())),
            Self::Failed { failure } | Self::Halted { failure } => (None, 0, Some(failure.text())),
        }
    }
}

fn queue(values: &mut impl Take) -> Result<Option<Box<InQueue>>, StoreError> {
    let (name, key) = (values.some_text()?, values.some_text()?);
    let (priority, admitted_at) = (values.some_number()?, values.some_number()?);
    in_queue(name, key, priority, admitted_at).map_err(|detail| values.damaged(detail))
}

/// A run's place in a queue from its columns; or what is wrong with them.
fn in_queue(
    name: Option<String>,
    key: Option<String>,
    priority: Option<i64>,
    admitted_at: Option<i64>,
) -> Result<Option<Box<InQueue>>, &'static str> {
    const NONE: &str = "its place is in no queue";
    let Some(name) = name else {
        let empty = key.is_none() && priority.is_none() && admitted_at.is_none();
        return if empty { Ok(None) } else { Err(NONE) };
    };
    let name = Name::new(name).map_err(|_| NONE)?;
    let priority = priority.and_then(|priority| i32::try_from(priority).ok()).ok_or(NONE)?;
    Ok(Some(Box::new(InQueue { name, key, priority, admitted_at: admitted_at.map(Timestamp) })))
}

type Runs = Result<Vec<Run>, StoreError>;

pub(in crate::store) async fn find<D: Reader>(
    on: &Queries<D>,
    tenant: &Tenant,
    id: RunId,
) -> Result<Option<Run>, StoreError> {
    on.row("WHERE tenant = $1 AND id = $2", &[tenant.into(), id.0.into()]).await
}

pub(in crate::store) async fn keyed<D: Reader>(
    on: &Queries<D>,
    tenant: &Tenant,
    workflow: &str,
    key: &str,
) -> Result<Option<Run>, StoreError> {
    let behind = "WHERE tenant = $1 AND workflow = $2 AND key = $3";
    on.row(behind, &[tenant.into(), workflow.into(), key.into()]).await
}

pub(in crate::store) async fn orphans<D: Reader>(on: &Queries<D>, after: RunId, limit: u32) -> Runs {
    let behind = "WHERE state = 1 AND id > $1 AND EXISTS (SELECT 1 FROM worker w WHERE w.fence = run.fence \
                  AND w.ended_at IS NOT NULL) ORDER BY id LIMIT $2";
    on.page(behind, after.0, &[limit.into()]).await
}

pub(in crate::store) async fn answered<D: Reader>(on: &Queries<D>, after: RunId, limit: u32) -> Runs {
    let index = D::either("INDEXED BY escalation_run ", "");
    let behind = format!(
        "WHERE waits_on IN (1, 3) AND id > $1 AND NOT EXISTS (SELECT 1 FROM escalation e {index}WHERE \
         e.tenant = run.tenant AND e.run = run.id AND e.answer IS NULL AND e.kind IN ($2, $3, $4)) ORDER BY id LIMIT $5"
    );
    let [asked, gone, undo] = EscalationKind::PARKING.map(EscalationKind::code);
    on.page(&behind, after.0, &[asked.into(), gone.into(), undo.into(), limit.into()]).await
}

/// Found by the signals that nobody has received, which are few.
pub(in crate::store) async fn signalled<D: Reader>(on: &Queries<D>, after: RunId, limit: u32) -> Runs {
    // A run's place is its id alone in SQLite.
    let few = D::either(
        "id IN (SELECT s.run FROM signal s INDEXED BY signal_pending WHERE NOT s.received)",
        "(tenant, id) IN (SELECT tenant, run FROM signal WHERE NOT received)",
    );
    let index = D::either("INDEXED BY signal_pending ", "");
    let behind = format!(
        "WHERE {few} AND EXISTS (SELECT 1 FROM signal s {index}WHERE s.tenant = run.tenant AND s.run = run.id \
         AND NOT s.received AND (waits_on IN (2, 3) OR substr(s.name, 1, 2) = $2)) AND state IN (0, 2) AND id > $1 \
         ORDER BY id LIMIT $3"
    );
    on.page(&behind, after.0, &[COMMAND.into(), limit.into()]).await
}

pub(in crate::store) async fn children<D: Reader>(
    on: &Queries<D>,
    tenant: &Tenant,
    parent: RunId,
    after: RunId,
    limit: u32,
) -> Runs {
    let behind = "WHERE id > $1 AND tenant = $2 AND parent = $3 ORDER BY id LIMIT $4";
    on.page(behind, after.0, &[tenant.into(), parent.0.into(), limit.into()]).await
}

pub(in crate::store) async fn due<D: Reader>(on: &Queries<D>, until: Timestamp, limit: u32) -> Runs {
    on.sound("WHERE wake_at <= $1 ORDER BY wake_at, id LIMIT $2", &[until.0.into(), limit.into()]).await
}

pub(in crate::store) async fn next_due<D: Reader>(
    on: &Queries<D>,
    after: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    let sql = "SELECT min(at) FROM (SELECT min(wake_at) AS at FROM run WHERE wake_at > $1 \
               UNION ALL SELECT min(due_at) FROM queue WHERE due_at > $1 \
               UNION ALL SELECT min(next_at) FROM schedule WHERE next_at > $1 \
               UNION ALL SELECT min(due_at) FROM look WHERE due_at > $1) AS due";
    Ok(on.number(sql, &[after.0.into()]).await?.map(Timestamp))
}

pub(in crate::store) async fn admitted<D: Reader>(
    on: &Queries<D>,
    queue: &str,
    fence: Fence,
    since: Timestamp,
) -> Runs {
    let behind = "WHERE queue = $1 AND admitted_at >= $2 AND state IN (1, 2) AND fence = $3 AND state = 1 \
                  ORDER BY admitted_at, tenant, id";
    on.sound(behind, &[queue.into(), since.0.into(), fence.0.into()]).await
}

pub(in crate::store) async fn list<D: Reader>(
    on: &Queries<D>,
    tenant: &Tenant,
    after: RunId,
    limit: u32,
) -> Runs {
    let behind = "WHERE id > $1 AND tenant = $2 ORDER BY id LIMIT $3";
    on.page(behind, after.0, &[tenant.into(), limit.into()]).await
}
