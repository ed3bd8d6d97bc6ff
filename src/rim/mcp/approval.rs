//! The approval of a call: asked for through the client where the policy allows it, and otherwise left open for the
//! people whom the policy names.

use std::collections::BTreeMap;

use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema, ServerRequest,
};
use rmcp::service::{Peer, RoleServer};
use serde_json::Value;

use super::policy::ToolPolicy;
use super::question;
use crate::clock::{Clock as _, SystemClock};
use crate::exec::Executor;
use crate::guard::approval::OpenReview;
use crate::id::Tenant;
use crate::ledger::{Approval, ApprovalSubject, OperationKey, ReviewOutcome};

/// A call that needs an approval.
pub(super) struct Asking<'a> {
    pub(super) executor: &'a Executor,
    pub(super) tenant: &'a Tenant,
    pub(super) policy: &'a ToolPolicy,
    pub(super) key: &'a OperationKey,
    pub(super) arguments: &'a Value,
    /// The name under which the client's own user approves, and the client.
    pub(super) client: (&'a str, &'a Peer<RoleServer>),
}

impl Asking<'_> {
    /// The approval, if there is one now.
    ///
    /// # Errors
    /// A text for the caller: who has to approve, or who has refused.
    pub(super) async fn approval(&self) -> Result<Approval, String> {
        let mut review = self.review().await?;
        if review.review.outcome.is_none() && self.policy.elicit {
            self.elicit(&review).await?;
            review = self.review().await?; // another person may have decided meanwhile
        }
        match &review.review.outcome {
            None => Err(waiting(&review)),
            Some(outcome @ ReviewOutcome::Rejected { reason, .. }) if reason.is_empty() => {
                Err(outcome.told())
            }
            Some(outcome @ ReviewOutcome::Rejected { reason, .. }) => {
                Err(format!("{}: {reason}", outcome.told()))
            }
            Some(_) => {
                let approvals = self.executor.approvals(self.tenant);
                let approval = approvals.approval(&review.id).await.map_err(|error| error.to_string())?;
                approval.ok_or_else(|| format!("the approval {:?} counts no more", review.id))
            }
        }
    }

    /// The review of the call: the same for the same call, from any process.
    async fn review(&self) -> Result<OpenReview, String> {
        let people = self.policy.review.clone().unwrap_or_default();
        let package = ApprovalSubject::of(&self.policy.operation, self.arguments);
        // The key itself may be longer than an id.
        let id = self.key.wire_within("", self.tenant, 32);
        let asked = self.executor.approvals(self.tenant).ask(id, package, people).await;
        asked.map_err(|error| error.to_string())
    }

    /// Asks the client's user, for as long as the policy says. An answer that comes later decides nothing.
    async fn elicit(&self, review: &OpenReview) -> Result<(), String> {
        let (name, client) = self.client;
        let (operation, arguments) = (&self.policy.operation, self.arguments);
        let message = format!("Approve {operation} with {arguments}? It is done once.");
        let requested_schema = ElicitationSchema::new(BTreeMap::new());
        let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
        let question = ServerRequest::ElicitRequest(ElicitRequest::new(params));
        // A client with a token of its own is one of the people whom the policy names, or it is not asked.
        let may = self.policy.review.as_ref().is_some_and(|people| people.reviewers.contains(name));
        if !may || question::check(client, &question).is_err() {
            return Ok(());
        }
        let answer = tokio::select! {
            biased;
            answer = question::ask(client, question) => answer,
            () = SystemClock.sleep(self.policy.elicit_within) => return Ok(()),
        };
        let decide = || self.executor.approvals(self.tenant).decide(&review.id, review.version);
        let decided = match answer {
            Ok(ClientResult::ElicitResult(result)) if result.action == ElicitationAction::Accept => {
                decide().approve(name).await
            }
            Ok(ClientResult::ElicitResult(result)) if result.action == ElicitationAction::Decline => {
                decide().reject(name, "declined in the client").await
            }
            _ => return Ok(()), // the user has closed the question, or the client cannot ask it
        };
        decided.map(drop).map_err(|error| error.to_string())
    }
}

/// What a caller is told whose call waits for an approval.
fn waiting(review: &OpenReview) -> String {
    let people = review.review.people();
    format!(
        "this needs an approval, and has none yet. It may be given by: {people}. Ask for it: \
         `counterfoil approve '{}' {}`. Make the same call after that; it is carried out then, once",
        review.id, review.version
    )
}
