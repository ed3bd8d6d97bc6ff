//! The statements within a transaction about one change: what only a judge may write, the check if the change is
//! written already, and the questions that it raises.

use super::ask::Session;
use super::{erase, payload, queue, retention, worker};
use crate::ledger::Record;
use crate::store::cell::Declared as _;
use crate::store::change::Written;
use crate::store::{Aggregate, Change, Evidence, OutboxEvent, Question, Refusal, WorkerChange};

/// The evidence about a record.
pub(super) const EVIDENCE: &str = "WHERE tenant = $1 AND record = $2 ORDER BY at, fence, attempt";
pub(in crate::store) const EVENT: &str = "WHERE tenant = $1 AND id = $2";
pub(super) const AGGREGATE: &str = "WHERE tenant = $1 AND name = $2";

/// Writes what only a judge may write of a change, before its other rows. Returns a refusal if the worker or the tenant
/// of the change is not in the expected state.
pub(in crate::store) async fn write_judged<S: Session>(
    session: &mut S,
    change: &Change,
) -> Result<Option<Refusal>, sqlx::Error> {
    for row in change.written() {
        match row {
            Written::Worker(worker) => {
                let refusal = worker::write(session, worker, change.fence).await?;
                if refusal.is_some() {
                    return Ok(refusal);
                }
            }
            Written::Admission(admission) => {
                if let Some(fence) = change.fence {
                    queue::admit(session, admission, fence).await?;
                }
            }
            Written::Erased(tenant) => {
                if let Some(what) = erase::erase(session, tenant).await? {
                    return Ok(Some(Refusal::UnderWay(what)));
                }
            }
            Written::Forgotten(event) => event.forget(session).await?,
            Written::Retired(retired) => retention::retire_record(session, retired).await?,
            Written::RetiredRun(retired) => retention::retire_run(session, retired).await?,
            Written::ExpiredSignal(expired) => retention::expire_signal(session, expired).await?,
            _ => {}
        }
    }
    payload::refer(session, change).await?;
    Ok(None)
}

/// True if all rows that distinguish this change from another one are stored as this change would have written them:
/// an earlier answer was lost, and the change is admitted.
pub(in crate::store) async fn is_written<S: Session>(
    session: &mut S,
    change: &Change,
) -> Result<bool, sqlx::Error> {
    let mut told_apart = false;
    for row in change.written() {
        let Some(is_there) = is_there(session, row).await? else { continue };
        told_apart = true;
        if !is_there {
            return Ok(false);
        }
    }
    Ok(told_apart)
}

/// True if the row is stored as the change would have written it; `None` for a row that another change may have
/// written alike.
async fn is_there<S: Session>(session: &mut S, row: Written<'_>) -> Result<Option<bool>, sqlx::Error> {
    Ok(Some(match row {
        Written::Record(row) => session.is_written(row).await?,
        Written::Look(row) => session.is_written(row).await?,
        Written::Run(row) => session.is_written(row).await?,
        Written::Step(row) => session.is_written(row).await?,
        Written::Question(row) => session.is_written(row).await?,
        Written::Signal(row) => session.is_written(row).await?,
        Written::Schedule(row) => session.is_written(row).await?,
        Written::Document(row) => session.is_written(row).await?,
        Written::Published(row) => session.is_written(row).await?,
        Written::Received(row) => {
            let sql =
                "SELECT 1 FROM signal WHERE tenant = $1 AND run = $2 AND name = $3 AND id = $4 AND received";
            let place = [(&row.tenant).into(), row.run.0.into(), (&*row.name).into(), (&*row.id).into()];
            session.finds(sql, &place).await?
        }
        Written::Event(row) => {
            let stored = session.row(EVENT, &[(&row.tenant).into(), (&*row.id).into()]).await?;
            // The position of the event does not matter.
            stored.is_some_and(|stored: OutboxEvent| OutboxEvent { seq: row.seq, ..stored } == *row)
        }
        Written::Mark(row) => {
            let stored = session.row(AGGREGATE, &[(&row.tenant).into(), (&*row.name).into()]).await?;
            stored.is_some_and(|stored: Aggregate| stored.same_change(row))
        }
        Written::Worker(WorkerChange::Enrol { name, at, .. } | WorkerChange::Attach { name, at }) => {
            let sql = "SELECT 1 FROM worker WHERE name = $1 AND enrolled_at = $2 AND ended_at IS NULL";
            session.finds(sql, &[(&**name).into(), at.0.into()]).await?
        }
        Written::Worker(WorkerChange::End { fence, at }) => {
            let sql = "SELECT 1 FROM worker WHERE fence = $1 AND ended_at = $2";
            session.finds(sql, &[fence.0.into(), at.0.into()]).await?
        }
        Written::Worker(_)
        | Written::Prune(_)
        | Written::SharedEffect(_)
        | Written::Label(_)
        | Written::RecordLabel(_)
        | Written::Contact(_)
        | Written::DroppedContact(_)
        | Written::Evidence(_)
        | Written::Link(_)
        | Written::Payload(_)
        | Written::Key(_)
        | Written::Admission(_)
        | Written::Retired(_)
        | Written::RetiredRun(_)
        | Written::ExpiredSignal(_)
        | Written::Forgotten(_)
        | Written::Erased(_) => return Ok(None),
    }))
}

/// Opens the questions that late answers raise, once the rest of the change is written. A question that exists is
/// left unchanged.
///
/// Where several transactions write at once, the record is locked meanwhile. If a late answer and a seal are written
/// at the same time, one transaction waits for the other here or at the seal's own update. It then sees the other's
/// write, because each transaction reads in a statement after the lock.
pub(in crate::store) async fn open_late<S: Session>(
    session: &mut S,
    change: &Change,
) -> Result<(), sqlx::Error> {
    let Some((tenant, id)) = change.compared() else { return Ok(()) };
    let held = S::either("WHERE tenant = $1 AND id = $2", "WHERE tenant = $1 AND id = $2 FOR NO KEY UPDATE");
    let place = [tenant.into(), id.0.into()];
    let Some(record) = session.row::<Record>(held, &place).await? else { return Ok(()) };
    let is_left = match record.awaited_by() {
        Some(run) => {
            let over = "SELECT 1 FROM run WHERE tenant = $1 AND id = $2 AND state IN (3, 4)";
            session.finds(over, &[tenant.into(), run.0.into()]).await?
        }
        None => false,
    };
    for evidence in session.sound::<Evidence>(EVIDENCE, &place).await? {
        let Some(question) = change.late_question(&record, is_left, &evidence) else { continue };
        let mut values = S::Arguments::default();
        question.put(&mut values);
        session.ask(open(), values).await?;
        let open_again = "UPDATE worker SET settled = false WHERE fence = $1 AND settled";
        session.finds(open_again, &[evidence.fence.0.into()]).await?;
    }
    Ok(())
}

fn open() -> String {
    let table = Question::TABLE;
    let places: Vec<_> = (1..=table.columns.len()).map(|number| format!("${number}")).collect();
    let (names, places) = (table.names(), places.join(", "));
    format!("INSERT INTO {} ({names}) VALUES ({places}) ON CONFLICT DO NOTHING", table.name)
}
