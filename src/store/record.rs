//! Records, and how their states stand in columns: codes, outcomes and texts that both databases write and read alike, so that rows can
//! be moved from one to the other as they are.

use std::hash::Hash;
use std::sync::Arc;

use super::ask::{Queries, Reader};
use super::row::{Form, Put, Readable, Row, Take};
use super::table::{Law, Table, bytes, flag, number, text};
use super::{EscalationKind, StoreError};
use crate::clock::Timestamp;
use crate::id::{DeclarationId, EscalationId, Fence, RecordId, RunId, Tenant};
use crate::ledger::{Basis, EffectClass, OperationKey, Owner, Record, State, Was};
use crate::payload::Stored;

impl Readable for Record {
    const TABLE: &'static Table = &Table {
        name: "record",
        key: &["id"],
        with: &["tenant", "key"],
        law: Law::Moves,
        columns: &[
            number("id"),
            text("tenant"),
            text("key"),
            text("operation").fixed(),
            number("class").fixed(),
            text("request").fixed(),
            bytes("request_hash").fixed(),
            number("declaration"),
            number("run").fixed(),
            number("turn").fixed(),
            text("step").fixed(),
            text("call_id").fixed(),
            number("fence"),
            number("revision"),
            number("attempts"),
            number("spent"),
            number("status"),
            number("basis"),
            text("outcome"),
            text("compensation"),
            text("external_ref"),
            number("escalation"),
            number("not_before"),
            number("kept_until").fixed(), // only `retention` changes it
            number("created_at").fixed(),
            number("updated_at"),
            flag("in_doubt"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        let mut record = Self {
            id: RecordId(values.number()?),
            tenant: values.tenant()?,
            key: values.parsed_text(|text| Some(OperationKey::stored(text)))?,
            operation: values.name()?,
            class: values.parsed(EffectClass::from_code)?,
            request: values.parsed_text(Stored::from_column)?,
            request_hash: values.hash()?,
            declaration: DeclarationId(values.number()?),
            owner: owner(values)?,
            fence: Fence(values.number()?),
            revision: values.count()?,
            attempts: values.count()?,
            spent: values.count()?,
            state: State::Started, // its columns follow
            basis: Basis::Answer,
            in_doubt: false,
            external_ref: None,
            escalation: None,
            not_before: None,
            kept_until: None,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
        };
        let status = values.number()?;
        record.basis = values.parsed(Basis::from_code)?;
        let (outcome, compensation) = (values.some_text()?, values.some_text()?);
        record.state = state(status, outcome, compensation)
            .ok_or_else(|| values.damaged(&format!("status {status} does not fit its outcome")))?;
        record.external_ref = values.some_text()?;
        record.escalation = values.some_number()?.map(EscalationId);
        record.not_before = values.some_time()?;
        record.kept_until = values.some_time()?;
        record.created_at = values.time()?;
        record.updated_at = values.time()?;
        record.in_doubt = values.flag()?;
        Ok(record)
    }
}

fn owner(values: &mut impl Take) -> Result<Owner, StoreError> {
    let run = values.some_number()?.map(RunId);
    let turn = values.count()?;
    Ok(Owner { run, turn, step: values.some_text()?.map(Into::into), call_id: values.some_text()? })
}

/// What changes of a record may bring, and nearly none does.
macro_rules! usual {
    ($($first:expr),*) => {
        &[
            $($first,)*
            ("call_id", "NULL"),
            ("spent", "0"),
            ("compensation", "NULL"),
            ("escalation", "NULL"),
            ("not_before", "NULL"),
            ("in_doubt", "false"),
        ]
    };
}

impl Row for Record {
    /// Nearly all are of one of these, and each column of a row costs a fiftieth of writing it.
    const FORMS: &'static [Form] = &[
        usual!(
            ("turn", "0"),
            ("revision", "1"),
            ("attempts", "1"),
            ("status", "1"),
            ("basis", "0"),
            ("outcome", "NULL"),
            ("external_ref", "NULL")
        ),
        usual!(
            ("revision", "1"),
            ("attempts", "1"),
            ("status", "1"),
            ("basis", "0"),
            ("outcome", "NULL"),
            ("external_ref", "NULL")
        ),
        usual!(("turn", "0")),
        usual!(),
    ];

