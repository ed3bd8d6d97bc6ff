//! The checks of a delivery's signature: its sender and its time.

use std::time::Duration;

use super::{Found, PolicyRule, WebhookPolicy};
use crate::ledger::RetentionMode;
use crate::rim::policy::choice::WebhookScheme;
use crate::rim::policy::span::written;

/// The maximum tolerance for the deviation of clocks.
const WIDE: Duration = Duration::from_mins(15);

pub(super) fn signature(found: &mut Found<'_>, path: &str, source: WebhookPolicy<'_>) {
    if source.secret_variables().next().is_none() {
        let why = "without a secret nobody knows who sent a delivery: whoever knows the URL makes its effects happen";
        found.add(
            PolicyRule::WebhookWithoutSecret,
            &format!("{path}.secrets"),
            why,
            "secrets: [BANK_WEBHOOK_SECRET], the variable that holds it",
        );
    }
    if source.scheme() == WebhookScheme::Hmac && source.signature_header().is_none() {
        let why = "the scheme `hmac` does not say in which header the signature stands";
        found.add(
            PolicyRule::WebhookWithoutHeader,
            &format!("{path}.signature_header"),
            why,
            "signature_header: X-Signature",
        );
    }
    if source.scheme().signs_time() {
        tolerance(found, path, source);
    }
}

fn tolerance(found: &mut Found<'_>, path: &str, source: WebhookPolicy<'_>) {
    let (tolerance, ttl) = (source.tolerance(), source.ttl());
    let at = format!("{path}.tolerance");
    if source.retention().mode == RetentionMode::Forget && tolerance >= ttl {
        let why = format!(
            "a captured delivery is taken for {} after it was signed, and its id is forgotten after {}: it can be sent again",
            written(tolerance),
            written(ttl)
        );
        found.add(PolicyRule::ToleranceBeyondWindow, &at, why, "tolerance: 5 min");
    } else if tolerance > WIDE {
        let why = format!(
            "a captured delivery is taken for {} after it was signed, and clocks are not off by as much",
            written(tolerance)
        );
        found.add(PolicyRule::ToleranceWide, &at, why, "tolerance: 5 min");
    }
}
