//! The reason why an HTTP tool cannot be used as it is declared.

/// The reason why an HTTP tool cannot be used as it is declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpToolError {
    /// The URL, the body, or an expected field is no template, or the lookup takes any answer for the effect.
    #[error("the HTTP tool has a wrong {part}: {detail} [declaration]")]
    Template {
        /// The part of the declaration.
        part: &'static str,
        /// Description of the error.
        detail: String,
    },
    /// A header has a name or a value that HTTP does not allow. The value is not shown, because it may be a secret.
    #[error("the HTTP tool has a header {name:?} that HTTP does not allow [declaration]")]
    Header {
        /// The name of the header.
        name: String,
    },
    /// The provider is to recognise the call's key, or the lookup goes by it, and the request does not carry it.
    #[error(
        "the HTTP tool {tool:?} relies on its provider to recognise the key, or on a lookup by the key, and sends no key: add \
         key_header, or `{{token}}` to its URL, body or headers [declaration]"
    )]
    KeyNotSent {
        /// The name of the tool.
        tool: String,
    },
    /// The HTTP client cannot be built.
    #[error("the client of the HTTP tool cannot be built: {detail} [declaration]")]
    Client {
        /// Description of the error.
        detail: String,
    },
}
