//! The stricter checks of sources that move money.

use super::{Field, Found, HttpPolicy, PolicyRule, QueuePolicy, WebhookPolicy};
use crate::ledger::{Retention, RetentionMode};
use crate::rim::policy::choice::OnUnknown;
use crate::rim::policy::preset::Preset;

/// The names of fields that contain the amount, the payer or the payee.
const SAYS_WHAT_IS_PAID: [&str; 12] = [
    "amount",
    "currency",
    "cents",
    "total",
    "price",
    "recipient",
    "payee",
    "account",
    "iban",
    "destination",
    "customer",
    "card",
];

pub(super) fn http(found: &mut Found<'_>, path: &str, source: HttpPolicy<'_>) {
    if source.preset() != Preset::Payment {
        return;
    }
    lookup(found, path, source.on_unknown());
    forgotten(found, path, source.retention());
    if !source.rejects_body_mismatch() {
        let field = Field::alike(path, "reject_on_body_mismatch");
        let why = "another payment under a known key is taken for the first one: the client is told that it was paid, and it was not";
        found.add_inherited(PolicyRule::PaymentBodyNotCompared, field, why, "reject_on_body_mismatch: true");
    }
    for (number, pointer) in source.section.exclude.iter().flatten().enumerate() {
        let last = pointer.as_str().rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        if SAYS_WHAT_IS_PAID.contains(&last.as_str()) {
            let why = "this says what is paid, and is not compared: another payment under a known key is taken for the first one";
            let instead = "`redact`, if it must not be shown: it is compared all the same";
            found.add(PolicyRule::PaymentBodyNotCompared, &format!("{path}.exclude[{number}]"), why, instead);
        }
    }
    let shows_all = source.includes_diff() && source.section.redact.as_ref().is_none_or(Vec::is_empty);
    if shows_all && source.rejects_body_mismatch() {
        let why = "a conflict shows what differs between two payments, and nothing is redacted: a card number could be shown and logged by clients";
        let field = Field::alike(path, "on_conflict.include_diff");
        let instead = "redact: [/card/number], or on_conflict: {include_diff: false}";
        found.add_inherited(PolicyRule::PaymentDiffShown, field, why, instead);
    }
}

pub(super) fn webhook(found: &mut Found<'_>, path: &str, source: WebhookPolicy<'_>) {
    if source.preset() == Preset::Payment {
        lookup(found, path, source.on_unknown());
        forgotten(found, path, source.retention());
    }
}

pub(super) fn queue(found: &mut Found<'_>, path: &str, source: QueuePolicy<'_>) {
    if source.preset() == Preset::Payment {
        lookup(found, path, source.on_unknown());
        forgotten(found, path, source.retention());
    }
}

fn lookup(found: &mut Found<'_>, path: &str, on_unknown: OnUnknown) {
    if on_unknown == OnUnknown::Ask {
        let why = "a payment whose handler died cannot be looked up: nobody knows whether it was paid, and whoever guesses pays twice or not at all";
        let instead = "on_unknown: lookup, with a lookup in code (or transaction, if it moves nothing but rows of the ledger's database)";
        found.add(PolicyRule::PaymentWithoutLookup, &format!("{path}.on_unknown"), why, instead);
    }
}

fn forgotten(found: &mut Found<'_>, path: &str, retention: Retention) {
    if retention.mode == RetentionMode::Forget {
        let why = "the key is new after the ttl: a retry that comes later than planned pays again";
        found.add(PolicyRule::PaymentForgotten, &format!("{path}.after_ttl"), why, "after_ttl: tombstone");
    }
}
