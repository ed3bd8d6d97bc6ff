//! Approvals in a run: the run asks for an approval, waits, and goes on with it or without it. The run's code asks, or
//! a call that needs an approval and has none. For how people decide, see [`guard::approval`](crate::guard::approval).

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::ctx::Ctx;
use super::failure::{Failure, FailureCode, misuse};
use super::guarded::{Guarded, Proposal, exec_in_run};
use super::identity::{Identity, Kind};
use super::label::Label;
use super::live::Open;
use crate::clock::Timestamp;
use crate::exec::approval::{lacking, next, opened, review_of};
use crate::exec::{Core, ExecError, Expect, Operation};
use crate::id::Tenant;
use crate::ledger::{
    Approval, ApprovalError, ApprovalSubject, RequestHash, Review, ReviewOutcome, ReviewPolicy,
};
use crate::payload::hex;
use crate::store::Change;

/// The prefix of the names of checkpoints that record a request for approval.
const ASKED: &str = "~approval/";
/// The greatest length of a key in bytes with which it is a part of a request's id. A longer key is hashed.
const LONGEST: usize = 100;

/// A request for approval. Nothing happens until it is awaited; then the run waits for the decision.
///
/// # Errors
/// [`FailureCode::Rejected`], with the author and the reason in the failure's detail, and [`FailureCode::Undecided`].
#[must_use = "nobody is asked until it is awaited"]
pub struct AskApproval {
    ctx: Ctx,
    package: ApprovalSubject,
    id: Option<String>,
    version: u32,
    policy: ReviewPolicy,
    requested_by: Option<String>,
    single_use: bool,
}

/// The run's record of its request.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Asked {
    id: String,
    version: u32,
    expires_at: Option<Timestamp>,
}

/// The message that tells the run how a review ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) outcome: ReviewOutcome,
    pub(crate) approval: Option<Approval>,
}

impl Ctx {
    /// Asks people to approve exactly this package, and waits until they have decided.
    ///
    /// # Crash
    /// The question and the run's record of having asked it are one transaction, and so are the decision and the
    /// message to the run.
    pub fn approval(&self, package: ApprovalSubject) -> AskApproval {
        AskApproval {
            ctx: self.clone(),
            package,
            id: None,
            version: 1,
            policy: ReviewPolicy::default(),
            requested_by: None,
            single_use: false,
        }
    }
}

impl AskApproval {
    /// The id of the package among those of its kind in this run: needed where several are open at once, and where a
    /// changed draft is put to a vote again under another [`version`](Self::version).
    #[allow(clippy::needless_pass_by_value, reason = "`.id(7)` and `.id(&name)` both read well")]
    pub fn id(mut self, id: impl ToString) -> Self {
        self.id = Some(id.to_string());
        self
    }

    /// The version of the package with this id, from 1. Decisions about an earlier version are refused from then on,
    /// and its approval no longer counts.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// The names of the people who may decide. Nobody else may.
    pub fn reviewers<S: Into<String>>(mut self, reviewers: impl IntoIterator<Item = S>) -> Self {
        self.policy.reviewers = reviewers.into_iter().map(Into::into).collect();
        self
    }

    /// The number of people who must approve. Default: 1. One rejection ends the review.
    pub fn quorum(mut self, people: u32) -> Self {
        self.policy.quorum = people;
        self
    }

    /// The name of the person who wants the effect. This person may reject it, and not approve it.
    pub fn requested_by(mut self, who: impl Into<String>) -> Self {
        self.requested_by = Some(who.into());
        self
    }

    /// The time after which the request ends undecided.
    pub fn expires_in(mut self, limit: Duration) -> Self {
        self.policy.expires_in = Some(limit);
        self
    }

    /// The time after the decision in which the effect may go out.
    pub fn valid_for(mut self, limit: Duration) -> Self {
        self.policy.valid_for = Some(limit);
        self
    }

    /// Restricts the approval to one effect.
    pub fn single_use(mut self) -> Self {
        self.single_use = true;
        self
    }

    async fn ask(self) -> Result<Approval, Failure> {
        let (ctx, what) = (self.ctx.clone(), self.package.what().to_owned());
        let fits = self.refuse_nonsense().and_then(|()| Ok(self.package.digest()?));
        let digest = hex(&ctx.unless_mendable(fits).await?.0);
        let id = self.id.as_ref().map(|id| of_version(id, self.version));
        let label = Label::of(&format!("{ASKED}{what}"), id);
        // All versions of one id share one row.
        let row = self.id.as_ref().map(|id| format!("{}/{what}/{id}", ctx.run_name()));
        let asked: Asked =
            ctx.guarded(label, &digest.clone(), row, ApprovalQuestion { ask: self, digest }).await?;
        outcome(&ctx, &what, asked).await
    }

    fn refuse_nonsense(&self) -> Result<(), Failure> {
        let Some(why) = self.policy.objection(self.requested_by.as_deref()) else { return Ok(()) };
        Err(Failure::coded(FailureCode::Misuse, format!("the approval of a {}: {why}", self.package.what())))
    }
}

