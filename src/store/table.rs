//! Tables, each declared once: its columns, and its key.

use super::cell::Declared as _;
use super::chain::Link;
use super::{
    Aggregate, Contact, Document, Evidence, OutboxEvent, PublishedValue, Question, RecordLabel, Run,
    RunLabel, Schedule, SharedEffect, Signal, Step, Worker,
};
use crate::ledger::{Look, Record};

/// The declaration of a table.
#[derive(Debug)]
pub(in crate::store) struct Table {
    pub(in crate::store) name: &'static str,
    /// The columns that distinguish its rows, in the order in which they are moved to another database.
    pub(in crate::store) key: &'static [&'static str],
    /// The columns that must also be equal to the stored ones for a change to be of that row: a position might be
    /// that of another tenant's row. Several of these are unique themselves, and a new row is recognised by them.
    pub(in crate::store) with: &'static [&'static str],
    pub(in crate::store) law: Law,
    pub(in crate::store) columns: &'static [Column],
}

/// The law by which rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Law {
    /// Rows count their changes: the first is a new row, and each later one follows the one before.
    Moves,
    /// Each row is new.
    Once,
    /// A row that is there is kept.
    Keep,
    /// A row that is there is kept, and a fenced worker may write a new one.
    Note,
    /// The table has statements of its own.
    Own,
}

const OWN: Table = Table { name: "", key: &[], with: &[], law: Law::Own, columns: &[] };

/// The column of a row that counts its changes.
pub(in crate::store) const REVISION: &str = "revision";

#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Column {
    pub(in crate::store) name: &'static str,
    pub(in crate::store) kind: Kind,
    /// True if no change alters the column.
    pub(in crate::store) fixed: bool,
}

impl Column {
    pub(in crate::store) const fn fixed(self) -> Self {
        Self { fixed: true, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Kind {
    Number,
    Flag,
    Text,
    Bytes,
}

/// All tables. A test compares the columns with those of both databases.
pub(in crate::store) static TABLES: [&Table; 24] = [
    Worker::TABLE,
    &Table { name: "tenant", key: &["tenant"], columns: &[text("tenant"), bytes("digest_key")], ..OWN },
    &Table {
        name: "payload",
        key: &["tenant", "digest"],
        columns: &[text("tenant"), bytes("digest"), text("body"), number("uses")],
        ..OWN
    },
    Record::TABLE,
    Look::TABLE,
    Contact::TABLE,
    RecordLabel::TABLE,
    Evidence::TABLE,
    Link::TABLE,
    Run::TABLE,
    RunLabel::TABLE,
    &Table {
        name: "queue",
        key: &["name"],
        columns: &[text("name"), number("spent_until"), text("served"), number("due_at")],
        ..OWN
    },
    Schedule::TABLE,
    Document::TABLE,
    Step::TABLE,
    SharedEffect::TABLE,
    Signal::TABLE,
    PublishedValue::TABLE,
    Aggregate::TABLE,
    OutboxEvent::TABLE,
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
        ..OWN
    },
    &Table {
        name: "inbox_try",
        key: &["tenant", "consumer", "message"],
        columns: &[text("tenant"), text("consumer"), text("message"), number("tries"), text("detail")],
        ..OWN
    },
    &Table {
        name: "inbox_version",
        key: &["tenant", "consumer", "aggregate"],
        columns: &[text("tenant"), text("consumer"), text("aggregate"), number("version")],
        ..OWN
    },
    Question::TABLE,
];

pub(in crate::store) const fn number(name: &'static str) -> Column {
    Column { name, kind: Kind::Number, fixed: false }
}

pub(in crate::store) const fn flag(name: &'static str) -> Column {
    Column { name, kind: Kind::Flag, fixed: false }
}

pub(in crate::store) const fn text(name: &'static str) -> Column {
    Column { name, kind: Kind::Text, fixed: false }
}

pub(in crate::store) const fn bytes(name: &'static str) -> Column {
    Column { name, kind: Kind::Bytes, fixed: false }
}

/// The columns of tenants' rows that may hold encrypted texts, each with its table: those of text that do not identify
/// the row.
pub(in crate::store) fn texts() -> impl Iterator<Item = (&'static str, &'static str)> {
    let has_tenant = |table: &Table| table.columns.iter().any(|column| column.name == "tenant");
    TABLES.into_iter().filter(move |table| has_tenant(table)).flat_map(|table| {
        let texts = table.columns.iter().filter(|column| column.kind == Kind::Text);
        texts.filter(move |column| !table.tells(column.name)).map(move |column| (table.name, column.name))
    })
}

impl Table {
    /// The columns of the key with their kinds.
    pub(in crate::store) fn key_columns(&self) -> impl Iterator<Item = Column> {
        self.key.iter().filter_map(|name| self.columns.iter().find(|column| column.name == *name)).copied()
    }

    /// A query for the rows of the table. `behind` is the text behind the table's name.
    pub(in crate::store) fn select(&self, behind: &str) -> String {
        format!("SELECT {} FROM {} {behind}", self.names(), self.name)
    }

    /// A query for the row that a change is of. Its arguments are the values of the identifying columns, in their
    /// order.
    pub(in crate::store) fn select_one(&self) -> String {
        let names = self.columns.iter().map(|column| column.name).filter(|name| self.tells(name));
        let told: Vec<_> = names.zip(1..).map(|(name, number)| format!("{name} = ${number}")).collect();
        self.select(&format!("WHERE {}", told.join(" AND ")))
    }

    /// True if the column identifies the row that a change is of.
    pub(in crate::store) fn tells(&self, name: &str) -> bool {
        self.key.contains(&name) || self.with.contains(&name)
    }

    /// The assignments of a change: all columns but the identifying ones, the fixed ones and the revision.
    pub(in crate::store) fn changed(&self) -> String {
        let changing = self.columns.iter().filter(|c| !c.fixed && !self.tells(c.name) && c.name != REVISION);
        changing.map(|Column { name, .. }| format!("{name} = excluded.{name}")).collect::<Vec<_>>().join(", ")
    }

    /// The columns for which `which` is true.
    pub(in crate::store) fn choose(&self, which: impl Fn(&Column) -> bool) -> Chosen {
        let bits = self.columns.iter().enumerate().filter(|(_, column)| which(column));
        Chosen(bits.fold(0, |bits, (at, _)| bits | 1 << at))
    }

    /// All columns, as SQL lists them.
    pub(in crate::store) fn names(&self) -> String {
        self.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
    }
}

/// A set of a table's columns, of which there are at most 64.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct Chosen(u64);

impl Chosen {
    pub(in crate::store) const fn has(self, place: u32) -> bool {
        self.0 >> place & 1 == 1
    }

    /// The chosen columns, in the order of their declaration.
    pub(in crate::store) fn of(self, table: &'static Table) -> impl Iterator<Item = Column> {
        table.columns.iter().zip(0..).filter(move |(_, place)| self.has(*place)).map(|(column, _)| *column)
    }
}
