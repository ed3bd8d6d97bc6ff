//! The keys that the encrypted texts of a database name.

use std::collections::BTreeMap;

use sqlx::AssertSqlSafe;

use super::pool::Pool;
use super::{Columns, StoreError};
use crate::payload::NAMES_KEY;
use crate::store::row::Take as _;
use crate::store::table::texts;

/// Has the server read all texts: they may be too many to be sent.
pub(super) async fn named_keys(pool: &Pool) -> Result<BTreeMap<(String, String), u64>, StoreError> {
    let mut named = BTreeMap::new();
    for (table, column) in texts() {
        let sql = format!(
            "SELECT t.tenant, m[1], count(*) FROM {table} t, regexp_matches(t.{column}, '{NAMES_KEY}', 'g') AS m \
             GROUP BY t.tenant, m[1]"
        );
        for row in &pool.once(sqlx::query(AssertSqlSafe(sql)).persistent(false)).await? {
            let mut columns = Columns::of(table, row);
            let place: (String, String) = (columns.cell()?, columns.cell()?);
            *named.entry(place).or_default() += columns.cell::<u64>()?;
        }
    }
    Ok(named)
}
