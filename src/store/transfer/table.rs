//! The rows of a database as values: the same rows on both sides.

use futures_util::stream::BoxStream;
use sha2::{Digest as _, Sha256};

use crate::payload::hex;
use crate::store::StoreError;
use crate::store::row::Take;
use crate::store::table::{Column, Kind};

/// A value of any column. A flag is stored as 0 or 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum Value {
    Null,
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The values of a row, in the order of its table's columns.
pub(in crate::store) type Row = Vec<Value>;

/// A stream of rows, in the order of their table's key.
pub(in crate::store) type Rows<'a> = BoxStream<'a, Result<Row, StoreError>>;

impl Value {
    /// The approximate size of the value, in bytes.
    pub(in crate::store) fn len(&self) -> usize {
        match self {
            Self::Null | Self::Number(_) => 8,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// Reads the values of these columns.
pub(in crate::store) fn read(
    columns: impl Iterator<Item = Column>,
    values: &mut impl Take,
) -> Result<Row, StoreError> {
    let read = |column: Column| {
        let value = match column.kind {
            Kind::Number => values.number(|number| Some(Value::Number(number))),
            Kind::Flag => values.flag().map(|flag| Some(Value::Number(flag.into()))),
            Kind::Text => values.text(|text| Some(Value::Text(text.to_owned()))),
            Kind::Bytes => values.bytes(|bytes| Some(Value::Bytes(bytes.to_vec()))),
        };
        Ok(value?.unwrap_or(Value::Null))
    };
    columns.map(read).collect()
}

/// The digest of a table: over all values of all rows, in the order of the key.
#[derive(Default)]
pub(in crate::store) struct TableDigest {
    hash: Sha256,
    rows: u64,
}

impl TableDigest {
    /// Adds a row. Each value is hashed with its kind and its length, so that no two different rows look alike.
    pub(in crate::store) fn add(&mut self, row: &Row) {
        self.rows += 1;
        for value in row {
            let (kind, bytes): (u8, &[u8]) = match value {
                Value::Null => (0, &[]),
                Value::Number(number) => (1, &number.to_be_bytes()),
                Value::Text(text) => (2, text.as_bytes()),
                Value::Bytes(bytes) => (3, bytes),
            };
            self.hash.update([kind]);
            self.hash.update((bytes.len() as u64).to_be_bytes());
            self.hash.update(bytes);
        }
    }

    pub(in crate::store) const fn rows(&self) -> u64 {
        self.rows
    }

    pub(in crate::store) fn finish(self) -> String {
        hex(&self.hash.finalize())
    }
}
