//! The `Idempotency-Key` header: one key in two spellings.

use http::HeaderMap;

/// The name of the header.
pub(super) const HEADER: &str = "idempotency-key";
/// The maximum length of a key, in characters.
pub(in crate::rim) const LONGEST: usize = 255;

/// The reason why a header is not a key. Nothing was recorded, and the handler was not called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyHeaderError {
    /// The request has the header more than once.
    #[error("the request has {count} Idempotency-Key headers: send one [key]")]
    Several {
        /// The number of headers.
        count: usize,
    },
    /// The key has no characters.
    #[error("the Idempotency-Key is empty: send the id of this operation, the same in each retry [key]")]
    Empty,
    /// The key is too long.
    #[error("the Idempotency-Key has {chars} characters, {LONGEST} at most: send a UUID or a hash [key]")]
    TooLong {
        /// The length of the key, in characters.
        chars: usize,
    },
    /// The key contains other characters than printable ASCII.
    #[error("the Idempotency-Key holds something else than printable ASCII: send a UUID or a hash [key]")]
    NotPrintable,
    /// The key begins as a quoted string, and is not one.
    #[error(
        "the Idempotency-Key begins with a quotation mark and is no quoted string (RFC 8941): close it, or send the key bare [key]"
    )]
    Unquotable,
}

/// The key of a request, if it has one.
///
/// The IETF draft (draft-ietf-httpapi-idempotency-key-header) sends a structured-field string, in quotation marks; Stripe and many
/// others send the key bare. Both spellings are one key.
///
/// # Errors
/// If the header is not a key.
///
/// ```
/// use counterfoil::http::idempotency_key;
/// use http::{HeaderMap, HeaderValue};
///
/// let mut headers = HeaderMap::new();
/// assert_eq!(idempotency_key(&headers), Ok(None));
/// headers.insert("idempotency-key", HeaderValue::from_static("\"8e03978e\""));
/// assert_eq!(idempotency_key(&headers), Ok(Some("8e03978e".to_owned())));
/// ```
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, KeyHeaderError> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let more = values.count();
    if more > 0 {
        return Err(KeyHeaderError::Several { count: more + 1 });
    }
    let text = value.to_str().map_err(|_| KeyHeaderError::NotPrintable)?.trim();
    if text.contains(|c: char| c.is_control()) {
        return Err(KeyHeaderError::NotPrintable); // `to_str` accepts a tab as a visible character
    }
    let key = match text.strip_prefix('"') {
        Some(quoted) => unquoted(quoted).ok_or(KeyHeaderError::Unquotable)?,
        None => text.to_owned(),
    };
    match key.len() {
        0 => Err(KeyHeaderError::Empty),
        1..=LONGEST => Ok(Some(key)),
        chars => Err(KeyHeaderError::TooLong { chars }),
    }
}

/// The content of a structured-field string after its first quotation mark (RFC 8941, 4.2.5). Text after the string
/// would be its parameters, and the draft defines none.
fn unquoted(text: &str) -> Option<String> {
    let mut key = String::with_capacity(text.len());
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return chars.as_str().is_empty().then_some(key),
            '\\' => key.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            c => key.push(c),
        }
    }
}
