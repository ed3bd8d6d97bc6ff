//! The check for values that JSON cannot carry exactly, made on the value itself before anything is written.
//!
//! The canonical text no longer shows such a value: every number in the text has been a double, and a NaN inside a
//! struct or list has become `null`. So a serializer that writes nothing walks the value once.

use std::fmt::Display;

use serde::Serialize;
use serde::ser;

use super::{MAX_DEPTH, MAX_EXACT_INTEGER, PayloadError};

/// Refuses integers that a double cannot carry, NaN, infinity, and nesting that is too deep to be read back.
pub(super) fn check<T: Serialize + ?Sized>(value: &T) -> Result<(), PayloadError> {
    value.serialize(Exact { depth: 0 }).map_err(|flaw| {
        let path = flaw.path.iter().rev().fold(String::from("$"), |path, part| path + part);
        match flaw.what {
            What::Integer(number) => PayloadError::InexactInteger { path, number },
            What::NotFinite(number) => PayloadError::NotJson { reason: format!("{number} at {path}") },
            What::TooDeep => PayloadError::TooDeep { max: MAX_DEPTH },
            What::Other(reason) => PayloadError::NotJson { reason },
        }
    })
}

/// A flaw and its path. The path grows from the inside outwards, and only after a flaw was found.
#[derive(Debug, thiserror::Error)]
#[error("{what:?}")]
struct Flaw {
    what: What,
    path: Vec<String>,
}

#[derive(Debug)]
enum What {
    Integer(String),
    NotFinite(f64),
    TooDeep,
    Other(String),
}

impl From<What> for Flaw {
    fn from(what: What) -> Self {
        Self { what, path: Vec::new() }
    }
}

impl Flaw {
    fn within(mut self, part: impl FnOnce() -> String) -> Self {
        self.path.push(part());
        self
    }
}

impl ser::Error for Flaw {
    fn custom<M: Display>(message: M) -> Self {
        What::Other(message.to_string()).into()
    }
}

#[derive(Clone, Copy)]
struct Exact {
    depth: usize,
}

impl Exact {
    fn open(self, levels: usize) -> Result<Inside, Flaw> {
        let depth = self.depth + levels;
        if depth > MAX_DEPTH {
            return Err(What::TooDeep.into());
        }
        Ok(Inside { item: Self { depth }, index: 0, key: None })
    }

    fn integer(number: impl Display, magnitude: u128) -> Result<(), Flaw> {
        if magnitude > u128::from(MAX_EXACT_INTEGER) {
            return Err(What::Integer(number.to_string()).into());
        }
        Ok(())
    }
}

macro_rules! nothing_to_check {
    ($($method:ident: $type:ty),* $(,)?) => {
        $(fn $method(self, _: $type) -> Result<(), Flaw> {
            Ok(())
        })*
    };
}

impl ser::Serializer for Exact {
    type Ok = ();
    type Error = Flaw;
    type SerializeSeq = Inside;
    type SerializeTuple = Inside;
    type SerializeTupleStruct = Inside;
    type SerializeTupleVariant = Inside;
    type SerializeMap = Inside;
    type SerializeStruct = Inside;
    type SerializeStructVariant = Inside;

    nothing_to_check! {
        serialize_bool: bool,
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_char: char,
        serialize_str: &str,
        serialize_unit_struct: &'static str,
    }

    fn serialize_i64(self, v: i64) -> Result<(), Flaw> {
        Self::integer(v, v.unsigned_abs().into())
    }

    fn serialize_i128(self, v: i128) -> Result<(), Flaw> {
        Self::integer(v, v.unsigned_abs())
    }

    fn serialize_u64(self, v: u64) -> Result<(), Flaw> {
        Self::integer(v, v.into())
    }

    fn serialize_u128(self, v: u128) -> Result<(), Flaw> {
        Self::integer(v, v)
    }

    fn serialize_f32(self, v: f32) -> Result<(), Flaw> {
        self.serialize_f64(v.into())
    }

    fn serialize_f64(self, v: f64) -> Result<(), Flaw> {
        if v.is_finite() { Ok(()) } else { Err(What::NotFinite(v).into()) }
    }

    /// JSON has no bytes: bytes become a list of small numbers.
    fn serialize_bytes(self, _: &[u8]) -> Result<(), Flaw> {
        self.open(1).map(|_| ())
    }

    fn serialize_none(self) -> Result<(), Flaw> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Flaw> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Flaw> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Flaw> {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Flaw> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Flaw> {
        value.serialize(self.open(1)?.item).map_err(|flaw| flaw.within(|| format!(".{variant}")))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Inside, Flaw> {
        self.open(1)
    }

    fn serialize_tuple(self, _: usize) -> Result<Inside, Flaw> {
        self.open(1)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Inside, Flaw> {
        self.open(1)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Inside, Flaw> {
        self.open(2)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Inside, Flaw> {
        self.open(1)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Inside, Flaw> {
        self.open(1)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Inside, Flaw> {
        self.open(2)
    }

    fn collect_str<T: Display + ?Sized>(self, _: &T) -> Result<(), Flaw> {
        Ok(())
    }
}

/// A list or an object that is being walked.
struct Inside {
    item: Exact,
    index: usize,
    key: Option<String>,
}

impl Inside {
    fn at_index<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Flaw> {
        let index = self.index;
        self.index += 1;
        value.serialize(self.item).map_err(|flaw| flaw.within(|| format!("[{index}]")))
    }

    fn at_field<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> Result<(), Flaw> {
        value.serialize(self.item).map_err(|flaw| flaw.within(|| format!(".{name}")))
    }
}

macro_rules! list {
    ($($trait:ident::$method:ident),*) => {
        $(impl ser::$trait for Inside {
            type Ok = ();
            type Error = Flaw;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Flaw> {
                self.at_index(value)
            }
            fn end(self) -> Result<(), Flaw> {
                Ok(())
            }
        })*
    };
}

list!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

macro_rules! fields {
    ($($trait:ident),*) => {
        $(impl ser::$trait for Inside {
            type Ok = ();
            type Error = Flaw;
            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Flaw> {
                self.at_field(name, value)
            }
            fn end(self) -> Result<(), Flaw> {
                Ok(())
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Inside {
    type Ok = ();
    type Error = Flaw;

    /// A number that is a key is written through a double, like any other number.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Flaw> {
        key.serialize(self.item)?;
        self.key = Some(spelled(key));
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Flaw> {
        let key = self.key.take().unwrap_or_default();
        self.at_field(&key, value)
    }

    /// Keys are spelled only if their value has a flaw.
    fn serialize_entry<K, V>(&mut self, key: &K, value: &V) -> Result<(), Flaw>
    where
        K: Serialize + ?Sized,
        V: Serialize + ?Sized,
    {
        key.serialize(self.item)?;
        value.serialize(self.item).map_err(|flaw| flaw.within(|| format!(".{}", spelled(key))))
    }

    fn end(self) -> Result<(), Flaw> {
        Ok(())
    }
}

fn spelled<T: Serialize + ?Sized>(key: &T) -> String {
    match serde_json::to_value(key) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(other) => other.to_string(),
        Err(_) => String::from("?"),
    }
}
