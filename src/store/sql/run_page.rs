//! The pages of a list of runs. Three indexes serve all lists: `run_state` (tenant, state, workflow, start) for runs that are not active,
//! `run_active` for those that are, and `run_key` (tenant, workflow, start key). Where a list names no state or no workflow, the first
//! runs of each are read and merged: a tenant has few workflows.

use super::ask::{Queries, Reader, named};
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::store::cell::Declared as _;
use crate::store::row::Given;
use crate::store::run_filter::Order;
use crate::store::table::Kind;
use crate::store::{Run, RunCursor, RunFilter, RunPage, RunStateName, StoreError};

/// The number of runs that a page of a list by start keys looks at, if it must look at each run.
const LOOKED_AT: u32 = 400;

/// The state of a run by its [name](crate::store::RunStateName), in the words of the index.
const STATE: &str = "CASE WHEN substr(outcome, 1, 1) IN ('#', '%') THEN 6 ELSE state END";

/// The code in place of a state, for runs in any state.
const ANY: i64 = -1;

/// A page of a list of runs, as it is asked for.
#[derive(Clone, Copy)]
struct Page<'a> {
    tenant: &'a Tenant,
    filter: &'a RunFilter,
    /// The place behind which the page begins.
    after: Option<&'a RunCursor>,
    limit: u32,
}

impl<D: Reader> Queries<D> {
    pub(super) async fn run_page(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        after: Option<&RunCursor>,
        limit: u32,
    ) -> Result<RunPage<Run>, StoreError> {
        let page = Page { tenant, filter, after, limit };
        if let Some(label) = &filter.label {
            return self.by_label(page, label).await;
        }
        match &filter.key {
            Some(beginning) => self.by_key(page, beginning).await,
            None => self.by_start(page).await,
        }
    }

    async fn by_start(&self, page: Page<'_>) -> Result<RunPage<Run>, StoreError> {
        let Page { tenant, filter, after, limit } = page;
        let ((at, id), end) = range(filter, after);
        let mut asked: Vec<Given<'_>> =
            vec![tenant.into(), at.into(), id.into(), end.into(), limit.into(), code(filter).into()];
        asked.extend(filter.workflow.as_deref().map(Given::from));
        let sql = started::<D>(filter.workflow.is_some(), filter.newest_first);
        self.read_page(page, &sql, &asked).await
    }

    async fn by_key(&self, page: Page<'_>, beginning: &str) -> Result<RunPage<Run>, StoreError> {
        let Page { tenant, filter, after, limit } = page;
        let behind = after.and_then(|after| match &after.by {
            Order::Key(key) => Some((key.as_str(), after.id.0)),
            Order::Start(_) => None,
        });
        let (key, id) = (beginning, i64::MIN).max(behind.unwrap_or((beginning, i64::MIN)));
        let end = end_of(beginning);
        let is_narrow = filter.state.is_some() || filter.since.is_some() || filter.before.is_some();
        let looked_at = if is_narrow { LOOKED_AT.max(limit) } else { limit };
        let since = filter.since.unwrap_or(Timestamp::MIN).0;
        let before = filter.before.unwrap_or(Timestamp::MAX).0;
        let mut asked: Vec<Given<'_>> =
            vec![tenant.into(), key.into(), id.into(), end.as_str().into(), looked_at.into()];
        let workflow = filter.workflow.as_deref().map(Given::from);
        let mut page_asked = asked.clone();
        page_asked.extend([limit.into(), code(filter).into(), since.into(), before.into()]);
        page_asked.extend(workflow.clone());
        let sql = keyed::<D>(workflow.is_some());
        let mut found = self.read_page(page, &sql, &page_asked).await?;
        if found.next.is_none() && is_narrow {
            asked.push((looked_at - 1).into());
            asked.extend(workflow);
            let last = self.number(&last_looked_at::<D>(filter.workflow.is_some()), &asked).await?;
            if let Some(id) = last {
                found.next = self.place(tenant, filter, RunId(id)).await?;
            }
        }
        Ok(found)
    }

