//! The result of a lookup of a call of unknown outcome.

use std::time::Duration;

use super::retry::ErrorKind;

/// The answer of the external system about a call of unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupResult<T> {
    /// The effect happened once. The result holds the output and the external id.
    Committed {
        /// The output that the call would have returned.
        output: T,
        /// The provider's id, if it has one.
        external_ref: Option<String>,
    },
    /// The lookup shows nothing. The settle time decides if the miss is believed.
    NotFound,
    /// The effect did not happen and will not, for certain: the provider shows the request as refused or failed. The
    /// record is settled with this error. It is believed at once if the provider honours the key, because each
    /// request under the key ends alike; otherwise after the settle time, and only if one request went out.
    Failed {
        /// The kind of the failure.
        kind: ErrorKind,
        /// Description of the failure, for people. The record keeps it: no secrets.
        message: String,
    },
    /// The provider has accepted the request and has not finished it. Nothing is sent again. The call waits as a row
    /// until a lookup or a [completion](crate::Executor::complete) finishes it; after the contract's [longest
    /// time](super::Contract::completes_within) a person is asked.
    Pending {
        /// The provider's id, if it has given one.
        external_ref: Option<String>,
        /// The pause before the next lookup; at least 1 s.
        look_again: Duration,
    },
    /// The lookup shows something under the key or the name of the call that another request has made: another
    /// amount, another author. A person is asked at once, because another lookup would show the same.
    Foreign {
        /// Description of the foreign effect, for people: its id, and its differences. The question shows it: no
        /// secrets.
        what: String,
    },
    /// The provider cannot answer.
    Unknown,
    /// The world holds more than one effect. The first effect with an output is kept, and the others may be undone:
    /// see [`duplicated`](Self::duplicated). If no effect has an output, the result counts as
    /// [`Unknown`](Self::Unknown).
    Duplicated {
        /// All effects, the first one first.
        effects: Vec<Found<T>>,
    },
}

/// One of several effects of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// The id of the effect at the provider. A surplus effect without an id cannot be told from the kept one: a
    /// person is asked about it.
    pub external_ref: Option<String>,
    /// The output that the call would have had if this were its only effect. `None` if the provider has not finished
    /// it.
    pub output: Option<T>,
}

/// The output of the effect if there is one, and otherwise [`NotFound`](LookupResult::NotFound). For a provider that
/// gives ids, prefer [`Committed`](LookupResult::Committed) with the id.
impl<T> From<Option<T>> for LookupResult<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or(Self::NotFound, |output| Self::Committed { output, external_ref: None })
    }
}

impl<T> LookupResult<T> {
    /// The name used in messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Committed { .. } => "committed",
            Self::NotFound => "not found",
            Self::Failed { .. } => "failed",
            Self::Pending { .. } => "pending",
            Self::Foreign { .. } => "foreign",
            Self::Unknown => "unknown",
            Self::Duplicated { .. } => "duplicated",
        }
    }

    /// The result for a world that holds these effects, the first one first: the external id of each, and its output.
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

    /// Converts the output to another type.
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
