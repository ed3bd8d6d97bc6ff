//! A source of webhooks with the settings of a policy.

use serde_json::Value;

use crate::id::Tenant;
use crate::rim::policy::{WebhookPolicy, WebhookScheme};
use crate::rim::webhook::{EventIdentity, Scheme, Webhook, WebhookBuilder, WebhookConfigError, WebhookEvent};

impl WebhookPolicy<'_> {
    /// A builder of a source of webhooks, with the settings of the policy. The program adds the settings that only
    /// code can supply: the handlers of events, by [`on`](WebhookBuilder::on), and the aggregate and the version of
    /// an event. `variable` reads an environment variable: in production `|name| std::env::var(name).ok()`.
    ///
    /// # Errors
    /// If a secret is missing, or has the wrong form.
    ///
    /// ```
    /// use counterfoil::Tenant;
    /// use counterfoil::policy::Policy;
    /// let file = "webhooks: {stripe: {tenant: single, scheme: stripe, secrets: [STRIPE_SECRET]}}";
    /// let policy = Policy::parse(file)?.checked()?;
    /// let secret = |_: &str| Some("whsec_of_the_endpoint".to_owned());
    /// let source = policy.webhook("stripe")?.source(Tenant::new("acme")?, secret)?;
    /// # drop(source);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn source(
        &self,
        tenant: Tenant,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<WebhookBuilder, WebhookConfigError> {
        let secret = |name: &str| {
            variable(name).ok_or_else(|| WebhookConfigError::NoVariable {
                source_name: self.name().to_owned(),
                variable: name.to_owned(),
            })
        };
        let secrets = self.secret_variables().map(secret).collect::<Result<Vec<_>, _>>()?;
        let source = Webhook::source(self.name(), self.signed(), secrets, tenant)?
            .tolerance(self.tolerance())
            .max_body(self.max_body_bytes() as usize)
            .logging(self.policy.log_fields());
        Ok(match (self.body_window(), &self.section.key) {
            (Some(window), _) => source.identify_by_body(window),
            (None, None) => source,
            (None, Some(_)) => {
                let parts: Vec<String> = self.key().into_iter().map(str::to_owned).collect();
                let version = self.version().map(str::to_owned);
                let is_unsigned = self.key_is_unsigned();
                let source = source.identify(move |event| identity(&parts, version.as_deref(), event));
                if is_unsigned { source.unsigned_identity() } else { source }
            }
        })
    }

    fn signed(&self) -> Scheme {
        match self.scheme() {
            WebhookScheme::Standard => Scheme::standard_webhooks(),
            WebhookScheme::Stripe => Scheme::stripe(),
            WebhookScheme::Github => Scheme::github(),
            WebhookScheme::Hmac => Scheme::hmac(self.signature_header().unwrap_or("x-signature")).into(),
        }
    }
}

/// The key of an event by the parts in the policy. `None` if a pointer or a header is missing, because two such
/// events would be one.
fn identity(parts: &[String], version: Option<&str>, event: &WebhookEvent) -> Option<EventIdentity> {
    let body: Value = event.json().unwrap_or_default();
    let part = |part: &String| {
        Some(match part.as_str() {
            "provider" => Value::Null, // each key contains the source's name
            "event_id" => event.id()?.into(),
            "action" => event.action().into(),
            "version" => version.and_then(|at| body.pointer(at)).cloned().unwrap_or_default(),
            "body_digest" => event.digest().into(),
            named => match named.strip_prefix("header:") {
                Some(name) => event.header(&name.parse().ok()?)?.into(),
                None => body.pointer(named)?.clone(),
            },
        })
    };
    let parts = parts.iter().map(part).collect::<Option<Vec<_>>>()?;
    Some(EventIdentity::new(Value::Array(parts).to_string()))
}
