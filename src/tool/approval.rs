//! The approval of a tool's calls, as a type parameter of its effect class: by a person, by a policy, or none.
//!
//! Each class has a default. A tool names another rule where it needs one:
//!
//! | effect class | default | other rules |
//! | --- | --- | --- |
//! | [`Notification`](super::effect::Notification), [`Deletion`](super::effect::Deletion) | [`Person`] | [`Policy`], [`None`] |
//! | [`Payment`](super::effect::Payment), [`Draft`](super::effect::Draft), [`InternalMutation`](super::effect::InternalMutation), [`MemoryWrite`](super::effect::MemoryWrite) | [`None`] | [`Person`], [`Policy`] |
//! | [`Pure`](super::effect::Pure), [`ModelCall`](super::effect::ModelCall), [`ReadOnly`](super::effect::ReadOnly) | none | |

use super::{ApprovalPolicy, NeedsApproval, Tool};
pub use crate::ledger::Verdict;
use crate::ledger::{ApprovalRule, ApprovalSubject, PolicyVersion};

/// A person approves each call. The tool implements [`NeedsApproval`], and a typed call without `.approved_by` does not
/// compile.
#[derive(Debug)]
pub enum Person {}

/// The tool's own policy decides about each call. The tool implements [`ApprovalPolicy`].
#[derive(Debug)]
pub enum Policy {}

/// Each call goes out without an approval.
#[derive(Debug)]
pub enum None {}

/// A rule by which calls are approved: [`Person`], [`Policy`] or [`None`].
pub trait Rule: sealed::Sealed + 'static {}

impl Rule for Person {}
impl Rule for Policy {}
impl Rule for None {}

mod sealed {
    /// A seal, because no other type has a check before the send.
    pub trait Sealed {}
    impl Sealed for super::Person {}
    impl Sealed for super::Policy {}
    impl Sealed for super::None {}
}

/// The demands of a rule on a tool.
pub trait Demands<T: Tool>: Rule {
    /// The rule as a value.
    fn rule(tool: &T) -> ApprovalRule;

    /// The package that is approved.
    fn package(_tool: &T, _input: &T::Input) -> Option<ApprovalSubject> {
        Option::None
    }

    /// The verdict of the tool's policy, if it has one.
    fn verdict(_tool: &T, _input: &T::Input) -> Option<Verdict> {
        Option::None
    }
}

impl<T: Tool> Demands<T> for None {
    fn rule(_: &T) -> ApprovalRule {
        ApprovalRule::None
    }
}

impl<T: NeedsApproval> Demands<T> for Person {
    fn rule(tool: &T) -> ApprovalRule {
        ApprovalRule::Person(tool.review())
    }

    fn package(tool: &T, input: &T::Input) -> Option<ApprovalSubject> {
        Some(tool.package(input))
    }
}

impl<T: ApprovalPolicy> Demands<T> for Policy {
    fn rule(_: &T) -> ApprovalRule {
        ApprovalRule::Policy(PolicyVersion { name: T::POLICY.to_owned(), version: T::POLICY_VERSION })
    }

    fn package(tool: &T, input: &T::Input) -> Option<ApprovalSubject> {
        Some(tool.package(input))
    }

    fn verdict(tool: &T, input: &T::Input) -> Option<Verdict> {
        Some(tool.policy(input))
    }
}
