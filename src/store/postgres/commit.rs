//! The write primitive: a batch of changes in one transaction.
//!
//! First the whole batch is written at once, which succeeds unless one of its changes must be refused. Only
//! then it is judged, halves of it at first and change by change where a half is refused, each in a savepoint, still
//! in one transaction.
//!
//! A batch whose connection is lost, or that ran into another session, is written again as a whole. That is safe even
//! if it had been written the first time, for the same change again is admitted.

use std::collections::HashSet;
use std::sync::Arc;

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use super::connect::{Patience, Purpose, within};
use super::pool::Trouble;
use super::statement::{Batch, Statements, texts};
use super::{
    Fate, Postgres, StoreError, Writer, escalation, failure, fate, payload, record, run, step, worker,
};
use crate::id::{Fence, Tenant};
use crate::store::{Change, Refusal, Run, Verdict, WorkerChange};

pub(super) async fn commit(store: &Postgres, changes: &[Change]) -> Result<Vec<Verdict>, StoreError> {
    if let [change] = changes
        && let Some((fence, until)) = heartbeat(change)
    {
        let alive = worker::renew(&store.readers, fence, until).await?;
        return Ok(vec![if alive { Verdict::Admitted } else { Verdict::Refused(Refusal::Fenced) }]);
    }
    let mut writer = store.writer.lock().await;
    let writer = writer.as_mut().ok_or(StoreError::Closed)?;
    if !store.connector.options.distributed {
        return writer.commit(store, changes).await;
    }
    let mut verdicts = Vec::with_capacity(changes.len());
    for part in changes.chunk_by(|one, next| tenant(one) == tenant(next)) {
        verdicts.extend(writer.commit(store, part).await?);
    }
    Ok(verdicts)
}

/// Whose rows a change is about; none for a worker's own.
fn tenant(change: &Change) -> Option<&Tenant> {
    let of_record = change.record.as_ref().map(|record| &record.tenant);
    let of_run = || change.run.as_ref().map(|run| &run.tenant);
    let of_step = || change.step.as_ref().map(|step| &step.tenant);
    let of_use = || change.used.as_ref().map(|used| &used.tenant);
    let of_question = || change.escalations.first().map(|escalation| &escalation.tenant);
    let of_evidence = || change.evidence.as_ref().map(|evidence| &evidence.tenant);
    let of_payload = || change.payloads.first().map(|(tenant, _)| tenant);
    let of_key = || change.tenant_key.as_ref().map(|(tenant, _)| tenant);
    of_record
        .or_else(of_run)
        .or_else(of_step)
        .or_else(of_use)
        .or_else(of_question)
        .or_else(of_evidence)
        .or_else(of_payload)
        .or_else(of_key)
}

/// A change that renews a worker's lease and does nothing else.
fn heartbeat(change: &Change) -> Option<(Fence, crate::clock::Timestamp)> {
    let Some(WorkerChange::Renew { until }) = change.worker else { return None };
    let alone = !change.needs_fence()
        && change.evidence.is_none()
        && change.payloads.is_empty()
        && change.tenant_key.is_none();
    change.fence.filter(|_| alone).map(|fence| (fence, until))
}

/// Only a judge can tell what becomes of it: it changes who may write, or nobody writes it.
fn must_be_judged(change: &Change) -> bool {
    change.worker.is_some() || (change.fence.is_none() && change.needs_fence())
}

/// The runs of a batch that does nothing but take runs over, for one worker, each once.
fn claims(changes: &[Change]) -> Option<(Fence, Vec<&Run>)> {
    let fence = changes.first()?.fence?;
    let claim = |change: &'_ Change| {
        let alone = change.record.is_none()
            && change.step.is_none()
            && change.used.is_none()
            && change.escalations.is_empty()
            && change.evidence.is_none()
            && change.payloads.is_empty()
            && change.worker.is_none()
            && change.tenant_key.is_none();
        alone && change.fence == Some(fence) && change.lane.is_none()
    };
    let taken = |change| -> Option<&Run> {
        let change: &Change = change;
        change.run.as_deref().filter(|run| claim(change) && run.revision > 1)
    };
    let runs: Vec<_> = changes.iter().map(taken).collect::<Option<_>>()?;
    let mut seen = HashSet::new();
    runs.iter().all(|run| seen.insert((&run.tenant, run.id))).then_some((fence, runs))
}

/// The rows of some changes, table by table.
fn batch(mut batch: Batch, changes: &[&Change]) -> Batch {
    payload::write(changes, &mut batch);
    run::write(changes, &mut batch);
    record::write(changes, &mut batch);
    step::write(changes, &mut batch);
    record::write_uses(changes, &mut batch);
    escalation::write(changes, &mut batch);
    record::write_evidence(changes, &mut batch);
    batch
}

