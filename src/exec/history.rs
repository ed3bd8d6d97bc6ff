//! The attempts and lookups of an operation, as they are shown: those of its history, and the last attempt, of which
//! the record itself tells.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::core::Core;
use super::plain::Plain;
use crate::clock::Timestamp;
use crate::id::{Fence, some_text, text};
use crate::ledger::{Basis, ErrorKind, Record, State};
use crate::store::{Contact, ContactResult, Store as _, StoreError};

/// The attempts and lookups of an operation. Of a long history only the first and the last ones are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CallHistory {
    /// The attempts, the first one first.
    pub attempts: Vec<PastAttempt>,
    /// The number of attempts between them that are not kept.
    pub attempts_left_out: u32,
    /// The lookups, the first one first.
    pub lookups: Vec<PastLookup>,
    /// The number of lookups between them that are not kept.
    pub lookups_left_out: u32,
}

/// An attempt of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PastAttempt {
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The worker that made the attempt.
    pub worker: Fence,
    /// The name that the worker was [given](super::ExecutorBuilder::worker_name).
    pub worker_name: Option<String>,
    /// The instant at which the attempt began (UTC). Absent if it is only known that it began before `ended`.
    #[serde(serialize_with = "some_text")]
    pub began: Option<Timestamp>,
    /// The instant at which its result was known, or its worker was found to be gone (UTC). Absent while it is under way,
    /// or of unknown outcome.
    #[serde(serialize_with = "some_text")]
    pub ended: Option<Timestamp>,
    /// The result. Absent while the attempt is under way, or of unknown outcome.
    pub result: Option<ContactResult>,
    /// The kind of the error, if there was one.
    pub error: Option<ErrorKind>,
    /// The text of the error; the first 500 bytes of a longer one.
    pub message: Option<String>,
    /// The id that the provider had given to the effect by then.
    pub external_ref: Option<String>,
}

/// A lookup of an operation at its provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PastLookup {
    /// The number of the lookup, from 1.
    pub number: u32,
    /// The last attempt before the lookup; 0 if nothing had been sent.
    pub attempt: u32,
    /// The worker that made the lookup.
    pub worker: Fence,
    /// The name that the worker was given.
    pub worker_name: Option<String>,
    /// The instant at which the lookup began (UTC).
    #[serde(serialize_with = "some_text")]
    pub began: Option<Timestamp>,
    /// The instant at which it was answered (UTC).
    #[serde(serialize_with = "text")]
    pub ended: Timestamp,
    /// The result.
    pub result: ContactResult,
    /// The kind of the error, if there was one.
    pub error: Option<ErrorKind>,
    /// The text of the error, or what the lookup shows; the first 500 bytes of a longer one.
    pub message: Option<String>,
    /// The provider's id of the effect that the lookup shows.
    pub external_ref: Option<String>,
}

impl From<Contact> for PastAttempt {
    fn from(contact: Contact) -> Self {
        let Contact { number, worker, began, ended, result, error, message, external_ref, .. } = contact;
        let (ended, result, worker_name) = (Some(ended), Some(result), None);
        Self { number, worker, worker_name, began, ended, result, error, message, external_ref }
    }
}

impl From<Contact> for PastLookup {
    fn from(contact: Contact) -> Self {
        let Contact { number, attempt, worker, began, ended, result, error, message, external_ref, .. } =
            contact;
        let worker_name = None;
        Self { number, attempt, worker, worker_name, began, ended, result, error, message, external_ref }
    }
}

/// The history of a record.
pub(super) async fn of(core: &Core, record: &Record) -> Result<CallHistory, StoreError> {
    let contacts = core.group.record_contacts(&record.tenant, record.id).await?;
    let (lookups, attempts): (Vec<_>, Vec<_>) = contacts.into_iter().partition(|contact| contact.is_lookup);
    let mut attempts: Vec<_> = attempts.into_iter().map(PastAttempt::from).collect();
    if !attempts.iter().any(|attempt| attempt.number == record.attempts) {
        attempts.extend(last(record));
    }
    let mut lookups: Vec<_> = lookups.into_iter().map(PastLookup::from).collect();
    lookups.sort_by_key(|lookup| lookup.number);
    name_workers(core, &mut attempts, &mut lookups).await?;
    let last = |numbers: &mut dyn Iterator<Item = u32>| numbers.max().unwrap_or(0);
    let looked_up = last(&mut lookups.iter().map(|lookup| lookup.number));
    let made = last(&mut attempts.iter().map(|attempt| attempt.number));
    Ok(CallHistory {
        attempts_left_out: left_out(made, attempts.len()),
        lookups_left_out: left_out(looked_up, lookups.len()),
        attempts,
        lookups,
    })
}

