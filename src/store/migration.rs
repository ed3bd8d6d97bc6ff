//! The migrations: the same steps of the schema for both databases.

/// One step of the schema. Never edit a released one.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Migration {
    pub(in crate::store) number: i64,
    pub(in crate::store) name: &'static str,
    #[cfg(feature = "sqlite")]
    pub(in crate::store) sqlite: &'static str,
    #[cfg(feature = "postgres")]
    pub(in crate::store) postgres: &'static str,
    /// The lowest schema version whose engine can work on a database that has this migration. On a server it is stored
    /// beside the migration, so that old engines, which do not know the migration, can read it: during an update old and
    /// new workers share the database. A migration that only adds names the oldest version that can work beside it. A
    /// migration that removes something that old engines use names itself, and is released one release after they
    /// stopped using it.
    #[cfg(feature = "postgres")]
    pub(in crate::store) works_from: i64,
}

macro_rules! migrations {
    ($($number:literal $name:literal in $file:literal, from $works_from:literal;)+) => {
        /// All migrations, in their order.
        pub(in crate::store) const MIGRATIONS: [Migration; [$($number),+].len()] = [$(Migration {
            number: $number,
            name: $name,
            #[cfg(feature = "sqlite")]
            sqlite: include_str!(concat!("../../migrations/sqlite/", $file)),
            #[cfg(feature = "postgres")]
            postgres: include_str!(concat!("../../migrations/postgres/", $file)),
            #[cfg(feature = "postgres")]
            works_from: $works_from,
        }),+];
    };
}

migrations! {
    1 "record" in "0001_record.sql", from 1;
    2 "run" in "0002_run.sql", from 2;
    3 "signal" in "0003_signal.sql", from 3;
    4 "queue" in "0004_queue.sql", from 4;
    5 "schedule" in "0005_schedule.sql", from 5;
    6 "outbox" in "0006_outbox.sql", from 6;
    7 "inbox" in "0007_inbox.sql", from 7;
    8 "document" in "0008_document.sql", from 8;
    // An older engine leaves the column empty.
    9 "worker_version" in "0009_worker_version.sql", from 8;
    // An older engine leaves the columns as they are.
    10 "sealed" in "0010_sealed.sql", from 8;
    // An older engine cancels no run, and obeys the command of an engine that does.
    11 "deadline" in "0011_deadline.sql", from 9;
    // The tools of an older engine have one scope each, and send by that scope.
    12 "scopes" in "0012_scopes.sql", from 9;
    // An older engine cannot read the result of an expired run or message.
    13 "expired" in "0013_expired.sql", from 9;
    // An older engine publishes nothing, and leaves the values of the runs that it retires.
    14 "published" in "0014_published.sql", from 9;
    // An older engine keeps no history of attempts, and leaves that of the records that it retires.
    15 "contact" in "0015_contact.sql", from 9;
    // Indexes alone.
    16 "run_state" in "0016_run_state.sql", from 9;
    // No engine reads the views.
    17 "views" in "0017_views.sql", from 9;
    // An older engine takes a repeat of an expired signal for another signal, and refuses it.
    18 "signal_over" in "0018_signal_over.sql", from 9;
    // The runs of an older engine have traces of their own.
    19 "trace" in "0019_trace.sql", from 9;
    // An older engine gives no labels, and leaves those of the runs that it retires.
    20 "run_label" in "0020_run_label.sql", from 9;
    // An older engine gives no labels, and leaves those of the records that it retires.
    21 "record_label" in "0021_record_label.sql", from 9;
    // Indexes alone.
    22 "charts" in "0022_charts.sql", from 9;
    // An older engine refuses nothing, and its changes have no links: do not share a ledger with a chain with it.
    23 "link" in "0023_link.sql", from 9;
}

/// The schema version of this build.
pub(in crate::store) fn latest() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.number).max().unwrap_or(0)
}
