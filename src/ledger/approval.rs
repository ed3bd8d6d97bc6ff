//! Approvals as values: a decision bound to exactly one package. The module `review` has the way to a person's decision,
//! the module `verdict` a policy's.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::review::ReviewPolicy;
use super::verdict::PolicyVersion;
use crate::clock::Timestamp;
use crate::payload::{Payload, PayloadDigest, PayloadError, hex};

/// The subject of a decision: the action, its recipient and its content.
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

    /// Adds the person or account that the action is for. It is shown to the reviewers and is part of the approval:
    /// an approval for one customer does not count for another one, even if the content is the same.
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

    /// The action that is to be approved.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The person or account that the action is for, if it was named.
    pub(crate) fn whom(&self) -> Option<&str> {
        self.for_whom.as_deref()
    }

    /// The content that reviewers are shown.
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

/// An approval: a decision in favour of one package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The name of the person who decided, or of the policy.
    pub by: String,
    /// The content hash of the package that the person saw, in hexadecimal.
    pub package: String,
    /// The instant at which the approval ceases to be valid, if any.
    pub expires_at: Option<Timestamp>,
    /// The review that the approval comes from, and its version; `None` if it was decided elsewhere. The review is
    /// checked once more before an effect goes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<(String, u32)>,
    /// The policy that decided; `None` if a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyVersion>,
}

impl Approval {
    /// Records that a person approved this package.
    pub fn of(by: impl Into<String>, package: &ApprovalSubject) -> Result<Self, PayloadError> {
        let package = hex(&package.digest()?.0);
        Ok(Self { by: by.into(), package, expires_at: None, review: None, policy: None })
    }

    /// Records that a policy allowed this package.
    pub(crate) fn by_policy(policy: &PolicyVersion, package: &ApprovalSubject) -> Result<Self, PayloadError> {
        Ok(Self { policy: Some(policy.clone()), ..Self::of(&policy.name, package)? })
    }

    /// Limits the approval in time.
    #[must_use]
    pub fn expires_at(mut self, at: Timestamp) -> Self {
        self.expires_at = Some(at);
        self
    }

    /// Checks the approval against the package that is about to be sent. The check is made directly before each
    /// dispatch, not before a stored result is returned: an effect that was sent stays sent when its approval has
    /// expired.
    pub fn check(&self, package: &ApprovalSubject, now: Timestamp) -> Result<(), ApprovalError> {
        let digest = package.digest().map_err(|error| ApprovalError::unreadable(&error))?;
        if self.package != hex(&digest.0) {
            return Err(ApprovalError::OtherContent { what: package.what.clone(), by: self.by.clone() });
        }
        match self.expires_at {
            Some(at) if at <= now => Err(ApprovalError::Expired { by: self.by.clone() }),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Approval {
    /// The people or the policy, such as `by ann, bob` or `by policy transactional-mail, version 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.policy {
            Some(policy) => write!(f, "by {policy}"),
            None => write!(f, "by {}", self.by),
        }
    }
}

impl ApprovalError {
    pub(crate) fn unreadable(error: &PayloadError) -> Self {
        Self::Unreadable { reason: error.to_string() }
    }

    /// True if a person may be asked for an approval that counts.
    pub(crate) const fn can_be_asked(&self) -> bool {
        !matches!(self, Self::NoPackage { .. } | Self::Unreadable { .. } | Self::RefusedByPolicy { .. })
    }
}

/// The reason why an effect may not be dispatched. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApprovalError {
    /// The call has no approval.
    #[error("a {class} needs an approval and has none: pass the decision with the request [approval]")]
    Missing {
        /// The effect class that demands an approval.
        class: &'static str,
    },
    /// The tool's policy wants a person to decide, and the call has no approval.
    #[error(
        "the {policy}, wants a person to decide: ask for an approval, and pass the decision with the request [approval]"
    )]
    PersonNeeded {
        /// The policy.
        policy: PolicyVersion,
        /// The people who may decide.
        review: Box<ReviewPolicy>,
    },
    /// The tool's policy refuses the call.
    #[error("the {policy}, refuses it: {reason} [policy_refused]")]
    RefusedByPolicy {
        /// The policy.
        policy: PolicyVersion,
        /// The policy's reason.
        reason: String,
    },
    /// The tool names no package to approve.
    #[error("the tool {tool} is a {class} but names no package to approve: give it one [approval]")]
    NoPackage {
        /// The name of the tool.
        tool: String,
        /// The effect class that demands an approval.
        class: &'static str,
    },
    /// The content changed after it was approved.
    #[error("{by} approved another content of this {what}: the draft changed, ask again [approval]")]
    OtherContent {
        /// The action that was to be approved.
        what: String,
        /// The name of the person who had approved.
        by: String,
    },
    /// The approval has expired.
    #[error("the approval by {by} has expired: ask again [approval]")]
    Expired {
        /// The name of the person who had approved.
        by: String,
    },
    /// The package was put to a vote again since, or there is no such review.
    #[error(
        "the approval of version {version} of this {what} no longer counts: it was asked about anew, ask again [approval]"
    )]
    Superseded {
        /// The action that was to be approved.
        what: String,
        /// The version that was approved.
        version: u32,
    },
    /// A person who was in favour may no longer decide.
    #[error("{by} approved this {what} and may not decide about it any more: ask again [approval]")]
    NotEntitled {
        /// The action that was to be approved.
        what: String,
        /// The name of that person.
        by: String,
    },
    /// The approval was for a single effect, and that effect went out.
    #[error(
        "the approval of this {what} was for one effect, and {key} has gone out by it: ask again [approval]"
    )]
    Used {
        /// The action that was to be approved.
        what: String,
        /// The key of the effect.
        key: String,
    },
    /// The package has no JSON form.
    #[error("the package cannot be hashed: {reason} [approval]")]
    Unreadable {
        /// The message of the error.
        reason: String,
    },
}
