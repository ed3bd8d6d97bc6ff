//! One file for all doors: what they require, remember and answer, and a check that fails on what is unsafe. Feature `policy`.
//!
//! The file says what is data: windows, tries, headers. The program says what is code: the executor, whose request it is, how to
//! look something up. `counterfoil check policy.yml` tells in a build what would otherwise be found out at night.
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
//! The library reads no files and no environment: the program gives the text (`include_str!`, or what it has read), and fetches the
//! secrets that the file names.

mod check;
mod choice;
mod doors;
mod fence;
mod file;
mod finding;
mod http;
mod nearest;
mod nonce;
mod place;
mod plain;
mod preset;
mod queue;
mod read;
mod schema;
mod section;
mod source;
mod span;
mod webhook;
mod word;

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

/// A policy that could be read. Whether it is safe is said by [`check`](Self::check); take [`checked`](Self::checked) before the
/// doors are opened.
#[derive(Clone, Debug)]
pub struct Policy {
    file: File,
    places: Places,
}

/// Two policies are the same if they say the same, wherever it stands in their files.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

/// Why there is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file cannot be understood.
    #[error("the policy cannot be read: {0}")]
    Malformed(Box<PolicyFinding>),
    /// The file can be understood, and is unsafe.
    #[error("the policy is unsafe: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Unsafe(Vec<PolicyFinding>),
    /// The policy has no such source.
    #[error("the policy has no source {name:?} under `{section}`: there are {known}")]
    NoSuchSource {
        /// The section: `http`, `webhooks`, `queues` or `nonces`.
        section: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
}

impl Policy {
    /// Reads a policy from the bytes of its file: UTF-8, YAML, at most 256 KiB. A policy that can be read may still be unsafe.
    ///
    /// # Errors
    /// If a field is not known or stands twice, or a value is not of its form, with the line, the column and the nearest known name.
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

    /// What is unsafe or may not be what was meant, in the order of the file.
    pub fn check(&self) -> Vec<PolicyFinding> {
        check::policy(self)
    }

    /// The policy, if nothing in it is unsafe. Warnings do not hold it up.
    ///
    /// # Errors
    /// With everything that is unsafe.
    pub fn checked(self) -> Result<Self, PolicyError> {
        let mut findings = self.check();
        findings.retain(|finding| finding.severity() == Severity::Error);
        if findings.is_empty() { Ok(self) } else { Err(PolicyError::Unsafe(findings)) }
    }

    /// The policy as YAML: what its file said, without defaults and comments.
    #[allow(clippy::expect_used, clippy::missing_panics_doc, reason = "see the message")]
    pub fn to_yaml(&self) -> String {
        let written = serde_saphyr::to_string(&self.file);
        written.expect("a policy holds maps with textual keys, lists, texts, numbers and truth values, all of which YAML has")
    }

    /// The HTTP writes of this name.
    ///
    /// # Errors
    /// If the policy has none of that name.
    pub fn http(&self, name: &str) -> Result<HttpPolicy<'_>, PolicyError> {
        let (name, section) = source::named("http", self.file.http.as_ref(), name)?;
        Ok(HttpPolicy::of(self, name, section))
    }

    /// The sender of webhooks of this name.
    ///
    /// # Errors
    /// If the policy has none of that name.
    pub fn webhook(&self, name: &str) -> Result<WebhookPolicy<'_>, PolicyError> {
        let (name, section) = source::named("webhooks", self.file.webhooks.as_ref(), name)?;
        Ok(WebhookPolicy::of(self, name, section))
    }

    /// The queue consumer of this name.
    ///
    /// # Errors
    /// If the policy has none of that name.
    pub fn queue(&self, name: &str) -> Result<QueuePolicy<'_>, PolicyError> {
        let (name, section) = source::named("queues", self.file.queues.as_ref(), name)?;
        Ok(QueuePolicy::of(self, name, section))
    }

    /// The nonces of this kind.
    ///
    /// # Errors
    /// If the policy has none of that kind.
    pub fn nonce(&self, kind: &str) -> Result<NoncePolicy<'_>, PolicyError> {
        let (name, section) = source::named("nonces", self.file.nonces.as_ref(), kind)?;
        Ok(NoncePolicy::of(self, name, section))
    }

    /// The fence, if the policy has one.
    pub fn fence(&self) -> Option<FencePolicy<'_>> {
        self.file.fence.as_ref().map(|section| FencePolicy::of(self, section))
    }

    /// The database of the ledger, if the policy says it.
    pub fn ledger_store(&self) -> Option<LedgerStore> {
        self.file.stores.as_ref().and_then(|stores| stores.ledger)
    }

    /// How many sources it configures, the fence not counted.
    pub fn sources(&self) -> usize {
        self.https().count() + self.webhooks().count() + self.queues().count() + self.nonces().count()
    }
}
