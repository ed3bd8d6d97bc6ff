//! The history of a run: one query for each part, whatever the number of steps.

use super::ask::{Queries, Reader};
use crate::id::{RunId, Tenant};
use crate::store::row::Take;
use crate::store::{History, HistoryPlace, PastCall, PastStep, PastUse, StoreError};

/// The checkpoints of a run. The arguments of each of these queries are the tenant, the run, and three numbers of
/// [turns](crate::store::Turns).
pub(in crate::store) const STEPS: &str = "SELECT turn, kind, name, id, input_hash, value, at FROM step WHERE tenant = $1 AND run = $2 AND turn = $3 \
     UNION ALL SELECT turn, kind, name, id, input_hash, value, at FROM step WHERE tenant = $1 AND run = $2 \
     AND turn BETWEEN $4 AND $5 AND turn <> $3";

/// The calls of a run: only the columns that resume needs, and the response only of committed records.
pub(in crate::store) const CALLS: &str = "SELECT id, key, operation, turn, step, request_hash, attempts, cost, CASE WHEN status = 2 THEN outcome END \
     FROM record WHERE tenant = $1 AND run = $2 AND turn = $3 \
     UNION ALL SELECT id, key, operation, turn, step, request_hash, attempts, cost, CASE WHEN status = 2 THEN outcome END \
     FROM record WHERE tenant = $1 AND run = $2 AND turn BETWEEN $4 AND $5 AND turn <> $3";

pub(in crate::store) const USES: &str = "SELECT r.id, r.key, r.operation, u.turn, u.step FROM use u JOIN record r ON r.tenant = u.tenant \
     AND r.id = u.record WHERE u.tenant = $1 AND u.run = $2 AND u.turn = $3 \
     UNION ALL SELECT r.id, r.key, r.operation, u.turn, u.step FROM use u JOIN record r ON r.tenant = u.tenant \
     AND r.id = u.record WHERE u.tenant = $1 AND u.run = $2 AND u.turn BETWEEN $4 AND $5 AND u.turn <> $3";

/// The checkpoints of a page, by their primary key.
const STEP_PAGE: &str = "SELECT s.turn, s.kind, s.name, s.id, s.input_hash, s.value, s.at FROM step s WHERE s.tenant = $1 AND s.run = $2 \
     AND (s.turn, s.kind, s.name, s.id) > ($3, $4, $5, $6) ORDER BY s.turn, s.kind, s.name, s.id LIMIT $7";

/// The calls of a page. Those of one turn are sorted by the database, which keeps no more of them than the page has.
const CALL_PAGE: &str = "SELECT c.id, c.key, c.operation, c.turn, c.step, c.request_hash, c.attempts, c.cost, \
     CASE WHEN c.status = 2 THEN c.outcome END FROM record c WHERE c.tenant = $1 AND c.run = $2 AND c.turn >= $3 \
     AND (c.turn, c.key) > ($3, $4) ORDER BY c.turn, c.key LIMIT $5";

const USE_PAGE: &str = "SELECT r.id, r.key, r.operation, x.turn, x.step FROM use x CROSS JOIN record r WHERE x.tenant = $1 AND x.run = $2 \
     AND x.turn >= $3 AND (x.turn, r.key) > ($3, $4) AND r.tenant = x.tenant AND r.id = x.record ORDER BY x.turn, r.key LIMIT $5";

impl<D: Reader> Queries<D> {
    pub(super) async fn run_history_page(
        &self,
        tenant: &Tenant,
        id: RunId,
        after: &HistoryPlace,
        limit: u32,
    ) -> Result<History, StoreError> {
        let (turn, kind, name, step) = after.step();
        let asked =
            [tenant.into(), id.0.into(), turn.into(), kind.into(), name.into(), step.into(), limit.into()];
        let steps = self.fetch(STEP_PAGE.to_owned(), &asked).await?;
        let (turn, key) = after.call();
        let asked = [tenant.into(), id.0.into(), turn.into(), key.into(), limit.into()];
        let calls = self.fetch(CALL_PAGE.to_owned(), &asked).await?;
        let (turn, key) = after.used();
        let asked = [tenant.into(), id.0.into(), turn.into(), key.into(), limit.into()];
        let uses = self.fetch(USE_PAGE.to_owned(), &asked).await?;
        let step = |row| PastStep::take(&mut D::values("step", row));
        let call = |row| PastCall::take(&mut D::values("record", row));
        let answered = |row| PastUse::take(&mut D::values("use", row));
        Ok(History {
            steps: steps.iter().map(step).collect::<Result<_, _>>()?,
            calls: calls.iter().map(call).collect::<Result<_, _>>()?,
            uses: uses.iter().map(answered).collect::<Result<_, _>>()?,
            signals: Vec::new(),
        })
    }
}

impl PastStep {
    pub(in crate::store) fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            turn: values.cell()?,
            kind: values.cell()?,
            name: values.cell()?,
            id: values.cell()?,
            input_hash: values.cell()?,
            value: values.cell()?,
            at: values.cell()?,
        })
    }
}

impl PastCall {
    pub(in crate::store) fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            record: values.cell()?,
            key: values.cell()?,
            operation: values.cell()?,
            turn: values.cell()?,
            step: values.cell::<Option<_>>()?.unwrap_or_default(),
            request_hash: values.cell()?,
            attempts: values.cell()?,
            cost: values.cell()?,
            response: values.cell()?,
        })
    }
}

impl PastUse {
    pub(in crate::store) fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            record: values.cell()?,
            key: values.cell()?,
            operation: values.cell()?,
            turn: values.cell()?,
            step: values.cell()?,
        })
    }
}