/// The write of a request for approval.
struct ApprovalQuestion {
    ask: AskApproval,
    digest: String,
}

impl Guarded for ApprovalQuestion {
    type Answer = Asked;
    type Error = ExecError;

    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Asked>, ExecError>> {
        Box::pin(async move {
            let failed = |source| ExecError::Store { key: id.to_owned(), source };
            let before = review_of(core, tenant, id).await.map_err(failed)?;
            let now = core.now();
            let past = before.as_ref().map_or(0, |(_, review)| review.version);
            let review = self.review(past, now)?;
            let asked = Asked { id: id.to_owned(), version: review.version, expires_at: review.expires_at };
            let document = match before {
                Some((row, past)) => next(row, &review.following(past), now),
                None => opened(tenant, id, &review, now),
            };
            let change = Change { documents: vec![document], ..core.change(None) };
            Ok(Proposal::Write(Box::new(change), asked))
        })
    }

    fn in_run(error: ExecError) -> Result<Failure, ExecError> {
        exec_in_run(error)
    }
}

impl ApprovalQuestion {
    /// The review that is opened after `past` versions. Its version is a new one even if the run was begun again: a
    /// person who looks at an earlier version must not answer this one.
    fn review(&self, past: u32, now: Timestamp) -> Result<Review, ExecError> {
        let ask = &self.ask;
        let version = ask.version.max(past + 1);
        Ok(Review {
            version,
            run: Some(ask.ctx.run_id()),
            turn: ask.ctx.scope(),
            requested_by: ask.requested_by.clone(),
            single_use: ask.single_use,
            ..Review::opened(&ask.package, &self.digest, &ask.policy, now)?
        })
    }
}

/// A sign that a call has no approval that counts.
pub(super) enum Lack {
    /// The call was refused for this reason.
    Refused(ApprovalError),
    /// An attempt failed for want of an approval. Between its record and its send the approval may have expired, may have
    /// been superseded, or a reviewer may have lost the right to decide. Or the provider wants an approval of its own, which
    /// is another matter.
    Withheld,
}

/// A call with the approval that it has asked for.
pub(super) struct Requester {
    pub(super) op: Arc<Operation>,
    /// The number of the call's requests for approval.
    asked: u32,
}

impl Requester {
    pub(super) const fn new(op: Arc<Operation>) -> Self {
        Self { op, asked: 0 }
    }

    /// Asks people to approve a call that has no valid approval, by the tool's own policy. The run waits meanwhile. Returns
    /// false if there is nothing to ask. If the call was `expected` to be new and its key has a record, nobody is asked
    /// yet: the record may answer the call, or conflict with it, and then a decision would be for nothing.
    ///
    /// # Crash
    /// Each request is a row under the call's own key, and is made once, however often the process dies.
    pub(super) async fn ask(
        &mut self,
        ctx: &Ctx,
        open: &Open,
        lack: Lack,
        expected: Expect,
    ) -> Result<bool, Failure> {
        let core = &ctx.live.core;
        let lacking = match lack {
            Lack::Refused(lacking) => Ok(Some(lacking)),
            Lack::Withheld => lacking(core, &self.op).await,
        };
        let lacking = match lacking {
            Ok(lacking) => lacking,
            Err(error) => return Err(ctx.live.failure(error).await),
        };
        let Some(policy) = lacking.and_then(|lacking| self.op.reviewers(&lacking)) else { return Ok(false) };
        if expected == Expect::New {
            match core.find(&self.op.tenant, &self.op.key).await {
                Ok(Some(_)) => return Ok(true),
                Ok(None) => {}
                Err(error) => return Err(ctx.live.failure(error).await),
            }
        }
        self.request(ctx, open, &policy).await?;
        Ok(true)
    }

    async fn request(&mut self, ctx: &Ctx, open: &Open, policy: &ReviewPolicy) -> Result<(), Failure> {
        let _behind = open.behind();
        self.asked += 1;
        let package = self.op.tool.package().ok_or_else(|| misuse("the tool names no package to approve"))?;
        let ask = ctx.approval(package).id(id_of(&self.op, open)).version(self.asked).single_use();
        let approval = AskApproval { policy: policy.clone(), ..ask }.ask().await?;
        self.op = Arc::new(self.op.approved(approval));
        Ok(())
    }

    /// Takes the approvals that an earlier activation asked for. The call may have gone out under the last one, and
    /// goes on under it. A request about another package is passed over: a model that is asked again may propose
    /// another one, and the decision about the first says nothing of it.
    pub(super) async fn asked_before(&mut self, ctx: &Ctx, open: &Open) -> Result<(), Failure> {
        if self.op.tool.spec().approval.is_none() {
            return Ok(());
        }
        let Some(package) = self.op.tool.package() else { return Ok(()) };
        let name = format!("{ASKED}{}", package.what());
        let digest = ctx.unless_mendable(package.digest().map_err(Failure::from)).await?;
        let hash = RequestHash::of(&name, &ctx.canonical(&hex(&digest.0)).await?);
        // The people of a request that was made are recorded with it.
        let policy = ReviewPolicy::default();
        let id = id_of(&self.op, open);
        while let Some(then) = asked_about(ctx, &name, of_version(&id, self.asked + 1)) {
            if then == hash {
                self.request(ctx, open, &policy).await?;
            } else {
                self.asked += 1;
            }
        }
        Ok(())
    }
}

