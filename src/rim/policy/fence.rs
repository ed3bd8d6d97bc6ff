//! The settings of the fence in a policy.

use std::time::Duration;

use super::Policy;
use super::choice::{FenceRole, FenceStore};
use super::file::FenceSection;
use super::span::Span;
use super::word::EnvName;

/// The settings of the fence in a policy.
#[derive(Clone, Copy, Debug)]
pub struct FencePolicy<'p> {
    policy: &'p Policy,
    section: &'p FenceSection,
}

impl<'p> FencePolicy<'p> {
    pub(super) const fn of(policy: &'p Policy, section: &'p FenceSection) -> Self {
        Self { policy, section }
    }

    /// The store of the claims, if `stores.fence` is set.
    pub fn store(&self) -> Option<FenceStore> {
        self.policy.file.stores.as_ref().and_then(|stores| stores.fence)
    }

    /// The role of the fence. Default: in front of the ledger.
    pub fn role(&self) -> FenceRole {
        self.section.role.unwrap_or(FenceRole::InFrontOfLedger)
    }

    /// The environment variable that holds the server's URL.
    pub fn url_variable(&self) -> &'p str {
        self.section.url.as_ref().map_or("REDIS_URL", EnvName::as_str)
    }

    /// The time to live of a claim that is not sealed. Default: 30 s.
    pub fn pending(&self) -> Duration {
        self.section.pending.map_or(Duration::from_secs(30), Span::duration)
    }

    /// The time to live of a sealed value. Default: 24 h.
    pub fn sealed(&self) -> Duration {
        self.section.sealed.map_or(Duration::from_hours(24), Span::duration)
    }
}
