//! The rule by which the calls of a tool are approved: by a person, by a policy, or not at all. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::effect::EffectClass;
use super::retry::{ErrorKind, RecordedFailure};
use super::review::ReviewPolicy;

/// A policy that approves calls, by name and version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// The name of the policy.
    pub name: String,
    /// The version of the policy.
    pub version: u32,
}

impl fmt::Display for PolicyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy {}, version {}", self.name, self.version)
    }
}

/// The verdict of a policy on one call.
///
/// ```
/// use counterfoil::ledger::ReviewPolicy;
/// use counterfoil::tool::approval::Verdict;
///
/// fn refund(cents: u64) -> Verdict {
///     match cents {
///         0 => Verdict::refuse("a refund of nothing"),
///         1..=5_000 => Verdict::Allow,
///         _ => Verdict::Ask(ReviewPolicy::by(["ann", "bob"])),
///     }
/// }
/// assert_eq!(refund(1_999), Verdict::Allow);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call goes out. Its record names the policy and its version.
    Allow,
    /// The call goes out if these people approve it. A run asks them and waits.
    Ask(ReviewPolicy),
    /// The call is refused for this reason, which the workflow and the model read. Nothing is sent.
    Refuse(String),
}

impl Verdict {
    /// A refusal for this reason.
    pub fn refuse(reason: impl Into<String>) -> Self {
        Self::Refuse(reason.into())
    }
}

/// The rule by which the calls of a tool are approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalRule {
    /// Each call goes out without an approval.
    None,
    /// Each call needs the approval of people: these are asked if a call has none that counts.
    Person(ReviewPolicy),
    /// A policy decides about each call.
    Policy(PolicyVersion),
}

impl ApprovalRule {
    /// The default of an effect class.
    pub(crate) fn of(class: EffectClass) -> Self {
        if class.needs_approval() { Self::Person(ReviewPolicy::default()) } else { Self::None }
    }

    /// True if the rule lets every call go out.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The rule in words, as in the guarantee report.
    ///
    /// ```
    /// use counterfoil::ledger::{ApprovalRule, ReviewPolicy};
    /// let rule = ApprovalRule::Person(ReviewPolicy::by(["ann", "bob", "carl"]).quorum(2));
    /// assert_eq!(rule.words(), "by 2 of ann, bob, carl");
    /// ```
    pub fn words(&self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Person(ReviewPolicy { reviewers, quorum, .. }) if reviewers.is_empty() => match quorum {
                1 => "by a person".to_owned(),
                people => format!("by {people} people"),
            },
            Self::Person(ReviewPolicy { reviewers, quorum, .. }) => {
                let names: Vec<_> = reviewers.iter().map(String::as_str).collect();
                format!("by {quorum} of {}", names.join(", "))
            }
            Self::Policy(policy) => format!("by {policy}"),
        }
    }
}

impl RecordedFailure {
    /// The refusal of a call by its tool's policy: nothing was sent.
    pub(crate) fn by_policy(policy: &PolicyVersion, reason: &str) -> Self {
        Self {
            kind: ErrorKind::PolicyDenied,
            message: format!("the {policy}, refuses it: {reason}"),
            detail: json!({ "policy": policy, "reason": reason }),
        }
    }

    /// True if the tool's own policy refused the call. A provider may refuse a call by a policy of its own.
    pub(crate) fn is_by_policy(&self) -> bool {
        self.kind == ErrorKind::PolicyDenied && self.detail.get("policy").is_some()
    }
}
