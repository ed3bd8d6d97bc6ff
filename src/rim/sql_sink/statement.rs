//! The statement that writes an event's row. Pure: checked and quoted names, and parameters.

/// The maximum length of an identifier, in bytes: PostgreSQL silently truncates longer ones.
const LONGEST: usize = 63;

/// A part of an event that a column can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventField {
    /// The event's id, as text.
    Id,
    /// The tenant's name, as text.
    Tenant,
    /// The aggregate, as text.
    Aggregate,
    /// The sequence number in the aggregate, as a 64-bit integer.
    Seq,
    /// The kind, as text.
    Kind,
    /// The payload, as text: canonical JSON.
    Payload,
    /// The payload, as `jsonb` on PostgreSQL; as text on SQLite.
    PayloadJsonb,
    /// The instant at which the event was written, as a 64-bit integer: microseconds since 1970 UTC.
    CreatedAt,
}

/// The reason why a sink cannot be built. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SqlSinkError {
    /// A table or a column has a name that no database accepts.
    #[error(
        "{name:?} is no name of a table or column: 1 to {LONGEST} bytes, without NUL; a table may be `schema.table` [configuration]"
    )]
    Name {
        /// The name as given.
        name: String,
    },
    /// A column occurs twice.
    #[error("the column {name:?} stands there twice: give each field a column of its own [configuration]")]
    Twice {
        /// The name of the column.
        name: String,
    },
    /// A field of the key has no column.
    #[error(
        "no column holds {field:?}: without it a replay cannot be told from a new event; add a column for it [configuration]"
    )]
    Missing {
        /// The field without a column.
        field: EventField,
    },
}

/// The row for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// One row for each event.
    OfEvents,
    /// One row for each aggregate: that of its newest event.
    OfAggregates,
}

/// An SQL statement with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) sql: String,
    /// The event's fields, in the order of the parameters.
    pub(super) parameters: Vec<EventField>,
}

impl Statement {
    /// The statement, which both databases accept. With `jsonb`, a payload may be cast to PostgreSQL's type.
    pub(super) fn new(
        table: &str,
        columns: &[(EventField, String)],
        rows: Rows,
        jsonb: bool,
    ) -> Result<Self, SqlSinkError> {
        let table = table.split('.').map(quoted).collect::<Result<Vec<_>, _>>()?.join(".");
        let names = columns.iter().map(|(_, name)| quoted(name)).collect::<Result<Vec<_>, _>>()?;
        // SQLite ignores the case of names, also in quotes.
        let twice = |at: usize| names[..at].iter().any(|name| name.eq_ignore_ascii_case(&names[at]));
        if let Some(at) = (0..names.len()).find(|at| twice(*at)) {
            return Err(SqlSinkError::Twice { name: columns[at].1.clone() });
        }
        let column = |field: EventField| {
            let place = columns.iter().position(|(of, _)| *of == field);
            place.map(|place| names[place].as_str()).ok_or(SqlSinkError::Missing { field })
        };
        let values: Vec<_> = (1..)
            .zip(columns)
            .map(|(number, (field, _))| match field {
                EventField::PayloadJsonb if jsonb => format!("CAST(${number} AS jsonb)"),
                _ => format!("${number}"),
            })
            .collect();
        // Ids and aggregates are unique within a tenant. If no column holds the tenant, there is only one tenant.
        let (own, otherwise) = match rows {
            Rows::OfEvents => (column(EventField::Id)?, "DO NOTHING".to_owned()),
            Rows::OfAggregates => {
                let seq = column(EventField::Seq)?;
                let sets: Vec<_> = names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
                let newer = format!("DO UPDATE SET {} WHERE target.{seq} < excluded.{seq}", sets.join(", "));
                (column(EventField::Aggregate)?, newer)
            }
        };
        let key: Vec<_> = column(EventField::Tenant).ok().into_iter().chain([own]).collect();
        let sql = format!(
            "INSERT INTO {table} AS target ({}) VALUES ({}) ON CONFLICT ({}) {otherwise}",
            names.join(", "),
            values.join(", "),
            key.join(", "),
        );
        Ok(Self { sql, parameters: columns.iter().map(|(field, _)| *field).collect() })
    }
}

/// The name in quotes, so that the database accepts any characters in it.
fn quoted(name: &str) -> Result<String, SqlSinkError> {
    if name.is_empty() || name.len() > LONGEST || name.contains('\0') {
        return Err(SqlSinkError::Name { name: name.to_owned() });
    }
    Ok(format!("\"{}\"", name.replace('"', "\"\"")))
}
