//! The checks of windows: a window must not end before the last retry.

use std::time::Duration;

use super::{Field, Found, HttpPolicy, NoncePolicy, PolicyRule, QueuePolicy, WebhookPolicy};
use crate::ledger::{Retention, RetentionMode};
use crate::rim::policy::span::{told, written};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const TWO_DAYS: u64 = 2 * DAY;

/// The minimum window, which has room for a try and its retries: `Nonces::within` refuses a shorter one.
const SHORTEST_NONCE: Duration = Duration::from_secs(8);

/// The minimum window for retries that may come until `horizon`: a quarter more, at most a day, for deviating clocks
/// and for a last retry in flight. The result is rounded up to the units that people write: days beyond two days,
/// hours beyond an hour, minutes below.
pub(super) fn needed(horizon: Duration) -> Duration {
    let horizon = horizon.as_secs();
    let seconds = horizon.saturating_add((horizon / 4).min(DAY));
    let unit = match seconds {
        0..HOUR => MINUTE,
        HOUR..=TWO_DAYS => HOUR,
        _ => DAY,
    };
    Duration::from_secs(seconds.div_ceil(unit).saturating_mul(unit))
}

pub(super) fn http(found: &mut Found<'_>, path: &str, source: HttpPolicy<'_>) {
    let kept =
        Kept { path, ttl: source.ttl(), retention: source.retention(), preset: source.preset().name() };
    let retries = "a client may retry";
    kept.below(found, PolicyRule::WindowBelowHorizon, source.retry_horizon(), retries);
}

pub(super) fn webhook(found: &mut Found<'_>, path: &str, source: WebhookPolicy<'_>) {
    body_window(found, path, source);
    let kept =
        Kept { path, ttl: source.ttl(), retention: source.retention(), preset: source.preset().name() };
    // The known schedule of the sender counts, even if the file names a shorter time.
    if let Some(schedule) = source.scheme().retry_horizon()
        && source.ttl() < needed(schedule)
    {
        let retries = format!("a sender of the scheme `{}` retries", source.scheme().name());
        kept.below(found, PolicyRule::WebhookWindowBelowSender, schedule, &retries);
        return;
    }
    kept.below(found, PolicyRule::WindowBelowHorizon, source.retry_horizon(), "the sender may retry");
}

/// Checks the window of bodies that distinguish deliveries: a retry after the window is a new delivery.
fn body_window(found: &mut Found<'_>, path: &str, source: WebhookPolicy<'_>) {
    let enough = needed(source.retry_horizon());
    if let Some(window) = source.body_window().filter(|window| *window < enough) {
        let why = format!(
            "equal bodies are one delivery for {}, and the sender may retry for {}: a later try is done a second time",
            told(window),
            told(source.retry_horizon())
        );
        let at = format!("{path}.body_window");
        found.add(
            PolicyRule::WindowBelowHorizon,
            &at,
            why,
            format!("body_window: {}, or more", written(enough)),
        );
    }
}

pub(super) fn queue(found: &mut Found<'_>, path: &str, source: QueuePolicy<'_>) {
    let kept =
        Kept { path, ttl: source.ttl(), retention: source.retention(), preset: source.preset().name() };
    let horizon = source.retry_horizon().max(source.tried_for());
    kept.below(found, PolicyRule::WindowBelowHorizon, horizon, "a message may come again");
}

pub(super) fn nonce(found: &mut Found<'_>, path: &str, source: NoncePolicy<'_>) {
    let (window, horizon) = (source.window(), source.retry_horizon());
    let at = format!("{path}.window");
    if window < SHORTEST_NONCE {
        let why = "the window is too short for a try and its retries: the second try may find it over";
        found.add(PolicyRule::NonceWindowShort, &at, why, "window: 300 s");
    } else if window < needed(horizon) {
        let why = format!(
            "the window is {}, and a client may retry for {}: a later try is made a second time",
            told(window),
            told(horizon)
        );
        found.add(
            PolicyRule::WindowBelowHorizon,
            &at,
            why,
            format!("window: {}, or more", written(needed(horizon))),
        );
    } else if window > Duration::from_secs(DAY) {
        let why = "a nonce is short and forgotten after its window: what must not happen twice tomorrow either belongs under a key";
        found.add(PolicyRule::NonceWindowLong, &at, why, "an entry under `http`, with an `Idempotency-Key`");
    }
}

/// The time for which a source remembers requests.
struct Kept<'a> {
    path: &'a str,
    ttl: Duration,
    retention: Retention,
    preset: &'a str,
}

impl Kept<'_> {
    fn below(&self, found: &mut Found<'_>, rule: PolicyRule, horizon: Duration, retries: &str) {
        let Self { path, ttl, retention, preset } = self;
        let enough = needed(horizon);
        if retention.mode == RetentionMode::Keep || *ttl >= enough {
            return;
        }
        let then = match retention.mode {
            RetentionMode::Forget => "a retry after that is done a second time",
            RetentionMode::Tombstone | RetentionMode::Keep => {
                "a retry after that is told that it was done, and never gets its answer"
            }
        };
        let why = format!(
            "answers are kept for {}, and {retries} for {}, with its margin {}: {then}",
            told(*ttl),
            told(horizon),
            told(enough)
        );
        let enough = written(enough);
        let instead = format!("ttl: {enough}, or more (for all of its kind: ttl: {{{preset}: {enough}}})");
        let field = Field { source: path, name: "ttl", of_file: &format!("ttl.{preset}") };
        found.add_inherited(rule, field, &why, &instead);
    }
}
