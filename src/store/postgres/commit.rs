//! The write primitive: a batch of changes in one transaction, a large one in two at once on two connections.
//!
//! First the whole batch is written at once, which succeeds unless one of its changes must be refused. Only then the
//! batch is judged (`judge`): first in halves, and change by change where a half is refused, each in a savepoint,
//! still in one transaction.
//!
//! A batch whose connection is lost, or that conflicts with another session, is written again as a whole. That is
//! safe even if the batch had been written the first time, because the same change again is admitted.

use std::collections::HashSet;
use std::sync::Arc;

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use super::connect::{Patience, Purpose, within};
use super::cut::{by_tenant, halves, is_second, waves};
use super::judge::{UNSEEN, judge};
use super::pool::{Pool, Trouble};
use super::statement::{Batch, Statements, texts};
use super::{
    Fate, Postgres, StoreError, Writer, admission, erase, failure, fate, pulse, retention, row, run, special,
};
use crate::clock::Timestamp;
use crate::id::Fence;
use crate::store::change::Written;
use crate::store::sql::ask::Session as _;
use crate::store::sql::worker;
use crate::store::sql::write::{Own, write};
use crate::store::{Change, Refusal, Run, Side, Verdict, WorkerChange};

pub(super) async fn commit(store: &Postgres, changes: &[Change]) -> Result<Vec<Verdict>, StoreError> {
    if let [change] = changes
        && let Some((fence, until)) = heartbeat(change)
    {
        let alive = pulse::renew(&store.readers, fence, until).await?;
        return Ok(vec![if alive { Verdict::Admitted } else { Verdict::Refused(Refusal::Fenced) }]);
    }
    if let [change] = changes
        && change.beside
        && change.fence.is_some()
    {
        return Ok(vec![retention::commit(store, change).await?]);
    }
    if let [change] = changes
        && change.erased.is_some()
    {
        return Ok(vec![erase::commit(store, change).await?]);
    }
    let mut writers = store.writers.lock().await;
    let [first, second] = writers.as_mut().ok_or(StoreError::Closed)?;
    let changes: Vec<_> = changes.iter().collect();
    if store.connector.options.distributed {
        return commit_by_tenant(store, first, &changes).await;
    }
    let Some([ones, others]) = halves(&changes) else { return first.commit(store, &changes).await };
    let (of_ones, of_others) = tokio::join!(first.commit(store, &ones), second.commit(store, &others));
    let (mut of_ones, mut of_others) = (of_ones?.into_iter(), of_others?.into_iter());
    let verdict = |change: &Change| if is_second(change) { of_others.next() } else { of_ones.next() };
    Ok(changes.into_iter().filter_map(verdict).collect())
}

/// Writes one tenant's changes at a time. A lane may hold changes of several tenants: a refused one stops the rest of
/// them, too.
async fn commit_by_tenant(
    store: &Postgres,
    writer: &mut Writer,
    changes: &[&Change],
) -> Result<Vec<Verdict>, StoreError> {
    let mut verdicts = vec![UNSEEN; changes.len()];
    let mut stopped = HashSet::new();
    for part in by_tenant(changes) {
        let is_open = |place: &usize| changes[*place].lane.is_none_or(|lane| !stopped.contains(&lane));
        let open: Vec<_> = part.into_iter().filter(is_open).collect();
        if open.is_empty() {
            continue;
        }
        let these: Vec<_> = open.iter().map(|place| changes[*place]).collect();
        for (place, verdict) in open.into_iter().zip(writer.commit(store, &these).await?) {
            stopped.extend(changes[place].lane.filter(|_| changes[place].stops_lane(&verdict)));
            verdicts[place] = verdict;
        }
    }
    Ok(verdicts)
}

/// The fence and the new end of the lease, if the change renews a lease and does nothing else.
fn heartbeat(change: &Change) -> Option<(Fence, Timestamp)> {
    let mut rows = change.written();
    match (rows.next()?, rows.next()) {
        (Written::Worker(WorkerChange::Renew { until }), None) => Some((change.fence?, *until)),
        _ => None,
    }
}

/// True if only a judge can decide about the change: it changes the right to write, or it has no writer.
pub(super) fn must_be_judged(change: &Change) -> bool {
    change.must_be_judged() || (change.fence.is_none() && change.needs_fence())
}

/// The runs of a batch that only takes runs over, for one worker, each run once.
fn claims<'c>(changes: &[&'c Change]) -> Option<(Fence, Vec<&'c Run>)> {
    let fence = changes.first()?.fence?;
    let taken = |change: &&'c Change| -> Option<&'c Run> {
        let mut rows = change.written();
        match (rows.next()?, rows.next()) {
            (Written::Run(run), None) if run.revision > 1 => Some(run),
            _ => None,
        }
        .filter(|_| change.fence == Some(fence) && change.lane.is_none())
    };
    let runs: Vec<_> = changes.iter().map(taken).collect::<Option<_>>()?;
    let mut seen = HashSet::new();
    runs.iter().all(|run| seen.insert((&run.tenant, run.id))).then_some((fence, runs))
}

/// Adds the rows of the changes to the batch, table by table.
pub(super) fn batch(mut batch: Batch, changes: &[&Change]) -> Batch {
    write(changes, &mut batch);
    batch
}

