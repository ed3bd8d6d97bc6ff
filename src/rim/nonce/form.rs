//! The form of a nonce.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::Entropy;

/// The maximum length of a nonce, in characters.
const LONGEST: usize = 25;

/// A nonce: a text or an integer of at most 25 characters. In JSON, `"5"` and `5` are one nonce.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Nonce(String);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Unsigned(u64),
    Signed(i64),
    Text(String),
}

/// The reason why a text is not a nonce. Nothing was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NonceFormError {
    /// The nonce has no characters.
    #[error("the nonce is empty: draw one for each message, and send it with every try [key]")]
    Empty,
    /// The nonce is too long.
    #[error("the nonce has {chars} characters, {LONGEST} at most [key]")]
    TooLong {
        /// The length of the nonce, in characters.
        chars: usize,
    },
    /// The nonce contains a control character.
    #[error("the nonce holds a control character: remove it [key]")]
    Control,
}

impl Nonce {
    /// A drawn nonce that no client can send, because it is too long.
    pub(super) fn drawn(entropy: &dyn Entropy) -> Self {
        Self(format!("drawn {:032x}", entropy.wide_bits()))
    }

    /// The nonce as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Nonce {
    type Error = NonceFormError;

    fn try_from(text: String) -> Result<Self, NonceFormError> {
        let chars = text.chars().count();
        match chars {
            0 => Err(NonceFormError::Empty),
            _ if chars > LONGEST => Err(NonceFormError::TooLong { chars }),
            _ if text.chars().any(char::is_control) => Err(NonceFormError::Control),
            _ => Ok(Self(text)),
        }
    }
}

impl TryFrom<&str> for Nonce {
    type Error = NonceFormError;

    fn try_from(text: &str) -> Result<Self, NonceFormError> {
        text.to_owned().try_into()
    }
}

impl TryFrom<Written> for Nonce {
    type Error = NonceFormError;

    fn try_from(written: Written) -> Result<Self, NonceFormError> {
        match written {
            Written::Unsigned(number) => Ok(number.into()),
            Written::Signed(number) => Ok(number.into()),
            Written::Text(text) => text.try_into(),
        }
    }
}

impl From<u64> for Nonce {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl From<i64> for Nonce {
    fn from(number: i64) -> Self {
        Self(number.to_string())
    }
}

impl From<Nonce> for String {
    fn from(nonce: Nonce) -> Self {
        nonce.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
