//! The reviewers' side: the list of open reviews, and decisions from any process.

use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::exec::approval::{kind, next, read, review_of, withdrawn};
use crate::exec::{Core, ExecError, Executor, Said, unless_panicked};
use crate::flow::{RunError, TenantClient, Told, heard_as};
use crate::id::{DeclarationId, IdError, Name, RecordId, RunId, Tenant, checked};
use crate::ledger::{
    EffectClass, Intent, Key, KeyError, OperationKey, Owner, Record, RequestHash, Retention, Review,
    ReviewOutcome, Vote, VoteRefused,
};
use crate::payload::{Payload, PayloadError, Stored};
use crate::store::{Document, Question, Refusal, Resolution, Store as _, StoreError, Verdict};

/// The maximum number of open reviews in one page.
const PAGE: u32 = 256;

/// The reviews of one tenant.
#[derive(Clone)]
pub struct Approvals {
    pub(super) core: Arc<Core>,
    pub(super) tenant: Tenant,
    /// The engine whose runs may wait for a decision.
    runs: Option<TenantClient>,
}

/// A review as a reviewer sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpenReview {
    /// The id of the review, for [`TenantClient::decide`] and [`Approvals::decide`].
    pub id: String,
    /// The version of the package under review.
    pub version: u32,
    /// The package, the policy and the votes.
    #[serde(flatten)]
    pub review: Review,
    /// The time at which the review was opened (UTC).
    pub since: Timestamp,
}

#[cfg(feature = "api")]
impl OpenReview {
    /// The review that a row holds. `None` if it is not open any more, or if the row cannot be read, which the list reports.
    pub(crate) fn of_row(row: &Document, now: Timestamp) -> Option<Self> {
        let review = read(row).ok()?.at(now);
        review.outcome.is_none().then(|| open_review(row, review))
    }
}

/// A decision that was counted, now or before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The outcome of the review; `None` while more decisions are needed.
    pub outcome: Option<ReviewOutcome>,
    /// The number of people who have approved.
    pub approvals: u32,
    /// The number of approvals that are needed.
    pub quorum: u32,
}

/// The reason why a decision was not counted. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApprovalRefused {
    /// This tenant has no review of that id.
    #[error("there is nothing to decide under {id:?} [not_found]")]
    Unknown {
        /// The id of the review.
        id: String,
    },
    /// The rules of the review refused the vote.
    #[error(transparent)]
    Vote(#[from] VoteRefused),
    /// The run of the review has ended, or no longer waits for it.
    #[error("{id:?} needs no decision any more: its run has moved on; the decision was not counted [vote]")]
    MovedOn {
        /// The id of the review.
        id: String,
    },
    /// A run waits for the decision, and this executor has no engine that could notify the run.
    #[error(
        "{id:?} is waited for by {run}: decide it by an engine (`engine.tenant(..)?.decide(..)`); the decision was not counted [vote]"
    )]
    OfARun {
        /// The id of the review.
        id: String,
        /// The run that waits.
        run: RunId,
    },
    /// The review names nobody, and a worker of this ledger has a [rule](crate::exec::Reviewers) of its own about who may
    /// decide, which this process was not given.
    #[error(
        "{id:?} names no reviewers, and the host of this ledger has a rule about who may decide, which this process was not given: \
         decide at the host's own server, or give this process the rule (`reviewers(..)`); the decision was not counted [vote]"
    )]
    RuleElsewhere {
        /// The id of the review.
        id: String,
    },
    /// The name of the reviewer is empty or too long.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The key of the decision cannot be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The decision has no JSON form.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The run could not be notified.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The ledger refused the change.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The store failed. The decision may have been counted: the same decision again returns the original answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A decision to be given. Nothing happens before it is awaited; then the decision is durable.
#[must_use = "a decision is not given until it is awaited"]
pub struct Decide {
    approvals: Approvals,
    id: String,
    version: u32,
    vote: Option<(String, bool, String)>,
    because: Option<String>,
}