    fn has(&self, form: usize) -> bool {
        let is_first = self.revision == 1;
        let usual = self.spent == 0
            && !matches!(self.state, State::Compensated { .. })
            && self.escalation.is_none()
            && self.not_before.is_none()
            && !self.in_doubt
            && (!is_first || self.owner.call_id.is_none());
        let starts = is_first
            && self.state == State::Started
            && self.attempts == 1
            && self.basis == Basis::Answer
            && self.external_ref.is_none();
        let outside = !is_first || self.owner.turn == 0; // what follows a start leaves the turn as it is
        usual
            && match form {
                0 => starts && outside,
                1 => starts,
                2 => outside,
                _ => true,
            }
    }

    fn key(&self) -> impl Ord + Hash {
        (&self.tenant, self.key.as_str())
    }

    fn revision(&self) -> u32 {
        self.revision
    }

    fn put(&self, values: &mut impl Put) {
        let (status, outcome, compensation) = columns(&self.state);
        values
            .number(self.id.0)
            .shared(self.tenant.text())
            .shared(self.key.text())
            .shared(self.operation.text())
            .number(self.class.code())
            .shared(self.request.column())
            .bytes(&self.request_hash.column())
            .number(self.declaration.0)
            .some_number(self.owner.run.map(|run| run.0))
            .number(self.owner.turn)
            .some_text(self.owner.step.as_deref())
            .some_text(self.owner.call_id.as_deref())
            .number(self.fence.0)
            .number(self.revision)
            .number(self.attempts)
            .number(self.spent)
            .number(status)
            .number(self.basis.code())
            .some_shared(outcome)
            .some_shared(compensation)
            .some_text(self.external_ref.as_deref())
            .some_number(self.escalation.map(|id| id.0))
            .some_number(self.not_before.map(|at| at.0))
            .some_number(self.kept_until.map(|at| at.0))
            .number(self.created_at.0)
            .number(self.updated_at.0)
            .flag(self.in_doubt);
    }

    fn is_as_written(&self, written: &Self) -> bool {
        Self::is_as_written(self, written)
    }
}

/// Status, outcome and compensation. Status 6 is "compensated in part"; the others are the state's own codes.
pub(super) fn columns(state: &State) -> (i64, Option<Arc<str>>, Option<Arc<str>>) {
    let code = state.code();
    match state {
        State::Started => (code, None, None),
        State::Committed { response } => (code, Some(response.column()), None),
        State::Failed { failure } => {
            let text = serde_json::to_string(failure).unwrap_or_default();
            (code, Some(text.into()), None)
        }
        State::Compensated { response, compensation, whole } => {
            (if *whole { code } else { 6 }, Some(response.column()), Some(compensation.column()))
        }
        State::Abandoned { reason } => (code, Some(reason.as_str().into()), None),
        State::Gone { was, outcome } => (code, Some(format!("{} {outcome}", was.name()).into()), None),
    }
}

/// Reads them back; nothing if they do not fit one another.
fn state(status: i64, outcome: Option<String>, compensation: Option<String>) -> Option<State> {
    Some(match (status, outcome, compensation) {
        (1, None, None) => State::Started,
        (2, Some(response), None) => State::Committed { response: Stored::from_column(&response)? },
        (3, Some(failure), None) => State::Failed { failure: serde_json::from_str(&failure).ok()? },
        (4 | 6, Some(response), Some(compensation)) => State::Compensated {
            response: Stored::from_column(&response)?,
            compensation: Stored::from_column(&compensation)?,
            whole: status == 4,
        },
        (5, Some(reason), None) => State::Abandoned { reason },
        (7, Some(outcome), None) => {
            let (name, outcome) = outcome.split_once(' ')?;
            let was = Was::ALL.into_iter().find(|was| was.name() == name)?;
            State::Gone { was, outcome: outcome.to_owned() }
        }
        _ => return None,
    })
}

