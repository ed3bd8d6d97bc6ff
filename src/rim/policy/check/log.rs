//! The checks of the logged fields: they must allow to explain a duplicate afterwards.

use super::{Found, PolicyRule};
use crate::rim::policy::choice::LoggedField;

pub(super) fn fields(found: &mut Found<'_>) {
    let evidence = [
        (LoggedField::IdempotencyKey, "idempotency_key"),
        (LoggedField::Decision, "decision"),
        (LoggedField::EffectId, "effect_id"),
    ];
    let missing: Vec<_> =
        evidence.iter().filter(|(field, _)| !found.policy.logs(*field)).map(|(_, name)| *name).collect();
    if !missing.is_empty() {
        let why = format!(
            "the log does not say {}: nobody can tell afterwards which record a duplicate was answered from",
            missing.join(", ")
        );
        let instead = format!("include_fields with {}, too", missing.join(", "));
        found.add(PolicyRule::LogWithoutEvidence, "logging.include_fields", why, instead);
    }
}
