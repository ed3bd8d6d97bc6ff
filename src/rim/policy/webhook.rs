//! The settings of a sender of webhooks in a policy.

use std::time::Duration;

use super::Policy;
use super::choice::{OnUnknown, TenantFrom, WebhookScheme};
use super::file::WebhookSection;
use super::plain::Count;
use super::preset::Preset;
use super::source::retention;
use super::span::Span;
use crate::ledger::Retention;

const HOUR: u64 = 3600;

impl WebhookScheme {
    /// The time until which the sender retries, if its schedule is known: Standard Webhooks waits 5 s, 5 min, 30 min,
    /// 2, 5, 10, 14, 20 and 24 h between its tries; Stripe retries for three days; GitHub allows redeliveries for
    /// three days.
    pub const fn retry_horizon(self) -> Option<Duration> {
        match self {
            Self::Standard => Some(Duration::from_secs(75 * HOUR + 35 * 60 + 5)),
            Self::Stripe | Self::Github => Some(Duration::from_secs(72 * HOUR)),
            Self::Hmac => None,
        }
    }

    /// The name of the scheme in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Stripe => "stripe",
            Self::Github => "github",
            Self::Hmac => "hmac",
        }
    }

    /// True if the scheme signs the id of the event.
    #[cfg(all(feature = "webhook", any(feature = "sqlite", feature = "postgres")))]
    const fn signs_id(self) -> bool {
        matches!(self, Self::Standard | Self::Stripe)
    }

    /// True if the scheme signs the time of sending together with the body.
    pub(super) const fn signs_time(self) -> bool {
        matches!(self, Self::Standard | Self::Stripe)
    }
}

/// The settings of a sender of webhooks in a policy.
#[derive(Clone, Copy, Debug)]
pub struct WebhookPolicy<'p> {
    pub(super) policy: &'p Policy,
    name: &'p str,
    pub(super) section: &'p WebhookSection,
}

impl<'p> WebhookPolicy<'p> {
    pub(super) const fn of(policy: &'p Policy, name: &'p str, section: &'p WebhookSection) -> Self {
        Self { policy, name, section }
    }

    /// The name of the source in the file.
    pub const fn name(&self) -> &'p str {
        self.name
    }

    /// The scheme of the signatures. Default: Standard Webhooks.
    pub fn scheme(&self) -> WebhookScheme {
        self.section.scheme.unwrap_or(WebhookScheme::Standard)
    }

    /// The environment variables that hold the sender's secrets. A delivery is accepted if one of them has signed it.
    pub fn secret_variables(&self) -> impl Iterator<Item = &'p str> {
        self.section.secrets.iter().flatten().map(super::word::EnvName::as_str)
    }

    /// The header of the signature, for a scheme that leaves it open.
    pub fn signature_header(&self) -> Option<&'p str> {
        self.section.signature_header.as_ref().map(super::word::Header::as_str)
    }

    /// The maximum deviation of the sender's clock, in both directions. Default: five minutes.
    pub fn tolerance(&self) -> Duration {
        self.section.tolerance.map_or(Duration::from_mins(5), Span::duration)
    }

    /// The source of the tenant, if set.
    pub const fn tenant(&self) -> Option<TenantFrom> {
        self.section.tenant
    }

    /// The kind of source. Default: `webhook`.
    pub fn preset(&self) -> Preset {
        self.section.preset.unwrap_or(Preset::Webhook)
    }

    /// The parts of the key that identifies a delivery: names that doors know, `/pointers` into the body, and
    /// `header:Name`.
    pub fn key(&self) -> Vec<&'p str> {
        match &self.section.key {
            Some(parts) => parts.iter().map(super::word::KeyPart::as_str).collect(),
            None => vec!["provider", "event_id", "version", "action"],
        }
    }

    /// True if the signature does not cover a part of the key: whoever has captured a delivery can send its body under
    /// another one.
    #[cfg(all(feature = "webhook", any(feature = "sqlite", feature = "postgres")))]
    pub(super) fn key_is_unsigned(&self) -> bool {
        let is_unsigned =
            |part: &&str| part.starts_with("header:") || (*part == "event_id" && !self.scheme().signs_id());
        self.key().iter().any(is_unsigned)
    }

    /// The JSON pointer to the version of an event's subject in its body.
    pub fn version(&self) -> Option<&'p str> {
        self.section.version.as_ref().map(super::word::Pointer::as_str)
    }

    /// The time within which equal bodies are one delivery, for senders without an id.
    pub fn body_window(&self) -> Option<Duration> {
        self.section.body_window.map(Span::duration)
    }

    /// The maximum size of a body, in bytes. Default: 1 MiB.
    pub fn max_body_bytes(&self) -> u32 {
        self.section.max_body_bytes.map_or(1 << 20, Count::get)
    }

    /// The time for which deliveries are remembered.
    pub fn ttl(&self) -> Duration {
        self.policy.ttl(self.section.ttl, self.preset())
    }

    /// The retention of deliveries: their ttl, and the remainder after it.
    pub fn retention(&self) -> Retention {
        retention(self.section.after_ttl, self.ttl())
    }

    /// The time until which the sender retries, counted from the first try.
    pub fn retry_horizon(&self) -> Duration {
        let of_scheme = || self.scheme().retry_horizon().unwrap_or_else(|| self.preset().retry_horizon());
        self.section.retry_horizon.map_or_else(of_scheme, Span::duration)
    }

    /// The treatment of a delivery whose handler died. Default: transaction.
    pub fn on_unknown(&self) -> OnUnknown {
        self.section.on_unknown.unwrap_or(OnUnknown::Transaction)
    }
}
