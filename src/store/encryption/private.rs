//! The private values of each row. Keys, names, labels, external ids and times are not private: they are searched for
//! and shown.
//!
//! A row is taken apart field by field, so a new field does not compile before it is decided whether it is private.

use std::fmt;
use std::sync::LazyLock;

use serde_json::Value;

use super::key::TenantKeys;
use crate::id::{RecordId, RunId, SystemEntropy, Tenant};
use crate::ledger::{Approval, Look, Record, RecordedFailure, RequestHash, State};
use crate::payload::{DigestKey, Encrypted, Oversized, Payload, PayloadDigest, Stored};
use crate::store::signal::EXPIRED;
use crate::store::step::PastStep;
use crate::store::{
    Aggregate, Answer, Contact, Document, Evidence, History, OutboxEvent, PastCall, PublishedValue, Question,
    RecordLabel, Resolution, Run, RunLabel, RunState, Schedule, SharedEffect, Signal, Step,
};

/// The reason why a value could not be decrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// The tenant has no key with this id.
    NoKey(String),
    /// The text was not encrypted under its key for its place.
    Forged(String),
}

/// The private values of one row on their way into the database, or out of it.
pub(super) struct Pass<'k> {
    pub(super) keys: &'k TenantKeys,
    pub(super) tenant: &'k Tenant,
    /// True on the way into the database.
    pub(super) encrypts: bool,
    /// The first value that could not be decrypted. It is left as it is.
    pub(super) unreadable: Option<Unreadable>,
}