/// Notes that the code has come to a call, and so to the requests for its approval, with the waits for the decisions. A
/// call that is over does not ask for them again, and the run would count as behind them for ever.
pub(super) fn note_requests(ctx: &Ctx, op: &Operation, open: &Open) {
    if op.tool.spec().approval.is_none() {
        return;
    }
    let id = id_of(op, open);
    // The waits are named after the row, which ends with the id of the request.
    let (own, row) = (Identity::given(id.clone()), format!("/{id}"));
    let is_meant = |past: &str| {
        past.rsplit_once('@').is_some_and(|(request, _version)| request == own || request.ends_with(&row))
    };
    ctx.live.with_replay(|replay| replay.ask_each(ctx.scope(), Review::DECIDED, is_meant));
}

/// The package that the run's request of this id is about, as the hash that its checkpoint is bound to.
fn asked_about(ctx: &Ctx, name: &str, id: String) -> Option<RequestHash> {
    let id = Identity::given(id);
    let asked = Identity { turn: ctx.scope(), kind: Kind::Guard, name: name.to_owned(), id };
    ctx.live.with_replay(|replay| replay.step(&asked)?.input_hash)
}

/// The id of a call's requests: the call's key, or the hash of a long one, and which call under its key it is. It differs
/// from the ids of other calls, and from those that the run's code gives. A later call under the same key is another
/// question: the decision about the first one is not about it.
fn id_of(op: &Operation, open: &Open) -> String {
    let call = format!("{}{}", op.key, open.identity.showing());
    let call = if call.len() <= LONGEST { call } else { hex(&Sha256::digest(call)) };
    format!("~call/{call}")
}

fn of_version(id: &str, version: u32) -> String {
    format!("{id}@{version}")
}

/// The id of the message about the decision on this version.
pub(crate) fn heard_as(id: &str, version: u32) -> String {
    of_version(id, version)
}

/// The decision on the request, as soon as it is known.
async fn outcome(ctx: &Ctx, what: &str, asked: Asked) -> Result<Approval, Failure> {
    let heard = heard_as(&asked.id, asked.version);
    let in_time = match asked.expires_at {
        None => Some(ctx.told(Review::DECIDED, &heard).await?),
        Some(at) => ctx.told_before(Review::DECIDED, &heard, at).await?,
    };
    let told = match in_time {
        Some(told) => told,
        None => {
            let label = Label::of("~approval over", Some(heard));
            ctx.guarded(label, &asked.version, Some(asked.id.clone()), TimeOver(asked.version)).await?
        }
    };
    match told {
        Told { approval: Some(approval), .. } => Ok(approval),
        Told { outcome: ReviewOutcome::Rejected { by, reason }, .. } => {
            let detail = serde_json::json!({ "by": by, "reason": reason });
            let message = format!("{by} rejected the {what}: {reason}");
            Err(Failure::coded(FailureCode::Rejected, message).detail(detail))
        }
        Told { .. } => {
            Err(Failure::coded(FailureCode::Undecided, format!("nobody decided about the {what} in time")))
        }
    }
}

/// The end of the time to decide about this version. Somebody may decide at the last moment: the first write counts.
struct TimeOver(u32);

impl Guarded for TimeOver {
    type Answer = Told;
    type Error = ExecError;

    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Told>, ExecError>> {
        Box::pin(async move {
            let failed = |source| ExecError::Store { key: id.to_owned(), source };
            let found = review_of(core, tenant, id).await.map_err(failed)?;
            let Some((row, review)) = found.filter(|(_, review)| review.version == self.0) else {
                return Ok(Proposal::Before(Told { outcome: ReviewOutcome::Expired, approval: None }));
            };
            let Some(over) = review.ended(ReviewOutcome::Expired) else {
                return Ok(Proposal::Before(Told::of(id, &review)));
            };
            let documents = vec![next(row, &over, core.now())];
            let change = Change { documents, ..core.change(None) };
            Ok(Proposal::Write(Box::new(change), Told::of(id, &over)))
        })
    }

    fn in_run(error: ExecError) -> Result<Failure, ExecError> {
        exec_in_run(error)
    }
}

impl Told {
    /// The message about a review that has ended.
    pub(crate) fn of(id: &str, review: &Review) -> Self {
        let outcome = review.outcome.clone().unwrap_or(ReviewOutcome::Withdrawn);
        Self { outcome, approval: review.approval(id) }
    }
}

impl IntoFuture for AskApproval {
    type Output = Result<Approval, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}
