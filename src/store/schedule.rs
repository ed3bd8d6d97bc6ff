//! Schedules: what begins runs at their time.

use crate::clock::Timestamp;
use crate::id::{Name, RunId, Tenant};
use crate::payload::Stored;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use {
    super::StoreError,
    super::ask::{Queries, Reader},
    super::row::{Put, Readable, Row, Take},
    super::table::{Law, Table, number, text},
};

/// What begins runs at their time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Whose it is.
    pub tenant: Tenant,
    /// Its name, unique per tenant.
    pub name: Name,
    /// The workflow that it begins.
    pub workflow: Name,
    /// The workflow's version when it was set.
    pub version: u32,
    /// When it is due and what about runs that overlap, as JSON: of what that means the store knows nothing.
    pub rule: String,
    /// The input of its runs.
    pub input: Stored,
    /// Whether it goes on.
    pub state: ScheduleState,
    /// When it is due next.
    pub next_at: Option<Timestamp>,
    /// The last tick that began a run.
    pub last_at: Option<Timestamp>,
    /// The run that it began.
    pub last_run: Option<RunId>,
    /// So many ticks began none.
    pub missed: u32,
    /// Counts the changes of this row.
    pub revision: u32,
    /// When it was set.
    pub created_at: Timestamp,
    /// When this row last changed.
    pub updated_at: Timestamp,
}

/// Whether a schedule goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleState {
    /// Its ticks come.
    Active,
    /// None comes before it is resumed.
    Paused,
    /// It is gone. Its row stays, so that its revisions go on if it is set again.
    Deleted,
}

impl ScheduleState {
    /// The number that rows hold. Never reuse one.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        allow(dead_code, reason = "the model has no columns")
    )]
    pub(crate) const fn code(self) -> i64 {
        match self {
            Self::Active => 1,
            Self::Paused => 2,
            Self::Deleted => 3,
        }
    }

    /// Reads the number back.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        allow(dead_code, reason = "the model has no columns")
    )]
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        [Self::Active, Self::Paused, Self::Deleted].into_iter().find(|state| state.code() == code)
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Readable for Schedule {
    const TABLE: &'static Table = &Table {
        name: "schedule",
        key: &["tenant", "name"],
        with: &[],
        law: Law::Moves,
        columns: &[
            text("tenant"),
            text("name"),
            text("workflow"),
            number("version"),
            text("rule"),
            text("input"),
            number("state"),
            number("next_at"),
            number("last_at"),
            number("last_run"),
            number("missed"),
            number("revision"),
            number("created_at"),
            number("updated_at"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            tenant: values.tenant()?,
            name: values.name()?,
            workflow: values.name()?,
            version: values.count()?,
            rule: values.text()?,
            input: values.parsed_text(Stored::from_column)?,
            state: values.parsed(ScheduleState::from_code)?,
            next_at: values.some_time()?,
            last_at: values.some_time()?,
            last_run: values.some_number()?.map(RunId),
            missed: values.count()?,
            revision: values.count()?,
            created_at: values.time()?,
            updated_at: values.time()?,
        })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Row for Schedule {
    fn key(&self) -> impl Ord + std::hash::Hash {
        (&self.tenant, self.name.as_str())
    }

    fn revision(&self) -> u32 {
        self.revision
    }

    fn put(&self, values: &mut impl Put) {
        values
            .shared(self.tenant.text())
            .shared(self.name.text())
            .shared(self.workflow.text())
            .number(self.version)
            .text(&self.rule)
            .shared(self.input.column())
            .number(self.state.code())
            .some_number(self.next_at.map(|at| at.0))
            .some_number(self.last_at.map(|at| at.0))
            .some_number(self.last_run.map(|run| run.0))
            .number(self.missed)
            .number(self.revision)
            .number(self.created_at.0)
            .number(self.updated_at.0);
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Schedule {
    pub(super) async fn find<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<Self>, StoreError> {
        on.row("WHERE tenant = $1 AND name = $2", &[tenant.into(), name.into()]).await
    }

    pub(super) async fn list<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Self>, StoreError> {
        let behind = "WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3";
        on.sound(behind, &[tenant.into(), after.into(), limit.into()]).await
    }

    pub(super) async fn due<D: Reader>(
        on: &Queries<D>,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<Self>, StoreError> {
        let behind = "WHERE next_at <= $1 ORDER BY next_at, tenant, name LIMIT $2";
        on.sound(behind, &[until.0.into(), limit.into()]).await
    }
}