impl Pass<'_> {
    /// A private text. An encrypted text belongs to its place, so it cannot be moved to another row.
    fn turned(&mut self, place: fmt::Arguments<'_>, text: &str) -> Option<String> {
        let Some(encrypted) = Encrypted::of(text) else {
            // A text that is not encrypted was written before: it is an engine's own mark.
            return self.encrypts.then(|| self.encrypted(&self.place(place), text));
        };
        let place = match encrypted.address {
            // The text of a large payload belongs to its address.
            Some(PayloadDigest(digest)) => {
                self.place(format_args!("payload {}", crate::payload::hex(&digest)))
            }
            None => self.place(place),
        };
        if self.encrypts {
            self.written(&place, text, &encrypted)
        } else {
            Some(self.read(&place, &encrypted))
        }
    }

    /// A text on its way into the database that looks like an encrypted one. A caller may give any text; only one that was read
    /// and could not be decrypted is written back as it was.
    fn written(&self, place: &[u8], text: &str, encrypted: &Encrypted<'_>) -> Option<String> {
        if encrypted.seal.is_some_and(|given| given == seal(place, encrypted)) {
            return Some(Encrypted { seal: None, ..*encrypted }.text());
        }
        let cipher = self.keys.named(encrypted.key);
        let is_ours = cipher.is_some_and(|cipher| cipher.decrypt(place, encrypted.bytes).is_some());
        (!is_ours).then(|| self.encrypted(place, text))
    }

    /// A text on its way out of the database.
    fn read(&mut self, place: &[u8], encrypted: &Encrypted<'_>) -> String {
        let opened = match self.keys.named(encrypted.key) {
            None => Err(Unreadable::NoKey(encrypted.key.to_owned())),
            Some(cipher) => cipher
                .decrypt(place, encrypted.bytes)
                .ok_or_else(|| Unreadable::Forged(encrypted.key.to_owned())),
        };
        opened.unwrap_or_else(|reason| {
            self.unreadable.get_or_insert(reason);
            let seal = seal(place, encrypted);
            Encrypted { seal: Some(&seal), ..*encrypted }.text()
        })
    }

    fn encrypted(&self, place: &[u8], text: &str) -> String {
        let cipher = self.keys.cipher();
        Encrypted { address: None, key: &cipher.id, bytes: &cipher.encrypt(place, text), seal: None }.text()
    }

    fn place(&self, place: fmt::Arguments<'_>) -> Vec<u8> {
        format!("{}\0{place}", self.tenant).into_bytes()
    }

    pub(super) fn text(&mut self, place: fmt::Arguments<'_>, text: &mut String) {
        if let Some(turned) = self.turned(place, text) {
            *text = turned;
        }
    }

    fn some_text(&mut self, place: fmt::Arguments<'_>, text: &mut Option<String>) {
        if let Some(text) = text {
            self.text(place, text);
        }
    }

    pub(super) fn payload(&mut self, place: fmt::Arguments<'_>, payload: &mut Payload) {
        // The store itself looks for these marks. They say nothing about what they stand for.
        let is_mark = payload.as_str() == Evidence::ACCEPTED || payload.as_str().starts_with(EXPIRED);
        if !is_mark && let Some(turned) = self.turned(place, payload.as_str()) {
            *payload = Payload::stored(turned);
        }
    }

    /// A payload of the payload table.
    pub(super) fn large_payload(&mut self, payload: &mut Payload) {
        if !self.encrypts {
            return self.payload(format_args!(""), payload); // its address is its place
        }
        if Encrypted::of(payload.as_str()).is_none() {
            let mut address = payload.digest();
            self.address(&mut address);
            let place = self.place(format_args!("payload {}", crate::payload::hex(&address.0)));
            let cipher = self.keys.cipher();
            let bytes = cipher.encrypt(&place, payload.as_str());
            let encrypted = Encrypted { address: Some(address), key: &cipher.id, bytes: &bytes, seal: None };
            *payload = Payload::stored(encrypted.text());
        }
    }

    fn stored(&mut self, place: fmt::Arguments<'_>, stored: &mut Stored) {
        match stored {
            Stored::Inline(payload) => self.payload(place, payload),
            Stored::At(digest) | Stored::Oversized(Oversized { digest, .. }) => self.address(digest),
        }
    }

    fn some_stored(&mut self, place: fmt::Arguments<'_>, stored: &mut Option<Stored>) {
        if let Some(stored) = stored {
            self.stored(place, stored);
        }
    }

    /// A value inside of a text that stays readable.
    fn value(&mut self, place: fmt::Arguments<'_>, value: &mut Value) {
        let text = match value {
            Value::String(text) if Encrypted::of(text).is_some() => text.clone(),
            _ if self.encrypts => value.to_string(),
            _ => return,
        };
        let Some(turned) = self.turned(place, &text) else { return };
        *value = if self.encrypts {
            Value::String(turned)
        } else {
            serde_json::from_str(&turned).unwrap_or(Value::String(turned))
        };
    }

    pub(super) fn address(&mut self, PayloadDigest(digest): &mut PayloadDigest) {
        self.digest(digest);
    }

    pub(super) fn hash(&mut self, RequestHash { version: _, digest }: &mut RequestHash) {
        self.digest(digest);
    }

    fn some_hash(&mut self, hash: &mut Option<RequestHash>) {
        if let Some(hash) = hash {
            self.hash(hash);
        }
    }

    pub(super) fn digest_key(&mut self, key: &mut DigestKey) {
        let mut bytes = *key.bytes();
        self.digest(&mut bytes);
        *key = DigestKey::new(bytes);
    }

    fn digest(&mut self, digest: &mut [u8; 32]) {
        let cipher = &self.keys.digests;
        *digest = if self.encrypts {
            cipher.encrypt(self.tenant, *digest)
        } else {
            cipher.decrypt(self.tenant, *digest)
        };
    }

    fn response(&mut self, record: RecordId, response: &mut Stored) {
        self.stored(format_args!("record {record} response"), response);
    }

    /// The values of the steps and calls of a run.
    pub(super) fn history(&mut self, run: RunId, History { steps, calls, uses: _, signals }: &mut History) {
        for PastStep { turn, kind, name, id, input_hash, value, at: _ } in steps {
            self.some_hash(input_hash);
            self.some_stored(format_args!("step {run} {turn} {} {name:?} {id:?}", kind.code()), value);
        }
        for PastCall { record, request_hash, response, .. } in calls {
            self.hash(request_hash);
            if let Some(response) = response {
                self.response(*record, response);
            }
        }
        for signal in signals {
            signal.pass(self);
        }
    }
}