/// The workers whose changes these are.
fn fences(changes: &[&Change]) -> Vec<i64> {
    let mut fences: Vec<_> = changes.iter().filter_map(|change| Some(change.fence?.0)).collect();
    fences.sort_unstable();
    fences.dedup();
    fences
}

/// Cuts changes where one touches a row that one before it has touched: a statement cannot write a row twice.
fn waves<'c>(changes: &[&'c Change]) -> Vec<Vec<&'c Change>> {
    let mut waves = vec![Vec::new()];
    let mut touched = HashSet::new();
    for change in changes {
        let record = change.record.iter().map(|record| (0, record.id.0));
        let run = change.run.iter().map(|run| (1, run.id.0));
        let questions = change.escalations.iter().map(|escalation| (2, escalation.id.0));
        let rows: Vec<_> = record.chain(run).chain(questions).collect();
        if rows.iter().any(|row| touched.contains(row)) {
            waves.push(Vec::new());
            touched.clear();
        }
        touched.extend(rows);
        if let Some(wave) = waves.last_mut() {
            wave.push(*change);
        }
    }
    waves
}

impl Writer {
    async fn commit(&mut self, store: &Postgres, changes: &[Change]) -> Result<Vec<Verdict>, StoreError> {
        let options = &store.connector.options;
        let mut patience = Patience::of(options.retry_for);
        let mut again = false;
        loop {
            // A batch is a statement or two; one that must be judged is many, each with the server's own limit.
            let limit = options.answer_timeout * 2
                + options.answer_timeout / 50 * u32::try_from(changes.len()).unwrap_or(u32::MAX);
            let tried = within(limit, self.try_commit(store, changes, again)).await;
            let trouble = match tried {
                Some(Ok(verdicts)) => return Ok(verdicts),
                Some(Err(trouble)) => trouble,
                None => {
                    self.connection = None;
                    Trouble::late(limit)
                }
            };
            if !trouble.may_pass || !patience.again().await {
                return Err(trouble.error);
            }
            tracing::warn!(error = %trouble.error, changes = changes.len(), "a write failed and is tried again");
            again = true;
        }
    }

    async fn try_commit(
        &mut self,
        store: &Postgres,
        changes: &[Change],
        again: bool,
    ) -> Result<Vec<Verdict>, Trouble> {
        self.settle(store).await?;
        self.unfinished = true; // until the end is seen: this future may be dropped at any await
        let written = self.write(changes, again).await;
        let trouble = match written {
            Ok(verdicts) => {
                self.unfinished = false;
                return Ok(verdicts);
            }
            Err(error) => error,
        };
        if fate(&trouble) == Fate::Lost {
            self.connection = None; // and with it whatever was open on it
            self.unfinished = false;
        }
        Err(Trouble { may_pass: fate(&trouble) != Fate::Final, error: failure(&trouble) })
    }

    async fn write(&mut self, changes: &[Change], again: bool) -> Result<Vec<Verdict>, sqlx::Error> {
        let Self { connection: Some(connection), statements, .. } = self else {
            return Err(sqlx::Error::WorkerCrashed); // cannot be: it was settled
        };
        // Not when it is tried again: a row that our own first try still holds would count as somebody else's.
        if !again && let Some((fence, runs)) = claims(changes) {
            return claim(connection, changes, fence, &runs).await;
        }
        let all: Vec<_> = changes.iter().collect();
        let whole = if changes.iter().any(must_be_judged) {
            false
        } else {
            write_all(connection, statements, &all).await?
        };
        if whole {
            Ok(vec![Verdict::Admitted; changes.len()])
        } else {
            judge(connection, statements, changes).await
        }
    }

    /// A connection with nothing under way: connects if there is none, and ends what an earlier write left open. Its
    /// future was dropped between two statements, or it failed; what the server was still doing is waited for.
    async fn settle(&mut self, store: &Postgres) -> Result<(), Trouble> {
        if self.unfinished
            && let Some(connection) = &mut self.connection
        {
            // Each error that is still on its way comes before the answer.
            let mut left = 8;
            while let Err(error) = connection.execute("ROLLBACK").await {
                left -= 1;
                if left == 0 || fate(&error) == Fate::Lost || error.as_database_error().is_none() {
                    self.connection = None;
                    break;
                }
            }
        }
        if self.connection.is_none() {
            self.connection = Some(store.connector.connect(Purpose::Writing).await.map_err(Trouble::of)?);
        }
        self.unfinished = false;
        Ok(())
    }
}

