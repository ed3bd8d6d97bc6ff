//! Judging a batch that could not be written as a whole: the changes that must be refused, and the reasons.

use std::collections::HashSet;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use super::commit::{BEGIN, batch, must_be_judged, write_wave};
use super::cut::waves;
use super::statement::{Batch, Statements};
use super::{Fate, fate};
use crate::store::row::Given;
use crate::store::sql::ask::Session as _;
use crate::store::sql::judge::{is_written, open_late, write_judged};
use crate::store::sql::worker;
use crate::store::table::Kind;
use crate::store::{Change, OrderingKey, Refusal, Verdict};

/// Judges each change by itself, in the order of the batch.
pub(super) async fn judge(
    connection: &mut PgConnection,
    statements: &mut Statements,
    changes: &[&Change],
) -> Result<Vec<Verdict>, sqlx::Error> {
    connection.execute(BEGIN).await?;
    let mut judged = Judged { verdicts: vec![UNSEEN; changes.len()], stopped: HashSet::new() };
    let mut parts = Vec::new();
    parts.push(0..changes.len());
    while let Some(part) = parts.pop() {
        let open = judged.open(changes, part.clone());
        if let [one] = open[..] {
            let verdict = admit(connection, statements, changes[one]).await?;
            judged.judge(one, changes[one], verdict.map_or(Verdict::Admitted, Verdict::Refused));
        } else if !open.is_empty() {
            // The batch as a whole has been tried already.
            let whole =
                part.len() < changes.len() && admit_all(connection, statements, changes, &open).await?;
            if whole {
                for one in open {
                    judged.judge(one, changes[one], Verdict::Admitted);
                }
            } else {
                let middle = part.start + part.len() / 2;
                parts.extend([middle..part.end, part.start..middle]);
            }
        }
    }
    connection.execute("COMMIT").await?;
    Ok(judged.verdicts)
}

/// The verdict on a change that is not judged, because its lane has stopped.
pub(super) const UNSEEN: Verdict = Verdict::Refused(Refusal::Predecessor);

struct Judged {
    verdicts: Vec<Verdict>,
    stopped: HashSet<OrderingKey>,
}

impl Judged {
    /// The changes of a part that are not refused unseen.
    fn open(&self, changes: &[&Change], part: std::ops::Range<usize>) -> Vec<usize> {
        part.filter(|one| changes[*one].lane.is_none_or(|lane| !self.stopped.contains(&lane))).collect()
    }

    fn judge(&mut self, one: usize, change: &Change, verdict: Verdict) {
        self.stopped.extend(change.lane.filter(|_| change.stops_lane(&verdict)));
        self.verdicts[one] = verdict;
    }
}

/// Writes several changes inside an open transaction, or nothing of them.
async fn admit_all(
    connection: &mut PgConnection,
    statements: &mut Statements,
    changes: &[&Change],
    open: &[usize],
) -> Result<bool, sqlx::Error> {
    let changes: Vec<_> = open.iter().map(|one| changes[*one]).collect();
    if changes.iter().any(|change| must_be_judged(change)) {
        return Ok(false);
    }
    connection.execute("SAVEPOINT one").await?;
    for wave in waves(&changes) {
        if !write_wave(connection, statements, &wave).await? {
            connection.execute("ROLLBACK TO one; RELEASE one").await?;
            return Ok(false);
        }
    }
    connection.execute("RELEASE one").await?;
    Ok(true)
}

/// Writes one change inside an open transaction, or writes nothing of it and returns the refusal.
pub(super) async fn admit(
    connection: &mut PgConnection,
    statements: &mut Statements,
    change: &Change,
) -> Result<Option<Refusal>, sqlx::Error> {
    match worker::refusal(connection, change).await? {
        None => write_or_refuse(connection, statements, change).await,
        refusal => Ok(refusal),
    }
}