impl TenantClient {
    /// The open reviews, ordered by id, after the id `after`. See [`Approvals::reviews`].
    pub async fn reviews(&self, after: Option<&str>) -> Result<Vec<OpenReview>, StoreError> {
        self.approvals().reviews(after).await
    }

    /// The review of this id, with its outcome.
    pub async fn review(&self, id: &str) -> Result<Option<OpenReview>, StoreError> {
        self.approvals().review(id).await
    }

    /// Decides a review: [`approve`](Decide::approve) or [`reject`](Decide::reject), by a person whom the host has
    /// authenticated. The same decision again returns the original answer; a different decision of the same person is
    /// refused.
    pub fn decide(&self, id: impl Into<String>, version: u32) -> Decide {
        self.approvals().decide(id, version)
    }

    /// The reviews of this tenant, with and without a waiting run.
    pub fn approvals(&self) -> Approvals {
        let (core, tenant) = self.core();
        Approvals { core, tenant, runs: Some(self.clone()) }
    }
}

impl Executor {
    /// The reviews of this tenant, for calls that are made without a workflow.
    pub fn approvals(&self, tenant: &Tenant) -> Approvals {
        Approvals { core: self.core().clone(), tenant: tenant.clone(), runs: None }
    }
}

impl Approvals {
    /// The open reviews, ordered by id, after the id `after`: a page of at most 256. An empty page is the end. The
    /// review of a run that no longer waits may still be listed: a decision on it is refused.
    ///
    /// A review that cannot be read is reported in the log and left out.
    pub async fn reviews(&self, after: Option<&str>) -> Result<Vec<OpenReview>, StoreError> {
        let mut after = after.map(ToOwned::to_owned);
        loop {
            let (reviews, next) = self.page(after.as_deref(), PAGE).await?;
            if next.is_none() || !reviews.is_empty() {
                return Ok(reviews);
            }
            after = next;
        }
    }

    /// The first open reviews after the id `after`, at most `limit`, and the id after which the next page begins; `None` on the last
    /// page.
    ///
    /// The row of a review without a run stays open when its time is over. So a page looks at a bounded number of rows, and may have
    /// few reviews, or none, and a next page.
    pub(crate) async fn page(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<OpenReview>, Option<String>), StoreError> {
        self.page_of(after, limit, false, &|_| true).await
    }

    /// The same of the reviews that a condition takes: of the open ones, or of those that are open no more.
    pub(crate) async fn page_of(
        &self,
        after: Option<&str>,
        limit: u32,
        decided: bool,
        takes: &(dyn Fn(&OpenReview) -> bool + Sync),
    ) -> Result<(Vec<OpenReview>, Option<String>), StoreError> {
        let group = &self.core.group;
        let (mut reviews, mut last) = (Vec::new(), after.unwrap_or_default().to_owned());
        // One row more than fits shows that there is a next page.
        for size in [limit.saturating_add(1), PAGE, PAGE, PAGE] {
            let rows = if decided {
                group.document_list(&self.tenant, Review::KIND, &last, size).await?
            } else {
                group.document_open(&self.tenant, Review::KIND, &last, size).await?
            };
            if rows.is_empty() {
                return Ok((reviews, None));
            }
            let now = self.core.now();
            for row in rows {
                let open = readable(&row, now)
                    .filter(|review| review.review.outcome.is_some() == decided && takes(review));
                if open.is_some() && reviews.len() == limit as usize {
                    return Ok((reviews, Some(last)));
                }
                reviews.extend(open);
                last = row.id;
            }
        }
        Ok((reviews, Some(last)))
    }

    /// The review of this id, with its outcome.
    pub async fn review(&self, id: &str) -> Result<Option<OpenReview>, StoreError> {
        let found = review_of(&self.core, &self.tenant, id).await?;
        Ok(found.map(|(row, review)| open_review(&row, review.at(self.core.now()))))
    }

    /// Decides a review. See [`TenantClient::decide`].
    pub fn decide(&self, id: impl Into<String>, version: u32) -> Decide {
        Decide { approvals: self.clone(), id: id.into(), version, vote: None, because: None }
    }
}

