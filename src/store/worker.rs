//! Workers, and what they look at from time to time.

use crate::clock::Timestamp;
use crate::id::Fence;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use {
    super::StoreError,
    super::ask::{Queries, Reader},
    super::row::{Readable, Take},
    super::table::{Law, Table, flag, number, text},
};

/// One engine process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its number.
    pub fence: Fence,
    /// Its name, with a random part: a process that restarts under the same pid is another worker.
    pub name: String,
    /// When it enrolled.
    pub enrolled_at: Timestamp,
    /// Until when it is alive, by the store's clock, if it has a lease.
    pub lease_until: Option<Timestamp>,
    /// Since when its writes are void.
    pub ended_at: Option<Timestamp>,
    /// It ended in order: it was not killed by what it left.
    pub retired: bool,
    /// Nothing of it is left to be taken over.
    pub settled: bool,
    /// It publishes what is in the outbox.
    pub publishes: bool,
    /// The version of counterfoil that it runs. None of an engine that did not say so.
    pub version: Option<String>,
}

/// What a worker that shares its store looks at from time to time, read in one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// What time it is by the store's clock, which alone measures leases.
    pub time: Timestamp,
    /// The workers that have not ended, and those that have and are not yet settled, in the order of their fences.
    pub workers: Vec<Worker>,
    /// The earliest instant that any waiting run, schedule, queue or confirming lookup waits for.
    pub next_due: Option<Timestamp>,
    /// Some run waits in a queue.
    pub queued: bool,
    /// Some event waits to be published.
    pub unpublished: bool,
    /// The ledger is taken for older than the world.
    pub restored: bool,
}

impl Worker {
    /// The version of counterfoil that a worker of this build runs: a store writes it down when the worker enrols.
    pub const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Readable for Worker {
    const TABLE: &'static Table = &Table {
        name: "worker",
        key: &["fence"],
        with: &[],
        law: Law::Own,
        columns: &[
            number("fence"),
            text("name"),
            number("enrolled_at"),
            number("lease_until"),
            number("ended_at"),
            flag("retired"),
            flag("settled"),
            flag("publishes"),
            text("version"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        let fence = Fence(values.number()?);
        Self::with(fence, values)
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Worker {
    /// The rest of the row of this one.
    pub(super) fn with(fence: Fence, values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            fence,
            name: values.text()?,
            enrolled_at: values.time()?,
            lease_until: values.some_time()?,
            ended_at: values.some_time()?,
            retired: values.flag()?,
            settled: values.flag()?,
            publishes: values.flag()?,
            version: values.some_text()?,
        })
    }

    pub(super) async fn find<D: Reader>(on: &Queries<D>, name: &str) -> Result<Option<Self>, StoreError> {
        on.row("WHERE name = $1", &[name.into()]).await
    }

    /// Those that have not ended, and those of which something may be left.
    #[cfg(feature = "sqlite")]
    pub(super) async fn open<D: Reader>(on: &Queries<D>) -> Result<Vec<Self>, StoreError> {
        on.rows("WHERE NOT settled ORDER BY fence", &[]).await
    }

    pub(super) async fn at<D: Reader>(on: &Queries<D>, fence: Fence) -> Result<Option<Self>, StoreError> {
        on.row("WHERE fence = $1", &[fence.0.into()]).await
    }
}
