//! A broker that gives a message up before we do: that is a loss without a word.

use super::{Found, PolicyRule, QueuePolicy};
use crate::rim::policy::span::written;

pub(super) fn broker(found: &mut Found<'_>, path: &str, source: QueuePolicy<'_>) {
    let (tries, tried_for) = (source.tries(), source.tried_for());
    // One more: the delivery after the last try is the one with which the message is set aside.
    if let Some(deliveries) = source.broker_deliveries().filter(|deliveries| *deliveries <= tries) {
        let why = format!(
            "the broker delivers a message {deliveries} times, and it is set aside after {tries} tries: the broker ends first, and the message is gone"
        );
        let instead =
            format!("broker_deliveries: {}, there and here, or fewer `tries`", tries.saturating_add(1));
        found.add(PolicyRule::BrokerEndsFirst, &format!("{path}.broker_deliveries"), why, instead);
    }
    if let Some(kept) = source.broker_retention().filter(|kept| *kept < tried_for) {
        let why = format!(
            "the broker keeps a message for {}, and its tries take up to {}: the broker drops it before it is set aside",
            written(kept),
            written(tried_for)
        );
        let instead = format!(
            "broker_retention: {}, there and here, or fewer `tries`",
            written(super::windows::needed(tried_for))
        );
        found.add(PolicyRule::BrokerEndsFirst, &format!("{path}.broker_retention"), why, instead);
    }
}
