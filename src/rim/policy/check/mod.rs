//! What makes a policy unsafe: a file for each subject, a function for each kind of source.

mod bodies;
mod fence;
mod guarantees;
mod keys;
mod log;
mod payments;
mod queues;
mod tenants;
mod webhooks;
mod windows;

pub use guarantees::check_guarantees;

use super::Policy;
use super::finding::{PolicyFinding, PolicyRule};
use super::http::HttpPolicy;
use super::nonce::NoncePolicy;
use super::queue::QueuePolicy;
use super::webhook::WebhookPolicy;

/// Everything that is wrong with a policy, in the order of its file.
pub(super) fn policy(policy: &Policy) -> Vec<PolicyFinding> {
    let mut found = Found { policy, findings: Vec::new() };
    for source in policy.https() {
        let path = format!("http.{}", source.name());
        windows::http(&mut found, &path, source);
        tenants::of_client(&mut found, &path, source.tenant());
        bodies::http(&mut found, &path, source);
        payments::http(&mut found, &path, source);
    }
    for source in policy.webhooks() {
        let path = format!("webhooks.{}", source.name());
        windows::webhook(&mut found, &path, source);
        tenants::of_client(&mut found, &path, source.tenant());
        webhooks::signature(&mut found, &path, source);
        keys::stable(&mut found, &path, &source.key());
        keys::webhook(&mut found, &path, source);
        payments::webhook(&mut found, &path, source);
    }
    for source in policy.queues() {
        let path = format!("queues.{}", source.name());
        windows::queue(&mut found, &path, source);
        tenants::of_message(&mut found, &path, source.tenant());
        queues::broker(&mut found, &path, source);
        keys::stable(&mut found, &path, &source.key());
        keys::queue(&mut found, &path, source);
        payments::queue(&mut found, &path, source);
    }
    for source in policy.nonces() {
        let path = format!("nonces.{}", source.kind());
        windows::nonce(&mut found, &path, source);
        tenants::of_client(&mut found, &path, source.tenant());
    }
    if let Some(source) = policy.fence() {
        fence::fence(&mut found, source);
    }
    log::fields(&mut found);
    let mut findings = found.findings;
    findings.sort_by_key(|finding| (finding.line, finding.column));
    findings
}

/// What was found so far.
struct Found<'p> {
    policy: &'p Policy,
    findings: Vec<PolicyFinding>,
}

impl Found<'_> {
    /// Adds a finding about a field.
    fn add(&mut self, rule: PolicyRule, path: &str, why: impl Into<String>, instead: impl Into<String>) {
        let place = self.policy.places.find(path);
        self.findings.push(PolicyFinding::new(rule, path, place, why.into(), instead.into()));
    }

    /// The first of these fields that the file has; the first one if it has none.
    fn said<'a>(&self, fields: &[&'a str]) -> &'a str {
        fields
            .iter()
            .find(|field| self.policy.places.has(field))
            .or(fields.first())
            .copied()
            .unwrap_or_default()
    }
}