    async fn by_label(
        &self,
        page: Page<'_>,
        (name, value): &(String, String),
    ) -> Result<RunPage<Run>, StoreError> {
        let Page { tenant, filter, after, limit } = page;
        let ((at, id), end) = range(filter, after);
        let is_narrow = filter.state.is_some() || filter.workflow.is_some() || filter.key.is_some();
        let looked_at = if is_narrow { LOOKED_AT.max(limit) } else { limit };
        let asked: Vec<Given<'_>> = vec![
            tenant.into(),
            at.into(),
            id.into(),
            end.into(),
            looked_at.into(),
            name.as_str().into(),
            value.as_str().into(),
        ];
        let (mut page_asked, mut last_asked) = (asked.clone(), asked);
        let beginning = filter.key.as_deref();
        let key_end = beginning.map(end_of);
        page_asked.extend([limit.into(), code(filter).into(), text(filter.workflow.as_deref())]);
        page_asked.extend([text(beginning), text(key_end.as_deref())]);
        let sql = labelled::<D>(filter.newest_first);
        let mut found = self.read_page(page, &sql, &page_asked).await?;
        if found.next.is_none() && is_narrow {
            last_asked.push((looked_at - 1).into());
            let last = self.number(&last_labelled::<D>(filter.newest_first), &last_asked).await?;
            if let Some(id) = last {
                found.next = self.place(tenant, filter, RunId(id)).await?;
            }
        }
        Ok(found)
    }

    /// A damaged run is left out; the page goes on behind it.
    async fn read_page(
        &self,
        Page { tenant, filter, limit, .. }: Page<'_>,
        behind: &str,
        asked: &[Given<'_>],
    ) -> Result<RunPage<Run>, StoreError> {
        let found = self.fetch(Run::TABLE.select(behind), asked).await?;
        let runs: Vec<_> = found.iter().map(|row| named(D::read::<Run>(row))).collect();
        let last = found.last().filter(|_| found.len() >= limit as usize).map(D::id).transpose()?.flatten();
        drop(found); // a row is not held while another one is awaited
        let next = match (last, runs.last()) {
            (Some(_), Some(Some(run))) => Some(RunCursor::at(filter, run)),
            (Some(damaged), _) => self.place(tenant, filter, RunId(damaged)).await?,
            (None, _) => None,
        };
        Ok(RunPage { runs: runs.into_iter().flatten().collect(), next })
    }

    /// The place of a run, which may be damaged.
    async fn place(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        id: RunId,
    ) -> Result<Option<RunCursor>, StoreError> {
        let asked = [tenant.into(), id.0.into()];
        let start = "SELECT created_at FROM run WHERE tenant = $1 AND id = $2";
        let Some(start) = self.number(start, &asked).await? else { return Ok(None) };
        let key = "SELECT key FROM run WHERE tenant = $1 AND id = $2";
        let key: Option<Option<String>> = self.cell("run", key, &asked).await?;
        Ok(Some(RunCursor::of(filter, id, Timestamp(start), key.flatten().as_deref())))
    }
}

/// The place behind which a page of a list by the start begins, and the other end of the time.
fn range(filter: &RunFilter, after: Option<&RunCursor>) -> ((i64, i64), i64) {
    let behind = after.and_then(|after| match after.by {
        Order::Start(at) => Some((at.0, after.id.0)),
        Order::Key(_) => None,
    });
    let since = filter.since.unwrap_or(Timestamp::MIN).0;
    let before = filter.before.unwrap_or(Timestamp::MAX).0;
    // One bound of a range is the cursor or the instant, whichever is nearer: an index takes one of them.
    if filter.newest_first {
        ((before, i64::MIN).min(behind.unwrap_or((i64::MAX, i64::MAX))), since)
    } else {
        ((since, i64::MIN).max(behind.unwrap_or((i64::MIN, i64::MIN))), before)
    }
}

fn text(text: Option<&str>) -> Given<'_> {
    text.map_or(Given::Null(Kind::Text), Given::from)
}

fn code(filter: &RunFilter) -> i64 {
    filter.state.map_or(ANY, RunStateName::code)
}

/// The first text behind all texts that begin so, in the order of bytes.
fn end_of(beginning: &str) -> String {
    let mut chars: Vec<char> = beginning.chars().collect();
    while let Some(last) = chars.pop() {
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(last as u32 + 1) };
        if let Some(next) = next {
            chars.push(next);
            return chars.into_iter().collect();
        }
    }
    char::MAX.to_string().repeat(64) // no start key is behind it
}

