//! What a key is bound to, and what its clients are told.

use super::{Found, HttpPolicy, PolicyRule};
use crate::rim::policy::choice::WhileInFlight;
use crate::rim::policy::preset::Preset;
use crate::rim::policy::word::Pointer;

pub(super) fn http(found: &mut Found<'_>, path: &str, source: HttpPolicy<'_>) {
    let is_payment = source.preset() == Preset::Payment;
    if !source.requires_key() {
        let own = format!("{path}.require_headers");
        let at = found.said(&[&own, "require_headers"]).to_owned();
        let instead = "require_headers: [Idempotency-Key]";
        if is_payment {
            let why = "a payment without a key is made again by each retry";
            found.add(PolicyRule::PaymentWithoutKey, &at, why, instead);
        } else {
            let why = "a request without a key is not guarded: each retry of it is done again";
            found.add(PolicyRule::KeyNotRequired, &at, why, instead);
        }
    }
    if !source.rejects_body_mismatch() && !is_payment {
        let own = format!("{path}.reject_on_body_mismatch");
        let at = found.said(&[&own, "reject_on_body_mismatch"]).to_owned();
        let why = "another body under a known key gets the first answer: what the client changed is lost without a word";
        found.add(
            PolicyRule::BodyNotCompared,
            &at,
            why,
            "reject_on_body_mismatch: true, with `exclude` for what differs in each try",
        );
    }
    if !is_payment && excludes_all(source) {
        let why = "the empty pointer is that of the whole body, which a layer does not take out by `exclude`";
        found.add(
            PolicyRule::BodyNotCompared,
            &format!("{path}.exclude"),
            why,
            "the pointers of the fields that differ in each try",
        );
    }
    if source.section.in_flight == Some(WhileInFlight::Accepted) && source.section.status_at.is_none() {
        let why = "clients are sent to a status URL, and none is served: the layer refuses this";
        found.add(
            PolicyRule::NoStatusUrl,
            &format!("{path}.in_flight"),
            why,
            "status_at: /operations, beside it",
        );
    }
}

/// The whole body is excluded.
pub(super) fn excludes_all(source: HttpPolicy<'_>) -> bool {
    source.section.exclude.iter().flatten().any(|pointer| Pointer::as_str(pointer).is_empty())
}
