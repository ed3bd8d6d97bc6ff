//! A reader for JSON text from outside. Duplicate fields are refused, because they vanish before any hash covers
//! them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::PayloadError;

/// Parses JSON text. Refused are a field that occurs twice in one object, nesting beyond
/// [`MAX_DEPTH`](super::MAX_DEPTH) levels, and an integer that does not fit 64 bits: the parser would turn it into a
/// rounded double.
///
/// ```
/// assert!(counterfoil::payload::parse(r#"{"a": 1, "a": 2}"#).is_err());
/// ```
pub fn parse(text: &str) -> Result<Value, PayloadError> {
    let duplicate = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict(&duplicate).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    let value = value.map_err(|error| match duplicate.take() {
        Some(field) => PayloadError::DuplicateField { field },
        None if error.to_string().starts_with("recursion limit") => {
            PayloadError::TooDeep { max: super::MAX_DEPTH }
        }
        None => PayloadError::NotJson { reason: error.to_string() },
    })?;
    if has_long_digits(text) {
        long_integer(text.trim(), &mut String::from("$"))?;
    }
    Ok(value)
}

/// True if the text has 19 digits in a row: only then can an integer exceed 64 bits, and only then is a second
/// reading needed.
fn has_long_digits(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() >= 19)
}

/// Finds the first integer that the parser has read as a double, and returns its path. The text is valid JSON and not
/// too deep, because it was parsed before.
fn long_integer(text: &str, path: &mut String) -> Result<(), PayloadError> {
    match text.as_bytes().first() {
        Some(b'{') => {
            let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
            fields.iter().try_for_each(|(name, item)| descend(item, path, &format!(".{name}")))
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            items.iter().enumerate().try_for_each(|(i, item)| descend(item, path, &format!("[{i}]")))
        }
        Some(b'-' | b'0'..=b'9')
            if !text.contains(['.', 'e', 'E'])
                && text.parse::<i64>().is_err()
                && text.parse::<u64>().is_err() =>
        {
            let number = text.chars().take(40).collect();
            Err(PayloadError::InexactInteger { path: path.clone(), number })
        }
        _ => Ok(()),
    }
}

fn descend(item: &RawValue, path: &mut String, part: &str) -> Result<(), PayloadError> {
    let length = path.len();
    path.push_str(part);
    long_integer(item.get(), path)?;
    path.truncate(length);
    Ok(())
}

/// Builds a [`Value`] and notes the first duplicate field.
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
