//! Texts, URLs and JSON bodies with holes that are filled from a call's input and key.
//!
//! A hole is `{field}`, `{/json/pointer}` into the input, or `{token}`, the call's key. A value is escaped for its place, so
//! it never adds a path segment, a query parameter or a JSON field. `{{` and `}}` are braces.

use reqwest::Url;
use serde_json::{Map, Value};

use crate::tool::ToolError;
use crate::tool::http::percent;

/// The values for holes: the input of a call, and its key.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    pub(super) input: &'a Value,
    pub(super) token: &'a str,
}

#[derive(Clone, Debug)]
enum Hole {
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

    fn text(&self, values: Values<'_>) -> Result<String, ToolError> {
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
enum Piece {
    Literal(String),
    Hole(Hole),
}

/// A text with holes.
#[derive(Clone, Debug)]
pub(super) struct Text(Vec<Piece>);

impl Text {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
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

    /// True if the call's key has a place in the text.
    pub(super) fn has_token(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Hole(Hole::Token)))
    }

    pub(super) fn fill(&self, values: Values<'_>) -> Result<String, ToolError> {
        self.with(|hole| hole.text(values))
    }

    fn with<E>(&self, mut value: impl FnMut(&Hole) -> Result<String, E>) -> Result<String, E> {
        self.0.iter().try_fold(String::new(), |mut filled, piece| {
            match piece {
                Piece::Literal(text) => filled.push_str(text),
                Piece::Hole(hole) => filled.push_str(&value(hole)?),
            }
            Ok(filled)
        })
    }

    /// The text with an `x` in each hole.
    fn sample(&self) -> String {
        self.with(|_| Ok::<_, std::convert::Infallible>("x".to_owned()))
            .unwrap_or_else(|never| match never {})
    }
}

/// An `http` or `https` URL with holes in its path and its query.
#[derive(Clone, Debug)]
pub(super) struct UrlTemplate(Text);

impl UrlTemplate {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let template = Text::parse(text)?;
        let url = Url::parse(&template.sample()).map_err(|error| format!("{text:?} is no URL: {error}"))?;
        let Some(Piece::Literal(begin)) = template.0.first() else {
            return Err(format!("{text:?} is empty"));
        };
        let host_ends = begin.split_once("://").is_some_and(|(_, host)| host.contains(['/', '?']));
        if template.0.len() > 1 && !host_ends {
            return Err(format!(
                "{text:?} takes its host from the input: a hole belongs into the path or the query"
            ));
        }
        if !matches!(url.scheme(), "http" | "https") || url.fragment().is_some() {
            return Err(format!("{text:?} is neither an http nor an https URL without fragment"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the URL holds a credential: use a secret header".to_owned());
        }
        Ok(Self(template))
    }

    pub(super) fn has_token(&self) -> bool {
        self.0.has_token()
    }

    /// The origin, which no value changes.
    pub(super) fn sample(&self) -> String {
        self.0.sample()
    }

    /// The URL with percent-encoded values. A value that is no path segment by itself (empty, `.`, `..`) is refused: a
    /// URL would lose it, and name another resource.
    pub(super) fn fill(&self, values: Values<'_>) -> Result<Url, ToolError> {
        let filled = self.0.with(|hole| hole.text(values).map(|text| percent(&text)))?;
        let path = |url: &'_ str| url.split('?').next().unwrap_or_default().to_owned();
        let (sample, real) = (path(&self.0.sample()), path(&filled));
        let mut segments = sample.split('/').zip(real.split('/'));
        if segments.any(|(sample, real)| sample != real && matches!(real, "" | "." | "..")) {
            return Err(ToolError::refused("not sent: a value in the URL's path is empty, `.` or `..`"));
        }
        Url::parse(&filled).map_err(|error| ToolError::refused(format!("not sent: no URL: {error}")))
    }
}

/// A JSON value whose texts have holes. A text that is one hole becomes the value itself, with its type.
#[derive(Clone, Debug)]
pub(super) enum Json {
    Literal(Value),
    Text(Text),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
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

    pub(super) fn has_token(&self) -> bool {
        match self {
            Self::Literal(_) => false,
            Self::Text(text) => text.has_token(),
            Self::List(items) => items.iter().any(Self::has_token),
            Self::Object(fields) => fields.iter().any(|(_, value)| value.has_token()),
        }
    }

    pub(super) fn fill(&self, values: Values<'_>) -> Result<Value, ToolError> {
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

    fn url(template: &str, input: &Value) -> Result<String, ToolError> {
        let template = UrlTemplate::parse(template).unwrap();
        template.fill(Values { input, token: "k1" }).map(String::from)
    }

    #[test]
    fn a_hostile_value_adds_neither_a_segment_nor_a_parameter_nor_a_fragment() {
        let evil = json!({ "id": "../admin?to=eve&x#y%2f\r\nHost: eve" });
        let filled = url("http://bank.example/refunds/{id}/notes?ref={token}&why={/id}", &evil).unwrap();
        let parsed = Url::parse(&filled).unwrap();
        let segments: Vec<_> = parsed.path_segments().unwrap().collect();
        assert_eq!((segments.len(), segments[0], segments[2]), (3, "refunds", "notes"), "{filled}");
        let pairs: Vec<_> = parsed.query_pairs().into_owned().collect();
        let why = evil["id"].as_str().unwrap().to_owned();
        assert_eq!(pairs, [("ref".to_owned(), "k1".to_owned()), ("why".to_owned(), why)]);
        assert_eq!((parsed.host_str(), parsed.fragment()), (Some("bank.example"), None));
    }

    #[test]
    fn a_value_that_a_path_would_lose_is_refused() {
        for value in ["", ".", ".."] {
            let refused = url("http://bank.example/refunds/{id}/notes", &json!({ "id": value }));
            assert!(refused.is_err(), "{value:?}: {refused:?}");
        }
        assert_eq!(url("http://b.example/a{id}", &json!({ "id": "" })).unwrap(), "http://b.example/a");
        assert!(url("http://b.example/{id}", &json!({ "id": {"a": 1} })).is_err());
        assert!(url("http://b.example/{id}", &json!({})).is_err());
    }

    #[test]
    fn a_url_whose_host_or_credential_could_leak_is_no_template() {
        for bad in [
            "http://{host}/x",
            "http://bank.{host}",
            "{url}",
            "ftp://bank.example/x",
            "http://ann:pw@bank.example/",
            "http://bank.example/{id",
            "http://bank.example/{}",
            "http://bank.example/x#{id}",
        ] {
            assert!(UrlTemplate::parse(bad).is_err(), "{bad}");
        }
    }

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
