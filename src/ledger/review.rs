//! A review: what people are asked to decide, and what comes of their votes (GUARD-1). Pure: who may vote and what time it
//! is are passed in.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::approval::{Approval, ApprovalError, ApprovalSubject};
use crate::clock::Timestamp;
use crate::id::{QuestionId, RunId};
use crate::payload::{MAX_EXACT_INTEGER, PayloadError};

/// What reviewers are asked: what is to be done, for whom, with which content, who may decide, and until when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// The run that waits for it. Absent if it was asked for without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The turn of the run in which it asked.
    pub(crate) turn: u32,
    /// Counts how often this package was put to a vote, from 1: a changed draft is another version.
    pub version: u32,
    /// What is to be done.
    pub what: String,
    /// For whom, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_whom: Option<String>,
    /// What the reviewers see.
    pub content: Value,
    /// The content hash that an approval is bound to, in hexadecimal.
    pub digest: String,
    /// Who may decide. Nobody named: whoever the host's [`Reviewers`](crate::exec::Reviewers) let.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub reviewers: BTreeSet<String>,
    /// So many people must be in favour.
    pub quorum: u32,
    /// Who wants it done, and so may not approve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// From then on nobody decides any more (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// So many milliseconds after the decision an approval ceases to be valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_ms: Option<u64>,
    /// One effect may go out by it, and no second one.
    #[serde(default)]
    pub single_use: bool,
    /// The question that it answers, if it is about an undoing: the run waits for that, and not for the review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) question: Option<QuestionId>,
    /// In the order in which they were given, each of another person.
    pub votes: Vec<Vote>,
    /// What has come of it; nothing while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ReviewOutcome>,
    /// The effect that went out by it, where it is for one: its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
}

/// The people who are asked when a call needs an approval that it does not have.
///
/// ```
/// use std::time::Duration;
/// use counterfoil::ledger::ReviewPolicy;
/// let policy = ReviewPolicy::by(["ann", "bob", "carl"]).quorum(2).expires_in(Duration::from_hours(72));
/// assert_eq!(policy.quorum, 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewPolicy {
    /// The names of those who may decide. Empty: all whom the host's [`Reviewers`](crate::exec::Reviewers) let.
    pub reviewers: BTreeSet<String>,
    /// The number of people who must be in favour.
    pub quorum: u32,
    /// The time after which nobody decides any more. Absent: it can be decided for as long as it takes.
    pub expires_in: Option<Duration>,
    /// How long after the decision the effect may go out. Absent: for ever.
    pub valid_for: Option<Duration>,
}

impl ReviewPolicy {
    /// One of these people decides.
    pub fn by<S: Into<String>>(reviewers: impl IntoIterator<Item = S>) -> Self {
        Self { reviewers: reviewers.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Sets the number of people who must be in favour.
    #[must_use]
    pub const fn quorum(mut self, people: u32) -> Self {
        self.quorum = people;
        self
    }

    /// Sets the time after which the run gives up, if nobody has decided.
    #[must_use]
    pub const fn expires_in(mut self, limit: Duration) -> Self {
        self.expires_in = Some(limit);
        self
    }

    /// Sets the time after the decision within which the effect may go out.
    #[must_use]
    pub const fn valid_for(mut self, limit: Duration) -> Self {
        self.valid_for = Some(limit);
        self
    }

    /// Whether enough people may decide to reach the quorum, and one has to.
    pub(crate) fn is_decidable(&self) -> bool {
        self.objection(None).is_none()
    }

    /// Why nobody can approve it, if whoever wants it done may not.
    pub(crate) fn objection(&self, requested_by: Option<&str>) -> Option<&'static str> {
        let others = self.reviewers.iter().filter(|by| requested_by != Some(by.as_str())).count();
        if self.quorum == 0 {
            Some("nobody has to approve it")
        } else if !self.reviewers.is_empty() && others < self.quorum as usize {
            Some("there are fewer people who may than have to")
        } else {
            None
        }
    }
}

impl Default for ReviewPolicy {
    /// One person, whom the host lets.
    fn default() -> Self {
        Self { reviewers: BTreeSet::new(), quorum: 1, expires_in: None, valid_for: None }
    }
}

/// What somebody decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// Who.
    pub by: String,
    /// In favour, or against it.
    pub approves: bool,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When, by the store's clock (UTC).
    pub at: Timestamp,
}

