//! The settings of the HTTP layer in a policy.

use std::time::Duration;

use super::Policy;
use super::choice::{OnUnknown, RequiredHeader, TenantFrom};
use super::file::{HttpSection, OnConflict};
use super::plain::{Count, Truth};
use super::preset::Preset;
use super::source::retention;
use super::span::Span;
use super::word::UrlPath;
use crate::ledger::{EffectClass, Retention};

/// The settings of HTTP writes under an `Idempotency-Key` in a policy.
#[derive(Clone, Copy, Debug)]
pub struct HttpPolicy<'p> {
    policy: &'p Policy,
    name: &'p str,
    pub(super) section: &'p HttpSection,
}

impl<'p> HttpPolicy<'p> {
    pub(super) const fn of(policy: &'p Policy, name: &'p str, section: &'p HttpSection) -> Self {
        Self { policy, name, section }
    }

    /// The name of the source in the file.
    pub const fn name(&self) -> &'p str {
        self.name
    }

    /// The kind of source. Default: `api`.
    pub fn preset(&self) -> Preset {
        self.section.preset.unwrap_or(Preset::Api)
    }

    /// The effect class of the handler: payment for the preset `payment`, internal mutation otherwise.
    pub fn effect(&self) -> EffectClass {
        if self.preset() == Preset::Payment { EffectClass::Payment } else { EffectClass::InternalMutation }
    }

    /// The source of the tenant, if set.
    pub const fn tenant(&self) -> Option<TenantFrom> {
        self.section.tenant
    }

    /// True if a request without a key is refused. Default: true.
    pub fn requires_key(&self) -> bool {
        let said = self.section.require_headers.as_ref().or(self.policy.file.require_headers.as_ref());
        said.is_none_or(|headers| headers.contains(&RequiredHeader::IdempotencyKey))
    }

    /// True if another body under a known key is refused. Default: true.
    pub fn rejects_body_mismatch(&self) -> bool {
        self.section
            .reject_on_body_mismatch
            .or(self.policy.file.reject_on_body_mismatch)
            .is_none_or(Truth::is_true)
    }

    /// The time for which first answers are kept.
    pub fn ttl(&self) -> Duration {
        self.policy.ttl(self.section.ttl, self.preset())
    }

    /// The retention of first answers: their ttl, and the remainder after it.
    pub fn retention(&self) -> Retention {
        retention(self.section.after_ttl, self.ttl())
    }

    /// The time until which clients may retry, counted from the first try.
    pub fn retry_horizon(&self) -> Duration {
        self.section.retry_horizon.map_or_else(|| self.preset().retry_horizon(), Span::duration)
    }

    fn on_conflict<T>(&self, field: impl Fn(&OnConflict) -> Option<T>) -> Option<T> {
        let of_source = self.section.on_conflict.as_ref().and_then(&field);
        of_source.or_else(|| self.policy.file.on_conflict.as_ref().and_then(&field))
    }

    /// The HTTP status for another request under a known key. Default: 409.
    pub fn conflict_status(&self) -> u16 {
        self.on_conflict(|conflict| conflict.status).map_or(409, super::choice::ConflictStatus::code)
    }

    /// True if the difference from the first request is shown. Default: true.
    pub fn includes_diff(&self) -> bool {
        self.on_conflict(|conflict| conflict.include_diff).is_none_or(Truth::is_true)
    }

    /// The treatment of a request whose handler died. Default: ask.
    pub fn on_unknown(&self) -> OnUnknown {
        self.section.on_unknown.unwrap_or(OnUnknown::Ask)
    }

    /// The time limit of a handler. Default: five minutes.
    pub fn timeout(&self) -> Duration {
        self.section.timeout.map_or(Duration::from_mins(5), Span::duration)
    }

    /// The time for which a request waits for the first one under its key; `None` if it does not wait.
    pub fn wait(&self) -> Option<Duration> {
        self.section.wait.map(Span::duration)
    }

    /// The path under which the status of operations is served; `None` if none is served.
    pub fn status_at(&self) -> Option<&'p str> {
        self.section.status_at.as_ref().map(UrlPath::as_str)
    }

    /// The maximum size of a request body, in bytes. Default: 1 MiB.
    pub fn max_request_bytes(&self) -> u32 {
        self.section.max_request_bytes.map_or(1 << 20, Count::get)
    }

    /// The maximum size of a response body, in bytes. Default: 1 MiB.
    pub fn max_response_bytes(&self) -> u32 {
        self.section.max_response_bytes.map_or(1 << 20, Count::get)
    }
}

