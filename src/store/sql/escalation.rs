//! The reads of questions, open and answered.

use super::ask::{Found, Listed, Queries, Reader};
use crate::id::{QuestionId, RecordId, RunId, Tenant};
use crate::store::row::Take as _;
use crate::store::{Question, QuestionCount, QuestionKind, QuestionLoad};

impl<D: Reader> Queries<D> {
    pub(super) async fn escalation_find(&self, tenant: &Tenant, id: QuestionId) -> Found<Question> {
        self.row("WHERE tenant = $1 AND id = $2", &[tenant.into(), id.0.into()]).await
    }

    /// SQLite must be told the index: otherwise it takes the primary key and reads every question that was ever
    /// answered.
    pub(super) async fn escalation_open(
        &self,
        tenant: &Tenant,
        after: QuestionId,
        limit: u32,
    ) -> Listed<Question> {
        let index = D::either("INDEXED BY escalation_open ", "");
        let behind = format!(
            "{index}WHERE id > $1 AND tenant = $2 AND answer IS NULL AND kind <> $3 ORDER BY id LIMIT $4"
        );
        let pending = QuestionKind::Pending.code();
        self.page(&behind, after.0, &[tenant.into(), pending.into(), limit.into()]).await
    }

    pub(super) async fn escalation_answered(
        &self,
        tenant: &Tenant,
        after: QuestionId,
        limit: u32,
    ) -> Listed<Question> {
        let behind =
            "WHERE id > $1 AND tenant = $2 AND answer IS NOT NULL AND kind <> $3 ORDER BY id LIMIT $4";
        let pending = QuestionKind::Pending.code();
        self.page(behind, after.0, &[tenant.into(), pending.into(), limit.into()]).await
    }

    pub(super) async fn escalation_count(&self, tenant: &Tenant) -> Listed<QuestionCount> {
        let sql = "SELECT kind, count(*) - count(answer), count(answer) FROM escalation WHERE tenant = $1 \
                   AND kind <> $2 GROUP BY kind ORDER BY kind";
        let read = |row| {
            let mut values = D::values("escalation", row);
            Ok(QuestionCount { kind: values.cell()?, open: values.cell()?, answered: values.cell()? })
        };
        let pending = QuestionKind::Pending.code();
        self.fetch(sql.to_owned(), &[tenant.into(), pending.into()]).await?.iter().map(read).collect()
    }

    pub(super) async fn escalation_load(&self) -> Listed<QuestionLoad> {
        let index = D::either("INDEXED BY escalation_open ", "");
        let sql = format!(
            "SELECT kind, count(*), min(opened_at) FROM escalation {index}WHERE answer IS NULL AND kind <> $1 \
             GROUP BY kind ORDER BY kind"
        );
        let read = |row| {
            let mut values = D::values("escalation", row);
            Ok(QuestionLoad { kind: values.cell()?, open: values.cell()?, oldest: values.cell()? })
        };
        self.fetch(sql, &[QuestionKind::Pending.code().into()]).await?.iter().map(read).collect()
    }

    /// All open questions are sorted: an index of them over all tenants would be written for each question.
    pub(super) async fn escalation_open_everywhere(&self, after: QuestionId, limit: u32) -> Listed<Question> {
        let index = D::either("INDEXED BY escalation_open ", "");
        let behind =
            format!("{index}WHERE answer IS NULL AND id > $1 AND kind <> $2 ORDER BY id, tenant LIMIT $3");
        self.page(&behind, after.0, &[QuestionKind::Pending.code().into(), limit.into()]).await
    }

    pub(super) async fn escalation_about(&self, tenant: &Tenant, run: RunId) -> Listed<Question> {
        let index = D::either("INDEXED BY escalation_run ", "");
        let behind = format!("{index}WHERE tenant = $1 AND run = $2 AND answer IS NULL ORDER BY id");
        self.rows(&behind, &[tenant.into(), run.0.into()]).await
    }

    pub(super) async fn escalation_open_about(
        &self,
        tenant: &Tenant,
        run: RunId,
        limit: u32,
    ) -> Listed<Question> {
        let index = D::either("INDEXED BY escalation_run ", "");
        let behind = format!(
            "{index}WHERE tenant = $1 AND run = $2 AND answer IS NULL AND kind <> $3 ORDER BY id LIMIT $4"
        );
        let pending = QuestionKind::Pending.code();
        self.rows(&behind, &[tenant.into(), run.0.into(), pending.into(), limit.into()]).await
    }

    pub(super) async fn escalation_of(&self, tenant: &Tenant, record: RecordId) -> Listed<Question> {
        let index = D::either("INDEXED BY escalation_record ", "");
        let behind = format!("{index}WHERE tenant = $1 AND record = $2");
        let mut all: Vec<Question> = self.rows(&behind, &[tenant.into(), record.0.into()]).await?;
        all.sort_by_key(|question| question.id); // they are few, and a database would sort them, too
        Ok(all)
    }

    pub(super) async fn escalation_unknown_workflow(
        &self,
        after: QuestionId,
        limit: u32,
    ) -> Listed<Question> {
        // The kind is a literal in the statement, as it is in the partial index of the kind.
        let behind = "WHERE kind = 7 AND answer IS NULL AND id > $1 ORDER BY id LIMIT $2";
        self.page(behind, after.0, &[limit.into()]).await
    }

    pub(super) async fn escalation_duplicated(&self, after: QuestionId, limit: u32) -> Listed<Question> {
        let behind = "WHERE kind = 2 AND answer IS NULL AND id > $1 ORDER BY id LIMIT $2";
        self.page(behind, after.0, &[limit.into()]).await
    }
}