/// The fences of the workers whose changes these are.
fn fences(changes: &[&Change]) -> Vec<i64> {
    let mut fences: Vec<_> = changes.iter().filter_map(|change| Some(change.fence?.0)).collect();
    fences.sort_unstable();
    fences.dedup();
    fences
}

impl Writer {
    async fn commit(&mut self, store: &Postgres, changes: &[&Change]) -> Result<Vec<Verdict>, StoreError> {
        let options = &store.connector.options;
        let mut patience = Patience::of(options.retry_for);
        let mut again = false;
        loop {
            // A batch is a statement or two; a batch that must be judged is many, each with the server's own limit.
            let limit = options.answer_timeout * 2
                + options.answer_timeout / 50 * u32::try_from(changes.len()).unwrap_or(u32::MAX);
            let tried = within(limit, self.try_commit(store, changes, again)).await;
            let trouble = match tried {
                Some(Ok(verdicts)) => {
                    store.connector.outage.answered(Side::Write);
                    return Ok(verdicts);
                }
                Some(Err(trouble)) => trouble,
                None => {
                    self.connection = None;
                    Trouble::late(limit)
                }
            };
            store.connector.outage.failed(Side::Write, &trouble.error);
            if !trouble.may_pass || !patience.again().await {
                return Err(trouble.error);
            }
            again = true;
        }
    }

    async fn try_commit(
        &mut self,
        store: &Postgres,
        changes: &[&Change],
        again: bool,
    ) -> Result<Vec<Verdict>, Trouble> {
        self.settle(store).await?;
        self.unfinished = true; // until its end is seen, because this future may be dropped at any await
        let written = match changes {
            [change] if store.connector.options.distributed && change.admission.is_some() => {
                self.admit(change).await
            }
            _ => self.write(changes, again).await,
        };
        let trouble = match written {
            Ok(verdicts) => {
                self.unfinished = false;
                return Ok(verdicts);
            }
            Err(error) => error,
        };
        if fate(&trouble) == Fate::Lost {
            self.connection = None; // and with it any transaction that was open on it
            self.unfinished = false;
        }
        Err(Trouble { may_pass: fate(&trouble) != Fate::Final, error: failure(&trouble) })
    }

    async fn write(&mut self, changes: &[&Change], again: bool) -> Result<Vec<Verdict>, sqlx::Error> {
        let Self { connection: Some(connection), statements, .. } = self else {
            return Err(sqlx::Error::WorkerCrashed); // this cannot be: the connection was settled
        };
        // No claim on a retry: a row that the first attempt still holds would count as somebody else's.
        if !again && let Some((fence, runs)) = claims(changes) {
            return claim(connection, changes, fence, &runs).await;
        }
        let whole = if changes.iter().any(|change| must_be_judged(change)) {
            false
        } else {
            write_all(connection, statements, changes).await?
        };
        if whole {
            Ok(vec![Verdict::Admitted; changes.len()])
        } else {
            judge(connection, statements, changes).await
        }
    }

    /// Admits runs of a queue, tenant by tenant.
    async fn admit(&mut self, change: &Change) -> Result<Vec<Verdict>, sqlx::Error> {
        let (Some(connection), Some(admission)) = (&mut self.connection, change.admission.as_deref()) else {
            return Err(sqlx::Error::WorkerCrashed); // this cannot be: the connection was settled
        };
        Ok(vec![admission::commit(connection, change, admission).await?])
    }

    /// Makes sure that the connection has nothing under way: connects if there is none, and ends the transaction that
    /// an earlier write left open. The future of that write was dropped between two statements, or it failed; the
    /// rest of its work on the server is waited for.
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

/// Writes all changes, or writes nothing and returns `false` because some change must be refused.
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

pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

pub(super) async fn write_wave(
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

/// Takes over the runs that are available, and finds the refusal for each of the others.
async fn claim(
    connection: &mut PgConnection,
    changes: &[&Change],
    fence: Fence,
    runs: &[&Run],
) -> Result<Vec<Verdict>, sqlx::Error> {
    let mut batch = Batch::by(Vec::new());
    run::write_claims(runs, &mut batch);
    let arguments = batch.claiming(fence)?;
    let query = sqlx::query_with(run::CLAIM.as_str(), arguments).persistent(false); // planned again each time: see `connect`
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
        } else if connection.is_written(*run).await? {
            Verdict::Admitted
        } else {
            Verdict::Refused(Refusal::Stale)
        };
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

/// The statements, for the test that prepares and explains them.
pub(super) fn statements() -> Vec<String> {
    use Own::{Event, Key, Mark, More, Payload, Prune, Received};
    let own = [&special::QUESTION, &special::ANSWER]
        .into_iter()
        .chain([Payload, Key, Prune, Received, More, Event].map(special::insert));
    let mut all = texts(&row::inserts().chain(own).collect::<Vec<_>>());
    all.extend(texts(&[special::insert(Mark)])); // never with events of the same aggregate
    all.push(run::CLAIM.to_owned());
    all.extend(crate::store::sql::retention::writes::<PgConnection>());
    all.extend(crate::store::sql::inbox::statements::<PgConnection>());
    all.extend(crate::store::sql::retention::statements::<Pool>());
    all.extend(crate::store::sql::run_page::statements::<Pool>());
    all.extend(crate::store::sql::erase::statements());
    all
}
