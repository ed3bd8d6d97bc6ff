//! What a lookup says about a call of unknown outcome.

use std::time::Duration;

use super::retry::ErrorKind;

/// What the external system said about a call of unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupResult<T> {
    /// It happened once. The output, and the provider's own id for it.
    Committed {
        /// What the call would have returned.
        output: T,
        /// The provider's id, if it has one.
        external_ref: Option<String>,
    },
    /// The lookup shows nothing. Whether that is believed is the settle time's business.
    NotFound,
    /// For certain it did not happen, and will not: the provider shows the request as refused or failed. The record is settled with
    /// this error. It is believed at once where the provider honours the key, because each request under the key has the same end;
    /// otherwise after the settle time, and only if one request went out.
    Failed {
        /// What kind of failure.
        kind: ErrorKind,
        /// What happened, for people. It goes into the record: no secrets.
        message: String,
    },
    /// The provider has accepted the request and has not finished it. Nothing is sent again. The call waits as a row until a lookup
    /// or a [completion](crate::Executor::complete) finishes it; after the contract's
    /// [longest time](super::Contract::completes_within) a person is asked.
    Pending {
        /// The provider's id, if it has given one.
        external_ref: Option<String>,
        /// The pause before the next lookup; at least a second.
        look_again: Duration,
    },
    /// Something is there under the key or the name of the call that another request has made: another amount, another author. A
    /// person is asked at once, because another lookup would show the same.
    Foreign {
        /// What it is, for people: its id, and how it differs. It goes into the question: no secrets.
        what: String,
    },
    /// The provider cannot tell.
    Unknown,
    /// The world holds more than one effect. The first with an output is kept, and what is beyond it may be undone: see
    /// [`duplicated`](Self::duplicated). Where none has an output it counts as [`Unknown`](Self::Unknown).
    Duplicated {
        /// All of them, the first one first.
        effects: Vec<Found<T>>,
    },
}

/// One of several effects of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// Its id at the provider. A surplus effect without one cannot be told from the one that is kept: a person is asked about it.
    pub external_ref: Option<String>,
    /// The output that the call would have had if this were its only effect. Absent if the provider has not finished it.
    pub output: Option<T>,
}

/// The output of the effect if it is there, and otherwise [`NotFound`](LookupResult::NotFound). A provider that gives ids is better told of
/// by [`Committed`](LookupResult::Committed), with the id.
impl<T> From<Option<T>> for LookupResult<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or(Self::NotFound, |output| Self::Committed { output, external_ref: None })
    }
}

impl<T> LookupResult<T> {
    /// The world holds these effects, the first one first: the id of each at the provider, and its output.
    ///
    /// ```
    /// use counterfoil::ledger::LookupResult;
    /// let charges = LookupResult::duplicated([("ch_1", 500), ("ch_2", 500)]);
    /// # assert!(matches!(charges, LookupResult::Duplicated { effects } if effects.len() == 2));
    /// ```
    pub fn duplicated<I: Into<String>>(effects: impl IntoIterator<Item = (I, T)>) -> Self {
        let found = |(id, output): (I, T)| Found { external_ref: Some(id.into()), output: Some(output) };
        Self::Duplicated { effects: effects.into_iter().map(found).collect() }
    }

    /// Turns the output into another type.
    pub fn try_map<U, E>(self, mut f: impl FnMut(T) -> Result<U, E>) -> Result<LookupResult<U>, E> {
        Ok(match self {
            Self::Committed { output, external_ref } => {
                LookupResult::Committed { output: f(output)?, external_ref }
            }
            Self::NotFound => LookupResult::NotFound,
            Self::Failed { kind, message } => LookupResult::Failed { kind, message },
            Self::Pending { external_ref, look_again } => LookupResult::Pending { external_ref, look_again },
            Self::Foreign { what } => LookupResult::Foreign { what },
            Self::Unknown => LookupResult::Unknown,
            Self::Duplicated { effects } => {
                let mapped = effects.into_iter().map(|Found { external_ref, output }| {
                    Ok(Found { external_ref, output: output.map(&mut f).transpose()? })
                });
                LookupResult::Duplicated { effects: mapped.collect::<Result<_, E>>()? }
            }
        })
    }
}
