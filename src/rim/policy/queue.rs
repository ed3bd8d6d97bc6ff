//! What a queue consumer is given.

use std::time::Duration;

use super::Policy;
use super::choice::{BrokerKind, OnUnknown, TenantFrom};
use super::file::QueueSection;
use super::plain::Count;
use super::preset::Preset;
use super::source::retention;
use super::span::Span;
use crate::ledger::Retention;

/// What a policy says of a queue consumer.
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

    /// Its name in the file.
    pub const fn name(&self) -> &'p str {
        self.name
    }

    /// The broker.
    pub fn broker(&self) -> BrokerKind {
        self.section.broker.unwrap_or(BrokerKind::Nats)
    }

    /// The subject or queue.
    pub fn subject(&self) -> &'p str {
        self.section.subject.as_deref().unwrap_or(self.name)
    }

    /// The kind of source.
    pub fn preset(&self) -> Preset {
        self.section.preset.unwrap_or(Preset::Batch)
    }

    /// Where the tenant is known from, if it is said.
    pub const fn tenant(&self) -> Option<TenantFrom> {
        self.section.tenant
    }

    /// What makes two messages one: names that doors know, `/pointers` into the body, and `header:Name`.
    pub fn key(&self) -> Vec<&'p str> {
        match &self.section.key {
            Some(parts) => parts.iter().map(super::word::KeyPart::as_str).collect(),
            None => vec!["topic", "partition", "message_key", "dedupe_id"],
        }
    }

    /// How often a message is tried before it is set aside.
    pub fn tries(&self) -> u32 {
        self.section.tries.map_or(10, Count::get)
    }

    /// The pause before a message is tried again.
    pub fn retry_delay(&self) -> Duration {
        self.section.retry_delay.map_or(Duration::from_secs(30), Span::duration)
    }

    /// How long a handler may take.
    pub fn timeout(&self) -> Duration {
        self.section.timeout.map_or(Duration::from_mins(5), Span::duration)
    }

    /// Where messages are set aside that fail each time; in the ledger if absent.
    pub fn set_aside(&self) -> Option<&'p str> {
        self.section.set_aside.as_deref()
    }

    /// How often the broker delivers a message, if that is said.
    pub fn broker_deliveries(&self) -> Option<u32> {
        self.section.broker_deliveries.map(Count::get)
    }

    /// How long the broker keeps a message, if that is said.
    pub fn broker_retention(&self) -> Option<Duration> {
        self.section.broker_retention.map(Span::duration)
    }

    /// How long messages are remembered.
    pub fn ttl(&self) -> Duration {
        self.policy.ttl(self.section.ttl, self.preset())
    }

    /// The same, with what is left afterwards.
    pub fn retention(&self) -> Retention {
        retention(self.section.after_ttl, self.ttl())
    }

    /// Until when a message may come again, counted from its first delivery: as long as the broker keeps it unless it is said.
    pub fn retry_horizon(&self) -> Duration {
        let said = self.section.retry_horizon.or(self.section.broker_retention);
        said.map_or_else(|| self.preset().retry_horizon(), Span::duration)
    }

    /// For how long a message is tried: all its tries, each for as long as a handler may take, and the pauses between them.
    pub fn tried_for(&self) -> Duration {
        let tries = self.tries();
        let handling = self.timeout().saturating_mul(tries);
        handling.saturating_add(self.retry_delay().saturating_mul(tries - 1))
    }

    /// What becomes of a message whose handler died.
    pub fn on_unknown(&self) -> OnUnknown {
        self.section.on_unknown.unwrap_or(OnUnknown::Transaction)
    }
}