fn readable(row: &Document, now: Timestamp) -> Option<OpenReview> {
    let review = read(row).inspect_err(
        |error| tracing::error!(review = row.id, %error, "review damaged, left out of the list"),
    );
    Some(open_review(row, review.ok()?.at(now)))
}

pub(super) fn open_review(row: &Document, review: Review) -> OpenReview {
    OpenReview { id: row.id.clone(), version: review.version, review, since: row.created_at }
}

impl Decide {
    /// Sets a vote in favour of the package.
    pub fn approve(mut self, by: impl Into<String>) -> Self {
        self.vote = Some((by.into(), true, String::new()));
        self
    }

    /// Sets a vote against the package, which ends the review.
    pub fn reject(mut self, by: impl Into<String>, reason: impl Into<String>) -> Self {
        self.vote = Some((by.into(), false, reason.into()));
        self
    }

    /// Sets the reason for the vote in the person's own words, which is kept with it: that of an approval, or another one for a
    /// rejection. The reason of a decision that is repeated is not kept: the first one stands.
    ///
    /// ```no_run
    /// # async fn decide(acme: counterfoil::flow::TenantClient) -> Result<(), Box<dyn std::error::Error>> {
    /// acme.decide("~asked/refund/order/9", 1).approve("ann").because("the amount is that of the bill").await?;
    /// # Ok(()) }
    /// ```
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.because = Some(reason.into());
        self
    }

    /// Counts the vote.
    ///
    /// # Crash
    /// The decision's record, the review's row and the notification of the run are one transaction.
    async fn give(self) -> Result<Decided, ApprovalRefused> {
        let Self { approvals: Approvals { core, tenant: owner, runs }, id, version, vote, because } = self;
        let (by, approves, reason) = vote.unwrap_or_default();
        let reason = because.unwrap_or(reason);
        checked("reviewer", &by, Name::MAX_BYTES)?;
        let heard = heard_as(&id, version);
        let key = Key::of(Review::KIND).target(&heard).operation(&by).hashed().render()?;
        let request = Payload::of(&(version, approves))?;
        loop {
            let found = review_of(&core, &owner, &id).await?;
            let (row, review) = found.ok_or_else(|| ApprovalRefused::Unknown { id: id.clone() })?;
            if let Some(first) = core.group.record_find(&owner, &key).await? {
                let changed = |approved| VoteRefused::Changed { what: review.what, by, approved };
                return answered(&core, &first, &request, changed).await;
            }
            let at = core.now();
            if core.lacks_the_rule(&review).await? {
                return Err(ApprovalRefused::RuleElsewhere { id });
            }
            let entitled = core.may_decide(&owner, &by, &review);
            let vote = Vote { by: by.clone(), approves, reason: reason.clone(), at };
            let after = review.counted(vote, version, entitled)?;
            let waiting = match (review.run, &runs) {
                (None, _) => Waiting::Nobody,
                (Some(run), None) => return Err(ApprovalRefused::OfARun { id, run }),
                (Some(run), Some(runs)) => match Waiting::of(runs, run, &review, &heard).await? {
                    Some(waiting) => waiting,
                    None => {
                        withdraw(&core, row, &review).await?;
                        return Err(ApprovalRefused::MovedOn { id });
                    }
                },
            };
            let decided = Decided::of(&after);
            let intent = intent(&core, &owner, key.clone(), request.clone());
            let record = Record::decided(intent, Stored::Inline(Payload::of(&decided)?), at);
            let mut change = core.change(None).record(record);
            change.documents.push(next(row, &after, at));
            let written = match (&after.outcome, waiting) {
                (None, _) | (_, Waiting::Nobody) => core.group.commit_one(change).await?,
                (Some(_), Waiting::Run(runs, run)) => {
                    let told = Told::of(&id, &after);
                    runs.tell(change, run, (Review::DECIDED, &heard), &told).await?
                }
                (Some(outcome), Waiting::Question(runs, question)) => {
                    runs.answer_with(change, *question, said(&after, outcome)).await?
                }
            };
            match written {
                Verdict::Admitted => {
                    let run = review.run.map(tracing::field::display);
                    tracing::info!(tenant = %owner, run, key = %key, by, approves, "approval decided");
                    return Ok(decided);
                }
                // Another reviewer decided at the same moment, or this decision is a repeat: read the review again.
                Verdict::Refused(Refusal::Stale | Refusal::Exists) => {}
                Verdict::Refused(refusal) => {
                    return Err(ExecError::Refused { key: key.to_string(), refusal }.into());
                }
            }
        }
    }
}

