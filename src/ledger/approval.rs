//! Approvals as values: a decision bound to exactly one package (DESIGN 4.4). How it comes about: see `review`.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::payload::{Payload, PayloadDigest, PayloadError, hex};

/// What is to be decided on: what, for whom, with which content.
///
/// ```
/// use counterfoil::ApprovalSubject;
/// let a = ApprovalSubject::of("notice", &"Dear Ann, …");
/// let b = ApprovalSubject::of("notice", &"Dear Bob, …");
/// assert_ne!(a.digest()?, b.digest()?);
/// # Ok::<(), counterfoil::PayloadError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ApprovalSubject {
    what: String,
    for_whom: Option<String>,
    content: Result<Payload, PayloadError>,
}

impl ApprovalSubject {
    /// A package of this kind and content. Content that has no JSON form is reported when it is used.
    pub fn of<T: Serialize + ?Sized>(what: impl Into<String>, content: &T) -> Self {
        Self { what: what.into(), for_whom: None, content: Payload::of(content) }
    }

    /// Adds for whom it is to be done: shown to the reviewers, and part of what they approve. An approval for one customer is none for
    /// another, also where the content is the same.
    ///
    /// ```
    /// # use counterfoil::ApprovalSubject;
    /// let refund = || ApprovalSubject::of("refund", &1999);
    /// assert_ne!(refund().for_whom("ann").digest()?, refund().for_whom("bob").digest()?);
    /// # Ok::<(), counterfoil::PayloadError>(())
    /// ```
    pub fn for_whom(mut self, whom: impl Into<String>) -> Self {
        self.for_whom = Some(whom.into());
        self
    }

    /// What is to be done.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// For whom, if it was said.
    pub(crate) fn whom(&self) -> Option<&str> {
        self.for_whom.as_deref()
    }

    /// What reviewers are shown.
    pub(crate) fn content(&self) -> Result<&Payload, PayloadError> {
        self.content.as_ref().map_err(Clone::clone)
    }

    /// The content hash that an approval is bound to.
    pub fn digest(&self) -> Result<PayloadDigest, PayloadError> {
        let content = hex(&self.content()?.digest().0);
        let approved = match &self.for_whom {
            None => Payload::of(&(&self.what, content)),
            Some(whom) => Payload::of(&(&self.what, content, whom)),
        };
        Ok(approved?.digest())
    }
}

/// A decision in favour of one package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Who decided.
    pub by: String,
    /// The content hash of what they saw, in hexadecimal.
    pub package: String,
    /// When it ceases to be valid, if ever.
    pub expires_at: Option<Timestamp>,
    /// The review that it comes of, and which version of it; none if it was decided elsewhere. It is looked at once more
    /// before an effect goes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<(String, u32)>,
}

impl Approval {
    /// Records that somebody approved this package.
    pub fn of(by: impl Into<String>, package: &ApprovalSubject) -> Result<Self, PayloadError> {
        Ok(Self { by: by.into(), package: hex(&package.digest()?.0), expires_at: None, review: None })
    }

    /// Limits the approval in time.
    #[must_use]
    pub fn expires_at(mut self, at: Timestamp) -> Self {
        self.expires_at = Some(at);
        self
    }

    /// Checks the approval against what is about to be sent. Called directly before each dispatch, and not
    /// before a stored result is given back: what was sent stays sent when its approval has expired.
    pub fn check(&self, package: &ApprovalSubject, now: Timestamp) -> Result<(), ApprovalError> {
        let digest = package.digest().map_err(|e| ApprovalError::Unreadable { reason: e.to_string() })?;
        if self.package != hex(&digest.0) {
            return Err(ApprovalError::OtherContent { what: package.what.clone(), by: self.by.clone() });
        }
        match self.expires_at {
            Some(at) if at <= now => Err(ApprovalError::Expired { by: self.by.clone() }),
            _ => Ok(()),
        }
    }
}

impl ApprovalError {
    /// Somebody may be asked for an approval that counts.
    pub(crate) const fn can_be_asked(&self) -> bool {
        !matches!(self, Self::NoPackage { .. } | Self::Unreadable { .. })
    }
}

/// Why an effect may not be dispatched. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApprovalError {
    /// There is none.
    #[error("a {class} needs an approval and has none: pass the decision with the request")]
    Missing {
        /// The effect class that demands it.
        class: &'static str,
    },
    /// The tool does not say what is to be approved.
    #[error("the tool {tool} is a {class} but names no package to approve: give it one")]
    NoPackage {
        /// The tool.
        tool: String,
        /// The effect class that demands it.
        class: &'static str,
    },
    /// The content changed after it was approved.
    #[error("{by} approved another content of this {what}: the draft changed, ask again")]
    OtherContent {
        /// What was to be done.
        what: String,
        /// Who had approved.
        by: String,
    },
    /// The approval was limited in time.
    #[error("the approval by {by} has expired: ask again")]
    Expired {
        /// Who had approved.
        by: String,
    },
    /// It was asked about anew since, or there is no such review.
    #[error(
        "the approval of version {version} of this {what} no longer counts: it was asked about anew, ask again"
    )]
    Superseded {
        /// What was to be done.
        what: String,
        /// The version that was approved.
        version: u32,
    },
    /// Somebody who was in favour may not decide any more.
    #[error("{by} approved this {what} and may not decide about it any more: ask again")]
    NotEntitled {
        /// What was to be done.
        what: String,
        /// Who.
        by: String,
    },
    /// It was for one effect, and that went out.
    #[error("the approval of this {what} was for one effect, and {key} has gone out by it: ask again")]
    Used {
        /// What was to be done.
        what: String,
        /// The key of the effect.
        key: String,
    },
    /// The package has no JSON form.
    #[error("the package cannot be hashed: {reason}")]
    Unreadable {
        /// What is wrong with it.
        reason: String,
    },
}