/// Writes all changes, or nothing and returns `false` because some change must be refused.
async fn write_all(
    connection: &mut PgConnection,
    statements: &mut Statements,
    changes: &[&Change],
) -> Result<bool, sqlx::Error> {
    let waves = waves(changes);
    let [wave] = waves.as_slice() else {
        connection.execute(BEGIN).await?;
        for wave in &waves {
            if !write_wave(connection, statements, wave).await? {
                connection.execute("ROLLBACK").await?;
                return Ok(false);
            }
        }
        connection.execute("COMMIT").await?;
        return Ok(true);
    };
    write_wave(connection, statements, wave).await
}

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

async fn write_wave(
    connection: &mut PgConnection,
    statements: &mut Statements,
    changes: &[&Change],
) -> Result<bool, sqlx::Error> {
    let batch = batch(Batch::by(fences(changes)), changes);
    if batch.is_empty() {
        return Ok(true);
    }
    let (sql, arguments) = statements.whole(batch)?;
    match execute(connection, sql, arguments).await {
        Ok(()) => Ok(true),
        Err(error) if fate(&error) == Fate::Verdict => Ok(false),
        Err(error) => Err(error),
    }
}

async fn execute(
    connection: &mut PgConnection,
    sql: Arc<str>,
    arguments: PgArguments,
) -> Result<(), sqlx::Error> {
    connection.execute(sqlx::query_with(AssertSqlSafe(sql), arguments)).await.map(drop)
}

