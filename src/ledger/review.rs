//! A review: the question to the reviewers, and the result of their votes. Pure: the entitled reviewers and the time
//! are passed in.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::approval::{Approval, ApprovalError, ApprovalSubject};
use crate::clock::Timestamp;
use crate::id::{QuestionId, RunId};
use crate::payload::{MAX_EXACT_INTEGER, PayloadError};

/// A review: the proposed effect, its recipient and content, the people who may decide, and the time limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// The run that waits for the review. `None` if no run asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The turn of the run in which it asked for the review.
    pub(crate) turn: u32,
    /// The number of times that this package was put to a vote, from 1: a changed draft is another version.
    pub version: u32,
    /// The action that is to be approved.
    pub what: String,
    /// The person or account that the action is for, if it was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_whom: Option<String>,
    /// The content that the reviewers see.
    pub content: Value,
    /// The content of the version before, if there was one: reviewers see what has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The content hash that an approval is bound to, in hexadecimal.
    pub digest: String,
    /// The names of the people who may decide. Empty: all whom the host's [`Reviewers`](crate::exec::Reviewers)
    /// allow.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub reviewers: BTreeSet<String>,
    /// The number of people who must be in favour.
    pub quorum: u32,
    /// The name of the requester, who may not approve the own request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// The instant after which nobody may decide any more (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The time after the decision for which an approval is valid, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_ms: Option<u64>,
    /// True if only one effect may go out under the approval.
    #[serde(default)]
    pub single_use: bool,
    /// The question that the review answers, if it is about a compensation: the run then waits for that question, not
    /// for the review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) question: Option<QuestionId>,
    /// The votes in the order in which they were given, each of another person.
    pub votes: Vec<Vote>,
    /// The outcome of the review; `None` while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ReviewOutcome>,
    /// The key of the effect that went out under the approval, if it is for a single use.
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
    /// The names of the people who may decide. Empty: all whom the host's [`Reviewers`](crate::exec::Reviewers)
    /// allow.
    pub reviewers: BTreeSet<String>,
    /// The number of people who must be in favour.
    pub quorum: u32,
    /// The time after which nobody may decide any more. `None`: without a limit.
    pub expires_in: Option<Duration>,
    /// The time after the decision within which the effect may go out. `None`: without a limit.
    pub valid_for: Option<Duration>,
}

impl ReviewPolicy {
    /// A policy by which one of these people decides.
    pub fn by<S: Into<String>>(reviewers: impl IntoIterator<Item = S>) -> Self {
        Self { reviewers: reviewers.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Sets the number of people who must be in favour.
    #[must_use]
    pub const fn quorum(mut self, people: u32) -> Self {
        self.quorum = people;
        self
    }

    /// Sets the time after which the run gives up if nobody has decided.
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

    /// True if the quorum is at least one and enough people may decide to reach it.
    pub(crate) fn is_decidable(&self) -> bool {
        self.objection(None).is_none()
    }

    /// The reason why nobody can approve the request, given that the requester may not.
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
    /// One person whom the host allows.
    fn default() -> Self {
        Self { reviewers: BTreeSet::new(), quorum: 1, expires_in: None, valid_for: None }
    }
}

/// The vote of one person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The name of the person who voted.
    pub by: String,
    /// True if the person is in favour.
    pub approves: bool,
    /// The reason for the vote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The instant of the vote, by the store's clock (UTC).
    pub at: Timestamp,
}

/// The outcome of a review.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewOutcome {
    /// Enough people were in favour.
    Approved {
        /// The instant of the approval (UTC).
        at: Timestamp,
    },
    /// A person was against it, which ends the review.
    Rejected {
        /// The name of the person who rejected it.
        by: String,
        /// The reason for the rejection.
        reason: String,
    },
    /// Nobody decided in time.
    Expired,
    /// The run of the review has ended or taken another path.
    Withdrawn,
}

#[cfg(any(feature = "cli", feature = "dashboard", all(feature = "mcp", feature = "sqlite")))]
impl Review {
    /// The names of the people who may decide, for a person.
    pub(crate) fn people(&self) -> String {
        self.reviewers.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl ReviewOutcome {
    /// The outcome in a few words.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Approved { .. } => "it was approved".into(),
            Self::Rejected { by, .. } => format!("{by} has rejected it"),
            Self::Expired => "it has expired".into(),
            Self::Withdrawn => "its run has moved on".into(),
        }
    }
}

