//! The defaults for each kind of source, with their reasons.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// A kind of source. Its numbers are the defaults of every source of that kind.
///
/// ```
/// use counterfoil::policy::Preset;
/// use std::time::Duration;
/// assert_eq!(Preset::Webhook.ttl(), Duration::from_hours(7 * 24));
/// println!("{}", Preset::Webhook.why());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Requests of clients that wait for an answer.
    Api,
    /// Events that a provider sends until they are acknowledged.
    Webhook,
    /// Jobs and messages, also such as are run again by hand.
    Batch,
    /// Whatever moves money.
    Payment,
}

impl Preset {
    /// All variants of the enum.
    pub const ALL: [Self; 4] = [Self::Api, Self::Webhook, Self::Batch, Self::Payment];

    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Webhook => "webhook",
            Self::Batch => "batch",
            Self::Payment => "payment",
        }
    }

    /// The default time for which a first answer is kept.
    pub const fn ttl(self) -> Duration {
        Duration::from_secs(match self {
            Self::Api => 3 * DAY,
            Self::Webhook => 7 * DAY,
            Self::Batch => 30 * DAY,
            Self::Payment => 90 * DAY,
        })
    }

    /// The default time until which a retry of a request may come, counted from its first try, unless the sender's
    /// scheme has another.
    pub const fn retry_horizon(self) -> Duration {
        Duration::from_secs(match self {
            Self::Api => DAY,
            Self::Webhook => 3 * DAY,
            Self::Batch | Self::Payment => 7 * DAY,
        })
    }

    /// The reasons for these defaults.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Api => {
                "Clients retry for minutes, and people and queues of phones for a day: providers keep keys for at least 24 hours. \
                 Three days last over a weekend."
            }
            Self::Webhook => {
                "Standard Webhooks retries for 75 h 35 min and Stripe for three days, and a person sends events again by hand after \
                 that. Seven days are longer than both."
            }
            Self::Batch => {
                "A job that failed on Friday is run again on Monday, a broker keeps messages for a week, and a month is closed once \
                 more. Thirty days are longer than all three."
            }
            Self::Payment => {
                "A failed charge is tried again for a week, and disputed for months. The answer is kept for 90 days, and the key with \
                 digests for ever, so that no later retry pays again."
            }
        }
    }
}
