//! The answers to a question: the ones that each kind takes, and their consequences.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::escalation::QuestionKind;

/// An answer to an open question. Each kind of question takes [some of these](QuestionKind::answers) and refuses the
/// others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resolution {
    /// The call happened, and this is its result. The result is read as the output of the tool: a result that does
    /// not fit is refused, and if the tool is not known, the answer [waits](super::Question::waiting) for a worker
    /// that knows it.
    Happened(Value),
    /// The call did not happen and is to be sent again. If the call can be looked up, a lookup is made first. While
    /// the lookup does not answer, the question stays open and the answer [waits](super::Question::waiting); if the
    /// lookup shows the effect, the question is withdrawn.
    DidNotHappen,
    /// The call is to be sent again without a lookup, whatever its outcome. The effect may happen twice.
    SendWithoutLooking {
        /// The reason, which is recorded.
        reason: String,
    },
    /// The call is to be looked up now. The question stays open unless the lookup answers it.
    LookNow,
    /// The blocked run goes on. Effects that it made and no longer asks for are kept.
    Resume,
    /// The call fails, or the blocked run fails. An effect of the call is left as it is; the effects of the run are
    /// undone or asked about.
    Abandon,
    /// The effect is kept, or was dealt with by hand.
    Keep,
    /// The effect is to be undone.
    Undo,
    /// The effect was undone by hand, with this result.
    Undone(Value),
    /// The step is repeated: the event is published, the message processed, the signal delivered, the missing effect
    /// sent once more.
    Again,
    /// The run that waits for a signal receives this value in place of the one that it could not read.
    Deliver(Value),
    /// The event, the message or the signal is left out.
    Skip,
    /// The ledger is complete again: first sends are no longer preceded by a lookup.
    Lift,
    /// The question is void, because the engine can find the outcome out by itself again. Only the engine gives this
    /// answer.
    Withdrawn,
}

impl Resolution {
    /// The name of the answer, as in [`PossibleAnswer::name`] and in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Happened(_) => "happened",
            Self::DidNotHappen => "did_not_happen",
            Self::SendWithoutLooking { .. } => "send_without_looking",
            Self::LookNow => "look_now",
            Self::Resume => "resume",
            Self::Abandon => "abandon",
            Self::Keep => "keep",
            Self::Undo => "undo",
            Self::Undone(_) => "undone",
            Self::Again => "again",
            Self::Deliver(_) => "deliver",
            Self::Skip => "skip",
            Self::Lift => "lift",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// The result of a call that happened.
    pub(crate) const fn result(&self) -> Option<&Value> {
        match self {
            Self::Happened(result) => Some(result),
            _ => None,
        }
    }
}

/// An answer that a question takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PossibleAnswer {
    /// The name of the [`Resolution`].
    pub name: &'static str,
    /// The value that is given with the answer, if any.
    pub with: Option<&'static str>,
    /// The consequence of the answer.
    pub consequence: &'static str,
}

impl std::fmt::Display for PossibleAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`", self.name)?;
        if let Some(with) = self.with {
            write!(f, " with {with}")?;
        }
        write!(f, ": {}", self.consequence)
    }
}

const fn bare(name: &'static str, consequence: &'static str) -> PossibleAnswer {
    PossibleAnswer { name, with: None, consequence }
}

const fn given(name: &'static str, with: &'static str, consequence: &'static str) -> PossibleAnswer {
    PossibleAnswer { name, with: Some(with), consequence }
}

const CALL: &[PossibleAnswer] = &[
    given("happened", "its result", "the call is recorded as done, and its run goes on with the result"),
    bare(
        "did_not_happen",
        "the call is sent again, after a lookup that shows nothing if it can be looked up",
    ),
    bare("look_now", "the provider is asked at once; the question stays open if that tells nothing"),
    given("send_without_looking", "a reason", "the call is sent again, and may happen twice"),
    bare("abandon", "the call fails, whatever became of it"),
];
const RUN: &[PossibleAnswer] = &[
    bare("resume", "what the run did is kept, and the run goes on from its records"),
    bare("abandon", "the run fails, and what it did is undone or asked about"),
];
const KEEP: PossibleAnswer = bare("keep", "what is there stays, or was dealt with by hand");
const UNDONE: PossibleAnswer = given("undone", "what came of it", "the effect is recorded as undone by hand");

impl QuestionKind {
    /// The answers that a question of this kind takes, each with its consequence.
    ///
    /// ```
    /// use counterfoil::store::QuestionKind;
    /// let names: Vec<_> = QuestionKind::Diverged.answers().iter().map(|answer| answer.name).collect();
    /// assert_eq!(names, ["resume", "abandon"]);
    /// ```
    pub const fn answers(self) -> &'static [PossibleAnswer] {
        match self {
            Self::Ambiguous | Self::UnknownTool | Self::Pending => CALL,
            Self::Diverged | Self::Damaged | Self::Quarantined | Self::Unregistered | Self::Paused => RUN,
            Self::Duplicated | Self::Unconfirmed => const { &[KEEP] },
            Self::Orphaned => const { &[KEEP, UNDONE] },
            Self::Compensation => const { &[bare("undo", "the effect is undone"), KEEP, UNDONE] },
            Self::Missing => {
                const {
                    &[
                        KEEP,
                        bare(
                            "again",
                            "the call is sent under the next revision of its key, after one more lookup",
                        ),
                    ]
                }
            }
            Self::Unpublished => {
                const {
                    &[
                        bare("again", "the event is published once more"),
                        bare("skip", "the event is left out, and the next one of its aggregate is published"),
                    ]
                }
            }
            Self::Unprocessed => {
                const {
                    &[
                        bare("again", "the message is processed when it is delivered again"),
                        bare("skip", "the message is left out"),
                    ]
                }
            }
            Self::Unread => {
                const {
                    &[
                        bare("again", "the run is given the signal once more"),
                        given("deliver", "a value", "the run is given this value instead"),
                        bare("skip", "the signal is left out, and the run waits on"),
                    ]
                }
            }
            Self::Restored => {
                const { &[bare("lift", "calls go out again without a lookup before their first send")] }
            }
        }
    }

    /// True if a question of this kind takes this answer.
    pub(crate) fn takes(self, answer: &Resolution) -> bool {
        self.answers().iter().any(|possible| possible.name == answer.name())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_written_in_json_by_the_name_that_its_question_lists() {
        for kind in QuestionKind::ALL {
            for possible in kind.answers() {
                let written = match (possible.name, possible.with) {
                    ("send_without_looking", _) => json!({ possible.name: { "reason": "lost" } }),
                    (name, Some(_)) => json!({ name: 7 }),
                    (name, None) => json!(name),
                };
                let answer: Resolution = serde_json::from_value(written).unwrap();
                assert_eq!(answer.name(), possible.name, "{kind:?}");
                assert!(kind.takes(&answer) && !kind.takes(&Resolution::Withdrawn), "{kind:?}");
            }
        }
    }
}
