//! The keys that the encrypted texts of a file name.

use std::collections::BTreeMap;

use futures_util::TryStreamExt as _;
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqlitePool;

use super::{Columns, failure};
use crate::payload::Encrypted;
use crate::store::StoreError;
use crate::store::table::texts;

/// Reads all texts, one after another.
pub(super) async fn named_keys(pool: &SqlitePool) -> Result<BTreeMap<(String, String), u64>, StoreError> {
    let mut named = BTreeMap::new();
    for (table, column) in texts() {
        let sql = format!("SELECT tenant, {column} FROM {table} WHERE instr({column}, '~') > 0");
        let mut rows = sqlx::query(AssertSqlSafe(sql)).fetch(pool);
        while let Some(row) = rows.try_next().await.map_err(|e| failure(&e))? {
            let mut columns = Columns::of(table, &row);
            let (tenant, text): (String, String) = (columns.take()?, columns.take()?);
            for key in Encrypted::keys_in(&text) {
                *named.entry((tenant.clone(), key.to_owned())).or_default() += 1;
            }
        }
    }
    Ok(named)
}
