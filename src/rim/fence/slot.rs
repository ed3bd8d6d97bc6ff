//! The entries of many keys in one row. Pure: the time is a parameter.
//!
//! Rows of the store are never deleted, so a row for each key would be kept for ever. Instead the keys share a fixed
//! number of rows, and each write to a row removes the entries that have expired.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use super::{Claimed, FenceError, FenceToken};
use crate::clock::Timestamp;

/// The entries of a row, by the names of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slot {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// The instant at which the entry expires.
    until: Timestamp,
    #[serde(flatten)]
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// A claim by this token.
    Pending(String),
    /// A sealed value, in base 64.
    Sealed(String),
}

/// The answer of an operation, with a flag that is true if the row must be written.
pub(super) struct Turned<A> {
    pub(super) answer: A,
    pub(super) changed: bool,
}

const fn told<A>(answer: A) -> Turned<A> {
    Turned { answer, changed: false }
}

const fn changed<A>(answer: A) -> Turned<A> {
    Turned { answer, changed: true }
}

/// The seal of a claim with a value.
#[derive(Clone, Copy)]
pub(super) struct Seal<'a> {
    pub(super) name: &'a str,
    pub(super) token: &'a FenceToken,
    pub(super) value: &'a [u8],
    pub(super) sealed_for: Duration,
}

impl Slot {
    pub(super) fn claim(
        &mut self,
        name: &str,
        token: &FenceToken,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Turned<Claimed>, FenceError> {
        match self.live(name, now) {
            Some(State::Sealed(value)) => {
                let value = BASE64_STANDARD.decode(value).map_err(|_| FenceError::Damaged)?;
                Ok(told(Claimed::Sealed(value)))
            }
            Some(State::Pending(holder)) if holder == token.as_str() => Ok(told(Claimed::New)),
            Some(State::Pending(_)) => Ok(told(Claimed::Pending)),
            None => {
                self.put(name, until, State::Pending(token.as_str().to_owned()), now);
                Ok(changed(Claimed::New))
            }
        }
    }

    pub(super) fn seal(&mut self, seal: Seal<'_>, now: Timestamp) -> Turned<bool> {
        let Seal { name, token, value, sealed_for } = seal;
        let value = BASE64_STANDARD.encode(value);
        match self.live(name, now) {
            Some(State::Pending(holder)) if holder == token.as_str() => {
                self.put(name, now.after(sealed_for), State::Sealed(value), now);
                changed(true)
            }
            Some(State::Sealed(sealed)) => told(*sealed == value),
            Some(State::Pending(_)) | None => told(false),
        }
    }

    pub(super) fn release(&mut self, name: &str, token: &FenceToken, now: Timestamp) -> Turned<bool> {
        match self.live(name, now) {
            Some(State::Pending(holder)) if holder == token.as_str() => {
                self.entries.remove(name);
                self.prune(now);
                changed(true)
            }
            _ => told(false),
        }
    }

    fn live(&self, name: &str, now: Timestamp) -> Option<&State> {
        self.entries.get(name).filter(|entry| now < entry.until).map(|entry| &entry.state)
    }

    fn put(&mut self, name: &str, until: Timestamp, state: State, now: Timestamp) {
        self.prune(now);
        self.entries.insert(name.to_owned(), Entry { until, state });
    }

    fn prune(&mut self, now: Timestamp) {
        self.entries.retain(|_, entry| now < entry.until);
    }
}
