//! Processed messages whose retention is over.

use std::collections::BTreeMap;

use super::ask::Session;
use crate::clock::Timestamp;
use crate::store::inbox::{EXPIRED, OUTDATED, PROCESSED};
use crate::store::row::{Given, Take as _};

/// The number of messages that are read at once.
const AT_ONCE: u32 = 64;

/// The condition of the index of processed messages that are more than a tombstone.
macro_rules! whole {
    () => {
        "consumer = $1 AND state = $2 AND state IN (2, 3) AND (result IS NULL OR substr(result, 1, 1) <> '#')"
    };
}

fn page<S: Session>() -> String {
    let index = S::either("INDEXED BY inbox_over ", "");
    format!(
        concat!("SELECT tenant, message FROM inbox {}WHERE ", whole!(), " AND at <= $3 ORDER BY at LIMIT {}"),
        index, AT_ONCE
    )
}

fn next<S: Session>() -> String {
    let index = S::either("INDEXED BY inbox_over ", "");
    format!(concat!("SELECT min(at) FROM inbox {}WHERE ", whole!(), " AND at > $3"), index)
}

/// Replaces the results of messages of one tenant by a tombstone.
fn expire<S: Session>() -> String {
    let listed = S::either("IN (SELECT value FROM json_each($3))", "= ANY($3)");
    format!(
        "UPDATE inbox SET result = '{EXPIRED}' WHERE tenant = $1 AND consumer = $2 AND message {listed} AND state = 2"
    )
}

fn forget<S: Session>() -> String {
    let listed = S::either("IN (SELECT value FROM json_each($3))", "= ANY($3)");
    format!("DELETE FROM inbox WHERE tenant = $1 AND consumer = $2 AND message {listed} AND state IN (2, 3)")
}

/// The states of messages to retire. An outdated message is already stored as its id alone.
fn states(is_left: bool) -> &'static [i64] {
    if is_left { &[PROCESSED] } else { &[PROCESSED, OUTDATED] }
}

/// Retires a few messages of a consumer that were processed until then, with one statement for each tenant. Returns
/// true if there may be more.
pub(in crate::store) async fn retire<S: Session>(
    session: &mut S,
    consumer: &str,
    until: Timestamp,
    is_left: bool,
) -> Result<bool, sqlx::Error> {
    let mut may_be_more = false;
    for state in states(is_left) {
        let arguments = [consumer.into(), (*state).into(), until.0.into()];
        let rows = session.fetch(&page::<S>(), &arguments).await?;
        may_be_more |= rows.len() == AT_ONCE as usize;
        let mut by_tenant: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in &rows {
            let mut values = S::values("inbox", row);
            if let (Ok(tenant), Ok(message)) = (values.cell(), values.cell()) {
                by_tenant.entry(tenant).or_default().push(message);
            }
        }
        let sql = if is_left { expire::<S>() } else { forget::<S>() };
        for (tenant, messages) in &by_tenant {
            let messages = Given::Texts(messages.iter().map(String::as_str).collect());
            session.finds(&sql, &[tenant.as_str().into(), consumer.into(), messages]).await?;
        }
    }
    Ok(may_be_more)
}

/// The earliest instant after `after` at which a message of the consumer was processed that is more than a tombstone.
pub(in crate::store) async fn next_over<S: Session>(
    session: &mut S,
    consumer: &str,
    after: Timestamp,
    is_left: bool,
) -> Result<Option<Timestamp>, sqlx::Error> {
    let mut earliest = None;
    for state in states(is_left) {
        let arguments = [consumer.into(), (*state).into(), after.0.into()];
        for row in &session.fetch(&next::<S>(), &arguments).await? {
            let at: Option<i64> = S::values("inbox", row).cell().unwrap_or_default();
            earliest = earliest.into_iter().chain(at.map(Timestamp)).min();
        }
    }
    Ok(earliest)
}

/// The statements, for the tests that explain and pin them.
pub(in crate::store) fn statements<S: Session>() -> [String; 4] {
    [page::<S>(), next::<S>(), expire::<S>(), forget::<S>()]
}
