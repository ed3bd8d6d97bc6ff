//! The names of signals. Those that begin with `~` are the engine's own.

use crate::id::{IdError, Name, checked};

/// Names that begin so are the engine's own.
pub(super) const OWN: char = '~';
/// A name that users may give a signal.
pub(in crate::flow) fn usable(name: &str) -> Result<(), IdError> {
    checked("signal", name, Name::MAX_BYTES)?;
    if name.starts_with(OWN) {
        return Err(IdError::Reserved { what: "signal" });
    }
    Ok(())
}
