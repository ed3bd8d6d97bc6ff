//! Templates of a lookup: texts in which `{key}` stands for the reference of the operation, and `{/title}` for an
//! argument of the call.

use serde_json::{Map, Value};

use crate::tool::declared::holds_secret;

/// The values that a template is filled with.
pub(super) struct Values<'v> {
    pub(super) key: &'v str,
    pub(super) arguments: &'v Value,
}

impl Values<'_> {
    /// The template with its values. A text that is one placeholder becomes the value itself; an argument that is
    /// absent is `null`, and within a text nothing.
    pub(super) fn fill(&self, template: &Value) -> Value {
        match template {
            Value::String(text) => match placeholder(text) {
                Some((0, name, end)) if end == text.len() => self.named(name),
                _ => self.fill_text(text).into(),
            },
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (name.clone(), self.fill(value)))
                .collect::<Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }

    /// The text with its values.
    pub(super) fn fill_text(&self, text: &str) -> String {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((begin, name, end)) = placeholder(rest) {
            filled.push_str(&rest[..begin]);
            match self.named(name) {
                Value::Null => {}
                Value::String(value) => filled.push_str(&value),
                value => filled.push_str(&value.to_string()),
            }
            rest = &rest[end..];
        }
        filled + rest
    }

    /// True if the call has all arguments that the template names, as they were sent.
    pub(super) fn has_all(&self, template: &Value) -> bool {
        names_in(template).into_iter().all(|name| self.has(name))
    }

    /// True if the call has all arguments that the text names, as they were sent.
    pub(super) fn has_all_of(&self, text: &str) -> bool {
        names(text).all(|name| self.has(name))
    }

    /// True if the template names an argument that is not kept: nobody knows its value when the call is read back from its record.
    pub(super) fn names_secret(&self, template: &Value) -> bool {
        names_in(template).into_iter().any(|name| holds_secret(&self.named(name)))
    }

    fn has(&self, name: &str) -> bool {
        let value = self.named(name);
        !value.is_null() && !holds_secret(&value)
    }

    fn named(&self, name: &str) -> Value {
        if name == "key" {
            self.key.into()
        } else {
            self.arguments.pointer(name).cloned().unwrap_or_default()
        }
    }
}

/// The names in the placeholders of a text.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, name, end) = placeholder(rest)?;
        rest = &rest[end..];
        Some(name)
    })
}

/// The names in the placeholders of a template.
pub(super) fn names_in(template: &Value) -> Vec<&str> {
    match template {
        Value::String(text) => names(text).collect(),
        Value::Array(items) => items.iter().flat_map(names_in).collect(),
        Value::Object(fields) => fields.values().flat_map(names_in).collect(),
        _ => Vec::new(),
    }
}

/// The first placeholder of a text: its begin, its name and its end. Other braces are text.
fn placeholder(text: &str) -> Option<(usize, &str, usize)> {
    text.match_indices('{').find_map(|(begin, _)| {
        let name = text[begin + 1..].split_once('}')?.0;
        (name == "key" || name.starts_with('/')).then(|| (begin, name, begin + name.len() + 2))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn placeholders_are_filled_and_other_braces_are_text() {
        let values = Values { key: "k1", arguments: &json!({ "title": "Tea", "n": 3 }) };
        assert_eq!(values.fill(&json!("{/n}")), json!(3));
        assert_eq!(values.fill(&json!("{/absent}")), Value::Null);
        let template = json!({ "query": ["{\"ref\": \"{key}\"}", "{/title} × {/n}{/absent}"], "limit": 2 });
        assert_eq!(values.fill(&template), json!({ "query": ["{\"ref\": \"k1\"}", "Tea × 3"], "limit": 2 }));
    }

    #[test]
    fn a_value_is_not_a_template() {
        let values = Values { key: "k1", arguments: &json!({ "title": "{key}" }) };
        assert_eq!(values.fill_text("{/title}"), "{key}");
    }
}
