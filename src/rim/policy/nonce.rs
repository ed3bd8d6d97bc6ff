//! What the makers of nonces are given.

use std::time::Duration;

use super::Policy;
use super::choice::TenantFrom;
use super::file::NonceSection;
use super::span::Span;

/// What a policy says of a kind of things that are made once within minutes.
#[derive(Clone, Copy, Debug)]
pub struct NoncePolicy<'p> {
    #[cfg_attr(not(feature = "nonce"), allow(dead_code))]
    policy: &'p Policy,
    kind: &'p str,
    section: &'p NonceSection,
}

impl<'p> NoncePolicy<'p> {
    pub(super) const fn of(policy: &'p Policy, kind: &'p str, section: &'p NonceSection) -> Self {
        Self { policy, kind, section }
    }

    /// What is made: the name in the file.
    pub const fn kind(&self) -> &'p str {
        self.kind
    }

    /// Within which time a nonce is known, counted from its first request.
    pub fn window(&self) -> Duration {
        self.section.window.map_or(Duration::from_mins(5), Span::duration)
    }

    /// Where the tenant is known from, if it is said.
    pub const fn tenant(&self) -> Option<TenantFrom> {
        self.section.tenant
    }

    /// Until when clients may retry, counted from the first try.
    pub fn retry_horizon(&self) -> Duration {
        self.section.retry_horizon.map_or(Duration::from_mins(1), Span::duration)
    }

    /// What makes them, on an executor's ledger.
    ///
    /// # Errors
    /// If the kind is the name of a registered tool, or the window is too short for a try and its retries.
    #[cfg(feature = "nonce")]
    pub fn nonces(
        &self,
        executor: &crate::exec::Executor,
    ) -> Result<crate::rim::nonce::Nonces, crate::tool::RegisterError> {
        let nonces = crate::rim::nonce::Nonces::within(executor, self.kind, self.window())?;
        Ok(nonces.logging(self.policy.log_fields()))
    }
}