/// A query for the runs by their start. The arguments are the tenant, the place behind which the page begins, the other end of
/// the time, the limit, the code of the state, and perhaps the workflow.
fn started<D: Reader>(of_workflow: bool, newest_first: bool) -> String {
    let index = D::either("INDEXED BY run_state ", "");
    let active = D::either("INDEXED BY run_active ", "");
    let (behind, until, order) = if newest_first { ("<", ">=", "DESC") } else { (">", "<", "ASC") };
    let ordered = format!("ORDER BY created_at {order}, id {order}");
    let range = format!("(created_at, id) {behind} ($2, $3) AND created_at {until} $4 {ordered} LIMIT $5");
    let one = D::either("$7", "CAST($7 AS text)");
    let next = |more: &str| {
        format!(
            "(SELECT workflow FROM run {index}WHERE tenant = $1 AND {STATE} = s AND state <> 1{more} ORDER BY workflow LIMIT 1)"
        )
    };
    let workflows = if of_workflow {
        format!("SELECT s, {one} FROM code WHERE CAST($6 AS bigint) IN (s, -1)")
    } else {
        let (first, more) = (next(""), next(" AND run.workflow > lane.workflow"));
        format!(
            "SELECT s, {first} FROM code WHERE CAST($6 AS bigint) IN (s, -1) \
             UNION ALL SELECT s, {more} FROM lane WHERE lane.workflow IS NOT NULL"
        )
    };
    let own = if of_workflow { " AND workflow = $7" } else { "" };
    let of_lane = format!(
        "FROM run {index}WHERE tenant = $1 AND {STATE} = lane.s AND state <> 1 AND workflow = lane.workflow AND {range}"
    );
    let places = first_of_each::<D>("created_at", &of_lane);
    // SQLite compares a typed value with no indexed expression.
    let first = D::either("(0)", "(CAST(0 AS bigint))");
    let (open, close) = by_ids::<D>();
    format!(
        "WHERE {open}WITH RECURSIVE \
         code (s) AS (VALUES {first}, (2), (3), (4), (5), (6)), lane (s, workflow) AS ({workflows}), \
         place (at, id) AS ({places} UNION ALL SELECT * FROM (SELECT created_at, id FROM run {active}WHERE state = 1 \
         AND CAST($6 AS bigint) IN (1, -1) AND tenant = $1{own} AND {range}) active) \
         SELECT id FROM place ORDER BY at {order}, id {order} LIMIT $5{close} {ordered}"
    )
}

/// The runs with start keys that are looked at, as rows of the key and the id. The arguments are the tenant, the place behind
/// which the page begins, the end of the keys, the number of runs, and perhaps the workflow.
fn looked_at<D: Reader>(workflow: Option<&str>) -> String {
    let index = D::either("INDEXED BY run_key ", "");
    let next = |more: &str| {
        format!(
            "SELECT (SELECT workflow FROM run {index}WHERE tenant = $1 AND key IS NOT NULL{more} ORDER BY workflow LIMIT 1)"
        )
    };
    let workflows = workflow.map_or_else(
        || {
            let (first, more) = (next(""), next(" AND run.workflow > lane.workflow"));
            format!("{first} UNION ALL {more} FROM lane WHERE lane.workflow IS NOT NULL")
        },
        |workflow| format!("SELECT {workflow}"),
    );
    let of_lane = format!(
        "FROM run {index}WHERE tenant = $1 AND workflow = lane.workflow AND key >= $2 AND (key > $2 OR id > $3) \
         AND key < $4 ORDER BY key LIMIT $5"
    );
    let places = first_of_each::<D>("key", &of_lane);
    format!(
        "WITH RECURSIVE lane (workflow) AS ({workflows}), place (at, id) AS ({places}), \
         seen (at, id) AS (SELECT at, id FROM place ORDER BY at, id LIMIT $5)"
    )
}

/// A query for the runs by their start keys. Further arguments are the limit, the code of the state, and both ends of the
/// time; the workflow is the last one.
fn keyed<D: Reader>(of_workflow: bool) -> String {
    let seen = looked_at::<D>(of_workflow.then_some(D::either("$10", "CAST($10 AS text)")));
    let (open, close) = by_ids::<D>();
    format!(
        "WHERE {open}{seen} SELECT r.id FROM seen CROSS JOIN run r WHERE r.tenant = $1 AND r.id = seen.id \
         AND CAST($7 AS bigint) IN ({STATE}, -1) AND r.created_at >= $8 AND r.created_at < $9 \
         ORDER BY seen.at, seen.id LIMIT $6{close} ORDER BY key, id"
    )
}

