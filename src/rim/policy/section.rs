//! The form of a section in the file: every field may be absent, none may be empty, and an unknown field is an error.

use serde::{Deserialize, Deserializer};

/// A section of the file. Each field is optional: the preset or the file has a default for it.
macro_rules! section {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(in crate::rim) struct $name {
            $(
                $(#[$doc])*
                #[serde(
                    default,
                    deserialize_with = "crate::rim::policy::section::said",
                    skip_serializing_if = "Option::is_none"
                )]
                pub(in crate::rim) $field: Option<$kind>,
            )*
        }
    };
}
pub(in crate::rim) use section;

/// Reads a field that is present. It must have a value: `ttl:` with nothing after it is a mistake, and not a default.
pub(in crate::rim) fn said<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}
