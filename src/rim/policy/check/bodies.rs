//! The checks of the fields that a key is bound to, and of the answers to clients.

use super::{Field, Found, HttpPolicy, PolicyRule};
use crate::rim::policy::choice::WhileInFlight;
use crate::rim::policy::preset::Preset;

pub(super) fn http(found: &mut Found<'_>, path: &str, source: HttpPolicy<'_>) {
    let is_payment = source.preset() == Preset::Payment;
    if !source.requires_key() {
        let (rule, why) = if is_payment {
            (PolicyRule::PaymentWithoutKey, "a payment without a key is made again by each retry")
        } else {
            (
                PolicyRule::KeyNotRequired,
                "a request without a key is not guarded: each retry of it is done again",
            )
        };
        let field = Field::alike(path, "require_headers");
        found.add_inherited(rule, field, why, "require_headers: [Idempotency-Key]");
    }
    if !source.rejects_body_mismatch() && !is_payment {
        let field = Field::alike(path, "reject_on_body_mismatch");
        let why = "another body under a known key gets the first answer: what the client changed is lost without a word";
        let instead = "reject_on_body_mismatch: true, with `exclude` for what differs in each try";
        found.add_inherited(PolicyRule::BodyNotCompared, field, why, instead);
    }
    if source.section.in_flight == Some(WhileInFlight::Accepted) && source.status_at().is_none() {
        let why = "clients are sent to a status URL, and none is served: the layer refuses this";
        let at = format!("{path}.in_flight");
        found.add(PolicyRule::NoStatusUrl, &at, why, "status_at: /operations, beside it");
    }
}
