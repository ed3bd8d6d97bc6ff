//! The tables, each declared by its row type: a field of the row is one column or several, and the mapping is written
//! once.

use std::hash::Hash;
use std::sync::Arc;

use serde::Serialize;

use super::row::{Given, Put, Take};
use super::table::{Column, Kind, Table};
use super::{Answer, ContactResult, QuestionKind, ScheduleState, StepKind, StoreError, WaitsOn};
use crate::clock::Timestamp;
use crate::id::{DeclarationId, Fence, Name, QuestionId, RecordId, RunId, RunNumber, Tenant};
use crate::ledger::{Approval, Basis, EffectClass, ErrorKind, OperationKey, Reason, RequestHash, Scopes};
use crate::payload::{DigestKey, Payload, Stored};
use crate::trace::TraceContext;

/// The row of a declared table.
pub(in crate::store) trait Declared: Sized + Send {
    const TABLE: &'static Table;

    /// Reads a row from the values, in the order of the table's columns.
    fn take(values: &mut impl Take) -> Result<Self, StoreError>;

    /// Gives the values of the row, in the order of the table's columns.
    fn put(&self, values: &mut impl Put);

    /// The key that distinguishes the rows of the table.
    fn place(&self) -> impl Ord + Hash;

    /// The revision of the row, if its rows count their changes.
    fn revision(&self) -> u32;
}

/// Declares the table of a row: its name, the law by which it is written, the columns that distinguish its rows, the
/// columns that must be equal to the stored ones (`with`) for a change to be of that row, and the fields in the order
/// of their columns. A field of several columns names them; a column that no change alters is `fixed`. The flags
/// after the fields are unset in every new row.
macro_rules! table {
    ($row:ident in $name:literal, $law:ident by ($($key:ident),+) $(with ($($with:ident),+))? {
        $($field:ident $([$($columns:tt)+])? $($fixed:ident)?),+ $(; $($flag:ident),+)?
    }) => {
        impl $crate::store::cell::Declared for $row {
            const TABLE: &'static $crate::store::table::Table = &$crate::store::table::Table {
                name: $name,
                key: &[$(stringify!($key)),+],
                with: &[$($(stringify!($with)),+)?],
                law: $crate::store::table::Law::$law,
                columns: $crate::store::cell::columns!(
                    $row [] $($field $([$($columns)+])? $($fixed)?,)+ $($(flag [$flag flag],)+)?
                ),
            };

            fn take(values: &mut impl $crate::store::row::Take) -> Result<Self, $crate::store::StoreError> {
                Ok(Self { $($field: $crate::store::cell::Cells::take(values)?),+ })
            }

            fn put(&self, values: &mut impl $crate::store::row::Put) {
                $($crate::store::cell::Cells::put(&self.$field, values);)+
                $($($crate::store::cell::unset(stringify!($flag), values);)+)?
            }

            fn place(&self) -> impl Ord + std::hash::Hash {
                ($(&self.$key,)+)
            }

            $crate::store::cell::revision!($law);
        }
    };
}

/// The columns of the fields, one field after the other.
macro_rules! columns {
    ($row:ident [$($done:expr),*]) => {
        &[$($done),*]
    };
    ($row:ident [$($done:expr),*] $field:ident [$($column:ident $kind:ident $($fixed:ident)?),+], $($rest:tt)*) => {
        $crate::store::cell::columns!(
            $row [$($done,)* $($crate::store::table::$kind(stringify!($column))$(.$fixed())?),+] $($rest)*
        )
    };
    ($row:ident [$($done:expr),*] $field:ident $($fixed:ident)?, $($rest:tt)*) => {
        $crate::store::cell::columns!(
            $row [$($done,)* $crate::store::cell::column(stringify!($field), |row: &$row| &row.$field)$(.$fixed())?]
            $($rest)*
        )
    };
}

macro_rules! revision {
    (Moves) => {
        fn revision(&self) -> u32 {
            self.revision
        }
    };
    ($law:ident) => {
        fn revision(&self) -> u32 {
            1
        }
    };
}

pub(in crate::store) use {columns, revision, table};

/// The column of a field; its kind is derived from the type of the field.
pub(in crate::store) const fn column<R, C: Cell>(name: &'static str, _: fn(&R) -> &C) -> Column {
    Column { name, kind: C::KIND, fixed: false }
}

/// Gives an unset flag.
pub(in crate::store) fn unset(_: &'static str, values: &mut impl Put) {
    values.give(Given::Flag(false));
}

/// A value that is stored in one column.
pub(in crate::store) trait Cell: Sized {
    const KIND: Kind;

    fn put(&self, values: &mut impl Put);

    /// The value, or `None` if the column is NULL.
    fn some(values: &mut impl Take) -> Result<Option<Self>, StoreError>;

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Self::some(values)?.ok_or_else(|| values.unknown())
    }
}

impl<C: Cell> Cell for Option<C> {
    const KIND: Kind = C::KIND;

    fn put(&self, values: &mut impl Put) {
        match self {
            Some(cell) => cell.put(values),
            None => values.give(Given::Null(C::KIND)),
        }
    }

