//! The run's side: it asks, waits, and goes on with the approval or without it.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::exec::approval::{body, next, review_of};
use crate::exec::{Core, ExecError};
use crate::flow::{Asking, Ctx, Failure, FailureCode, Guarded, Label};
use crate::id::{Name, Tenant};
use crate::ledger::{Approval, Package, Review, ReviewOutcome};
use crate::payload::hex;
use crate::store::Document;

/// Something to be approved. Nothing happens before it is awaited; then the run waits until it is decided.
///
/// # Errors
/// [`FailureCode::Rejected`] and [`FailureCode::Undecided`]; who decided, and why, is the failure's detail.
#[must_use = "nobody is asked until it is awaited"]
pub struct AskApproval {
    ctx: Ctx,
    package: Package,
    id: Option<String>,
    version: u32,
    for_whom: Option<String>,
    reviewers: BTreeSet<String>,
    quorum: u32,
    requested_by: Option<String>,
    expires_in: Option<Duration>,
    valid_for: Option<Duration>,
    single_use: bool,
}

/// That the run has asked, as it records it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Asked {
    id: String,
    version: u32,
    expires_at: Option<Timestamp>,
}

/// What the run is told at the end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) outcome: ReviewOutcome,
    pub(super) approval: Option<Approval>,
}

impl Ctx {
    /// Asks people to approve exactly this package, and waits until they have decided.
    ///
    /// # Crash
    /// The question and the run's record of having asked it are one transaction; so are a decision and what the run is told.
    pub fn approval(&self, package: Package) -> AskApproval {
        AskApproval {
            ctx: self.clone(),
            package,
            id: None,
            version: 1,
            for_whom: None,
            reviewers: BTreeSet::new(),
            quorum: 1,
            requested_by: None,
            expires_in: None,
            valid_for: None,
            single_use: false,
        }
    }
}

impl AskApproval {
    /// Which of its kind it is in this run: needed where several are open at once, and where a changed draft is put to a
    /// vote again under another [`version`](Self::version).
    #[allow(clippy::needless_pass_by_value, reason = "`.id(7)` and `.id(&name)` both read well")]
    pub fn id(mut self, id: impl ToString) -> Self {
        self.id = Some(id.to_string());
        self
    }

    /// Which version of what has this id, from 1. Decisions about an earlier one are refused from then on, and its approval
    /// no longer counts.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// For whom it is to be done: shown to the reviewers.
    pub fn for_whom(mut self, whom: impl Into<String>) -> Self {
        self.for_whom = Some(whom.into());
        self
    }

    /// Who may decide; nobody else may.
    pub fn reviewers<S: Into<String>>(mut self, reviewers: impl IntoIterator<Item = S>) -> Self {
        self.reviewers = reviewers.into_iter().map(Into::into).collect();
        self
    }

    /// So many people must be in favour; one, unless it is said. One who is against it ends it.
    pub fn quorum(mut self, people: u32) -> Self {
        self.quorum = people;
        self
    }

    /// Who wants it done. They may reject it, and not approve it.
    pub fn requested_by(mut self, who: impl Into<String>) -> Self {
        self.requested_by = Some(who.into());
        self
    }

    /// Gives up when nobody has decided by then.
    pub fn expires_in(mut self, limit: Duration) -> Self {
        self.expires_in = Some(limit);
        self
    }

    /// How long after the decision the effect may go out.
    pub fn valid_for(mut self, limit: Duration) -> Self {
        self.valid_for = Some(limit);
        self
    }

    /// One effect may go out by it, and no second one.
    pub fn single_use(mut self) -> Self {
        self.single_use = true;
        self
    }

    async fn ask(self) -> Result<Approval, Failure> {
        self.refuse_nonsense()?;
        let (ctx, what) = (self.ctx.clone(), self.package.what().to_owned());
        let id = self.id.as_ref().map(|id| format!("{id}@{}", self.version));
        let label = match id {
            Some(id) => Label::from((format!("~approval/{what}").as_str(), id)),
            None => Label::from(format!("~approval/{what}")),
        };
        let (tenant, digest) = (ctx.tenant().clone(), hex(&self.package.digest()?.0));
        let asked: Asked = ctx
            .guarded(label, &digest, |core, asking| async move { self.question(&core, tenant, asking).await })
            .await?;
        outcome(&ctx, &what, asked).await
    }

