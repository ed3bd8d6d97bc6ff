//! Admission of runs of a queue on a distributed server: a transaction for each tenant whose runs begin.
//!
//! The choice is read outside of any transaction, since it is about the runs of all tenants. The transaction of a
//! tenant holds the row of the queue, which belongs to no tenant, and begins the runs only if the row is still as it
//! was read: each admission moves it. Runs lose their places meanwhile, and never get one without an admission, so that
//! the limits hold.

use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use super::commit::BEGIN;
use crate::id::Fence;
use crate::ledger::queue::{Bucket, Chosen};
use crate::store::sql::{queue, worker};
use crate::store::{Admission, Change, Refusal, Verdict};

/// The number of choices that other admissions may overtake before the worker gives up its turn. It asks again when a
/// place becomes free.
const OVERTAKEN: u32 = 100;

/// Admits runs, tenant by tenant.
///
/// # Crash
/// The tenants before it have their runs, which are taken over like any other runs of this worker. The rest stays
/// queued.
pub(super) async fn commit(
    connection: &mut PgConnection,
    change: &Change,
    admission: &Admission,
) -> Result<Verdict, sqlx::Error> {
    let Some(fence) = change.fence else {
        return Ok(change.unwritten().map_or(Verdict::Admitted, Verdict::Refused));
    };
    let mut left = admission.clone();
    let mut overtaken = 0;
    loop {
        let before = queue::bucket(connection, admission.queue.name()).await?;
        let chosen = queue::choose(connection, &left, fence, before.clone()).await?;
        let chosen = chosen.first_tenant(&left, &before);
        match begin(connection, &left, fence, (&before, &chosen)).await? {
            Begun::Fenced => return Ok(Verdict::Refused(Refusal::Fenced)),
            Begun::Overtaken if overtaken == OVERTAKEN => return Ok(Verdict::Admitted),
            Begun::Overtaken => overtaken += 1,
            Begun::Written if chosen.runs.is_empty() => return Ok(Verdict::Admitted),
            Begun::Written => {
                let begun = u32::try_from(chosen.runs.len()).unwrap_or(u32::MAX);
                left.most = left.most.saturating_sub(begun);
            }
        }
    }
}

enum Begun {
    Written,
    /// Another admission was first.
    Overtaken,
    Fenced,
}

/// Writes the choice for one tenant in a transaction of its own.
async fn begin(
    connection: &mut PgConnection,
    admission: &Admission,
    fence: Fence,
    choice: (&Bucket, &Chosen),
) -> Result<Begun, sqlx::Error> {
    connection.execute(BEGIN).await?;
    let begun = if !worker::is_alive(connection, fence).await? {
        Begun::Fenced
    } else if queue::bucket(connection, admission.queue.name()).await? == *choice.0 {
        queue::write(connection, admission, fence, choice).await?;
        Begun::Written
    } else {
        Begun::Overtaken
    };
    connection.execute("COMMIT").await?;
    Ok(begun)
}
