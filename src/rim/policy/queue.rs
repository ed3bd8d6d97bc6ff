//! The settings of a queue consumer in a policy.

use std::time::Duration;

use super::Policy;
use super::choice::{BrokerKind, OnUnknown, TenantFrom};
use super::file::QueueSection;
use super::plain::Count;
use super::preset::Preset;
use super::source::retention;
use super::span::Span;
use crate::ledger::Retention;

/// The settings of a queue consumer in a policy.
#[derive(Clone, Copy, Debug)]
pub struct QueuePolicy<'p> {
    pub(super) policy: &'p Policy,
    name: &'p str,
    pub(super) section: &'p QueueSection,
}

impl<'p> QueuePolicy<'p> {
    pub(super) const fn of(policy: &'p Policy, name: &'p str, section: &'p QueueSection) -> Self {
        Self { policy, name, section }
    }

    /// The name of the source in the file.
    pub const fn name(&self) -> &'p str {
        self.name
    }

    /// The kind of broker. Default: NATS.
    pub fn broker(&self) -> BrokerKind {
        self.section.broker.unwrap_or(BrokerKind::Nats)
    }

    /// The name of the subject or queue. Default: the name of the source.
    pub fn subject(&self) -> &'p str {
        self.section.subject.as_deref().unwrap_or(self.name)
    }

    /// The kind of source. Default: `batch`.
    pub fn preset(&self) -> Preset {
        self.section.preset.unwrap_or(Preset::Batch)
    }

    /// The source of the tenant, if set.
    pub const fn tenant(&self) -> Option<TenantFrom> {
        self.section.tenant
    }

    /// The parts of the key that identifies a message: names that doors know, `/pointers` into the body, and
    /// `header:Name`.
    pub fn key(&self) -> Vec<&'p str> {
        match &self.section.key {
            Some(parts) => parts.iter().map(super::word::KeyPart::as_str).collect(),
            None => vec!["topic", "partition", "message_key", "dedupe_id"],
        }
    }

    /// The number of tries before a message is set aside. Default: 10.
    pub fn tries(&self) -> u32 {
        self.section.tries.map_or(10, Count::get)
    }

    /// The pause before a message is tried again. Default: 30 s.
    pub fn retry_delay(&self) -> Duration {
        self.section.retry_delay.map_or(Duration::from_secs(30), Span::duration)
    }

    /// The time limit of a handler. Default: five minutes.
    pub fn timeout(&self) -> Duration {
        self.section.timeout.map_or(Duration::from_mins(5), Span::duration)
    }

    /// The place where messages that fail each time are set aside; in the ledger if absent.
    pub fn set_aside(&self) -> Option<&'p str> {
        self.section.set_aside.as_deref()
    }

    /// The number of times that the broker delivers a message, if set.
    pub fn broker_deliveries(&self) -> Option<u32> {
        self.section.broker_deliveries.map(Count::get)
    }

    /// The time for which the broker keeps a message, if set.
    pub fn broker_retention(&self) -> Option<Duration> {
        self.section.broker_retention.map(Span::duration)
    }

    /// The time for which messages are remembered.
    pub fn ttl(&self) -> Duration {
        self.policy.ttl(self.section.ttl, self.preset())
    }

    /// The retention of messages: their ttl, and the remainder after it.
    pub fn retention(&self) -> Retention {
        retention(self.section.after_ttl, self.ttl())
    }

    /// The time until which a message may come again, counted from its first delivery. Default: as long as the broker
    /// keeps it, or else the default of the preset.
    pub fn retry_horizon(&self) -> Duration {
        let said = self.section.retry_horizon.or(self.section.broker_retention);
        said.map_or_else(|| self.preset().retry_horizon(), Span::duration)
    }

    /// The longest time that the tries of a message may take: the time limit of a handler for each, and the pauses
    /// between them.
    pub fn tried_for(&self) -> Duration {
        let tries = self.tries();
        let handling = self.timeout().saturating_mul(tries);
        handling.saturating_add(self.retry_delay().saturating_mul(tries - 1))
    }

    /// The treatment of a message whose handler died. Default: transaction.
    pub fn on_unknown(&self) -> OnUnknown {
        self.section.on_unknown.unwrap_or(OnUnknown::Transaction)
    }
}
