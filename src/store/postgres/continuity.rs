//! The origin of the rows: the database, its server, and the timeline of the server.
//!
//! The origin reveals a dump that was read back, a copied database, a server that was recovered up to an earlier
//! instant, and a promoted standby. It does not reveal that a disk or a snapshot was put back: from the server's view
//! it only recovers from a crash. A live worker notices that by its own row (`exec/pulse`).

use super::{Columns, Postgres, StoreError};
use crate::ledger::Origin;
use crate::store::row::Take as _;

/// The query for the origin of the rows, with the expression for the number of the system.
macro_rules! with_system {
    ($system:literal, $from:literal) => {
        concat!(
            "SELECT ",
            $system,
            ", (SELECT oid::bigint FROM pg_database WHERE datname = current_database()), \
             'record'::regclass::oid::bigint, \
             ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint, \
             current_setting('synchronous_standby_names') <> '', \
             concat(current_setting('recovery_target', true), current_setting('recovery_target_time', true), \
             current_setting('recovery_target_name', true), current_setting('recovery_target_xid', true), \
             current_setting('recovery_target_lsn', true)) <> '' FROM ",
            $from
        )
    };
}

impl Postgres {
    /// The origin of the rows; `None` if the server does not tell it.
    pub(crate) async fn origin(&self) -> Result<Option<Origin>, StoreError> {
        if self.connector.options.distributed {
            return Ok(None);
        }
        let row = match self
            .readers
            .optional(|| sqlx::query(with_system!("system_identifier::text", "pg_control_system()")))
            .await
        {
            // A role may lack the right to read the system's number: the rest of the query needs no right.
            Err(StoreError::Io { .. }) => {
                self.readers.optional(|| sqlx::query(with_system!("''", "(SELECT 1) AS one"))).await
            }
            answered => answered,
        };
        let row = match row {
            Ok(row) => row,
            Err(StoreError::Io { detail }) => {
                tracing::warn!(detail, "server does not say where its log is, a restore is not recognised");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Some(row) = row else { return Ok(None) };
        let mut c = Columns::of("origin", &row);
        Ok(Some(Origin {
            system: c.cell()?,
            database: c.take()?,
            table: c.take()?,
            timeline: c.take()?,
            synchronous: c.take()?,
            recovered_in_part: c.take()?,
        }))
    }
}
