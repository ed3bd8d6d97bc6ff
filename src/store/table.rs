//! Tables, each declared once: its columns, and its key.

use super::row::Readable as _;
use super::{Document, Escalation, Run, Schedule, Signal};
use crate::ledger::Look;

/// A table.
#[derive(Debug)]
pub(in crate::store) struct Table {
    pub(in crate::store) name: &'static str,
    /// The columns that tell its rows apart, in the order in which rows are read and locked.
    pub(in crate::store) key: &'static [&'static str],
    pub(in crate::store) columns: &'static [Column],
}

/// The column of a row that counts its changes.
pub(in crate::store) const REVISION: &str = "revision";

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

/// All tables. A test compares the columns with those of both databases.
pub(in crate::store) static TABLES: [&Table; 19] = [
    &Table {
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
    &Table { name: "tenant", key: &["tenant"], columns: &[text("tenant"), bytes("digest_key")] },
    &Table {
        name: "payload",
        key: &["tenant", "digest"],
        columns: &[text("tenant"), bytes("digest"), text("body"), number("uses")],
    },
    &Table {
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
    Look::TABLE,
    &Table {
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
    Run::TABLE,
    &Table {
        name: "queue",
        key: &["name"],
        columns: &[text("name"), number("spent_until"), text("served"), number("due_at")],
    },
    Schedule::TABLE,
    Document::TABLE,
    &Table {
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
    &Table {
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
    Signal::TABLE,
    &Table {
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
    &Table {
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
    &Table {
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
    &Table {
        name: "inbox_try",
        key: &["tenant", "consumer", "message"],
        columns: &[text("tenant"), text("consumer"), text("message"), number("tries"), text("detail")],
    },
    &Table {
        name: "inbox_version",
        key: &["tenant", "consumer", "aggregate"],
        columns: &[text("tenant"), text("consumer"), text("aggregate"), number("version")],
    },
    Escalation::TABLE,
];

pub(in crate::store) const fn number(name: &'static str) -> Column {
    Column { name, kind: Kind::Number }
}

pub(in crate::store) const fn flag(name: &'static str) -> Column {
    Column { name, kind: Kind::Flag }
}

pub(in crate::store) const fn text(name: &'static str) -> Column {
    Column { name, kind: Kind::Text }
}

pub(in crate::store) const fn bytes(name: &'static str) -> Column {
    Column { name, kind: Kind::Bytes }
}

impl Table {
    /// The columns of the key with their kinds.
    pub(in crate::store) fn key_columns(&self) -> impl Iterator<Item = Column> {
        self.key.iter().filter_map(|name| self.columns.iter().find(|column| column.name == *name)).copied()
    }

    /// A query for its rows. The text goes on behind the table's name.
    pub(in crate::store) fn select(&self, behind: &str) -> String {
        format!("SELECT {} FROM {} {behind}", self.names(), self.name)
    }

    /// A query for the row with a key. Its arguments are the values of the key, in the order of the columns.
    pub(in crate::store) fn select_one(&self) -> String {
        let key = self.columns.iter().filter(|column| self.key.contains(&column.name)).zip(1..);
        let key: Vec<_> = key.map(|(column, number)| format!("{} = ${number}", column.name)).collect();
        self.select(&format!("WHERE {}", key.join(" AND ")))
    }

    /// What a change of a row sets: all but the key and the revision.
    pub(in crate::store) fn changed(&self) -> String {
        let fixed = |name: &&str| self.key.contains(name) || *name == REVISION;
        let changing = self.columns.iter().map(|column| column.name).filter(|name| !fixed(name));
        changing.map(|name| format!("{name} = excluded.{name}")).collect::<Vec<_>>().join(", ")
    }

    /// All columns, as SQL lists them.
    pub(in crate::store) fn names(&self) -> String {
        self.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
    }
}
