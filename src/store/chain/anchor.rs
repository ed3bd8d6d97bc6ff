//! Anchors: the ends of all chains at an instant, kept outside the database.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// The ends of all chains at an instant. Whoever can write into the database can cut the newest links off, with the rows
/// that they are about, and the chain that is left is whole. An anchor that is kept elsewhere shows it: each of its links
/// must still be there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// The last link of each chain.
    pub heads: Vec<Head>,
}

/// The last link of a chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Head {
    /// The number of the chain.
    pub chain: i64,
    /// The number of the link in the chain.
    pub number: i64,
    /// The signature of the link, in hexadecimal.
    pub signature: String,
}

impl Anchor {
    /// Reads an anchor from a file: a [report](super::ChainReport) as JSON, as `counterfoil evidence --verify --json` prints it.
    ///
    /// # Errors
    /// [`AnchorError`] if the file cannot be read, or holds something else.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, AnchorError> {
        let path = path.as_ref();
        let shown = || path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| AnchorError::File { path: shown(), detail: error.to_string() })?;
        serde_json::from_str(&text)
            .map_err(|error| AnchorError::Form { path: shown(), detail: error.to_string() })
    }
}

/// The reason why an anchor was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnchorError {
    /// The file cannot be read.
    #[error("the anchor at {path} cannot be read: {detail} [configuration]")]
    File {
        /// The path of the file.
        path: String,
        /// The message of the operating system.
        detail: String,
    },
    /// The file holds something else.
    #[error(
        "{path} holds no anchor: {detail}; give the JSON that an earlier `counterfoil evidence --verify --json` printed \
         [configuration]"
    )]
    Form {
        /// The path of the file.
        path: String,
        /// The reason.
        detail: String,
    },
}