/// The reason why a vote was not counted. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VoteRefused {
    /// The person looked at another version.
    #[error(
        "version {seen} of this {what} is out of date: version {version} is to be decided; look at it first [vote]"
    )]
    StaleVersion {
        /// The action that was to be approved.
        what: String,
        /// The version that the person looked at.
        seen: u32,
        /// The present version.
        version: u32,
    },
    /// The review has ended.
    #[error("nothing is left to be decided about this {what}: {}; the decision was not counted [vote]", outcome.told())]
    Over {
        /// The action that was to be approved.
        what: String,
        /// The outcome of the review.
        outcome: ReviewOutcome,
    },
    /// The time to decide is over.
    #[error("the time to decide about this {what} is over: the decision was not counted [vote]")]
    Expired {
        /// The action that was to be approved.
        what: String,
    },
    /// The person is not entitled to decide.
    #[error("{by} may not decide about this {what}: the decision was not counted [vote]")]
    NotEntitled {
        /// The action that was to be approved.
        what: String,
        /// The name of the person who voted.
        by: String,
    },
    /// The person asked for the action and may not approve it.
    #[error("{by} asked for this {what} and may not approve it: somebody else has to [vote]")]
    OwnRequest {
        /// The action that was to be approved.
        what: String,
        /// The name of the person who voted.
        by: String,
    },
    /// The person has voted otherwise before.
    #[error("{by} has {} this {what} before: the first decision stands [vote]", if *approved { "approved" } else { "rejected" })]
    Changed {
        /// The action that was to be approved.
        what: String,
        /// The name of the person who voted.
        by: String,
        /// True if the first vote of the person was in favour.
        approved: bool,
    },
}

impl Review {
    /// A new review that puts the first version of a package to a vote. The content hash of the package is `digest`, in hexadecimal.
    ///
    /// # Errors
    /// [`PayloadError`] if the content has no JSON form.
    pub(crate) fn opened(
        package: &ApprovalSubject,
        digest: &str,
        policy: &ReviewPolicy,
        now: Timestamp,
    ) -> Result<Self, PayloadError> {
        let valid_ms = policy
            .valid_for
            .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).min(MAX_EXACT_INTEGER));
        Ok(Self {
            run: None,
            turn: 0,
            version: 1,
            what: package.what().to_owned(),
            for_whom: package.whom().map(ToOwned::to_owned),
            content: package.content()?.decode()?,
            before: None,
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
    /// The name under which a waiting run is told of the decision.
    pub(crate) const DECIDED: &str = "~approval";

    /// The id of the review that answers a question.
    pub(crate) fn id_of(question: QuestionId) -> String {
        format!("undo/{question}")
    }

    /// The review as the next version of another one.
    pub(crate) fn following(self, before: Self) -> Self {
        Self { before: Some(before.content), ..self }
    }

    /// The number of people who were in favour.
    pub fn approvals(&self) -> u32 {
        u32::try_from(self.votes.iter().filter(|vote| vote.approves).count()).unwrap_or(u32::MAX)
    }

    /// The review with one more vote, of a person who is `entitled` to it as far as the host knows.
    ///
    /// # Errors
    /// [`VoteRefused`] with the reason why the vote does not count.
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

    /// The review without a decision: expired, or withdrawn. `None` if it was decided before.
    pub fn ended(&self, outcome: ReviewOutcome) -> Option<Self> {
        self.outcome.is_none().then(|| Self { outcome: Some(outcome), ..self.clone() })
    }

    /// The review at this instant: a review that no run waits for has expired by itself when its time is over.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Self {
        let is_over = self.run.is_none() && self.is_expired(now);
        let ended = if is_over { self.ended(ReviewOutcome::Expired) } else { None };
        ended.unwrap_or(self)
    }

    /// True if the time to decide is over.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// True if the reviewer is among the named people, or if nobody was named.
    pub fn is_named(&self, reviewer: &str) -> bool {
        self.reviewers.is_empty() || self.reviewers.contains(reviewer)
    }

    /// The approval, if the review was approved.
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
            policy: None,
        })
    }

    /// Checks that an effect of this key may go out under the approval now. The people in favour must still be
    /// `entitled`.
    ///
    /// # Errors
    /// [`ApprovalError`] with the reason why the effect may not go out.
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