pub(super) async fn find<D: Reader>(
    on: &Queries<D>,
    tenant: &Tenant,
    key: &OperationKey,
) -> Result<Option<Record>, StoreError> {
    on.row("WHERE tenant = $1 AND key = $2", &[tenant.into(), key.text().into()]).await
}

pub(super) async fn at<D: Reader>(
    on: &Queries<D>,
    tenant: &Tenant,
    id: RecordId,
) -> Result<Option<Record>, StoreError> {
    on.row("WHERE tenant = $1 AND id = $2", &[tenant.into(), id.0.into()]).await
}

/// Those of runs are found by their runs: an index of all started records would be written twice for each call.
pub(super) async fn orphans<D: Reader>(
    on: &Queries<D>,
    after: RecordId,
    limit: u32,
) -> Result<Vec<Record>, StoreError> {
    // SQLite may prefer to walk the table, where it is not told the indexes. PostgreSQL would begin at the other end, with all records
    // of all runs, but for the OFFSET.
    let started = D::either(
        "id IN (SELECT id FROM record INDEXED BY record_orphan WHERE status = 1 AND run IS NULL \
         UNION ALL SELECT c.id FROM run u INDEXED BY run_unsettled CROSS JOIN record c INDEXED BY record_run \
         ON c.run = u.id AND c.tenant = u.tenant WHERE u.unsettled AND c.status = 1 \
         AND (u.state >= 3 OR c.turn NOT IN (u.base, u.turn)))",
        "(tenant, id) IN (SELECT tenant, id FROM record WHERE loose IS NOT NULL \
         UNION ALL SELECT c.tenant, c.id FROM run u CROSS JOIN LATERAL (SELECT tenant, id FROM record o \
         WHERE o.tenant = u.tenant AND o.run = u.id AND o.status = 1 \
         AND (u.state >= 3 OR o.turn NOT IN (u.base, u.turn)) OFFSET 0) c WHERE u.unsettled)",
    );
    let behind = format!(
        "WHERE {started} AND id > $1 \
         AND EXISTS (SELECT 1 FROM worker w WHERE w.fence = record.fence AND w.ended_at IS NOT NULL) \
         AND (escalation IS NULL OR EXISTS (SELECT 1 FROM escalation e WHERE e.tenant = record.tenant \
         AND e.id = record.escalation AND e.answer IS NULL AND e.kind = $2)) ORDER BY id LIMIT $3"
    );
    on.page(&behind, after.0, &[EscalationKind::UnknownTool.code().into(), limit.into()]).await
}

/// Committed records by their keys: each page goes on behind the last key of the one before.
pub(super) async fn committed<D: Reader>(
    on: &Queries<D>,
    tenant: &Tenant,
    since: Timestamp,
    after: &str,
    limit: u32,
) -> Result<Vec<Record>, StoreError> {
    let index = D::either("INDEXED BY record_key ", "");
    let behind = format!(
        "{index}WHERE tenant = $1 AND key > $2 AND status = 2 AND updated_at >= $3 ORDER BY key LIMIT $4"
    );
    on.sound(&behind, &[tenant.into(), after.into(), since.0.into(), limit.into()]).await
}

/// A record with this key, or with one that begins so and goes on, was written at `since` or later and did not fail.
pub(super) async fn is_removed<D: Reader>(
    on: &Queries<D>,
    tenant: &Tenant,
    key: &str,
    since: Timestamp,
) -> Result<bool, StoreError> {
    let index = D::either("INDEXED BY record_key ", "");
    let sql = format!(
        "SELECT 1 FROM record {index}WHERE tenant = $1 AND key >= $2 AND key < $2 || ';' \
         AND (key = $2 OR key >= $2 || ':') AND status NOT IN (3, 5) AND updated_at >= $3 LIMIT 1"
    );
    Ok(!on.fetch(sql, &[tenant.into(), key.into(), since.0.into()]).await?.is_empty())
}
