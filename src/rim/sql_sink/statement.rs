//! The statement that writes an event's row. Pure: names that are checked and quoted, and parameters.

/// The longest identifier, in bytes: PostgreSQL cuts off what is longer, without a word.
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
    /// The place in the aggregate, as a 64-bit integer.
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

/// A sink that cannot be built from these names. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SqlSinkError {
    /// A table or a column has a name that no database has.
    #[error(
        "{name:?} is no name of a table or column: 1 to {LONGEST} bytes, without NUL; a table may be `schema.table`"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A column stands there twice.
    #[error("the column {name:?} stands there twice: give each field a column of its own")]
    Twice {
        /// The column.
        name: String,
    },
    /// A field that tells rows apart has no column.
    #[error(
        "no column holds {field:?}: without it a replay cannot be told from a new event; add a column for it"
    )]
    Missing {
        /// The field.
        field: EventField,
    },
}

/// The row for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// One for each event.
    OfEvents,
    /// One for each aggregate: its newest event.
    OfAggregates,
}

/// A statement with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) sql: String,
    /// The event's fields, in the order of the parameters.
    pub(super) parameters: Vec<EventField>,
}

impl Statement {
    /// Both databases understand it. `jsonb`: a payload may be cast to PostgreSQL's type.
    pub(super) fn new(
        table: &str,
        columns: &[(EventField, String)],
        rows: Rows,
        jsonb: bool,
    ) -> Result<Self, SqlSinkError> {
        let table = table.split('.').map(quoted).collect::<Result<Vec<_>, _>>()?.join(".");
        let names = columns.iter().map(|(_, name)| quoted(name)).collect::<Result<Vec<_>, _>>()?;
        // SQLite does not tell upper from lower case, not even in quotes.
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
        // Ids and aggregates are a tenant's own. Where no column tells tenants apart, there is one tenant.
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

/// A name as the database takes it, whatever stands in it.
fn quoted(name: &str) -> Result<String, SqlSinkError> {
    if name.is_empty() || name.len() > LONGEST || name.contains('\0') {
        return Err(SqlSinkError::Name { name: name.to_owned() });
    }
    Ok(format!("\"{}\"", name.replace('"', "\"\"")))
}
