//! Truth values and numbers in the file. A text that looks like one of them is refused.

use std::fmt;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// `true` or `false`, without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub(in crate::rim) struct Truth(bool);

impl Truth {
    pub(in crate::rim) const fn is_true(self) -> bool {
        self.0
    }
}

impl<'de> Deserialize<'de> for Truth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reading;
        impl Visitor<'_> for Reading {
            type Value = Truth;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true` or `false`")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Truth, E> {
                Ok(Truth(value))
            }
        }
        deserializer.deserialize_any(Reading)
    }
}

/// A whole number from 1 on, without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(in crate::rim) struct Count(NonZeroU32);

impl Count {
    pub(in crate::rim) const fn get(self) -> u32 {
        self.0.get()
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reading;
        impl Visitor<'_> for Reading {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 1 to 4294967295")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Count, E> {
                let count = u32::try_from(value).ok().and_then(NonZeroU32::new).map(Count);
                count.ok_or_else(|| {
                    E::custom("the number is out of range; write a whole number from 1 to 4294967295")
                })
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Count, E> {
                self.visit_u64(u64::try_from(value).unwrap_or(0))
            }
        }
        deserializer.deserialize_any(Reading)
    }
}

impl JsonSchema for Count {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 1, "maximum": u32::MAX })
    }
}
