//! The rule of a tool, applied to one call: the approval under which it may go out, or the reason why it may not.

use super::operation::Operation;
use crate::clock::Timestamp;
use crate::ledger::{
    Approval, ApprovalError, ApprovalRule, PolicyVersion, Record, ReviewPolicy, State, Verdict,
};

impl Operation {
    /// The approval under which an attempt may go out now; `None` if it needs none. `recorded` is the record of the
    /// operation: while the call is open, the verdict of the policy that is recorded there stands.
    pub(crate) fn may_go_out(
        &self,
        recorded: Option<&Record>,
        now: Timestamp,
    ) -> Result<Option<Box<Approval>>, ApprovalError> {
        let spec = self.tool.spec();
        let class = spec.effect.name();
        if let ApprovalRule::Policy(policy) = &spec.approval {
            return self.by_policy(policy, recorded, now).map(|approval| Some(Box::new(approval)));
        }
        match (&self.approval, self.tool.package()) {
            (Some(approval), Some(package)) => {
                approval.check(&package, now).map(|()| Some(Box::new(approval.clone())))
            }
            _ if spec.approval.is_none() => Ok(None),
            (None, _) => Err(ApprovalError::Missing { class }),
            (Some(_), None) => Err(self.names_no_package()),
        }
    }

    fn by_policy(
        &self,
        policy: &PolicyVersion,
        recorded: Option<&Record>,
        now: Timestamp,
    ) -> Result<Approval, ApprovalError> {
        let package = self.tool.package().ok_or_else(|| self.names_no_package())?;
        if let Some(stands) = recorded.and_then(standing_verdict)
            && stands.check(&package, now).is_ok()
        {
            return Ok(stands.clone());
        }
        let by_person = self.approval.as_ref().filter(|approval| approval.policy.is_none());
        let by_person = by_person.map(|approval| approval.check(&package, now).map(|()| approval.clone()));
        // The request for this approval is the record of the policy's verdict, which stands.
        if let Some(Ok(approval)) = &by_person
            && self.asked
        {
            return Ok(approval.clone());
        }
        let policy = policy.clone();
        match self.tool.verdict().ok_or_else(|| self.names_no_package())? {
            Verdict::Allow => {
                Approval::by_policy(&policy, &package).map_err(|error| ApprovalError::unreadable(&error))
            }
            Verdict::Ask(review) => {
                let review = Box::new(review);
                by_person.unwrap_or(Err(ApprovalError::PersonNeeded { policy, review }))
            }
            Verdict::Refuse(reason) => Err(ApprovalError::RefusedByPolicy { policy, reason }),
        }
    }

    /// The people who are asked for an approval in place of the one that does not count, if the tool names any.
    pub(crate) fn reviewers(&self, lacking: &ApprovalError) -> Option<ReviewPolicy> {
        if !lacking.can_be_asked() {
            return None;
        }
        match &self.tool.spec().approval {
            ApprovalRule::None => None,
            ApprovalRule::Person(review) => Some(review.clone()),
            ApprovalRule::Policy(_) => match self.tool.verdict()? {
                Verdict::Ask(review) => Some(review),
                Verdict::Allow | Verdict::Refuse(_) => None,
            },
        }
    }

    /// The approval that came with the call, if the tool compares its package with one.
    pub(super) fn approved_by(&self) -> Option<Box<Approval>> {
        let approval = self.approval.as_ref()?;
        self.tool.package().map(|_| Box::new(approval.clone()))
    }

    fn names_no_package(&self) -> ApprovalError {
        let spec = self.tool.spec();
        ApprovalError::NoPackage { tool: spec.name.to_string(), class: spec.effect.name() }
    }
}

/// The recorded verdict of a policy on a call that is still open: an attempt of unknown outcome, or one that waits for
/// its next attempt. A call that has failed for good is a new one for the policy.
fn standing_verdict(record: &Record) -> Option<&Approval> {
    let is_open = record.state == State::Started || record.not_before.is_some();
    record.approval.as_deref().filter(|approval| approval.policy.is_some() && is_open)
}