/// How a review ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewOutcome {
    /// Enough people were in favour.
    Approved {
        /// When (UTC).
        at: Timestamp,
    },
    /// Somebody was against it, which ends it.
    Rejected {
        /// Who.
        by: String,
        /// Why.
        reason: String,
    },
    /// Nobody has decided in time.
    Expired,
    /// Its run has ended, or goes another way.
    Withdrawn,
}

impl ReviewOutcome {
    /// In a few words.
    fn told(&self) -> String {
        match self {
            Self::Approved { .. } => "it was approved".into(),
            Self::Rejected { by, .. } => format!("{by} has rejected it"),
            Self::Expired => "it has expired".into(),
            Self::Withdrawn => "its run has moved on".into(),
        }
    }
}

/// Why a decision was not counted. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VoteRefused {
    /// Somebody looked at another version.
    #[error(
        "version {seen} of this {what} is out of date: version {version} is to be decided; look at it first"
    )]
    StaleVersion {
        /// What was to be done.
        what: String,
        /// The version that was looked at.
        seen: u32,
        /// The present one.
        version: u32,
    },
    /// There is nothing to be decided any more.
    #[error("nothing is left to be decided about this {what}: {}; the decision was not counted", outcome.told())]
    Over {
        /// What was to be done.
        what: String,
        /// How it ended.
        outcome: ReviewOutcome,
    },
    /// The time for it is over.
    #[error("the time to decide about this {what} is over: the decision was not counted")]
    Expired {
        /// What was to be done.
        what: String,
    },
    /// Somebody who may not.
    #[error("{by} may not decide about this {what}: the decision was not counted")]
    NotEntitled {
        /// What was to be done.
        what: String,
        /// Who.
        by: String,
    },
    /// Whoever wants it done.
    #[error("{by} asked for this {what} and may not approve it: somebody else has to")]
    OwnRequest {
        /// What was to be done.
        what: String,
        /// Who.
        by: String,
    },
    /// They have decided otherwise before.
    #[error("{by} has {} this {what} before: the first decision stands", if *approved { "approved" } else { "rejected" })]
    Changed {
        /// What was to be done.
        what: String,
        /// Who.
        by: String,
        /// What they said first.
        approved: bool,
    },
}