/// The seal of an encrypted text that this process has read and could not decrypt. No caller can make one.
fn seal(place: &[u8], encrypted: &Encrypted<'_>) -> String {
    static SECRET: LazyLock<DigestKey> = LazyLock::new(|| DigestKey::drawn(&SystemEntropy));
    let Encrypted { address: _, key, bytes, seal: _ } = encrypted;
    let sealed = [&place.len().to_be_bytes(), place, key.as_bytes(), b":", bytes.as_bytes()].concat();
    crate::payload::hex(&SECRET.digest(&sealed)[..16])
}

/// A row with private values.
pub(super) trait Private {
    /// The tenant that owns the row.
    fn tenant(&self) -> &Tenant;

    /// Turns each private value.
    fn pass(&mut self, by: &mut Pass<'_>);
}

/// Declares rows without private values.
macro_rules! open {
    ($($row:ty),+) => {
        $(impl Private for $row {
            fn tenant(&self) -> &Tenant {
                &self.tenant
            }

            fn pass(&mut self, _: &mut Pass<'_>) {}
        })+
    };
}

open!(
    Look,
    SharedEffect,
    RunLabel,
    RecordLabel,
    Aggregate,
    crate::store::Published,
    crate::store::chain::Link
);

/// Declares the private values of rows. Each row is taken apart wholly.
macro_rules! private {
    ($($row:ident { $($field:ident $(: $ignored:tt)?),+ } => |$by:ident| $pass:block)+) => {
        $(impl Private for $row {
            fn tenant(&self) -> &Tenant {
                &self.tenant
            }

            fn pass(&mut self, $by: &mut Pass<'_>) {
                let Self { $($field $(: $ignored)?),+ } = self;
                $pass
            }
        })+
    };
}

private! {
    Record {
        id, tenant: _, key: _, operation: _, class: _, request, request_hash, declaration: _, owner: _, fence: _, revision: _,
        attempts: _, spent: _, state, basis: _, in_doubt: _, external_ref: _, escalation: _, not_before: _, kept_until: _,
        created_at: _, updated_at: _, sealed_at: _, approval, scopes: _, cost: _
    } => |by| {
        by.stored(format_args!("record {id} request"), request);
        by.hash(request_hash);
        match state {
            State::Started | State::Gone { .. } => {} // what is left of an outcome is a keyed digest
            State::Committed { response } => by.response(*id, response),
            State::Failed { failure: RecordedFailure { kind: _, message, detail } } => {
                by.text(format_args!("record {id} failure"), message);
                if !detail.is_null() {
                    by.value(format_args!("record {id} detail"), detail);
                }
            }
            State::Compensated { response, compensation, whole: _ } => {
                by.response(*id, response);
                by.stored(format_args!("record {id} compensation"), compensation);
            }
            State::Abandoned { reason } => by.text(format_args!("record {id} reason"), reason),
        }
        if let Some(approval) = approval {
            let Approval { by: _, package, expires_at: _, review: _, policy: _ } = &mut **approval;
            by.text(format_args!("record {id} package"), package);
        }
    }

    Run {
        id, tenant: _, number: _, workflow: _, version: _, key: _, parent: _, input, input_hash, state, queue: _, fence: _,
        revision: _, deaths: _, unsettled: _, base: _, turn: _, deadline: _, traceparent: _, created_at: _, updated_at: _
    } => |by| {
        by.stored(format_args!("run {id} input"), input);
        by.hash(input_hash);
        match state {
            RunState::Queued | RunState::Active | RunState::Waiting { .. } | RunState::Expired { .. } => {}
            RunState::Succeeded { output } => by.stored(format_args!("run {id} output"), output),
            RunState::Failed { failure } | RunState::Blocked { failure } => {
                by.payload(format_args!("run {id} failure"), failure);
            }
        }
    }

    Step { tenant: _, run, turn, kind, name, id, input_hash, value, at: _ } => |by| {
        by.some_hash(input_hash);
        by.some_stored(format_args!("step {run} {turn} {} {name:?} {id:?}", kind.code()), value);
    }

    Question { id, tenant: _, record: _, run: _, kind: _, question, opened_at: _, waiting, answer } => |by| {
        by.text(format_args!("question {id}"), question);
        for Answer { by: _, resolution, because, misfit, at: _ } in waiting.iter_mut().chain(answer) {
            match resolution {
                Resolution::Happened(value) | Resolution::Undone(value) | Resolution::Deliver(value) => {
                    by.value(format_args!("question {id} value"), value);
                }
                Resolution::SendWithoutLooking { reason } => by.text(format_args!("question {id} reason"), reason),
                Resolution::DidNotHappen
                | Resolution::LookNow
                | Resolution::Resume
                | Resolution::Abandon
                | Resolution::Keep
                | Resolution::Undo
                | Resolution::Again
                | Resolution::Skip
                | Resolution::Lift
                | Resolution::Withdrawn => {}
            }
            by.some_text(format_args!("question {id} because"), because);
            by.some_text(format_args!("question {id} misfit"), misfit);
        }
    }

    Signal { tenant: _, run, name, id, place: _, body, at: _ } => |by| {
        by.stored(format_args!("signal {run} {name:?} {id:?}"), body);
    }

    Contact {
        tenant: _, record, id, is_lookup, number: _, attempt: _, worker: _, began: _, ended: _, result: _, error: _,
        message, external_ref: _
    } => |by| {
        by.some_text(format_args!("contact {record} {id} {is_lookup}"), message);
    }

    // The store itself turns the late answer of a refused change into evidence, so both have one place.
    Evidence { tenant: _, record, fence: _, attempt: _, response, external_ref: _, at: _ } => |by| {
        by.response(*record, response);
    }

    Document { tenant: _, kind, id, revision: _, open: _, body, created_at: _, updated_at: _ } => |by| {
        by.text(format_args!("document {kind} {id:?}"), body);
    }

    PublishedValue { tenant: _, run, name, revision: _, value, at: _ } => |by| {
        by.payload(format_args!("published {run} {name:?}"), value);
    }

    OutboxEvent { tenant: _, id, aggregate: _, seq: _, kind: _, payload, created_at: _ } => |by| {
        by.stored(format_args!("event {id:?}"), payload);
    }

    Schedule {
        tenant: _, name, workflow: _, version: _, rule: _, input, state: _, next_at: _, last_at: _, last_run: _, missed: _,
        revision: _, created_at: _, updated_at: _
    } => |by| {
        by.stored(format_args!("schedule {name}"), input);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::encryption::EncryptionKey;

    fn keys(id: &str) -> TenantKeys {
        TenantKeys::new(EncryptionKey::new(id, [7; 32]).unwrap())
    }

    fn turned(keys: &TenantKeys, encrypts: bool, text: &str) -> String {
        let tenant = Tenant::new("acme").unwrap();
        let mut pass = Pass { keys, tenant: &tenant, encrypts, unreadable: None };
        let mut text = text.to_owned();
        pass.text(format_args!("place"), &mut text);
        text
    }

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof![".*", "~[a-z0-9]{1,4}:[A-Za-z0-9+/]{0,80}(#[0-9a-f]{32})?", "~.*:.*"]
    }

    proptest! {
        // Also a text that looks like an encrypted one: a provider chooses what its errors say.
        #[test]
        fn each_text_of_a_caller_is_encrypted_and_comes_back(text in texts()) {
            let keys = keys("k1");
            let stored = turned(&keys, true, &text);
            prop_assert!(stored.starts_with("~k1:") && stored != text);
            prop_assert_eq!(turned(&keys, false, &stored), text);
        }

        #[test]
        fn a_text_that_cannot_be_decrypted_is_written_back_as_it_was(text in ".*") {
            let stored = turned(&keys("k1"), true, &text);
            let shown = turned(&keys("k2"), false, &stored);
            prop_assert!(shown.starts_with(&stored), "{}", shown);
            prop_assert_eq!(turned(&keys("k2"), false, &shown), shown.clone());
            prop_assert_eq!(turned(&keys("k2"), true, &shown), stored);
        }
    }
}
