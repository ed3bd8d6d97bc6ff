//! Names of tables and columns: what cannot be one is refused when the sink is built.

use counterfoil::{EventField, SqlSink, SqlSinkError};
use sqlx::SqlitePool;

use super::MINUTE;

fn sink(table: &str) -> Result<SqlSink, SqlSinkError> {
    SqlSink::sqlite(SqlitePool::connect_lazy("sqlite::memory:").unwrap(), table, MINUTE)
}

#[tokio::test]
async fn names_that_no_database_has_are_refused() {
    let long = "x".repeat(64);
    for wrong in ["", ".", "a.", ".a", "a..b", "a\0b", &long] {
        assert!(matches!(sink(wrong), Err(SqlSinkError::Name { .. })), "{wrong:?}");
        if !wrong.contains('.') {
            let columns = sink("event").unwrap().columns([(EventField::Id, wrong)]);
            assert!(matches!(columns, Err(SqlSinkError::Name { .. })), "{wrong:?}");
        }
    }
    assert!(sink(&long[1..]).is_ok());
}

#[tokio::test]
async fn a_column_stands_there_once() {
    let twice = sink("event").unwrap().columns([(EventField::Id, "id"), (EventField::Kind, "ID")]);
    assert_eq!(twice.unwrap_err(), SqlSinkError::Twice { name: "ID".into() });
}

#[tokio::test]
async fn rows_can_be_told_apart() {
    let sink = || sink("event").unwrap();
    let missing = |field| SqlSinkError::Missing { field };
    assert_eq!(sink().columns([(EventField::Kind, "kind")]).unwrap_err(), missing(EventField::Id));
    let no_seq = sink().columns([(EventField::Id, "id"), (EventField::Aggregate, "of")]).unwrap();
    assert_eq!(no_seq.newest_of_each_aggregate().unwrap_err(), missing(EventField::Seq));
    let newest = sink().newest_of_each_aggregate().unwrap();
    let columns = [(EventField::Seq, "seq"), (EventField::Kind, "kind")];
    assert_eq!(newest.columns(columns).unwrap_err(), missing(EventField::Aggregate));
}
