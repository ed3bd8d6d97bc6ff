//! What the fence is given.

use std::time::Duration;

use super::Policy;
use super::choice::{FenceRole, FenceStore};
use super::file::FenceSection;
use super::span::Span;
use super::word::EnvName;

/// What a policy says of the fence.
#[derive(Clone, Copy, Debug)]
pub struct FencePolicy<'p> {
    policy: &'p Policy,
    section: &'p FenceSection,
}

impl<'p> FencePolicy<'p> {
    pub(super) const fn of(policy: &'p Policy, section: &'p FenceSection) -> Self {
        Self { policy, section }
    }

    /// Where it keeps its claims, if `stores.fence` says it.
    pub fn store(&self) -> Option<FenceStore> {
        self.policy.file.stores.as_ref().and_then(|stores| stores.fence)
    }

    /// What it is for.
    pub fn role(&self) -> FenceRole {
        self.section.role.unwrap_or(FenceRole::InFrontOfLedger)
    }

    /// The environment variable that holds the server's URL.
    pub fn url_variable(&self) -> &'p str {
        self.section.url.as_ref().map_or("REDIS_URL", EnvName::as_str)
    }

    /// How long a claim holds whose holder says nothing more.
    pub fn pending(&self) -> Duration {
        self.section.pending.map_or(Duration::from_secs(30), Span::duration)
    }

    /// How long it is known that something was done.
    pub fn sealed(&self) -> Duration {
        self.section.sealed.map_or(Duration::from_hours(24), Span::duration)
    }
}
