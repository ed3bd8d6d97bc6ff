//! What the fence must hold if it stands alone, and what it must not be asked to hold.

use std::time::Duration;

use super::windows::needed;
use super::{Found, PolicyRule};
use crate::rim::policy::choice::FenceRole;
use crate::rim::policy::fence::FencePolicy;
use crate::rim::policy::span::written;

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
    let at = "fence.role";
    if found.policy.has_payments() {
        let why = "what a fence knows is lost with its memory (a restart, FLUSHALL, eviction, failover): payments are then made again";
        found.add(PolicyRule::FenceAloneWithPayments, at, why, "role: in_front_of_ledger");
    } else {
        let why = "what a fence knows is lost with its memory (a restart, FLUSHALL, eviction, failover): everything is then done again";
        found.add(PolicyRule::FenceAlone, at, why, "role: in_front_of_ledger");
    }
    let timeout = longest(
        found
            .policy
            .https()
            .map(|source| source.timeout())
            .chain(found.policy.queues().map(|source| source.timeout())),
    );
    if source.pending() <= timeout {
        let why = format!(
            "a claim ends after {}, and a handler may take {}: a retry is let in while the first one is still at work",
            written(source.pending()),
            written(timeout)
        );
        found.add(
            PolicyRule::FencePendingBelowTimeout,
            "fence.pending",
            why,
            format!("pending: {}, or more", written(needed(timeout))),
        );
    }
    let https = found.policy.https().map(|source| source.retry_horizon());
    let webhooks = found.policy.webhooks().map(|source| source.retry_horizon());
    let queues = found.policy.queues().map(|source| source.retry_horizon());
    let horizon = longest(https.chain(webhooks).chain(queues));
    if !horizon.is_zero() && source.sealed() < needed(horizon) {
        let why = format!(
            "what was done is known for {}, and a retry may come for {}: a later one is done again",
            written(source.sealed()),
            written(horizon)
        );
        found.add(
            PolicyRule::FenceSealedBelowHorizon,
            "fence.sealed",
            why,
            format!("sealed: {}, or more", written(needed(horizon))),
        );
    }
}

fn longest(spans: impl Iterator<Item = Duration>) -> Duration {
    spans.max().unwrap_or_default()
}
