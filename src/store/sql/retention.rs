//! Records whose time is over.

use super::ask::Reader;
use crate::ledger::Record;
use crate::store::cell::Declared as _;

/// Nobody rests on a record or asks about it. A run that is under way rests on all that it did since it last went on as new.
#[cfg(feature = "sqlite")]
pub(in crate::store) const AT_REST_IN_SQLITE: &str = "record.status <> 1 AND record.escalation IS NULL \
    AND NOT EXISTS (SELECT 1 FROM look l WHERE l.tenant = record.tenant AND l.record = record.id) \
    AND NOT EXISTS (SELECT 1 FROM escalation e INDEXED BY escalation_record \
    WHERE e.tenant = record.tenant AND e.record = record.id AND e.answer IS NULL) \
    AND NOT EXISTS (SELECT 1 FROM run r WHERE r.tenant = record.tenant AND r.id = record.run \
    AND r.state NOT IN (3, 4) AND record.turn >= r.base) \
    AND NOT EXISTS (SELECT 1 FROM use rests CROSS JOIN run r ON r.id = rests.run WHERE rests.tenant = record.tenant \
    AND rests.record = record.id AND r.tenant = rests.tenant AND r.state NOT IN (3, 4) AND rests.turn >= r.base)";

/// The same. The OFFSET keeps the planner from looking through all open questions of the tenant instead.
#[cfg(feature = "postgres")]
pub(in crate::store) const AT_REST_IN_POSTGRES: &str = "record.status <> 1 AND record.escalation IS NULL \
    AND NOT EXISTS (SELECT 1 FROM look l WHERE l.tenant = record.tenant AND l.record = record.id) \
    AND NOT EXISTS (SELECT 1 FROM (SELECT answer FROM escalation a WHERE a.tenant = record.tenant \
    AND a.record = record.id OFFSET 0) e WHERE e.answer IS NULL) \
    AND NOT EXISTS (SELECT 1 FROM run r WHERE r.tenant = record.tenant AND r.id = record.run \
    AND r.state NOT IN (3, 4) AND record.turn >= r.base) \
    AND NOT EXISTS (SELECT 1 FROM use u JOIN run r ON r.tenant = u.tenant AND r.id = u.run \
    WHERE u.tenant = record.tenant AND u.record = record.id AND r.state NOT IN (3, 4) AND u.turn >= r.base)";

#[cfg(not(feature = "sqlite"))]
const AT_REST_IN_SQLITE: &str = "";
#[cfg(not(feature = "postgres"))]
const AT_REST_IN_POSTGRES: &str = "";

/// What is over between two instants, which are the arguments. The limit is none of them: for one that it does not know, the planner
/// of PostgreSQL sorts all that has expired for each page.
pub(super) fn expired<D: Reader>(limit: u32) -> String {
    let index = D::either("INDEXED BY record_kept ", "");
    let at_rest = D::either(AT_REST_IN_SQLITE, AT_REST_IN_POSTGRES);
    format!(
        "{index}WHERE kept_until >= $1 AND kept_until <= $2 AND {at_rest} ORDER BY kept_until, id LIMIT {limit}"
    )
}

pub(super) const EXPIRING: &str = "SELECT min(kept_until) FROM record WHERE kept_until > $1";

/// For the tests that explain and pin them.
pub(in crate::store) fn statements<D: Reader>() -> [String; 2] {
    [EXPIRING.to_owned(), Record::TABLE.select(&expired::<D>(32))]
}