#[cfg(feature = "http")]
mod layer {
    use http::StatusCode;
    use http::request::Parts;

    use super::HttpPolicy;
    use crate::exec::Executor;
    use crate::rim::http::{Idempotency, RequestScope, SettledBy};
    use crate::rim::policy::choice::{OnUnknown, WhileInFlight};
    use crate::rim::policy::plain::Truth;
    use crate::rim::policy::word::{Header, Pointer};

    impl HttpPolicy<'_> {
        /// A builder of a layer, with the settings of the policy. The program adds the settings that only code can
        /// supply: the executor, the tenant of a request, and the means that `on_unknown` promises:
        /// [`reconcile`](Idempotency::reconcile) for `lookup`, [`transactional`](Idempotency::transactional) for
        /// `transaction`. Without these means [`layer`](Idempotency::layer) fails.
        ///
        /// ```
        /// # tokio::runtime::Runtime::new()?.block_on(async {
        /// # let dir = tempfile::tempdir()?;
        /// use counterfoil::http::RequestScope;
        /// use counterfoil::policy::Policy;
        /// use counterfoil::{Executor, Tenant};
        ///
        /// let policy = Policy::parse("http: {orders: {tenant: single}}")?.checked()?;
        /// let executor = Executor::sqlite(dir.path().join("orders.db")).open().await?;
        /// let acme = Tenant::new("acme")?;
        /// let scope = move |_: &http::request::Parts| Some(RequestScope::new(acme.clone(), "/orders"));
        /// let layer = policy.http("orders")?.idempotency(&executor, scope).layer()?;
        /// # drop(layer);
        /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn idempotency(
            &self,
            executor: &Executor,
            scope: impl Fn(&Parts) -> Option<RequestScope> + Send + Sync + 'static,
        ) -> Idempotency {
            let mut layer = Idempotency::new(executor, scope)
                .effect(self.effect())
                .retention(self.retention())
                .timeout(self.timeout())
                .max_request(self.max_request_bytes() as usize)
                .max_response(self.max_response_bytes() as usize)
                .logging(self.policy.log_fields());
            if let Ok(status) = StatusCode::from_u16(self.conflict_status()) {
                layer = layer.conflict_status(status);
            }
            layer = match self.on_unknown() {
                OnUnknown::Ask => layer,
                OnUnknown::Lookup => layer.settled_by(SettledBy::Lookup),
                OnUnknown::Transaction => layer.settled_by(SettledBy::Transaction),
            };
            self.answering(self.binding(layer))
        }

        /// Adds the fields that keys are bound to.
        fn binding(&self, mut layer: Idempotency) -> Idempotency {
            if !self.requires_key() {
                layer = layer.optional();
            }
            if !self.rejects_body_mismatch() {
                layer = layer.ignore_body();
            }
            let section = self.section;
            if let Some(names) = &section.bind_query {
                layer = layer.bind_query(names.iter().map(String::as_str));
            }
            layer = section
                .bind_headers
                .iter()
                .flatten()
                .map(Header::as_str)
                .fold(layer, Idempotency::bind_header);
            layer = section.exclude.iter().flatten().map(Pointer::as_str).fold(layer, Idempotency::exclude);
            section.redact.iter().flatten().map(Pointer::as_str).fold(layer, Idempotency::redact)
        }

        /// Adds the answers to callers.
        fn answering(&self, mut layer: Idempotency) -> Idempotency {
            let section = self.section;
            if !self.includes_diff() {
                layer = layer.without_diff();
            }
            if let Some(wait) = self.wait() {
                layer = layer.wait_at_most(wait);
            }
            if let Some(path) = self.status_at() {
                layer = layer.status_at(path);
            }
            if section.in_flight == Some(WhileInFlight::Accepted) {
                layer = layer.accept_in_flight();
            }
            if section.created_then_ok.is_some_and(Truth::is_true) {
                layer = layer.created_then_ok();
            }
            if let Some(prefix) = &section.problem_types {
                layer = layer.problem_types(prefix);
            }
            section.keep_headers.iter().flatten().map(Header::as_str).fold(layer, Idempotency::keep_header)
        }
    }
}
