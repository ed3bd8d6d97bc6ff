//! The checks of the tenant: two tenants with one key must never meet.

use super::{Found, PolicyRule};
use crate::rim::policy::choice::TenantFrom;

/// Checks a request or a delivery from outside.
pub(super) fn of_client(found: &mut Found<'_>, path: &str, tenant: Option<TenantFrom>, instead: &str) {
    let at = format!("{path}.tenant");
    match tenant {
        None => missing(found, &at, instead),
        Some(TenantFrom::Header) => found.add(
            PolicyRule::TenantFromClient,
            &at,
            "whoever sends a request writes its headers: with another tenant's name and a guessed key it gets that tenant's answer",
            instead,
        ),
        Some(_) => {}
    }
}

/// Checks a message of the own system, whose headers its own publishers write.
pub(super) fn of_message(found: &mut Found<'_>, path: &str, tenant: Option<TenantFrom>) {
    if tenant.is_none() {
        missing(found, &format!("{path}.tenant"), "tenant: topic (or header, or single)");
    }
}

fn missing(found: &mut Found<'_>, at: &str, instead: &str) {
    let why = "it is not said where the tenant is known from: two tenants that use one key would get each other's answers";
    found.add(PolicyRule::MissingTenant, at, why, instead);
}
