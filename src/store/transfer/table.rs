//! What a database holds, table by table, as a list: the same rows of the same values on both sides.

use futures_util::stream::BoxStream;
use sha2::{Digest as _, Sha256};

use crate::payload::hex;
use crate::store::StoreError;

/// A table that is moved.
#[derive(Debug)]
pub(in crate::store) struct Table {
    pub(in crate::store) name: &'static str,
    /// What its rows are read in the order of. No two are equal.
    pub(in crate::store) key: &'static [&'static str],
    pub(in crate::store) columns: &'static [Column],
}

#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Column {
    pub(in crate::store) name: &'static str,
    pub(in crate::store) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Kind {
    Number,
    Flag,
    Text,
    Bytes,
}

/// A value of any column. A flag is 0 or 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum Value {
    Null,
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The values of a row, in the order of its table's columns.
pub(in crate::store) type Row = Vec<Value>;

/// Rows as they are read, in the order of their table's key.
pub(in crate::store) type Rows<'a> = BoxStream<'a, Result<Row, StoreError>>;

/// All tables. A test compares the columns with those of both databases.
pub(in crate::store) const TABLES: [Table; 24] = [
    Table {
        name: "worker",
        key: &["fence"],
        columns: &[
            number("fence"),
            text("name"),
            number("enrolled_at"),
            number("lease_until"),
            number("ended_at"),
            flag("retired"),
            flag("settled"),
            flag("publishes"),
        ],
    },
    Table { name: "tenant", key: &["tenant"], columns: &[text("tenant"), bytes("digest_key")] },
    Table {
        name: "payload",
        key: &["tenant", "digest"],
        columns: &[text("tenant"), bytes("digest"), text("body"), number("uses")],
    },
    Table {
        name: "record",
        key: &["id"],
        columns: &[
            number("id"),
            text("tenant"),
            text("key"),
            text("operation"),
            number("class"),
            text("request"),
            bytes("request_hash"),
            number("declaration"),
            number("run"),
            number("turn"),
            text("step"),
            text("call_id"),
            number("fence"),
            number("loose"),
            number("revision"),
            number("attempts"),
            number("spent"),
            number("status"),
            number("basis"),
            text("outcome"),
            text("compensation"),
            text("external_ref"),
            number("escalation"),
            number("not_before"),
            number("kept_until"),
            number("created_at"),
            number("updated_at"),
            flag("in_doubt"),
        ],
    },
    Table {
        name: "look",
        key: &["tenant", "record"],
        columns: &[
            text("tenant"),
            number("record"),
            number("revision"),
            number("reason"),
            number("due_at"),
            number("since"),
            number("made"),
            number("tries"),
            flag("missed"),
        ],
    },
    Table {
        name: "evidence",
        key: &["tenant", "record", "fence", "attempt"],
        columns: &[
            text("tenant"),
            number("record"),
            number("fence"),
            number("attempt"),
            text("response"),
            text("external_ref"),
            number("at"),
        ],
    },
    Table {
        name: "run",
        key: &["id"],
        columns: &[
            number("id"),
            text("tenant"),
            text("workflow"),
            number("version"),
            text("key"),
            number("parent"),
            text("input"),
            bytes("input_hash"),
            number("state"),
            number("wake_at"),
            number("waits_on"),
            text("outcome"),
            number("fence"),
            number("revision"),
            number("deaths"),
            number("created_at"),
            number("updated_at"),
            flag("unsettled"),
            number("number"),
            number("base"),
            number("turn"),
            text("queue"),
            text("queue_key"),
            number("priority"),
            number("admitted_at"),
        ],
    },
    Table {
        name: "queue",
        key: &["name"],
        columns: &[text("name"), number("spent_until"), text("served"), number("due_at")],
    },
    Table {
        name: "schedule",
        key: &["tenant", "name"],
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
    },
    Table {
        name: "document",
        key: &["tenant", "kind", "id"],
        columns: &[
            text("tenant"),
            text("kind"),
            text("id"),
            number("revision"),
            flag("open"),
            text("body"),
            number("created_at"),
            number("updated_at"),
        ],
    },
    Table {
        name: "step",
        key: &["tenant", "run", "turn", "kind", "name", "id"],
        columns: &[
            text("tenant"),
            number("run"),
            number("turn"),
            number("kind"),
            text("name"),
            text("id"),
            bytes("input_hash"),
            text("value"),
            number("at"),
        ],
    },
    Table {
        name: "use",
        key: &["tenant", "run", "turn", "record"],
        columns: &[
            text("tenant"),
            number("run"),
            number("record"),
            number("turn"),
            text("step"),
            number("at"),
        ],
    },
    Table {
        name: "signal",
        key: &["tenant", "run", "name", "id"],
        columns: &[
            text("tenant"),
            number("run"),
            text("name"),
            text("id"),
            number("place"),
            text("body"),
            number("at"),
            flag("received"),
        ],
    },
    Table {
        name: "outbox_aggregate",
        key: &["tenant", "name"],
        columns: &[
            text("tenant"),
            text("name"),
            number("last"),
            number("published"),
            number("tries"),
            number("refusals"),
            number("due_at"),
            number("escalation"),
            number("revision"),
        ],
    },
    Table {
        name: "outbox",
        key: &["tenant", "aggregate", "seq"],
        columns: &[
            text("tenant"),
            text("id"),
            text("aggregate"),
            number("seq"),
            text("kind"),
            text("payload"),
            number("created_at"),
        ],
    },
    Table {
        name: "inbox",
        key: &["tenant", "consumer", "message"],
        columns: &[
            text("tenant"),
            text("consumer"),
            text("message"),
            number("state"),
            number("tries"),
            text("result"),
            text("detail"),
            number("escalation"),
            number("at"),
        ],
    },
    Table {
        name: "inbox_try",
        key: &["tenant", "consumer", "message"],
        columns: &[text("tenant"), text("consumer"), text("message"), number("tries"), text("detail")],
    },
    Table {
        name: "inbox_version",
        key: &["tenant", "consumer", "aggregate"],
        columns: &[text("tenant"), text("consumer"), text("aggregate"), number("version")],
    },
    Table {
        name: "escalation",
        key: &["tenant", "id"],
        columns: &[
            text("tenant"),
            number("id"),
            number("record"),
            number("run"),
            number("kind"),
            text("question"),
            number("opened_at"),
            text("answer"),
            text("waiting"),
        ],
    },
    Table {
        name: "memory_shelf",
        key: &["tenant", "subject", "kind"],
        columns: &[text("tenant"), text("subject"), text("kind"), number("place")],
    },
    Table {
        name: "memory",
        key: &["tenant", "id"],
        columns: &[
            text("tenant"),
            number("id"),
            text("subject"),
            text("kind"),
            number("place"),
            text("content"),
            bytes("digest"),
            number("confidence"),
            number("sources"),
            number("created_at"),
            number("updated_at"),
            number("forgotten_at"),
            text("forgotten_by"),
            text("reason"),
        ],
    },
    Table {
        name: "memory_form",
        key: &["tenant", "subject", "kind", "digest"],
        columns: &[text("tenant"), text("subject"), text("kind"), bytes("digest"), number("memory")],
    },
    Table {
        name: "memory_source",
        key: &["tenant", "key"],
        columns: &[
            text("tenant"),
            text("key"),
            number("memory"),
            number("place"),
            bytes("request"),
            text("source"),
            text("content"),
            number("confidence"),
            text("answer"),
            number("at"),
        ],
    },
    Table {
        name: "memory_contradiction",
        key: &["tenant", "memory", "other"],
        columns: &[text("tenant"), number("memory"), number("other"), number("differs")],
    },
];

