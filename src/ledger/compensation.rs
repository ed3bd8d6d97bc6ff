//! The rules of compensation: which effects of a run that did not end well are undone, and which never. Pure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contract::{Contract, LookupOffer};
use super::effect::EffectClass;
use super::record::{FinalState, Record, State};
use crate::id::{QuestionId, RunId};

/// The policy by which the effects of a tool are undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compensation {
    /// The effect is undone when the run that owns it fails or is cancelled.
    #[default]
    Automatic,
    /// The effect is undone after a person has approved: a question is opened for each effect, and the run waits for
    /// the answer.
    Approved,
    /// The effect is undone after a quorum of reviewers has approved, as for an [approval](crate::guard::approval): a
    /// review is opened beside the question and answers it. One reviewer against it leaves the effect as it is.
    Reviewed {
        /// The names of the people who may decide. Empty: all whom the host's [`Reviewers`](crate::exec::Reviewers)
        /// allow.
        reviewers: BTreeSet<String>,
        /// The number of people who must be in favour.
        quorum: u32,
    },
    /// The effect is undone by hand: a question is opened that says what a person is to do.
    Never {
        /// The instruction for the person.
        remedy: String,
    },
}

impl Compensation {
    /// A policy that undoes an effect after `quorum` of these reviewers have approved.
    ///
    /// ```
    /// use counterfoil::ledger::Compensation;
    /// assert_eq!(Compensation::reviewed(["ann", "bob"], 2).words(), "after approval by 2 of ann, bob");
    /// ```
    pub fn reviewed<S: Into<String>>(reviewers: impl IntoIterator<Item = S>, quorum: u32) -> Self {
        Self::Reviewed { reviewers: reviewers.into_iter().map(Into::into).collect(), quorum }
    }

    /// True if the quorum is at least one and enough people may decide to reach it.
    pub(crate) fn is_decidable(&self) -> bool {
        match self {
            Self::Reviewed { reviewers, quorum } => {
                *quorum > 0 && (reviewers.is_empty() || reviewers.len() >= *quorum as usize)
            }
            _ => true,
        }
    }

    /// The policy in words, as the guarantee report shows it.
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

/// The result of a compensation.
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
    /// The part of the effect that is left, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rest: Option<String>,
    /// The details to keep.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    detail: Value,
}

impl Undone {
    /// The whole effect was undone.
    pub const fn whole() -> Self {
        Self { rest: None, detail: Value::Null }
    }

    /// Only a part of the effect was undone: a question is asked about the rest, in these words.
    pub fn part(rest: impl Into<String>) -> Self {
        Self { rest: Some(rest.into()), detail: Value::Null }
    }

    /// Adds details to keep, for example the id and the amount of a refund.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Value>) -> Self {
        self.detail = detail.into();
        self
    }

    /// True if nothing of the effect is left.
    pub const fn is_whole(&self) -> bool {
        self.rest.is_none()
    }

    /// The part of the effect that is left, in words.
    pub fn rest(&self) -> Option<&str> {
        self.rest.as_deref()
    }
}

/// The step that is due for one effect of a run that did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Due {
    /// Nothing is due: the effect did not happen, leaves no mark, was undone, or is a compensation itself.
    Nothing,
    /// The outcome of the effect is an open question: the effect is undone, if it happened, once the question is
    /// answered. It is never undone before, and never forgotten.
    Settle(QuestionId),
    /// The effect is undone.
    Undo,
    /// A person is asked whether the effect may be undone.
    Ask,
    /// The effect stays, and a person is told the reason.
    Leave(String),
}

/// True if each send of a compensation is preceded by its lookup: somebody else may have undone the effect meanwhile,
/// and a second compensation would not collide with that one.
pub(crate) fn undoing_looks_first(effect: EffectClass, contract: &Contract) -> bool {
    let collides = contract.class.collides() && !contract.look_first;
    effect == EffectClass::Compensation && contract.lookup != LookupOffer::None && !collides
}

/// A run's wish to have an effect undone.
#[derive(Clone, Copy, Debug)]
pub struct UndoRequest<'a> {
    /// The run, and the children whose effects it is to undo with its own.
    pub family: &'a [RunId],
    /// The policy of the effect's tool, if that tool can undo.
    pub policy: Option<&'a Compensation>,
    /// The runs outside of the family that used the effect and are under way, or ended well.
    pub sharers: &'a [RunId],
    /// True if a person has allowed the compensation.
    pub allowed: bool,
}

/// Decides about an effect that a run wants undone.
pub fn due(record: &Record, UndoRequest { family, policy, sharers, allowed }: UndoRequest<'_>) -> Due {
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
