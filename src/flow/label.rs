//! Labels: the names that a run's code gives to its steps, calls and waits.

/// The name of a step, with an id where several of one name are open at once. A use with an id is never the same as a
/// use without one.
#[derive(Clone, Debug)]
pub struct Label {
    pub(super) name: String,
    pub(super) id: Option<String>,
}

impl From<&str> for Label {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), id: None }
    }
}

impl From<String> for Label {
    fn from(name: String) -> Self {
        Self { name, id: None }
    }
}

impl From<&String> for Label {
    fn from(name: &String) -> Self {
        Self { name: name.clone(), id: None }
    }
}

impl<T: ToString> From<(&str, T)> for Label {
    fn from((name, id): (&str, T)) -> Self {
        Self { name: name.to_owned(), id: Some(id.to_string()) }
    }
}

impl Label {
    /// A label with this name, and with an id where there may be several at once.
    pub(crate) fn of(name: &str, id: Option<String>) -> Self {
        Self { name: name.to_owned(), id }
    }
}
