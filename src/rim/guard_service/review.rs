//! The approval of a call by people. It is asked for before the call goes out. What is recorded already is answered without it.

use super::request::Begin;
use super::step::{Step, Stop};
use super::{GuardError, GuardService};
use crate::guard::approval::AskRefused;
use crate::id::Tenant;
use crate::ledger::{Approval, ApprovalSubject, OperationKey, ReviewOutcome, State, diff};
use crate::payload::Payload;

/// What a call has of the approval that it needs.
pub(super) enum Clearance {
    /// The call needs none.
    Unneeded,
    /// The call may go out under this approval of this content.
    Given(Box<(ApprovalSubject, Approval)>),
    /// The call has none. Its record answers it, and nothing is sent.
    Lacking,
}

impl GuardService {
    /// The clearance of the call; or the step that says whom it waits for, or why it does not go out.
    pub(super) async fn clearance(
        &self,
        tenant: &Tenant,
        key: &OperationKey,
        begin: &Begin,
    ) -> Result<Result<Clearance, Step>, GuardError> {
        let Some((subject, policy)) = begin.review() else { return Ok(Ok(Clearance::Unneeded)) };
        let found = self.executor.core().find(tenant, key).await?;
        // A key is free again if its call certainly did not happen.
        let state = found.map(|found| found.state).filter(|state| !matches!(state, State::Failed { .. }));
        if state.as_ref().is_some_and(|state| *state != State::Started) {
            return Ok(Ok(Clearance::Lacking)); // a first result, which people need not agree to again
        }
        let approvals = self.executor.approvals(tenant);
        let asked = approvals.ask(begin.key.as_str(), subject.clone(), policy).await;
        let step = match asked {
            Ok(asked) => match (asked.review.approval(&asked.id), asked.review.outcome) {
                (Some(approval), _) => return Ok(Ok(Clearance::Given(Box::new((subject, approval))))),
                (None, None) => Step::Approve { review: asked.id, version: asked.version },
                (None, Some(outcome)) => refused(&outcome),
            },
            Err(AskRefused::Conflict { id, .. }) => self.other_input(tenant, &id, begin).await?,
            Err(error) => return Err(error.into()),
        };
        Ok(if state.is_some() { Ok(Clearance::Lacking) } else { Err(step) })
    }

    /// The step of a call about which people are asked with another input.
    async fn other_input(&self, tenant: &Tenant, review: &str, begin: &Begin) -> Result<Step, GuardError> {
        let asked = self.executor.approvals(tenant).review(review).await?;
        let differs = match asked {
            Some(asked) => {
                let first = Payload::of(&asked.review.content)?;
                format!(", which differs by {}", diff(&first, &Payload::of(&begin.input)?)?)
            }
            None => String::new(),
        };
        let text = format!(
            "Nothing was sent: people were asked about this call with another input{differs}. Begin it with the first input, or another \
             call under another key."
        );
        Ok(Step::Stopped { reason: Stop::Conflict, text, question: None })
    }
}

/// The step of a call that people did not approve.
fn refused(outcome: &ReviewOutcome) -> Step {
    let why = match outcome {
        ReviewOutcome::Rejected { reason, .. } if !reason.is_empty() => {
            format!("{}: {reason}", outcome.told())
        }
        outcome => outcome.told(),
    };
    let text = format!("Nothing was sent, because the call needs an approval and has none: {why}.");
    Step::Stopped { reason: Stop::Refused, text, question: None }
}