/// Writes one change, or returns the refusal, once it is known that its worker may write.
pub(super) async fn write_or_refuse(
    connection: &mut PgConnection,
    statements: &mut Statements,
    change: &Change,
) -> Result<Option<Refusal>, sqlx::Error> {
    connection.execute("SAVEPOINT one").await?;
    let Some(objection) = write_one(connection, statements, change).await? else {
        connection.execute("RELEASE one").await?;
        return Ok(None);
    };
    connection.execute("ROLLBACK TO one; RELEASE one").await?;
    if is_written(connection, change).await? {
        return Ok(None);
    }
    refusal(connection, change, objection).await.map(Some)
}

/// The objection of the database to a change.
enum Objection {
    /// The worker or the tenant of the change is not in the expected state.
    Row(Refusal),
    /// Not all rows of this table could be written.
    Rows(String),
    /// The database refused the values.
    Values(String),
}

async fn write_one(
    connection: &mut PgConnection,
    statements: &mut Statements,
    change: &Change,
) -> Result<Option<Objection>, sqlx::Error> {
    if let Some(refusal) = write_judged(connection, change).await? {
        return Ok(Some(Objection::Row(refusal)));
    }
    for wave in waves(&[change]) {
        let batch = batch(Batch::default(), &wave);
        if batch.is_empty() {
            continue;
        }
        let tables = batch.counted();
        let (sql, arguments) = statements.judged(batch)?;
        let row = match connection.fetch_one(sqlx::query_with(AssertSqlSafe(sql), arguments)).await {
            Ok(row) => row,
            Err(error) if fate(&error) == Fate::Verdict => return Ok(Some(objection(&error))),
            Err(error) => return Err(error),
        };
        for (i, table) in tables.into_iter().enumerate() {
            if !row.try_get::<bool, _>(i)? {
                return Ok(Some(Objection::Rows(table.to_owned())));
            }
        }
    }
    open_late(connection, change).await?;
    Ok(None)
}

fn objection(error: &sqlx::Error) -> Objection {
    const UNIQUE: &str = "23505";
    match error.as_database_error() {
        Some(error) if error.code().as_deref() == Some(UNIQUE) => {
            Objection::Rows(error.table().unwrap_or_default().to_owned())
        }
        Some(error) => Objection::Values(error.message().to_owned()),
        None => Objection::Values(error.to_string()),
    }
}

/// The refusal of a change, now that nothing of it is written.
async fn refusal(
    connection: &mut PgConnection,
    change: &Change,
    objection: Objection,
) -> Result<Refusal, sqlx::Error> {
    let table = match objection {
        Objection::Row(refusal) => return Ok(refusal),
        Objection::Values(message) => return Ok(Refusal::Invalid(message)),
        Objection::Rows(table) => table,
    };
    let taken = match (table.as_str(), &change.run, &change.record) {
        // Another run has the key, and no run has the id.
        ("run", Some(run), _) => {
            let sql = "SELECT 1 FROM run WHERE tenant = $1 AND workflow = $2 AND key = $3 \
                       AND NOT EXISTS (SELECT 1 FROM run o WHERE o.tenant = $1 AND o.id = $4)";
            let key = run.key.as_deref().map_or(Given::Null(Kind::Text), Given::Text);
            let (tenant, workflow) = ((&run.tenant).into(), run.workflow.as_str().into());
            connection.finds(sql, &[tenant, workflow, key, run.id.0.into()]).await?
        }
        ("record", _, Some(record)) => {
            let sql = "SELECT 1 FROM record WHERE tenant = $1 AND key = $2 \
                       AND NOT EXISTS (SELECT 1 FROM record o WHERE o.tenant = $1 AND o.id = $3)";
            let (tenant, key) = ((&record.tenant).into(), record.key.as_str().into());
            connection.finds(sql, &[tenant, key, record.id.0.into()]).await?
        }
        ("step" | "outbox" | "document", ..) => true,
        ("schedule", ..) => change.schedule.as_ref().is_some_and(|schedule| schedule.revision == 1),
        ("published", ..) => change.published.as_ref().is_some_and(|value| value.revision == 1),
        ("signal", ..) => match &change.signal {
            Some(signal) => connection.stored(&**signal).await?.is_some(),
            None => false,
        },
        _ => false,
    };
    Ok(if taken { Refusal::Exists } else { Refusal::Stale })
}
