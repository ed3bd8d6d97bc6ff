//! An amount of money, hours or credits: whole minor units, never a fraction.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::EntryError;

/// An amount in the smallest unit: cents, minutes. Never a float, where 0.1 + 0.2 is not 0.3.
///
/// ```
/// use counterfoil::guard::entries::Amount;
/// let paid = Amount::of(-4900, "EUR cent");
/// assert_eq!(paid.to_string(), "-4900 EUR cent");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// The number of minor units. In JSON a string of digits, which no reader rounds.
    #[serde(serialize_with = "digits", deserialize_with = "from_digits")]
    pub minor: i128,
    /// The unit, such as `EUR cent`.
    pub unit: String,
}

impl Amount {
    /// An amount of `minor` units.
    pub fn of(minor: impl Into<i128>, unit: impl Into<String>) -> Self {
        Self { minor: minor.into(), unit: unit.into() }
    }

    /// The sum of both amounts.
    ///
    /// # Errors
    /// If the units differ, or the sum does not fit.
    pub fn plus(&self, other: &Self) -> Result<Self, EntryError> {
        if self.unit != other.unit {
            return Err(EntryError::Unit { has: self.unit.clone(), given: other.unit.clone() });
        }
        let sum = self.minor.checked_add(other.minor);
        let minor = sum.ok_or_else(|| EntryError::Overflow { balance: self.clone() })?;
        Ok(Self { minor, unit: self.unit.clone() })
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.minor, self.unit)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn digits<S: Serializer>(minor: &i128, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(minor)
}

fn from_digits<'de, D: Deserializer<'de>>(from: D) -> Result<i128, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_amount_is_rounded_in_json() {
        for minor in [0, -1, i128::MAX, i128::MIN, 9_007_199_254_740_993] {
            let amount = Amount::of(minor, "EUR cent");
            let text = serde_json::to_string(&amount).unwrap();
            assert_eq!(serde_json::from_str::<Amount>(&text).unwrap(), amount, "{text}");
        }
        for text in [r#"{"minor":1,"unit":"x"}"#, r#"{"minor":"1.5","unit":"x"}"#] {
            assert!(serde_json::from_str::<Amount>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_sum_is_exact_or_an_error() {
        let cents = |minor: i128| Amount::of(minor, "EUR cent");
        assert_eq!(cents(i128::MAX - 1).plus(&cents(1)).unwrap(), cents(i128::MAX));
        assert!(matches!(cents(i128::MAX).plus(&cents(1)), Err(EntryError::Overflow { .. })));
        assert!(matches!(cents(i128::MIN).plus(&cents(-1)), Err(EntryError::Overflow { .. })));
        assert!(matches!(cents(1).plus(&Amount::of(1, "USD cent")), Err(EntryError::Unit { .. })));
    }
}
