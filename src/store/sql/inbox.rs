//! Tables `inbox`, `inbox_try` and `inbox_version`: the statements about one message, and the messages whose retention
//! is over.

#![allow(private_bounds, reason = "a simulation calls some of these functions on a connection of its own")]

use std::collections::BTreeMap;

use super::ask::{Backend, Found, Listed, Session, damage};
use crate::clock::Timestamp;
use crate::id::QuestionId;
use crate::store::StoreError;
use crate::store::inbox::{Aside, Counted, Counting, Delivery, EXPIRED, Known, OUTDATED, PROCESSED};
use crate::store::row::{Given, Take as _};
use crate::store::table::Kind;

/// A connection, or a pool of them, for statements about one message.
pub(in crate::store) trait Messages: Backend {
    async fn rows(&mut self, sql: &'static str, arguments: &[Given<'_>]) -> Listed<Self::Fetched>;

    /// The number that a statement returns, if any.
    async fn number(&mut self, sql: &'static str, arguments: &[Given<'_>]) -> Found<i64> {
        let rows = self.rows(sql, arguments).await?;
        rows.first().map(|row| Self::values("inbox", row).cell()).transpose()
    }

    /// The recorded end of the message in the first row, if there is a row and the message is not to be tried.
    fn end(rows: &[Self::Fetched], limit: u32) -> Found<Known> {
        let Some(row) = rows.first() else { return Ok(None) };
        let mut row = Self::values("inbox", row);
        let (state, tries) = (row.cell()?, row.cell()?);
        Ok(Counted { state, tries, result: row.cell()?, detail: row.cell()? }.known(limit))
    }

    /// The recorded end of the message in the row that a statement returns.
    async fn ended(&mut self, sql: &'static str, delivery: &Delivery, limit: u32) -> Found<Known> {
        Self::end(&self.rows(sql, &place(delivery)).await?, limit)
    }
}

/// The first three arguments of each statement about a message.
pub(in crate::store) fn place(delivery: &Delivery) -> [Given<'_>; 3] {
    [(&delivery.tenant).into(), delivery.consumer.as_str().into(), delivery.message.as_str().into()]
}

/// The arguments of a statement about a message.
pub(in crate::store) fn with<'d>(delivery: &'d Delivery, more: &[Given<'d>]) -> Vec<Given<'d>> {
    [place(delivery).as_slice(), more].concat()
}

/// Selects the end of a message; in SQLite, for a message without an end, its number of attempts.
macro_rules! known {
    (sqlite) => {
        "SELECT state, tries, result, detail FROM inbox WHERE tenant = $1 AND consumer = $2 AND message = $3 \
         UNION ALL SELECT 1, tries, NULL, detail FROM inbox_try \
         WHERE tenant = $1 AND consumer = $2 AND message = $3 ORDER BY 1 DESC LIMIT 1"
    };
    (postgres) => {
        "SELECT state, tries, result, detail FROM inbox WHERE tenant = $1 AND consumer = $2 AND message = $3"
    };
}

fn known_text<B: Backend>() -> &'static str {
    B::either(known!(sqlite), known!(postgres))
}

/// The recorded end of a message that is not to be tried, without regard to locks on its row.
pub(in crate::store) async fn ended<M: Messages>(
    messages: &mut M,
    delivery: &Delivery,
    limit: u32,
) -> Found<Known> {
    messages.ended(known_text::<M>(), delivery, limit).await
}

/// Finds a row if the consumer has this version of the aggregate, or a newer one.
const NEWER: &str =
    "SELECT 1 FROM inbox_version WHERE tenant = $1 AND consumer = $2 AND aggregate = $3 AND version >= $4";
const VERSION: &str = "INSERT INTO inbox_version (tenant, consumer, aggregate, version) VALUES ($1, $2, $3, $4) \
                       ON CONFLICT (tenant, consumer, aggregate) DO UPDATE SET version = excluded.version \
                       WHERE inbox_version.version < excluded.version RETURNING version";