    fn refuse_nonsense(&self) -> Result<(), Failure> {
        let others = self.reviewers.iter().filter(|by| self.requested_by.as_ref() != Some(by)).count();
        let why = if self.quorum == 0 {
            "nobody has to approve it"
        } else if !self.reviewers.is_empty() && others < self.quorum as usize {
            "there are fewer people who may than have to"
        } else {
            return Ok(());
        };
        Err(Failure::coded(FailureCode::Misuse, format!("the approval of a {}: {why}", self.package.what())))
    }

    /// What is asked, and its row.
    async fn question(
        self,
        core: &Core,
        tenant: Tenant,
        asking: Asking,
    ) -> Result<Guarded<Asked>, ExecError> {
        let what = self.package.what().to_owned();
        let id = format!("{}/{what}/{}", asking.run, self.id.as_ref().unwrap_or(&asking.id));
        let failed = |source| ExecError::Store { key: id.clone(), source };
        let before = review_of(core, &tenant, &id).await.map_err(failed)?;
        let now = core.store_time().await.map_err(failed)?;
        // Of a run that is begun again, whoever looks at the earlier question must not answer this one.
        let version = self.version.max(before.as_ref().map_or(0, |(_, review)| review.version) + 1);
        let review = Review {
            run: asking.run,
            turn: asking.turn,
            version,
            what,
            for_whom: self.for_whom,
            content: self.package.content()?.decode()?,
            digest: hex(&self.package.digest()?.0),
            reviewers: self.reviewers,
            quorum: self.quorum,
            requested_by: self.requested_by,
            expires_at: self.expires_in.map(|limit| now.after(limit)),
            valid_ms: self.valid_for.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            single_use: self.single_use,
            votes: Vec::new(),
            outcome: None,
            used_by: None,
        };
        let asked = Asked { id: id.clone(), version, expires_at: review.expires_at };
        let document = match before {
            Some((row, _)) => next(row, &review, now),
            None => Document {
                tenant,
                kind: kind(),
                id,
                revision: 1,
                open: true,
                body: body(&review),
                created_at: now,
                updated_at: now,
            },
        };
        Ok(Guarded::of(asked, Some(document)))
    }
}

pub(super) fn kind() -> Name {
    Name::new(Review::KIND).unwrap_or_else(|_| unreachable!("a name like others"))
}

/// What a review's run is told it by.
pub(super) fn heard_as(id: &str, version: u32) -> String {
    format!("{id}@{version}")
}

/// What came of it, as soon as that is known.
async fn outcome(ctx: &Ctx, what: &str, asked: Asked) -> Result<Approval, Failure> {
    let heard = heard_as(&asked.id, asked.version);
    let in_time = match asked.expires_at {
        None => Some(ctx.told(Review::DECIDED, &heard).await?),
        Some(at) => ctx.told_before(Review::DECIDED, &heard, at).await?,
    };
    let told = match in_time {
        Some(told) => told,
        None => {
            let (label, tenant) = (Label::from(("~approval over", heard)), ctx.tenant().clone());
            ctx.guarded(label, "", |core, _| async move { expired(&core, &tenant, &asked).await }).await?
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

/// The time is over. Somebody may have decided at the last moment: whoever wrote first is right.
async fn expired(core: &Core, tenant: &Tenant, asked: &Asked) -> Result<Guarded<Told>, ExecError> {
    let failed = |source| ExecError::Store { key: asked.id.clone(), source };
    let found = review_of(core, tenant, &asked.id).await.map_err(failed)?;
    let Some((row, review)) = found.filter(|(_, review)| review.version == asked.version) else {
        return Ok(Guarded::of(Told { outcome: ReviewOutcome::Expired, approval: None }, None));
    };
    match review.ended(ReviewOutcome::Expired) {
        Some(over) => Ok(Guarded::of(Told::of(&asked.id, &over), Some(next(row, &over, core.now())))),
        None => Ok(Guarded::of(Told::of(&asked.id, &review), None)),
    }
}

impl Told {
    /// What came of a review that is over.
    pub(super) fn of(id: &str, review: &Review) -> Self {
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
