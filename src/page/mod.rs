//! What pages and terminals share: text of others made harmless, the style, and the pieces of pages. The dashboard builds on it,
//! and so do the pages that stand alone in a file.

#[cfg(feature = "html")]
pub(crate) mod alone;
pub(crate) mod harmless;
#[cfg(feature = "html")]
pub(crate) mod pieces;