    fn some(values: &mut impl Take) -> Result<Option<Self>, StoreError> {
        C::some(values).map(Some)
    }
}

/// A value that is stored in one column or in several.
pub(in crate::store) trait Cells: Sized {
    fn put(&self, values: &mut impl Put);
    fn take(values: &mut impl Take) -> Result<Self, StoreError>;
}

impl<C: Cell> Cells for C {
    fn put(&self, values: &mut impl Put) {
        Cell::put(self, values);
    }

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Cell::take(values)
    }
}

/// Declares cells of one kind: for each type, the value given to the database, and the way it is read back.
macro_rules! cells {
    ($kind:ident by $read_as:ident: $($cell:ty: $given:expr, $read:expr;)+) => {
        $(impl Cell for $cell {
            const KIND: Kind = Kind::$kind;

            fn put(&self, values: &mut impl Put) {
                let given: fn(&Self) -> Given<'_> = $given;
                if !values.skips() {
                    values.give(given(self));
                }
            }

            fn some(values: &mut impl Take) -> Result<Option<Self>, StoreError> {
                values.$read_as($read)
            }
        })+
    };
}

cells! { Text by text:
    String: |text| Given::Text(text), |text| Some(text.to_owned());
    Arc<str>: |text| text.clone().into(), |text| Some(text.into());
    Tenant: |tenant| tenant.into(), |text| Self::new(text).ok();
    Name: |name| name.text().into(), |text| Self::new(text).ok();
    OperationKey: |key| key.text().into(), |text| Some(Self::stored(text));
    Stored: |stored| stored.column().into(), Self::from_column;
    Payload: |payload| payload.text().into(), |text| Some(Self::stored(text));
    TraceContext: |context| Arc::<str>::from(context.to_string()).into(), |text| text.parse().ok();
    ErrorKind: |kind| kind.name().into(), Self::named;
    Answer: |answer| as_json(answer).into(), |text| serde_json::from_str(text).ok();
    Box<Approval>: |approval| as_json(approval).into(), |text| serde_json::from_str(text).ok();
    Box<Scopes>: |scopes| as_json(scopes).into(), |text| serde_json::from_str(text).ok();
}

cells! { Bytes by bytes:
    RequestHash: |hash| Given::Owned(hash.column()), Self::from_column;
    Box<[u8]>: |bytes| Given::Bytes(bytes), |bytes| Some(bytes.into());
    DigestKey: |key| Given::Bytes(key.bytes()), |bytes| bytes.try_into().ok().map(Self::new);
}

cells! { Number by number:
    i64: |number| (*number).into(), Some;
    i32: |number| Given::Number((*number).into()), |number| number.try_into().ok();
    u32: |number| (*number).into(), |number| number.try_into().ok();
    u64: |number| Given::Number(number.cast_signed()), |number| number.try_into().ok();
    Timestamp: |at| at.0.into(), |at| Some(Self(at));
    RunNumber: |number| number.0.into(), |number| Some(Self(number));
    RunId: |id| id.0.into(), |id| Some(Self(id));
    RecordId: |id| id.0.into(), |id| Some(Self(id));
    QuestionId: |id| id.0.into(), |id| Some(Self(id));
    DeclarationId: |id| id.0.into(), |id| Some(Self(id));
    Fence: |fence| fence.0.into(), |fence| Some(Self(fence));
    Basis: |basis| basis.code().into(), Self::from_code;
    EffectClass: |class| class.code().into(), Self::from_code;
    QuestionKind: |kind| kind.code().into(), Self::from_code;
    ContactResult: |result| result.code().into(), Self::from_code;
    Reason: |reason| reason.code().into(), Self::from_code;
    ScheduleState: |state| state.code().into(), Self::from_code;
    WaitsOn: |on| on.code().into(), Self::from_code;
    StepKind: |kind| kind.code().into(), Self::from_code;
}

/// Declares an enumeration whose variants have these codes in rows. A code is never used again for another variant.
macro_rules! coded {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $code:literal),+ $(,)? }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])* $variant = $code),+
        }

        impl $name {
            /// All values.
            pub const ALL: [Self; [$($code),+].len()] = [$(Self::$variant),+];

            /// The code that rows hold.
            pub(crate) const fn code(self) -> i64 {
                self as i64
            }

            /// Reads a code back.
            pub(crate) fn from_code(code: i64) -> Option<Self> {
                Self::ALL.into_iter().find(|variant| variant.code() == code)
            }
        }
    };
}

pub(in crate::store) use coded;

impl Cell for bool {
    const KIND: Kind = Kind::Flag;

    fn put(&self, values: &mut impl Put) {
        values.give(Given::Flag(*self));
    }

    fn some(values: &mut impl Take) -> Result<Option<Self>, StoreError> {
        values.flag().map(Some)
    }
}

/// A value as JSON. All stored types can be written as JSON. If one could not, the text names the error and is read
/// back as damage, so that nothing is dropped silently.
pub(in crate::store) fn as_json(value: &impl Serialize) -> Arc<str> {
    serde_json::to_string(value).unwrap_or_else(|error| format!("not written as JSON: {error}")).into()
}