impl Review {
    /// A package is put to a vote. Its content hash is `digest`, in hexadecimal.
    ///
    /// # Errors
    /// If its content has no JSON form.
    pub(crate) fn opened(
        package: &ApprovalSubject,
        digest: &str,
        version: u32,
        policy: &ReviewPolicy,
        now: Timestamp,
    ) -> Result<Self, PayloadError> {
        let valid_ms = policy
            .valid_for
            .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).min(MAX_EXACT_INTEGER));
        Ok(Self {
            run: None,
            turn: 0,
            version,
            what: package.what().to_owned(),
            for_whom: package.whom().map(ToOwned::to_owned),
            content: package.content()?.decode()?,
            digest: digest.to_owned(),
            reviewers: policy.reviewers.clone(),
            quorum: policy.quorum,
            requested_by: None,
            expires_at: policy.expires_in.map(|limit| now.after(limit)),
            valid_ms,
            single_use: true,
            question: None,
            votes: Vec::new(),
            outcome: None,
            used_by: None,
        })
    }

    /// The guard that reviews belong to.
    pub(crate) const KIND: &str = "approval";
    /// What a run that waits for one is told under.
    pub(crate) const DECIDED: &str = "~approval";

    /// The id of the review that answers a question.
    pub(crate) fn id_of(question: QuestionId) -> String {
        format!("undo/{question}")
    }

    /// How many people were in favour.
    pub fn approvals(&self) -> u32 {
        u32::try_from(self.votes.iter().filter(|vote| vote.approves).count()).unwrap_or(u32::MAX)
    }

    /// The review with one more vote, of somebody who is `entitled` to it as far as the host knows.
    ///
    /// # Errors
    /// Why the vote does not count.
    pub fn counted(&self, vote: Vote, version: u32, entitled: bool) -> Result<Self, VoteRefused> {
        let (what, by) = (self.what.clone(), vote.by.clone());
        if version != self.version {
            return Err(VoteRefused::StaleVersion { what, seen: version, version: self.version });
        }
        if let Some(first) = self.votes.iter().find(|first| first.by == vote.by) {
            if first.approves == vote.approves {
                return Ok(self.clone());
            }
            return Err(VoteRefused::Changed { what, by, approved: first.approves });
        }
        if let Some(outcome) = &self.outcome {
            return Err(VoteRefused::Over { what, outcome: outcome.clone() });
        }
        if self.is_expired(vote.at) {
            return Err(VoteRefused::Expired { what });
        }
        if !entitled || !self.is_named(&by) {
            return Err(VoteRefused::NotEntitled { what, by });
        }
        if vote.approves && self.requested_by.as_ref() == Some(&by) {
            return Err(VoteRefused::OwnRequest { what, by });
        }
        let mut next = self.clone();
        next.outcome = match &vote {
            Vote { approves: false, by, reason, .. } => {
                Some(ReviewOutcome::Rejected { by: by.clone(), reason: reason.clone() })
            }
            Vote { at, .. } if self.approvals() + 1 >= self.quorum => {
                Some(ReviewOutcome::Approved { at: *at })
            }
            _ => None,
        };
        next.votes.push(vote);
        Ok(next)
    }

    /// The review without a decision: expired, or withdrawn. One that was decided stays so.
    pub fn ended(&self, outcome: ReviewOutcome) -> Option<Self> {
        self.outcome.is_none().then(|| Self { outcome: Some(outcome), ..self.clone() })
    }

    /// As it is at this instant: one that no run waits for has expired by itself when its time is over.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Self {
        let is_over = self.run.is_none() && self.is_expired(now);
        let ended = if is_over { self.ended(ReviewOutcome::Expired) } else { None };
        ended.unwrap_or(self)
    }

    /// The time to decide is over.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// They are among those who were named, or nobody was.
    pub fn is_named(&self, reviewer: &str) -> bool {
        self.reviewers.is_empty() || self.reviewers.contains(reviewer)
    }

    /// The approval, if that is what came of it.
    pub fn approval(&self, id: &str) -> Option<Approval> {
        let Some(ReviewOutcome::Approved { at }) = self.outcome else { return None };
        let people: Vec<_> =
            self.votes.iter().filter(|vote| vote.approves).map(|vote| vote.by.as_str()).collect();
        let valid = self.valid_ms.map(std::time::Duration::from_millis);
        Some(Approval {
            by: people.join(", "),
            package: self.digest.clone(),
            expires_at: valid.map(|valid| at.after(valid)),
            review: Some((id.to_owned(), self.version)),
        })
    }

    /// An effect of this key may go out by it now. Those in favour must be `entitled` still.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn check_use(
        &self,
        version: u32,
        key: &str,
        entitled: impl Fn(&str) -> bool,
    ) -> Result<(), ApprovalError> {
        let what = self.what.clone();
        if version != self.version || !matches!(self.outcome, Some(ReviewOutcome::Approved { .. })) {
            return Err(ApprovalError::Superseded { what, version });
        }
        let lost = self.votes.iter().find(|vote| vote.approves && !entitled(&vote.by));
        if let Some(vote) = lost {
            return Err(ApprovalError::NotEntitled { what, by: vote.by.clone() });
        }
        match &self.used_by {
            Some(used) if self.single_use && used != key => {
                Err(ApprovalError::Used { what, key: used.clone() })
            }
            _ => Ok(()),
        }
    }
}