/// Adds the names that the workers were given.
async fn name_workers(
    core: &Core,
    attempts: &mut [PastAttempt],
    lookups: &mut [PastLookup],
) -> Result<(), StoreError> {
    let of_attempts = attempts.iter_mut().map(|attempt| (attempt.worker, &mut attempt.worker_name));
    let of_lookups = lookups.iter_mut().map(|lookup| (lookup.worker, &mut lookup.worker_name));
    let mut known: BTreeMap<Fence, Option<String>> = BTreeMap::new();
    for (fence, name) in of_attempts.chain(of_lookups) {
        *name = if let Some(found) = known.get(&fence) {
            found.clone()
        } else {
            let worker = core.group.worker_at(fence).await?;
            let found = worker.and_then(|worker| worker.given_name().map(str::to_owned));
            known.insert(fence, found.clone());
            found
        };
    }
    Ok(())
}

fn left_out(last: u32, kept: usize) -> u32 {
    last.saturating_sub(u32::try_from(kept).unwrap_or(u32::MAX))
}

/// The last attempt, as the record tells of it. Nothing is told of it by a tombstone.
fn last(record: &Record) -> Option<PastAttempt> {
    if record.attempts == 0 || matches!(record.state, State::Gone { .. }) {
        return None;
    }
    let is_answered = !matches!(record.basis, Basis::Lookup | Basis::Decision);
    let (ended, result, failure) = match &record.state {
        State::Committed { .. } | State::Compensated { .. } if is_answered => {
            (record.sealed_at, Some(ContactResult::Effect), None)
        }
        State::Failed { failure } => (Some(record.updated_at), Some(ContactResult::Failed), Some(failure)),
        _ => (None, None, None),
    };
    Some(PastAttempt {
        number: record.attempts,
        worker: record.fence,
        worker_name: None,
        began: (record.attempts == 1).then_some(record.created_at),
        ended,
        result,
        error: failure.map(|failure| failure.kind),
        message: failure.map(|failure| Contact::cut(&failure.message)),
        external_ref: record.external_ref.clone(),
    })
}

/// The history as a text of several lines: each begins with a word in a column of 14 characters.
impl fmt::Display for CallHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for attempt in &self.attempts {
            writeln!(f, "attempt       {attempt}")?;
        }
        for lookup in &self.lookups {
            writeln!(f, "lookup        {lookup}")?;
        }
        for (left_out, what) in [(self.attempts_left_out, "attempts"), (self.lookups_left_out, "lookups")] {
            if left_out > 0 {
                writeln!(f, "not kept      {left_out} {what}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for PastAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by worker {}", self.number, self.worker)?;
        named(f, self.worker_name.as_deref())?;
        span(f, self.began, self.ended)?;
        f.write_str(self.result.map_or("no answer yet", ContactResult::name))?;
        details(f, (self.error, self.message.as_deref()), self.external_ref.as_deref())
    }
}

impl fmt::Display for PastLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after attempt {} by worker {}", self.number, self.attempt, self.worker)?;
        named(f, self.worker_name.as_deref())?;
        span(f, self.began, Some(self.ended))?;
        f.write_str(self.result.name())?;
        details(f, (self.error, self.message.as_deref()), self.external_ref.as_deref())
    }
}

fn named(f: &mut fmt::Formatter<'_>, name: Option<&str>) -> fmt::Result {
    name.map_or(Ok(()), |name| write!(f, " ({})", Plain(name)))
}

fn span(f: &mut fmt::Formatter<'_>, began: Option<Timestamp>, ended: Option<Timestamp>) -> fmt::Result {
    match began {
        Some(began) => write!(f, ", {began}")?,
        None => f.write_str(", begun")?,
    }
    ended.map_or(Ok(()), |ended| write!(f, " to {ended}"))?;
    f.write_str(": ")
}

fn details(
    f: &mut fmt::Formatter<'_>,
    (error, message): (Option<ErrorKind>, Option<&str>),
    external_ref: Option<&str>,
) -> fmt::Result {
    error.map_or(Ok(()), |error| write!(f, ", {}", error.name()))?;
    message.map_or(Ok(()), |message| write!(f, ", {}", Plain(message)))?;
    external_ref.map_or(Ok(()), |id| write!(f, ", provider's id {}", Plain(id)))
}
