//! The checks of the fence: its times to live if it is used alone, and the effects that it must not guard.

use std::time::Duration;

use super::windows::needed;
use super::{Found, PolicyRule};
use crate::rim::policy::choice::FenceRole;
use crate::rim::policy::fence::FencePolicy;
use crate::rim::policy::span::{told, written};

pub(super) fn fence(found: &mut Found<'_>, source: FencePolicy<'_>) {
    if source.store().is_none() {
        let why = "it is not said where the fence keeps its claims";
        found.add(PolicyRule::FenceWithoutStore, "fence", why, "stores: {fence: redis} (or sql)");
    }
    if source.sealed() < source.pending() {
        let why = "what was done is known for less time than what is being done: a retry finds nothing, and does it again";
        found.add(PolicyRule::FenceSealedBelowPending, "fence.sealed", why, "sealed: 24 hours");
    }
    if source.role() == FenceRole::Alone {
        alone(found, source);
    }
}

fn alone(found: &mut Found<'_>, source: FencePolicy<'_>) {
    let (rule, then) = if found.policy.has_payments() {
        (PolicyRule::FenceAloneWithPayments, "payments are then made again")
    } else {
        (PolicyRule::FenceAlone, "everything is then done again")
    };
    let lost = "what a fence knows is lost with its memory (a restart, FLUSHALL, eviction, failover)";
    found.add(rule, "fence.role", format!("{lost}: {then}"), "role: in_front_of_ledger");
    pending(found, source.pending());
    sealed(found, source.sealed());
}

fn pending(found: &mut Found<'_>, pending: Duration) {
    let of_http = found.policy.https().map(|source| source.timeout());
    let timeout = longest(of_http.chain(found.policy.queues().map(|source| source.timeout())));
    if pending <= timeout {
        let why = format!(
            "a claim ends after {}, and a handler may take {}: a retry is let in while the first one is still at work",
            told(pending),
            told(timeout)
        );
        let instead = format!("pending: {}, or more", written(needed(timeout)));
        found.add(PolicyRule::FencePendingBelowTimeout, "fence.pending", why, instead);
    }
}

fn sealed(found: &mut Found<'_>, sealed: Duration) {
    let of_http = found.policy.https().map(|source| source.retry_horizon());
    let of_webhooks = found.policy.webhooks().map(|source| source.retry_horizon());
    let of_queues = found.policy.queues().map(|source| source.retry_horizon());
    let horizon = longest(of_http.chain(of_webhooks).chain(of_queues));
    if !horizon.is_zero() && sealed < needed(horizon) {
        let why = format!(
            "what was done is known for {}, and a retry may come for {}: a later one is done again",
            told(sealed),
            told(horizon)
        );
        let instead = format!("sealed: {}, or more", written(needed(horizon)));
        found.add(PolicyRule::FenceSealedBelowHorizon, "fence.sealed", why, instead);
    }
}

/// The longest of these spans; zero if there are none.
fn longest(spans: impl Iterator<Item = Duration>) -> Duration {
    spans.max().unwrap_or_default()
}