/// The recorded end of a message that is not to be processed any more.
pub(crate) async fn known<M: Messages>(messages: &mut M, delivery: &Delivery) -> Found<Known> {
    let known = ended(messages, delivery, u32::MAX).await?;
    if known.is_some() {
        return Ok(known.filter(Known::is_final));
    }
    let Some((aggregate, version)) = &delivery.version else { return Ok(None) };
    let [tenant, consumer, _] = place(delivery);
    let newer =
        messages.rows(NEWER, &[tenant, consumer, aggregate.as_str().into(), (*version).into()]).await?;
    Ok(newer.first().map(|_| Known::Outdated))
}

fn counting<B: Backend>() -> &'static str {
    B::either(
        concat!(
            "INSERT INTO inbox_try (tenant, consumer, message, tries) SELECT $1, $2, $3, 1 \
             WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE tenant = $1 AND consumer = $2 AND message = $3) \
             ON CONFLICT (tenant, consumer, message) DO UPDATE SET tries = tries + 1; ",
            known!(sqlite)
        ),
        "WITH fast AS (SELECT set_config('synchronous_commit', 'off', true)) \
         INSERT INTO inbox_try (tenant, consumer, message, tries) SELECT $1, $2, $3, 1 FROM fast WHERE NOT EXISTS \
         (SELECT 1 FROM inbox WHERE tenant = $1 AND consumer = $2 AND message = $3) \
         ON CONFLICT (tenant, consumer, message) DO UPDATE SET tries = inbox_try.tries + 1 \
         RETURNING 1::bigint, tries, NULL::text, detail",
    )
}

/// Counts an attempt before it is made. No attempt is counted of a message with a recorded end. Returns the recorded
/// end of a message that is not to be tried.
///
/// On a server the commit does not wait for the disk: a killed process still leaves the count behind, and only a
/// failing server may lose it.
pub(crate) async fn count<M: Messages>(messages: &mut M, delivery: &Delivery) -> Found<Known> {
    match messages.rows(counting::<M>(), &place(delivery)).await? {
        none if none.is_empty() => ended(messages, delivery, delivery.tries).await,
        counted => M::end(&counted, delivery.tries),
    }
}

const UNCOUNTING: &str = "UPDATE inbox_try SET tries = tries - 1 WHERE tenant = $1 AND consumer = $2 AND message = $3 AND tries > 0";

/// Takes the count of an attempt back.
pub(crate) async fn uncount<M: Messages>(messages: &mut M, delivery: &Delivery) -> Result<(), StoreError> {
    messages.rows(UNCOUNTING, &place(delivery)).await.map(drop)
}

/// Counts an attempt with the reason why it failed.
fn failing<B: Backend>() -> &'static str {
    B::either(
        "INSERT INTO inbox_try (tenant, consumer, message, tries, detail) VALUES ($1, $2, $3, 1, $4) \
         ON CONFLICT (tenant, consumer, message) DO UPDATE SET tries = tries + 1, detail = excluded.detail; \
         SELECT tries FROM inbox_try WHERE tenant = $1 AND consumer = $2 AND message = $3",
        "INSERT INTO inbox_try (tenant, consumer, message, tries, detail) VALUES ($1, $2, $3, 1, $4) \
         ON CONFLICT (tenant, consumer, message) DO UPDATE SET tries = inbox_try.tries + 1, \
         detail = excluded.detail RETURNING tries",
    )
}

/// Notes the reason why a counted attempt failed.
fn noting<B: Backend>() -> &'static str {
    B::either(
        "UPDATE inbox_try SET detail = $4 WHERE tenant = $1 AND consumer = $2 AND message = $3; \
         SELECT tries FROM inbox_try WHERE tenant = $1 AND consumer = $2 AND message = $3",
        "UPDATE inbox_try SET detail = $4 WHERE tenant = $1 AND consumer = $2 AND message = $3 RETURNING tries",
    )
}

/// Records the reason why an attempt failed. Returns the number of attempts.
pub(crate) async fn failed<M: Messages>(
    messages: &mut M,
    delivery: &Delivery,
    detail: &str,
) -> Result<i64, StoreError> {
    let sql = if delivery.counting == Counting::With { failing::<M>() } else { noting::<M>() };
    Ok(messages.number(sql, &with(delivery, &[detail.into()])).await?.unwrap_or_default())
}

