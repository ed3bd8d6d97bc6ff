//! Reading JSON text from outside: duplicate fields are refused, because they vanish before any hash sees them.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::PayloadError;

/// Parses JSON text; a field that stands twice in one object is an error, as is nesting beyond 128 levels.
///
/// ```
/// assert!(counterfoil::payload::parse(r#"{"a": 1, "a": 2}"#).is_err());
/// ```
pub fn parse(text: &str) -> Result<Value, PayloadError> {
    let duplicate = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict(&duplicate)
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| match duplicate.take() {
        Some(field) => PayloadError::DuplicateField { field },
        None if error.to_string().starts_with("recursion limit") => {
            PayloadError::TooDeep { max: super::MAX_DEPTH }
        }
        None => PayloadError::NotJson { reason: error.to_string() },
    })
}

/// Builds a [`Value`], noting the first duplicate field.
struct Strict<'a>(&'a RefCell<Option<String>>);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(Strict(self.0))? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(Strict(self.0))?;
            if object.insert(name.clone(), value).is_some() {
                self.0.replace(Some(name));
                return Err(A::Error::custom("duplicate field"));
            }
        }
        Ok(Value::Object(object))
    }
}