/// Takes over those runs that can be had, and says why of each of the others.
async fn claim(
    connection: &mut PgConnection,
    changes: &[Change],
    fence: Fence,
    runs: &[&Run],
) -> Result<Vec<Verdict>, sqlx::Error> {
    let mut batch = Batch::by(Vec::new());
    run::write_claims(runs, &mut batch);
    let arguments = batch.claiming(fence)?;
    let query = sqlx::query_with(run::CLAIM, arguments).persistent(false); // planned anew: see `connect`
    let mut taken = HashSet::new();
    for row in query.fetch_all(&mut *connection).await? {
        taken.insert((row.try_get::<String, _>(0)?, row.try_get::<i64, _>(1)?));
    }
    let mut verdicts = Vec::with_capacity(changes.len());
    for run in runs {
        let verdict = if taken.contains(&(run.tenant.as_str().to_owned(), run.id.0)) {
            Verdict::Admitted
        } else if !worker::may_write(connection, fence).await? {
            Verdict::Refused(Refusal::Fenced)
        } else if run::is_written(connection, run).await? {
            Verdict::Admitted
        } else {
            Verdict::Refused(Refusal::Stale)
        };
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

/// Judges each change by itself, in the order of the batch.
async fn judge(
    connection: &mut PgConnection,
    statements: &mut Statements,
    changes: &[Change],
) -> Result<Vec<Verdict>, sqlx::Error> {
    connection.execute(BEGIN).await?;
    let mut judged = Judged { verdicts: vec![None; changes.len()], stopped: HashSet::new() };
    let mut parts = Vec::new();
    parts.push(0..changes.len());
    while let Some(part) = parts.pop() {
        let open = judged.open(changes, part.clone());
        if let [one] = open[..] {
            let verdict = admit(connection, statements, &changes[one]).await?;
            judged.judge(one, &changes[one], verdict.map_or(Verdict::Admitted, Verdict::Refused));
        } else if !open.is_empty() {
            // The batch as a whole has been tried already.
            let whole =
                part.len() < changes.len() && admit_all(connection, statements, changes, &open).await?;
            if whole {
                for one in open {
                    judged.judge(one, &changes[one], Verdict::Admitted);
                }
            } else {
                let middle = part.start + part.len() / 2;
                parts.extend([middle..part.end, part.start..middle]);
            }
        }
    }
    connection.execute("COMMIT").await?;
    let missing = Verdict::Refused(Refusal::Predecessor); // cannot be: every part was judged
    Ok(judged.verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(|| missing.clone())).collect())
}

struct Judged {
    verdicts: Vec<Option<Verdict>>,
    stopped: HashSet<crate::store::Lane>,
}

impl Judged {
    /// Those of a part that are not refused unseen because their lane has stopped.
    fn open(&mut self, changes: &[Change], part: std::ops::Range<usize>) -> Vec<usize> {
        let mut open = Vec::with_capacity(part.len());
        for one in part {
            if changes[one].lane.is_some_and(|lane| self.stopped.contains(&lane)) {
                self.verdicts[one] = Some(Verdict::Refused(Refusal::Predecessor));
            } else {
                open.push(one);
            }
        }
        open
    }

    fn judge(&mut self, one: usize, change: &Change, verdict: Verdict) {
        self.stopped.extend(change.lane.filter(|_| change.stops_lane(&verdict)));
        self.verdicts[one] = Some(verdict);
    }
}

/// Writes several changes inside an open transaction, or nothing of them.
async fn admit_all(
    connection: &mut PgConnection,
    statements: &mut Statements,
    changes: &[Change],
    open: &[usize],
) -> Result<bool, sqlx::Error> {
    let changes: Vec<_> = open.iter().map(|one| &changes[*one]).collect();
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

/// Writes one change inside an open transaction, or nothing of it and says why.
pub(super) async fn admit(
    connection: &mut PgConnection,
    statements: &mut Statements,
    change: &Change,
) -> Result<Option<Refusal>, sqlx::Error> {
    match change.fence {
        Some(fence) if !worker::is_alive(connection, fence).await? => return Ok(Some(Refusal::Fenced)),
        None if change.needs_fence() => return Ok(Some(Refusal::Invalid("no worker writes it".into()))),
        _ => {}
    }
    write_or_refuse(connection, statements, change).await
}

/// The same, once it is known that its worker may write.
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

/// What the database has against a change.
enum Objection {
    /// The worker that it is about is not as it should be.
    Worker(Refusal),
    /// Not all rows of this table could be written.
    Rows(String),
    /// It refused the values.
    Values(String),
}

async fn write_one(
    connection: &mut PgConnection,
    statements: &mut Statements,
    change: &Change,
) -> Result<Option<Objection>, sqlx::Error> {
    if let Some(worker) = &change.worker
        && worker::write(connection, worker, change.fence).await? == 0
        && let Some(refusal) = worker::refusal(worker)
    {
        return Ok(Some(Objection::Worker(refusal)));
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

/// All that can tell this change from another one's is there as this change would have written it: an
/// earlier answer was lost, and the change stands.
async fn is_written(connection: &mut PgConnection, change: &Change) -> Result<bool, sqlx::Error> {
    let mut told_apart = false;
    let worker = match &change.worker {
        Some(WorkerChange::Enrol { name, at, .. }) => Some(worker::is_enrolled(connection, name, *at).await?),
        Some(WorkerChange::End { fence, at }) => Some(worker::is_ended(connection, *fence, *at).await?),
        _ => None,
    };
    if let Some(written) = worker {
        told_apart = true;
        if !written {
            return Ok(false);
        }
    }
    if let Some(record) = &change.record {
        told_apart = true;
        if !record::is_written(connection, record).await? {
            return Ok(false);
        }
    }
    if let Some(run) = &change.run {
        told_apart = true;
        if !run::is_written(connection, run).await? {
            return Ok(false);
        }
    }
    if let Some(step) = &change.step {
        told_apart = true;
        if !step::is_written(connection, step).await? {
            return Ok(false);
        }
    }
    for escalation in &change.escalations {
        told_apart = true;
        if !escalation::is_written(connection, escalation).await? {
            return Ok(false);
        }
    }
    Ok(told_apart)
}

/// Why a change is refused, now that nothing of it is written.
async fn refusal(
    connection: &mut PgConnection,
    change: &Change,
    objection: Objection,
) -> Result<Refusal, sqlx::Error> {
    let table = match objection {
        Objection::Worker(refusal) => return Ok(refusal),
        Objection::Values(message) => return Ok(Refusal::Invalid(message)),
        Objection::Rows(table) => table,
    };
    let taken = match (table.as_str(), &change.run, &change.record) {
        ("run", Some(run), _) => run::is_taken(connection, run).await?,
        ("record", _, Some(record)) => record::is_taken(connection, record).await?,
        ("step", ..) => true,
        _ => false,
    };
    Ok(if taken { Refusal::Exists } else { Refusal::Stale })
}

/// For the test that prepares and explains them.
pub(super) fn statements() -> Vec<String> {
    let mut all = texts(&[
        &payload::INSERT,
        &payload::INSERT_TENANT,
        &run::INSERT,
        &run::MOVE,
        &record::INSERT_USUAL,
        &record::INSERT,
        &record::MOVE_USUAL,
        &record::MOVE,
        &step::INSERT,
        &record::INSERT_USE,
        &escalation::INSERT,
        &escalation::ANSWER,
        &record::INSERT_EVIDENCE,
    ]);
    all.push(run::CLAIM.to_owned());
    all
}
