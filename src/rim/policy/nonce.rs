//! The settings of nonces in a policy.

use std::time::Duration;

use super::Policy;
use super::choice::TenantFrom;
use super::file::NonceSection;
use super::span::Span;

/// The settings of a kind of values that are made once within minutes.
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

    /// The kind of values: the name in the file.
    pub const fn kind(&self) -> &'p str {
        self.kind
    }

    /// The window of a nonce, counted from its first request. Default: five minutes.
    pub fn window(&self) -> Duration {
        self.section.window.map_or(Duration::from_mins(5), Span::duration)
    }

    /// The source of the tenant, if set.
    pub const fn tenant(&self) -> Option<TenantFrom> {
        self.section.tenant
    }

    /// The time until which clients may retry, counted from the first try. Default: one minute.
    pub fn retry_horizon(&self) -> Duration {
        self.section.retry_horizon.map_or(Duration::from_mins(1), Span::duration)
    }

    /// The `Nonces` of this kind, on an executor's ledger.
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