/// A query for the last run that a page has looked at, if it did not come to the end. A further argument is the number of runs before
/// it.
fn last_looked_at<D: Reader>(of_workflow: bool) -> String {
    let seen = looked_at::<D>(of_workflow.then_some(D::either("$7", "CAST($7 AS text)")));
    format!("{seen} SELECT id FROM seen ORDER BY at, id LIMIT 1 OFFSET $6")
}

/// The runs with a label that are looked at, as rows of the start and the id. The arguments are the tenant, the place behind which
/// the page begins, the other end of the time, the number of runs, and the name and the value of the label.
fn labels_looked_at<D: Reader>(newest_first: bool) -> String {
    let index = D::either("INDEXED BY run_label_value ", "");
    let (behind, until, order) = if newest_first { ("<", ">=", "DESC") } else { (">", "<", "ASC") };
    format!(
        "WITH seen (at, id) AS (SELECT started_at, run FROM run_label {index}WHERE tenant = $1 AND name = $6 AND value = $7 \
         AND (started_at, run) {behind} ($2, $3) AND started_at {until} $4 ORDER BY started_at {order}, run {order} LIMIT $5)"
    )
}

/// A query for the runs with a label, by their start. Further arguments are the limit, the code of the state, the workflow, and
/// both ends of the start keys; each of the last three may be NULL.
fn labelled<D: Reader>(newest_first: bool) -> String {
    let seen = labels_looked_at::<D>(newest_first);
    let order = if newest_first { "DESC" } else { "ASC" };
    let (open, close) = by_ids::<D>();
    format!(
        "WHERE {open}{seen} SELECT r.id FROM seen CROSS JOIN run r WHERE r.tenant = $1 AND r.id = seen.id \
         AND CAST($9 AS bigint) IN ({STATE}, -1) AND r.workflow = coalesce(CAST($10 AS text), r.workflow) \
         AND (CAST($11 AS text) IS NULL OR (r.key >= CAST($11 AS text) AND r.key < CAST($12 AS text))) \
         ORDER BY seen.at {order}, seen.id {order} LIMIT $8{close} ORDER BY created_at {order}, id {order}"
    )
}

/// A query for the last run that a page of a list by a label has looked at, if it did not come to the end. A further argument is the
/// number of runs before it.
fn last_labelled<D: Reader>(newest_first: bool) -> String {
    let (seen, order) = (labels_looked_at::<D>(newest_first), if newest_first { "DESC" } else { "ASC" });
    format!("{seen} SELECT id FROM seen ORDER BY at {order}, id {order} LIMIT 1 OFFSET $8")
}

/// The places of the first runs of each lane.
fn first_of_each<D: Reader>(at: &str, of_lane: &str) -> String {
    // SQLite has no LATERAL.
    let sqlite =
        format!("SELECT r.{at}, r.id FROM lane CROSS JOIN run r WHERE r.id IN (SELECT id {of_lane})");
    let postgres = format!("SELECT p.{at}, p.id FROM lane CROSS JOIN LATERAL (SELECT {at}, id {of_lane}) p");
    D::either(&sqlite, &postgres).to_owned()
}

/// What stands before and behind a query for the ids of runs.
fn by_ids<D: Reader>() -> (&'static str, &'static str) {
    // PostgreSQL would join, and sort.
    (D::either("id IN (", "tenant = $1 AND id = ANY(ARRAY("), D::either(")", "))"))
}

/// The queries, for the tests that explain and pin them.
pub(in crate::store) fn statements<D: Reader>() -> Vec<String> {
    let each = [false, true];
    let started =
        each.into_iter().flat_map(|of_workflow| each.map(|newest| started::<D>(of_workflow, newest)));
    let pages = started
        .chain(each.map(keyed::<D>))
        .chain(each.map(labelled::<D>))
        .map(|behind| Run::TABLE.select(&behind));
    pages.chain(each.map(last_looked_at::<D>)).chain(each.map(last_labelled::<D>)).collect()
}
