//! The fields by which a found effect is recognised as the one that was sent.

use serde_json::{Number, Value};

/// The fields by which an effect is recognised besides its token: amount, currency, recipient.
///
/// Another caller may have used the reference, and a provider writes a payload in its own way (other order, other
/// fields, `10.0` for `10`). So the declared fields are compared, not the bytes.
///
/// ```
/// use counterfoil::tool::lookup::Expected;
/// use serde_json::json;
///
/// let expected = Expected::new().field("/amount", 4900).field("/to/email", "a@example.org");
/// let found = json!({"to": {"email": "a@example.org", "name": "A"}, "amount": 4900.0, "id": "p_1"});
/// assert_eq!(expected.difference(&found), None);
/// let other = json!({"to": {"email": "a@example.org"}, "amount": 1});
/// assert_eq!(expected.difference(&other).as_deref(), Some("/amount is 1, and 4900 was sent"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected(Vec<(String, Value)>);

impl Expected {
    /// An expectation without fields: the token alone identifies an effect as ours.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a field: the value at this JSON pointer (RFC 6901) must be equal.
    #[must_use]
    pub fn field(mut self, pointer: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.push((pointer.into(), value.into()));
        self
    }

    /// The first field that differs, in words. `None` if the effect is the one that was sent.
    pub fn difference(&self, found: &Value) -> Option<String> {
        self.0.iter().find_map(|(pointer, sent)| match found.pointer(pointer) {
            None => Some(format!("{pointer} is missing, and {sent} was sent")),
            Some(value) if !same(sent, value) => Some(format!("{pointer} is {value}, and {sent} was sent")),
            Some(_) => None,
        })
    }
}

/// True if the values are equal as JSON, with numbers by their value. Fields that the provider added to an object are
/// ignored.
fn same(sent: &Value, found: &Value) -> bool {
    match (sent, found) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => sent == found,
    }
}

/// Compares whole numbers exactly, and others as floating point.
#[allow(clippy::float_cmp, reason = "the same number, not a close one")]
fn same_number(a: &Number, b: &Number) -> bool {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a == b,
        _ => a.as_f64() == b.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differs(sent: &Value, found: &Value) -> bool {
        Expected::new().field("/x", sent.clone()).difference(&json!({ "x": found })).is_some()
    }

    #[test]
    fn what_a_provider_rewrites_is_the_same() {
        for (sent, found) in [
            (json!(10), json!(10.0)),
            (json!({"a": 1, "b": [1, 2]}), json!({"b": [1.0, 2], "a": 1, "added": true})),
            (json!(null), json!(null)),
        ] {
            assert!(!differs(&sent, &found), "{sent} {found}");
        }
    }

    #[test]
    fn what_is_another_content_is_not() {
        for (sent, found) in [
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992_i64)),
            (json!("10"), json!(10)),
            (json!([1, 2]), json!([2, 1])),
            (json!({"a": 1}), json!({})),
            (json!(null), json!(0)),
        ] {
            assert!(differs(&sent, &found), "{sent} {found}");
        }
        assert!(Expected::new().field("/y", Value::Null).difference(&json!({})).is_some());
    }
}
