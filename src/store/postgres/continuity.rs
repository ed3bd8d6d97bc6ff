//! Where the rows are: in which database of which server, and on which of its timelines.
//!
//! It tells a dump that was read back, a copied database, a server that was recovered up to an earlier instant, and a standby
//! that was promoted. It cannot tell that a disk or a snapshot of it was put back: the server then only recovers from a crash, as
//! it sees it. A living worker notices that, by its own row (`exec/pulse`).

use super::{Columns, Postgres, StoreError};
use crate::ledger::Origin;
use crate::store::row::Take as _;

/// Where the rows are, with the number of the system as it is asked for.
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
    /// Where the rows are; nothing if the server does not say.
    pub(crate) async fn origin(&self) -> Result<Option<Origin>, StoreError> {
        if self.connector.options.distributed {
            return Ok(None);
        }
        let row = match self
            .readers
            .optional(|| sqlx::query(with_system!("system_identifier::text", "pg_control_system()")))
            .await
        {
            // A role may lack the right to ask for the system: the rest needs none.
            Err(StoreError::Io { .. }) => {
                self.readers.optional(|| sqlx::query(with_system!("''", "(SELECT 1) AS one"))).await
            }
            answered => answered,
        };
        let row = match row {
            Ok(row) => row,
            Err(StoreError::Io { detail }) => {
                tracing::warn!(detail, "the server does not say where it is: a restore is not recognised");
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
