//! The checks that find unsafe settings in a policy: a file for each subject, a function for each kind of source.

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
use super::finding::{PolicyFinding, PolicyRule, Written};
use super::http::HttpPolicy;
use super::nonce::NoncePolicy;
use super::queue::QueuePolicy;
use super::webhook::WebhookPolicy;

/// All findings about a policy, in the order of its file.
pub(super) fn policy(policy: &Policy) -> Vec<PolicyFinding> {
    let mut found = Found { policy, findings: Vec::new() };
    for source in policy.https() {
        let path = format!("http.{}", source.name());
        windows::http(&mut found, &path, source);
        tenants::of_client(&mut found, &path, source.tenant(), "tenant: identity (or single)");
        bodies::http(&mut found, &path, source);
        payments::http(&mut found, &path, source);
    }
    for source in policy.webhooks() {
        let path = format!("webhooks.{}", source.name());
        windows::webhook(&mut found, &path, source);
        tenants::of_client(&mut found, &path, source.tenant(), "tenant: endpoint (or single)");
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
        tenants::of_client(&mut found, &path, source.tenant(), "tenant: identity (or single)");
    }
    if let Some(source) = policy.fence() {
        fence::fence(&mut found, source);
    }
    log::fields(&mut found);
    if policy.sources() == 0 && policy.fence().is_none() {
        let why = "the policy configures nothing: a file that was emptied by mistake looks the same";
        found.add(PolicyRule::NoSources, "", why, "a source under `http`, `webhooks`, `queues` or `nonces`");
    }
    let mut findings = found.findings;
    findings.sort_by_key(|finding| (finding.line, finding.column));
    findings
}

/// The findings so far.
struct Found<'p> {
    policy: &'p Policy,
    findings: Vec<PolicyFinding>,
}

impl Found<'_> {
    /// Adds a finding about a field.
    fn add(&mut self, rule: PolicyRule, path: &str, why: impl AsRef<str>, instead: impl AsRef<str>) {
        let place = self.policy.places.find(path);
        self.findings.push(PolicyFinding::new(
            rule,
            Written::at(place, path),
            why.as_ref(),
            instead.as_ref(),
        ));
    }

    /// Adds a finding about a field that a source may inherit from the file. The finding is reported where the field
    /// is written.
    fn add_inherited(&mut self, rule: PolicyRule, field: Field<'_>, why: &str, instead: &str) {
        let Field { source, name, of_file } = field;
        let own = format!("{source}.{name}");
        if self.policy.places.has(&own) || !self.policy.places.has(of_file) {
            self.add(rule, &own, why, instead);
        } else {
            self.add(rule, of_file, format!("for {source}: {why}"), instead);
        }
    }
}

/// A field that a source may inherit from the file.
#[derive(Clone, Copy)]
struct Field<'a> {
    source: &'a str,
    name: &'a str,
    of_file: &'a str,
}

impl<'a> Field<'a> {
    /// A field that has the same name in the source and in the file.
    const fn alike(source: &'a str, name: &'a str) -> Self {
        Self { source, name, of_file: name }
    }
}
