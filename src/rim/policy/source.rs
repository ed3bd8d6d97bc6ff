//! The common settings of all sources: their names, kinds and defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use super::choice::{AfterTtl, LoggedField};
use super::http::HttpPolicy;
use super::nonce::NoncePolicy;
use super::preset::Preset;
use super::queue::QueuePolicy;
use super::span::Ttl;
use super::webhook::WebhookPolicy;
use super::word::SourceName;
use super::{Policy, PolicyError};
use crate::ledger::Retention;

/// The source of a section with this name.
pub(super) fn named<'p, S>(
    section: &'static str,
    sources: Option<&'p BTreeMap<SourceName, S>>,
    name: &str,
) -> Result<(&'p str, &'p S), PolicyError> {
    let found = sources.and_then(|sources| sources.get_key_value(name));
    found.map(|(name, source)| (name.as_str(), source)).ok_or_else(|| {
        let known: Vec<_> = sources.into_iter().flat_map(BTreeMap::keys).map(SourceName::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        PolicyError::NoSuchSource { section, name: name.to_owned(), known }
    })
}

impl Policy {
    pub(super) fn https(&self) -> impl Iterator<Item = HttpPolicy<'_>> {
        all(self.file.http.as_ref()).map(|(name, section)| HttpPolicy::of(self, name, section))
    }

    pub(super) fn webhooks(&self) -> impl Iterator<Item = WebhookPolicy<'_>> {
        all(self.file.webhooks.as_ref()).map(|(name, section)| WebhookPolicy::of(self, name, section))
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = QueuePolicy<'_>> {
        all(self.file.queues.as_ref()).map(|(name, section)| QueuePolicy::of(self, name, section))
    }

    pub(super) fn nonces(&self) -> impl Iterator<Item = NoncePolicy<'_>> {
        all(self.file.nonces.as_ref()).map(|(name, section)| NoncePolicy::of(self, name, section))
    }

    /// True if a source moves money.
    pub(super) fn has_payments(&self) -> bool {
        let kinds = self.https().map(|source| source.preset());
        let kinds = kinds.chain(self.webhooks().map(|source| source.preset()));
        kinds.chain(self.queues().map(|source| source.preset())).any(|preset| preset == Preset::Payment)
    }

    /// The time for which first answers are kept: set by the source, else by the file for the kind, else by the kind.
    pub(super) fn ttl(&self, of_source: Option<Ttl>, preset: Preset) -> Duration {
        let of_file = self.file.ttl.as_ref().and_then(|ttl| match preset {
            Preset::Api => ttl.api,
            Preset::Webhook => ttl.webhook,
            Preset::Batch => ttl.batch,
            Preset::Payment => ttl.payment,
        });
        of_source.or(of_file).map_or_else(|| preset.ttl(), Ttl::duration)
    }

    /// The fields that doors log.
    #[cfg(feature = "_doors")]
    #[cfg_attr(
        not(any(feature = "_messages", feature = "_sealed")),
        allow(dead_code, reason = "the fence logs all fields")
    )]
    pub(super) fn log_fields(&self) -> crate::rim::door::LogFields {
        crate::rim::door::LogFields {
            tenant: self.logs(LoggedField::Tenant),
            idempotency_key: self.logs(LoggedField::IdempotencyKey),
            decision: self.logs(LoggedField::Decision),
            effect_id: self.logs(LoggedField::EffectId),
            source_type: self.logs(LoggedField::SourceType),
            source_id: self.logs(LoggedField::SourceId),
        }
    }

    /// True if doors log this field. Default: true.
    pub(super) fn logs(&self, field: LoggedField) -> bool {
        let fields = self.file.logging.as_ref().and_then(|logging| logging.include_fields.as_ref());
        fields.is_none_or(|fields| fields.contains(&field))
    }
}

/// All sources of a section.
fn all<S>(sources: Option<&BTreeMap<SourceName, S>>) -> impl Iterator<Item = (&str, &S)> {
    sources.into_iter().flatten().map(|(name, source)| (name.as_str(), source))
}

/// The retention of records with this ttl.
pub(super) fn retention(after: Option<AfterTtl>, ttl: Duration) -> Retention {
    match after.unwrap_or(AfterTtl::Tombstone) {
        AfterTtl::Tombstone => Retention::tombstone_after(ttl),
        AfterTtl::Forget => Retention::forget_after(ttl),
        AfterTtl::Keep => Retention::keep(),
    }
}
