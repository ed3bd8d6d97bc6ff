//! The reads of times for charts. Each reads an index by tenant and time, and stops at its limit.

use super::ask::{Listed, Queries, Reader, named};
use crate::clock::Timestamp;
use crate::id::{RecordId, Tenant};
use crate::ledger::Basis;
use crate::store::figures::{Sign, signs_from};
use crate::store::row::{Given, Take as _};
use crate::store::{Answer, AvoidedDuplicates, QuestionKind, QuestionSpan, StoreError};

impl<D: Reader> Queries<D> {
    pub(super) async fn escalation_spans(&self, tenant: &Tenant, limit: u32) -> Listed<QuestionSpan> {
        // The kind is a literal in the statement, as it is in the partial index.
        let sql = "SELECT kind, opened_at, answer FROM escalation WHERE tenant = $1 AND kind <> 27 \
                   ORDER BY opened_at DESC, id DESC LIMIT $2";
        let read = |row| {
            let mut values = D::values("escalation", row);
            let (kind, opened_at) = (values.cell::<QuestionKind>()?, values.cell()?);
            let answer = values.cell::<Option<Answer>>()?;
            Ok(QuestionSpan { kind, opened_at, answered_at: answer.map(|answer| answer.at) })
        };
        let found = self.fetch(sql.to_owned(), &[tenant.into(), limit.into()]).await?;
        Ok(found.iter().map(read).filter_map(named).collect())
    }

    pub(super) async fn record_avoided(
        &self,
        tenant: &Tenant,
        since: Timestamp,
        limit: u32,
    ) -> Result<AvoidedDuplicates, StoreError> {
        let place = [tenant.into(), since.0.into(), limit.into()];
        let looked_up = "SELECT ended, record FROM contact WHERE tenant = $1 AND is_lookup AND result = 1 \
                         AND ended >= $2 ORDER BY ended DESC, record DESC LIMIT $3";
        let told_late = "SELECT at, record FROM evidence WHERE tenant = $1 AND at >= $2 \
                         ORDER BY at DESC, record DESC LIMIT $3";
        let used = "SELECT at, record FROM use WHERE tenant = $1 AND at >= $2 \
                    ORDER BY at DESC, record DESC LIMIT $3";
        let signs = [
            self.signs("contact", looked_up, &place).await?,
            self.signs("evidence", told_late, &place).await?,
            self.signs("use", used, &place).await?,
        ];
        let from = signs_from(&signs, since, limit);
        let [looked_up, told_late, used] = signs;
        let mut records: Vec<_> =
            looked_up.into_iter().chain(told_late).map(|(_, record)| record.0).collect();
        records.sort_unstable();
        records.dedup();
        let found = self.settled_by_sign(tenant, records, since).await?;
        Ok(AvoidedDuplicates { found, shared: used.into_iter().map(|(at, _)| at).collect(), from })
    }

    async fn signs(&self, table: &'static str, sql: &str, place: &[Given<'_>]) -> Listed<Sign> {
        let read = |row| {
            let mut values = D::values(table, row);
            Ok((values.cell()?, values.cell::<RecordId>()?))
        };
        self.fetch(sql.to_owned(), place).await?.iter().map(read).collect()
    }

    /// The instants at which these records were settled, without those that rest on the answer to an attempt: a lookup
    /// that confirms such a record shows its effect, too.
    async fn settled_by_sign(
        &self,
        tenant: &Tenant,
        records: Vec<i64>,
        since: Timestamp,
    ) -> Listed<Timestamp> {
        let settled = D::either(
            "json_each($1) t CROSS JOIN record r ON r.id = t.value AND r.tenant = $2",
            "unnest($1::bigint[]) AS t (id), LATERAL (SELECT * FROM record WHERE tenant = $2 AND id = t.id OFFSET 0) r",
        );
        let sql = format!(
            "SELECT r.sealed_at FROM {settled} WHERE r.basis = $3 AND r.status IN (2, 4, 6) AND r.sealed_at >= $4"
        );
        let lookup = Basis::Lookup.code().into();
        let found =
            self.fetch(sql, &[Given::Numbers(records), tenant.into(), lookup, since.0.into()]).await?;
        let read = |row| D::values("record", row).cell();
        let mut found: Vec<_> = found.iter().map(read).collect::<Result<_, _>>()?;
        found.sort_unstable_by(|a: &Timestamp, b| b.cmp(a));
        Ok(found)
    }
}
