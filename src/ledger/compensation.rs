//! Undoing: which effects of a run that did not end well, when, and which never (DESIGN 4.12; SAGA-1 to SAGA-6). Pure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contract::{Contract, LookupOffer};
use super::effect::EffectClass;
use super::record::{FinalState, Record, State};
use crate::id::{QuestionId, RunId};

/// When a tool's effects are undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compensation {
    /// When the run that owns them fails or is cancelled.
    #[default]
    Automatic,
    /// The same, once somebody has said so: a question is opened for each, and the run waits for the answer.
    Approved,
    /// The same, once so many reviewers have said so, as about an [approval](crate::guard::approval): a review is opened beside the
    /// question, and is what answers it. One reviewer who is against it leaves the effect as it is.
    Reviewed {
        /// The names of those who may decide. Nobody named: all whom the host's [`Reviewers`](crate::exec::Reviewers) let.
        reviewers: BTreeSet<String>,
        /// The number of people who must be in favour.
        quorum: u32,
    },
    /// By hand: a question is opened that says what is to be done.
    Never {
        /// What a person is to do.
        remedy: String,
    },
}

impl Compensation {
    /// Undone once so many of these reviewers have said so.
    ///
    /// ```
    /// use counterfoil::ledger::Compensation;
    /// assert_eq!(Compensation::reviewed(["ann", "bob"], 2).words(), "after approval by 2 of ann, bob");
    /// ```
    pub fn reviewed<S: Into<String>>(reviewers: impl IntoIterator<Item = S>, quorum: u32) -> Self {
        Self::Reviewed { reviewers: reviewers.into_iter().map(Into::into).collect(), quorum }
    }

    /// Whether enough people may decide to reach the quorum, and one has to.
    pub(crate) fn is_decidable(&self) -> bool {
        match self {
            Self::Reviewed { reviewers, quorum } => {
                *quorum > 0 && (reviewers.is_empty() || reviewers.len() >= *quorum as usize)
            }
            _ => true,
        }
    }

    /// As it stands in the guarantee report.
    pub fn words(&self) -> String {
        match self {
            Self::Automatic => "automatic".to_owned(),
            Self::Approved => "after approval".to_owned(),
            Self::Reviewed { reviewers, quorum } if reviewers.is_empty() => {
                format!("after approval by {quorum}")
            }
            Self::Reviewed { reviewers, quorum } => {
                let names: Vec<_> = reviewers.iter().map(String::as_str).collect();
                format!("after approval by {quorum} of {}", names.join(", "))
            }
            Self::Never { remedy } => format!("never: {remedy}"),
        }
    }
}

/// What a compensation has achieved.
///
/// ```
/// use counterfoil::ledger::Undone;
/// use serde_json::json;
///
/// assert!(Undone::whole().detail(json!({"refund": "re_1"})).is_whole());
/// assert_eq!(Undone::part("500 of 1000 cents are paid out").rest(), Some("500 of 1000 cents are paid out"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// What is left, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rest: Option<String>,
    /// What is to be kept of it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    detail: Value,
}

impl Undone {
    /// All of it.
    pub const fn whole() -> Self {
        Self { rest: None, detail: Value::Null }
    }

    /// Not all: what is left is asked about, in these words.
    pub fn part(rest: impl Into<String>) -> Self {
        Self { rest: Some(rest.into()), detail: Value::Null }
    }

    /// Adds what is to be kept: the refund's id and amount, say.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Value>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Nothing is left.
    pub const fn is_whole(&self) -> bool {
        self.rest.is_none()
    }

    /// What is left.
    pub fn rest(&self) -> Option<&str> {
        self.rest.as_deref()
    }
}

/// What is to be done about one effect of a run that did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Due {
    /// Nothing: it did not happen, leaves no mark, was undone, or is an undoing itself.
    Nothing,
    /// Its fate is an open question: undone, if it happened, when that is answered. Never before, and never forgotten.
    Settle(QuestionId),
    /// Undo it.
    Undo,
    /// Ask whether it may be undone.
    Ask,
    /// It stays, and a person is told why.
    Leave(String),
}

/// Each send of an undoing is preceded by its lookup: somebody else may have undone the effect meanwhile, and a second undoing would
/// not collide with that one.
pub(crate) fn undoing_looks_first(effect: EffectClass, contract: &Contract) -> bool {
    let collides = contract.class.collides() && !contract.look_first;
    effect == EffectClass::Compensation && contract.lookup != LookupOffer::None && !collides
}

/// Decides about an effect that a run wants undone. `family`: the run, and the children whose effects it is to undo with
/// its own; `policy`: that of the effect's tool, if it can undo; `sharers`: runs outside of the family that used it and are
/// under way, or ended well; `allowed`: somebody has said that it may be undone.
pub fn due(
    record: &Record,
    family: &[RunId],
    policy: Option<&Compensation>,
    sharers: &[RunId],
    allowed: bool,
) -> Due {
    if !record.class.needs_owner() {
        return Due::Nothing;
    }
    let leave = |why: &str| Due::Leave(why.to_owned());
    let is_ours = record.owner.run.is_none_or(|owner| family.contains(&owner));
    match (&record.state, policy) {
        (State::Started, Some(_)) if record.escalation.is_some() && is_ours => {
            record.escalation.map_or(Due::Nothing, Due::Settle)
        }
        (State::Gone { was: FinalState::Committed, .. }, _) => {
            leave("its record's time was over: what is left no longer says how to undo it")
        }
        (
            State::Failed { .. } | State::Abandoned { .. } | State::Compensated { .. } | State::Gone { .. },
            _,
        ) => Due::Nothing,
        (State::Started, _) => leave("whether it happened is not known for certain"),
        (State::Committed { .. }, None) => leave("its tool cannot undo it"),
        (State::Committed { .. }, Some(_)) if !is_ours => leave("it is another run's"),
        (State::Committed { .. }, Some(_)) if !sharers.is_empty() => {
            let runs: Vec<_> = sharers.iter().map(ToString::to_string).collect();
            Due::Leave(format!("it is shared: other runs rest on it ({})", runs.join(", ")))
        }
        (State::Committed { .. }, Some(Compensation::Never { remedy })) => Due::Leave(remedy.clone()),
        (State::Committed { .. }, Some(Compensation::Approved | Compensation::Reviewed { .. }))
            if !allowed =>
        {
            Due::Ask
        }
        (State::Committed { .. }, Some(_)) => Due::Undo,
    }
}
