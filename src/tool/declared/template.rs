//! Texts and JSON values with holes that are filled from a call's input and key.
//!
//! A hole is `{field}`, `{/json/pointer}` into the input, or `{token}`, the call's key. A value is escaped for its place, so
//! it never adds a path segment, a query parameter or a JSON field. `{{` and `}}` are braces.

use serde_json::{Map, Value};

use crate::tool::ToolError;

/// The values for holes: the input of a call, and its key.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    pub(crate) input: &'a Value,
    pub(crate) token: &'a str,
}

#[derive(Clone, Debug)]
pub(crate) enum Hole {
    Token,
    /// A JSON pointer into the input.
    Input(String),
}

impl Hole {
    fn named(name: &str) -> Self {
        match name {
            "token" => Self::Token,
            pointer if pointer.starts_with('/') => Self::Input(pointer.to_owned()),
            field => Self::Input(format!("/{}", field.replace('~', "~0").replace('/', "~1"))),
        }
    }

    /// The value of the hole. The message of an error names the field and never shows a value.
    fn value(&self, values: Values<'_>) -> Result<Value, ToolError> {
        match self {
            Self::Token => Ok(values.token.into()),
            Self::Input(pointer) => values
                .input
                .pointer(pointer)
                .cloned()
                .ok_or_else(|| ToolError::refused(format!("not sent: the input has no {pointer:?}"))),
        }
    }

    /// The value as a text.
    pub(crate) fn text(&self, values: Values<'_>) -> Result<String, ToolError> {
        match (self.value(values)?, self) {
            (Value::String(text), _) => Ok(text),
            (value @ (Value::Number(_) | Value::Bool(_)), _) => Ok(value.to_string()),
            (_, Self::Token) => Ok(values.token.to_owned()),
            (_, Self::Input(pointer)) => Err(ToolError::refused(format!(
                "not sent: {pointer:?} in the input is neither text nor number"
            ))),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Literal(String),
    Hole(Hole),
}

/// A text with holes.
#[derive(Clone, Debug)]
pub(crate) struct Text(Vec<Piece>);

impl Text {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let Some((name, after)) = rest.split_once('}').filter(|_| brace == "{") else {
                return Err(format!(
                    "{text:?} has a brace without its partner (write `{{{{` or `}}}}` for a brace)"
                ));
            };
            if name.is_empty() || name.contains('{') {
                return Err(format!(
                    "{text:?} has a hole without a name: write {{field}}, {{/pointer}} or {{token}}"
                ));
            }
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            pieces.push(Piece::Hole(Hole::named(name)));
            rest = after;
        }
        literal.push_str(rest);
        pieces.push(Piece::Literal(literal));
        Ok(Self(pieces))
    }

    /// The text in front of the first hole.
    #[cfg(any(feature = "tool-http", feature = "tool-command"))]
    pub(crate) fn begin(&self) -> &str {
        match self.0.first() {
            Some(Piece::Literal(text)) => text,
            _ => "",
        }
    }

    /// True if the text has a hole.
    pub(crate) fn has_holes(&self) -> bool {
        self.0.len() > 1
    }

    /// True if the call's key has a place in the text.
    pub(crate) fn has_token(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Hole(Hole::Token)))
    }

    pub(crate) fn fill(&self, values: Values<'_>) -> Result<String, ToolError> {
        self.with(|hole| hole.text(values))
    }

    /// The text with these values in its holes.
    pub(crate) fn with<E>(&self, mut value: impl FnMut(&Hole) -> Result<String, E>) -> Result<String, E> {
        self.0.iter().try_fold(String::new(), |mut filled, piece| {
            match piece {
                Piece::Literal(text) => filled.push_str(text),
                Piece::Hole(hole) => filled.push_str(&value(hole)?),
            }
            Ok(filled)
        })
    }

    /// The text with an `x` in each hole.
    #[cfg(feature = "tool-http")]
    pub(crate) fn sample(&self) -> String {
        self.with(|_| Ok::<_, std::convert::Infallible>("x".to_owned()))
            .unwrap_or_else(|never| match never {})
    }
}

/// A JSON value whose texts have holes. A text that is one hole becomes the value itself, with its type.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Literal(Value),
    Text(Text),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    pub(crate) fn parse(value: &Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::Text(Text::parse(text)?),
            Value::Array(items) => Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(fields) => {
                let parsed = fields.iter().map(|(name, value)| Ok((name.clone(), Self::parse(value)?)));
                Self::Object(parsed.collect::<Result<_, String>>()?)
            }
            other => Self::Literal(other.clone()),
        })
    }

    /// True if the call's key has a place in the value.
    pub(crate) fn has_token(&self) -> bool {
        self.has(&Text::has_token)
    }

    /// True if the value has a hole.
    #[cfg(any(feature = "tool-command", all(feature = "mcp", feature = "sqlite")))]
    pub(crate) fn has_holes(&self) -> bool {
        self.has(&Text::has_holes)
    }

    /// True if this is so of any text in the value.
    fn has(&self, is_so: &impl Fn(&Text) -> bool) -> bool {
        match self {
            Self::Literal(_) => false,
            Self::Text(text) => is_so(text),
            Self::List(items) => items.iter().any(|item| item.has(is_so)),
            Self::Object(fields) => fields.iter().any(|(_, value)| value.has(is_so)),
        }
    }

    pub(crate) fn fill(&self, values: Values<'_>) -> Result<Value, ToolError> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            Self::Text(text) => match &text.0[..] {
                [Piece::Literal(before), Piece::Hole(hole), Piece::Literal(after)]
                    if before.is_empty() && after.is_empty() =>
                {
                    hole.value(values)?
                }
                _ => text.fill(values)?.into(),
            },
            Self::List(items) => {
                Value::Array(items.iter().map(|item| item.fill(values)).collect::<Result<_, _>>()?)
            }
            Self::Object(fields) => {
                let filled = fields.iter().map(|(name, value)| Ok((name.clone(), value.fill(values)?)));
                Value::Object(filled.collect::<Result<Map<_, _>, ToolError>>()?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_json_hole_keeps_the_type_of_its_value_and_a_hostile_text_stays_a_text() {
        let template =
            json!({ "cents": "{/cents}", "note": "order {id}", "tags": ["{{x}}", "{token}"], "n": 1 });
        let input = json!({ "cents": 4200, "id": "\",\"cents\":\"1" });
        let body = Json::parse(&template).unwrap();
        assert!(body.has_token());
        let filled = body.fill(Values { input: &input, token: "k1" }).unwrap();
        let note = "order \",\"cents\":\"1";
        assert_eq!(filled, json!({ "cents": 4200, "note": note, "tags": ["{x}", "k1"], "n": 1 }));
    }
}
