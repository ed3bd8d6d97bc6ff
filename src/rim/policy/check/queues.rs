//! The checks of the broker's limits: a broker that drops a message before its tries end loses it silently.

use super::{Found, PolicyRule, QueuePolicy};
use crate::rim::policy::span::{told, written};

pub(super) fn broker(found: &mut Found<'_>, path: &str, source: QueuePolicy<'_>) {
    let (tries, tried_for) = (source.tries(), source.tried_for());
    if let Some(deliveries) = source.broker_deliveries() {
        let why = format!(
            "the broker stops after {deliveries} deliveries, and restarts and outages use them up, too, beside our {tries} tries: a \
             message that it stops delivering is lost without a word"
        );
        let instead = "no limit at the broker, and no `broker_deliveries` here: a message is set aside after its `tries`";
        found.add(PolicyRule::BrokerEndsFirst, &format!("{path}.broker_deliveries"), why, instead);
    }
    if let Some(kept) = source.broker_retention().filter(|kept| *kept < tried_for) {
        let why = format!(
            "the broker keeps a message for {}, and its tries take up to {}: the broker drops it before it is set aside",
            told(kept),
            told(tried_for)
        );
        let instead = format!(
            "broker_retention: {}, there and here, or fewer `tries`",
            written(super::windows::needed(tried_for))
        );
        found.add(PolicyRule::BrokerEndsFirst, &format!("{path}.broker_retention"), why, instead);
    }
}
