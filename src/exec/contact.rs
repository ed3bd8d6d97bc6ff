//! The history of an operation: its attempts and lookups, as far as its record does not tell of them itself.
//!
//! The contact of an attempt is one change with the write by which the record stops telling of it. So the record and
//! its contacts always tell of all attempts, whenever a process dies. A lookup is durable before the write that follows
//! from it.

use super::core::Core;
use super::declared::Settling;
use super::operation::Operation;
use crate::clock::Timestamp;
use crate::ledger::{ErrorKind, Found, LookupResult, Record, State};
use crate::payload::Payload;
use crate::store::{Change, Contact, ContactResult, DroppedContact, Store as _};
use crate::tool::{Done, ToolError};

/// The attempt that the record tells of, with this result at `ended`.
fn attempt(record: &Record, ended: Timestamp, result: ContactResult) -> Contact {
    // Later attempts begin with a change of the record, which another change may have followed: the provider's id.
    let began = match (record.attempts, &record.state) {
        (1, _) => Some(record.created_at),
        (_, State::Started) if record.external_ref.is_none() => Some(record.updated_at),
        _ => None,
    };
    Contact {
        tenant: record.tenant.clone(),
        record: record.id,
        id: record.attempts.into(),
        is_lookup: false,
        number: record.attempts,
        attempt: record.attempts,
        worker: record.fence,
        began,
        ended,
        result,
        error: None,
        message: None,
        external_ref: record.external_ref.clone(),
    }
}

fn with_error(contact: Contact, kind: ErrorKind, message: &str) -> Contact {
    Contact { error: Some(kind), message: Some(Contact::cut(message)), ..contact }
}

/// The attempt that began at `began` and has been answered now.
pub(super) fn answered(core: &Core, record: &Record, began: Timestamp, done: &Done<Payload>) -> Contact {
    let told = attempt(record, core.now(), ContactResult::Effect);
    Contact {
        began: Some(began),
        external_ref: done.external_ref.clone().or(told.external_ref.clone()),
        ..told
    }
}

/// The attempt that began at `began` and has returned an error now.
pub(super) fn erred(settling: Settling<'_>, record: &Record, began: Timestamp, error: &ToolError) -> Contact {
    let result = match &error.accepted {
        Some(_) => ContactResult::Pending,
        None if error.kind.is_without_effect(settling.effect(), settling.contract().class) => {
            ContactResult::Failed
        }
        None => ContactResult::Unknown,
    };
    let told = attempt(record, settling.core.now(), result);
    let accepted = error.accepted.as_ref().and_then(|accepted| accepted.external_ref.clone());
    let told = Contact { began: Some(began), external_ref: accepted.or(told.external_ref.clone()), ..told };
    if error.accepted.is_some() { told } else { with_error(told, error.kind, &error.message) }
}

/// The attempt of a worker that is gone, or that nothing more is known of, unless nothing was sent yet.
pub(super) fn lost(record: &Record, now: Timestamp) -> Option<Contact> {
    (record.attempts > 0).then(|| attempt(record, now, ContactResult::Lost))
}

/// Adds the contact of the record's last attempt to the change that begins another one. A contact that is stored
/// already is kept.
pub(super) fn before_another(op: &Operation, record: &Record, change: &mut Change, now: Timestamp) {
    let told = match &record.state {
        State::Failed { failure } if record.attempts > 0 => {
            let failed = attempt(record, record.updated_at, ContactResult::Failed);
            Some(with_error(failed, failure.kind, &failure.message))
        }
        _ => lost(record, now),
    };
    change.contacts.extend(op.take_contact().or(told));
    let dropped = record.attempts.saturating_sub(Contact::LAST);
    if Contact::is_dropped(dropped, record.attempts) {
        let (tenant, record, id) = (record.tenant.clone(), record.id, dropped.into());
        change.dropped_contacts.push(DroppedContact { tenant, record, id });
    }
}

/// Keeps a lookup that began at `began` and was answered now. The next lookup is numbered after it, so it is durable
/// first. The lookup counts also if it could not be kept.
pub(super) async fn looked_up(
    core: &Core,
    (op, record): (&Operation, &Record),
    began: Timestamp,
    found: &Result<LookupResult<Payload>, ToolError>,
) {
    let known = match core.group.record_contacts(&record.tenant, record.id).await {
        Ok(known) => known,
        Err(error) => {
            log_record!(debug, record, %error, "lookup not kept in the history");
            return;
        }
    };
    let lookups = || known.iter().filter(|contact| contact.is_lookup);
    let number = lookups().map(|lookup| lookup.number).max().unwrap_or(0).saturating_add(1);
    let mut change = core.change(op.lane);
    change
        .dropped_contacts
        .extend(lookups().filter(|l| Contact::is_dropped(l.number, number)).map(Contact::dropped));
    let lookup = Contact {
        id: core.ids.next(),
        is_lookup: true,
        number,
        worker: core.fence,
        began: Some(began),
        external_ref: None,
        ..attempt(record, core.now(), ContactResult::Unknown)
    };
    change.contacts.push(with_finding(lookup, found));
    if let Err(error) = core.group.commit_one(change).await {
        log_record!(debug, record, %error, "lookup not kept in the history");
    }
}

fn with_finding(lookup: Contact, found: &Result<LookupResult<Payload>, ToolError>) -> Contact {
    let of = |result, external_ref| Contact { result, external_ref, ..lookup.clone() };
    match found {
        Ok(LookupResult::Committed { external_ref, .. }) => of(ContactResult::Effect, external_ref.clone()),
        Ok(LookupResult::Duplicated { effects }) => {
            let message = Some(Contact::cut(&ids(effects)));
            Contact { message, ..of(ContactResult::Effects, None) }
        }
        Ok(LookupResult::NotFound) => of(ContactResult::Nothing, None),
        Ok(LookupResult::Pending { external_ref, .. }) => of(ContactResult::Pending, external_ref.clone()),
        Ok(LookupResult::Foreign { what }) => {
            Contact { message: Some(Contact::cut(what)), ..of(ContactResult::Foreign, None) }
        }
        Ok(LookupResult::Failed { kind, message }) => {
            with_error(of(ContactResult::Failed, None), *kind, message)
        }
        Ok(LookupResult::Unknown) => lookup,
        Err(error) => with_error(lookup, error.kind, &error.message),
    }
}

fn ids(effects: &[Found<Payload>]) -> String {
    let ids = effects.iter().map(|effect| effect.external_ref.as_deref().unwrap_or("without an id"));
    ids.collect::<Vec<_>>().join(", ")
}
