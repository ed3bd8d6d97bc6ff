//! Values that are text of a certain form: names, pointers, headers, parts of keys. A wrong value is refused when it
//! is read.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

/// The JSON Schema, for editors, of a value that is text of a certain form.
macro_rules! word {
    ($name:ident, $pattern:literal, $about:literal) => {
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern, "description": $about })
            }
        }
    };
}
pub(in crate::rim) use word;

/// A text whose form is checked when it is read.
macro_rules! checked {
    ($(#[$doc:meta])* $name:ident, $pattern:literal, $about:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub(in crate::rim) struct $name(String);

        word!($name, $pattern, $about);

        impl $name {
            pub(in crate::rim) fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                let check: fn(&str) -> Result<(), String> = $check;
                check(&text).map(|()| Self(text))
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.0
            }
        }
    };
}

fn unless(is_right: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(why()) }
}

/// The first characters of a text, as many as a message needs.
fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(64).collect::<String>())
}

checked!(
    /// The name of a source. It is part of paths, logs and scopes, so it is short and plain.
    SourceName,
    "^[a-z0-9][a-z0-9_-]{0,63}$",
    "The name of a source: small letters, digits, `_` and `-`.",
    |text| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
        let is_right = text.bytes().all(plain) && (1..=64).contains(&text.len()) && !text.starts_with(['_', '-']);
        unless(is_right, || {
            format!("{} is no name of a source; write 1 to 64 small letters, digits, `_` and `-`, `order_events`", shown(text))
        })
    }
);

impl Borrow<str> for SourceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

checked!(
    /// The name of an environment variable that holds a secret. The error message does not repeat the text, which may
    /// be the secret.
    EnvName,
    "^[A-Z_][A-Z0-9_]{0,127}$",
    "The name of an environment variable, in capitals: `STRIPE_WEBHOOK_SECRET`. Never the secret itself.",
    |text| {
        let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let is_right = text.bytes().all(plain)
            && (1..=128).contains(&text.len())
            && !text.starts_with(|first: char| first.is_ascii_digit());
        unless(is_right, || SECRET.to_owned())
    }
);

/// The beginning of the message about a secret in the file.
pub(in crate::rim) const SECRET: &str =
    "a secret is named by its environment variable, in capitals, and never written here";

checked!(
    /// A JSON pointer (RFC 6901) to a field of a body.
    Pointer,
    "^/",
    "A JSON pointer (RFC 6901): `/metadata/sent_at`.",
    |text| unless(text.starts_with('/'), || {
        format!("{} is no JSON pointer (RFC 6901); write `/metadata/sent_at`, with a slash at its beginning", shown(text))
    })
);

#[cfg(any(feature = "tool-file", all(feature = "mcp", feature = "sqlite")))]
impl Pointer {
    /// The texts of the pointers of a list, which may be missing.
    pub(in crate::rim) fn texts(list: Option<&Vec<Self>>) -> Vec<String> {
        list.into_iter().flatten().map(|pointer| pointer.as_str().to_owned()).collect()
    }
}

checked!(
    /// The name of a header.
    Header,
    "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$",
    "The name of a header: `X-Request-Version`.",
    |text| {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+.^_`|~-".contains(&byte);
        unless(text.bytes().all(token) && (1..=128).contains(&text.len()), || {
            format!("{} is no name of a header; write letters, digits and `-`, `X-Request-Version`", shown(text))
        })
    }
);

checked!(
    /// The path of a URL under which a resource is served.
    UrlPath,
    "^/[^ ]*$",
    "A path: `/operations`.",
    |text| unless(text.starts_with('/') && !text.contains(char::is_whitespace), || {
        format!("{} is no path; write `/operations`, with a slash at its beginning", shown(text))
    })
);

/// The parts of a key that doors know by name.
pub(in crate::rim) const NAMED: [&str; 9] = [
    "provider",
    "event_id",
    "version",
    "action",
    "body_digest",
    "topic",
    "partition",
    "message_key",
    "dedupe_id",
];

/// The parts that are recognized only to explain why they make no key.
pub(in crate::rim) const UNSTABLE: [&str; 8] =
    ["now", "timestamp", "received_at", "attempt", "random", "uuid", "redelivered", "sequence"];

checked!(
    /// A part of a key: a name that doors know, a JSON pointer into the body, or a header.
    KeyPart,
    "^(provider|event_id|version|action|body_digest|topic|partition|message_key|dedupe_id|/.*|header:.+)$",
    "A part of a key: `provider`, `event_id`, `version`, `action`, `body_digest`, `topic`, `partition`, `message_key`, `dedupe_id`, a JSON pointer into the body, or `header:Name`.",
    |text| {
        let header = text.strip_prefix("header:").map(|name| Header::try_from(name.to_owned()));
        if let Some(Err(why)) = header {
            return Err(why);
        }
        let is_known = header.is_some() || NAMED.contains(&text) || UNSTABLE.contains(&text);
        unless(is_known || (text.starts_with('/') && text.len() > 1), || {
            let near = super::nearest::nearest(text, NAMED).map(|name| format!("`{name}`, or ")).unwrap_or_default();
            let all = NAMED.join("`, `");
            format!("{} is no part of a key; write {near}one of `{all}`, `/pointer/into/the/body`, `header:Name`", shown(text))
        })
    }
);
