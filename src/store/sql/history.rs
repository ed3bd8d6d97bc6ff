//! The history of a run: one query for each part, whatever the number of steps.

use crate::store::row::Take;
use crate::store::{PastCall, PastStep, PastUse, StoreError};

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
