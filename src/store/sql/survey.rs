//! The reads of an operator, who asks about the ledger as a whole. They read whole tables.

use super::ask::{Listed, Queries, Reader};
use crate::clock::Timestamp;
use crate::store::row::Take as _;
use crate::store::{RetainedKind, RetentionLoad};

const RECORDS: &str = "SELECT operation, count(*) FILTER (WHERE status <> 7), count(*) FILTER (WHERE status = 7), \
    count(*) FILTER (WHERE kept_until <= $1 AND status <> 7), min(kept_until) FROM record GROUP BY operation \
    ORDER BY operation";

const RUNS: &str = "SELECT workflow, count(*) FILTER (WHERE substr(outcome, 1, 1) NOT IN ('#', '%')), \
    count(*) FILTER (WHERE substr(outcome, 1, 1) IN ('#', '%')), CAST(NULL AS bigint), \
    min(updated_at) FILTER (WHERE substr(outcome, 1, 1) NOT IN ('#', '%')) FROM run WHERE state IN (3, 4) \
    GROUP BY workflow ORDER BY workflow";

const MESSAGES: &str = "SELECT consumer, count(*) FILTER (WHERE coalesce(substr(result, 1, 1), '') <> '#'), \
    count(*) FILTER (WHERE substr(result, 1, 1) = '#'), CAST(NULL AS bigint), \
    min(at) FILTER (WHERE coalesce(substr(result, 1, 1), '') <> '#') FROM inbox WHERE state IN (2, 3) \
    GROUP BY consumer ORDER BY consumer";

impl<D: Reader> Queries<D> {
    pub(super) async fn rows_kept(&self, now: Timestamp) -> Listed<RetentionLoad> {
        let mut all = Vec::new();
        for (kind, table, sql, arguments) in [
            (RetainedKind::Record, "record", RECORDS.to_owned(), &[now.0.into()][..]),
            (RetainedKind::Run, "run", RUNS.to_owned(), &[]),
            (RetainedKind::Message, "inbox", MESSAGES.to_owned(), &[]),
        ] {
            for row in self.fetch(sql, arguments).await? {
                let mut values = D::values(table, &row);
                let (name, whole, digests) = (values.cell()?, values.cell()?, values.cell()?);
                let (over, earliest) = (values.cell()?, values.cell()?);
                all.push(RetentionLoad { kind, name, whole, digests, over, earliest });
            }
        }
        Ok(all)
    }
}
