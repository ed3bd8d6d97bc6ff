//! One file for all doors: their requirements, retention and answers, with a check that fails on unsafe settings.
//! Feature `policy`.
//!
//! The file holds data: windows, tries, headers. The program holds code: the executor, the tenant of a request, the
//! lookup of an outcome. `counterfoil check policy.yml` finds in a build the mistakes that would otherwise show in
//! production.
//!
//! ```
//! use counterfoil::policy::Policy;
//! use std::time::Duration;
//!
//! let policy = Policy::parse("
//! http:
//!   orders:
//!     tenant: identity
//!     ttl: 7 days
//! webhooks:
//!   bank:
//!     scheme: standard
//!     secrets: [BANK_WEBHOOK_SECRET]
//!     tenant: endpoint
//! ")?.checked()?;
//! assert_eq!(policy.http("orders")?.ttl(), Duration::from_hours(7 * 24));
//! assert_eq!(policy.webhook("bank")?.secret_variables().collect::<Vec<_>>(), ["BANK_WEBHOOK_SECRET"]);
//! # Ok::<(), counterfoil::policy::PolicyError>(())
//! ```
//!
//! The library reads no files and no environment: the program passes the text (`include_str!`, or the bytes that it
//! has read), and fetches the secrets that the file names.

mod check;
mod choice;
mod doors;
mod fence;
mod file;
mod finding;
#[cfg(any(feature = "tool-file", all(feature = "mcp", feature = "sqlite")))]
pub(super) mod findings;
mod http;
pub(super) mod nearest;
mod nonce;
pub(super) mod place;
pub(super) mod plain;
mod preset;
mod queue;
pub(super) mod read;
mod schema;
pub(super) mod section;
mod source;
pub(super) mod span;
#[cfg(any(feature = "tool-file", all(feature = "mcp", feature = "sqlite")))]
pub(super) mod tool_terms;
#[cfg(any(feature = "tool-file", all(feature = "mcp", feature = "sqlite")))]
pub(super) mod tool_word;
#[cfg(any(feature = "tool-file", all(feature = "mcp-http", feature = "sqlite")))]
pub(super) mod variables;
mod webhook;
pub(super) mod word;

pub use check::check_guarantees;
pub use choice::{BrokerKind, FenceRole, FenceStore, LedgerStore, OnUnknown, TenantFrom, WebhookScheme};
pub use fence::FencePolicy;
pub use finding::{PolicyFinding, PolicyRule, Severity};
pub use http::HttpPolicy;
pub use nonce::NoncePolicy;
pub use preset::Preset;
pub use queue::QueuePolicy;
pub use schema::schema;
pub use webhook::WebhookPolicy;

use file::File;
use place::Places;

/// A policy that could be read. [`check`](Self::check) finds its unsafe settings; call [`checked`](Self::checked)
/// before the doors are opened.
#[derive(Clone, Debug)]
pub struct Policy {
    file: File,
    places: Places,
}

/// Compares the settings, and not their places in the files.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

/// The reason why a policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file cannot be read as a policy.
    #[error("the policy cannot be read: {0} [configuration]")]
    Malformed(Box<PolicyFinding>),
    /// The policy can be read, and is unsafe.
    #[error("the policy is unsafe: {} [configuration]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Unsafe(Vec<PolicyFinding>),
    /// The policy has no such source.
    #[error("the policy has no source {name:?} under `{section}`: there are {known} [configuration]")]
    NoSuchSource {
        /// The section: `http`, `webhooks`, `queues` or `nonces`.
        section: &'static str,
        /// The name that was requested.
        name: String,
        /// The names of all sources in the section.
        known: String,
    },
}

impl Policy {
    /// Reads a policy from the bytes of its file: UTF-8, YAML, at most 256 KiB. A policy that can be read may still
    /// be unsafe.
    ///
    /// # Errors
    /// If a field is unknown or occurs twice, or a value has the wrong form, with the line, the column and the
    /// nearest known name.
    ///
    /// ```
    /// use counterfoil::policy::{Policy, PolicyError, PolicyRule};
    /// let Err(PolicyError::Malformed(finding)) = Policy::parse("http:\n  orders:\n    tenent: identity\n") else { panic!() };
    /// assert_eq!((finding.rule, finding.line, finding.column), (PolicyRule::UnknownField, 3, 5));
    /// assert_eq!(finding.instead, "`tenant`");
    /// ```
    pub fn parse(file: impl AsRef<[u8]>) -> Result<Self, PolicyError> {
        let (file, places) =
            read::read(file.as_ref()).map_err(|finding| PolicyError::Malformed(Box::new(finding)))?;
        Ok(Self { file, places })
    }

    /// The findings about unsafe or doubtful settings, in the order of the file.
    pub fn check(&self) -> Vec<PolicyFinding> {
        check::policy(self)
    }

    /// The policy, if it has no unsafe settings. Warnings are allowed.
    ///
    /// # Errors
    /// With all findings of severity error.
    pub fn checked(self) -> Result<Self, PolicyError> {
        let mut findings = self.check();
        findings.retain(|finding| finding.severity() == Severity::Error);
        if findings.is_empty() { Ok(self) } else { Err(PolicyError::Unsafe(findings)) }
    }

    /// The policy as YAML: the settings of its file, without defaults and comments.
    #[allow(clippy::expect_used, clippy::missing_panics_doc, reason = "see the message")]
    pub fn to_yaml(&self) -> String {
        let written = serde_saphyr::to_string(&self.file);
        written.expect("a policy holds maps with textual keys, lists, texts, numbers and truth values, all of which YAML has")
    }

    /// The HTTP writes of this name.
    ///
    /// # Errors
    /// If the policy has no source of that name.
    pub fn http(&self, name: &str) -> Result<HttpPolicy<'_>, PolicyError> {
        let (name, section) = source::named("http", self.file.http.as_ref(), name)?;
        Ok(HttpPolicy::of(self, name, section))
    }

    /// The sender of webhooks of this name.
    ///
    /// # Errors
    /// If the policy has no source of that name.
    pub fn webhook(&self, name: &str) -> Result<WebhookPolicy<'_>, PolicyError> {
        let (name, section) = source::named("webhooks", self.file.webhooks.as_ref(), name)?;
        Ok(WebhookPolicy::of(self, name, section))
    }

    /// The queue consumer of this name.
    ///
    /// # Errors
    /// If the policy has no source of that name.
    pub fn queue(&self, name: &str) -> Result<QueuePolicy<'_>, PolicyError> {
        let (name, section) = source::named("queues", self.file.queues.as_ref(), name)?;
        Ok(QueuePolicy::of(self, name, section))
    }

    /// The nonces of this kind.
    ///
    /// # Errors
    /// If the policy has no source of that kind.
    pub fn nonce(&self, kind: &str) -> Result<NoncePolicy<'_>, PolicyError> {
        let (name, section) = source::named("nonces", self.file.nonces.as_ref(), kind)?;
        Ok(NoncePolicy::of(self, name, section))
    }

    /// The fence, if the policy has one.
    pub fn fence(&self) -> Option<FencePolicy<'_>> {
        self.file.fence.as_ref().map(|section| FencePolicy::of(self, section))
    }

    /// The database of the ledger, if set.
    pub fn ledger_store(&self) -> Option<LedgerStore> {
        self.file.stores.as_ref().and_then(|stores| stores.ledger)
    }

    /// The number of sources in the policy, without the fence.
    pub fn sources(&self) -> usize {
        self.https().count() + self.webhooks().count() + self.queues().count() + self.nonces().count()
    }
}