fn setting_aside<B: Backend>() -> &'static str {
    B::either(
        "INSERT INTO inbox (tenant, consumer, message, state, tries, detail, escalation, at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant, consumer, message) DO UPDATE SET \
         state = max(state, excluded.state), escalation = coalesce(escalation, excluded.escalation) \
         WHERE state IN (4, 5); \
         SELECT escalation FROM inbox WHERE tenant = $1 AND consumer = $2 AND message = $3 \
         AND escalation IS NOT NULL",
        "INSERT INTO inbox (tenant, consumer, message, state, tries, detail, escalation, at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant, consumer, message) DO UPDATE SET \
         state = greatest(inbox.state, excluded.state), \
         escalation = coalesce(inbox.escalation, excluded.escalation) \
         WHERE inbox.state IN (4, 5) RETURNING escalation",
    )
}

/// Sets the message aside, and names the question about it, unless it has one. Returns the question; `None` if another delivery of the message has been processed meanwhile.
pub(crate) async fn set_aside<M: Messages>(
    messages: &mut M,
    delivery: &Delivery,
    Aside { tries, why }: &Aside,
    question: QuestionId,
) -> Found<QuestionId> {
    let detail = why.detail().map_or(Given::Null(Kind::Text), Given::Text);
    let row = [why.state().into(), (*tries).into(), detail, question.0.into(), delivery.at.0.into()];
    Ok(messages.number(setting_aside::<M>(), &with(delivery, &row)).await?.map(QuestionId))
}

/// In SQLite the attempts are deleted first: if nothing more is written, the question is still there, and its answer is
/// found.
fn trying_again<B: Backend>() -> &'static str {
    B::either(
        "DELETE FROM inbox_try WHERE tenant = $1 AND consumer = $2 AND message = $3 \
         AND EXISTS (SELECT 1 FROM inbox WHERE tenant = $1 AND consumer = $2 AND message = $3 AND escalation = $4); \
         DELETE FROM inbox WHERE tenant = $1 AND consumer = $2 AND message = $3 AND escalation = $4",
        "WITH answered AS (DELETE FROM inbox WHERE tenant = $1 AND consumer = $2 AND message = $3 \
         AND escalation = $4 RETURNING message) \
         DELETE FROM inbox_try USING answered WHERE tenant = $1 AND consumer = $2 AND inbox_try.message = $3",
    )
}

/// Lets the message be tried again, counted from the first attempt on, because this question was answered.
pub(crate) async fn again<M: Messages>(
    messages: &mut M,
    delivery: &Delivery,
    question: QuestionId,
) -> Result<(), StoreError> {
    messages.rows(trying_again::<M>(), &with(delivery, &[question.0.into()])).await.map(drop)
}

/// True if the consumer has this version of the aggregate or a newer one. Otherwise this version is recorded; two
/// messages that bring a version at once wait for one another here.
pub(in crate::store) async fn is_outdated<M: Messages>(
    messages: &mut M,
    delivery: &Delivery,
) -> Result<bool, StoreError> {
    let Some((aggregate, version)) = &delivery.version else { return Ok(false) };
    let [tenant, consumer, _] = place(delivery);
    let written =
        messages.rows(VERSION, &[tenant, consumer, aggregate.as_str().into(), (*version).into()]).await?;
    Ok(written.is_empty())
}

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
            let tenant = values.cell().map_err(damage)?;
            by_tenant.entry(tenant).or_default().push(values.cell().map_err(damage)?);
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
            let at: Option<i64> = S::values("inbox", row).cell().map_err(damage)?;
            earliest = earliest.into_iter().chain(at.map(Timestamp)).min();
        }
    }
    Ok(earliest)
}

/// The statements, for the tests that explain and pin them.
pub(in crate::store) fn statements<S: Session>() -> Vec<String> {
    let about_one = [
        known_text::<S>(),
        NEWER,
        VERSION,
        counting::<S>(),
        failing::<S>(),
        noting::<S>(),
        UNCOUNTING,
        setting_aside::<S>(),
        trying_again::<S>(),
    ];
    let over = [page::<S>(), next::<S>(), expire::<S>(), forget::<S>()];
    about_one.map(str::to_owned).into_iter().chain(over).collect()
}