const fn number(name: &'static str) -> Column {
    Column { name, kind: Kind::Number }
}

const fn flag(name: &'static str) -> Column {
    Column { name, kind: Kind::Flag }
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: Kind::Text }
}

const fn bytes(name: &'static str) -> Column {
    Column { name, kind: Kind::Bytes }
}

impl Table {
    /// The columns of the key with their kinds.
    pub(in crate::store) fn key_columns(&self) -> impl Iterator<Item = Column> {
        self.key.iter().filter_map(|name| self.columns.iter().find(|column| column.name == *name)).copied()
    }

    /// All columns, as SQL lists them.
    pub(in crate::store) fn names(&self) -> String {
        self.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
    }
}

impl Value {
    pub(in crate::store) fn number(value: Option<i64>) -> Self {
        value.map_or(Self::Null, Self::Number)
    }

    pub(in crate::store) fn text(value: Option<String>) -> Self {
        value.map_or(Self::Null, Self::Text)
    }

    pub(in crate::store) fn bytes(value: Option<Vec<u8>>) -> Self {
        value.map_or(Self::Null, Self::Bytes)
    }

    /// How much room it takes, nearly.
    pub(in crate::store) fn len(&self) -> usize {
        match self {
            Self::Null | Self::Number(_) => 8,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// The digest of a table: of all values of all rows, in the order of the key.
#[derive(Default)]
pub(in crate::store) struct TableDigest {
    hash: Sha256,
    rows: u64,
}

impl TableDigest {
    /// Each value goes in with its kind and its length, so that no two rows look alike.
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