/// The party that waits for a review.
enum Waiting<'r> {
    /// The run of the review.
    Run(&'r TenantClient, RunId),
    /// A question about the undoing of an effect.
    Question(&'r TenantClient, Box<Question>),
    /// The review has no run: its requester asks again later.
    Nobody,
}

impl<'r> Waiting<'r> {
    /// The party that waits; `None` if nothing waits for the review any more.
    async fn of(
        runs: &'r TenantClient,
        run: RunId,
        review: &Review,
        heard: &str,
    ) -> Result<Option<Self>, StoreError> {
        match review.question {
            Some(question) => {
                Ok(runs.asks(question).await?.map(|question| Self::Question(runs, Box::new(question))))
            }
            None => {
                let waits = runs.waits_for(run, review.turn, (Review::DECIDED, heard)).await?;
                Ok(waits.then_some(Self::Run(runs, run)))
            }
        }
    }
}

/// The reviewers' answer to a question about the undoing of an effect.
fn said(review: &Review, outcome: &ReviewOutcome) -> Said {
    let in_favour = review.votes.iter().filter(|vote| vote.approves).map(|vote| vote.by.as_str());
    match outcome {
        ReviewOutcome::Rejected { by, reason } => {
            Said { because: Some(reason.clone()), ..Said::new(Resolution::Keep, by.clone()) }
        }
        _ => Said::new(Resolution::Undo, in_favour.collect::<Vec<_>>().join(", ")),
    }
}

impl Decided {
    fn of(review: &Review) -> Self {
        let (outcome, approvals) = (review.outcome.clone(), review.approvals());
        Self { outcome, approvals, quorum: review.quorum }
    }
}

/// The intent of a decision. A decision is committed together with its record, so it is never ambiguous.
fn intent(core: &Core, tenant: &Tenant, key: OperationKey, request: Payload) -> Intent {
    Intent {
        id: RecordId(core.ids.next()),
        tenant: tenant.clone(),
        key,
        operation: kind(),
        class: EffectClass::InternalMutation,
        request_hash: RequestHash::of(Review::KIND, &request),
        request: Stored::Inline(request),
        declaration: DeclarationId(0),
        owner: Owner::default(),
        fence: core.fence,
        retention: Retention::keep(), // decisions of people are kept
        approval: None,
        scopes: None,
    }
}

/// The answer that the reviewer got the first time. `changed`: the refusal if the first vote was this other one.
async fn answered(
    core: &Core,
    first: &Record,
    request: &Payload,
    changed: impl FnOnce(bool) -> VoteRefused,
) -> Result<Decided, ApprovalRefused> {
    if first.request_hash != RequestHash::of(Review::KIND, request) {
        let stored = core.load(&first.tenant, &first.request).await.map_err(RunError::from)?;
        let (_, approved): (u32, bool) = stored.decode()?;
        return Err(changed(approved).into());
    }
    match first.response() {
        Some(response) => {
            let response = core.load(&first.tenant, response).await.map_err(RunError::from)?;
            Ok(response.decode()?)
        }
        None => Err(ApprovalRefused::MovedOn { id: first.key.to_string() }),
    }
}

/// Removes a review from the list. If another process was quicker, the review is removed all the same.
async fn withdraw(core: &Core, row: Document, review: &Review) -> Result<(), StoreError> {
    if let Some(over) = withdrawn(row, review, core.now()) {
        let mut change = core.change(None);
        change.documents.push(over);
        let _anothers = core.group.commit_one(change).await?;
    }
    Ok(())
}

impl IntoFuture for Decide {
    type Output = Result<Decided, ApprovalRefused>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let id = self.id.clone();
        Box::pin(async move { unless_panicked(&id, self.give()).await })
    }
}
