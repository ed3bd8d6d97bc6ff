//! The person who answers questions in a simulation.

use serde_json::json;

use super::world::{Effect, World};
use crate::ledger::Record;
use crate::store::{Question, QuestionKind, Resolution};

/// An open question, as the operator of a simulation sees it.
#[derive(Clone, Copy, Debug)]
pub struct OpenQuestion<'a> {
    /// The question to be answered.
    pub question: &'a Question,
    /// The record that the question is about, if any.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub record: Option<&'a Record>,
    /// The world, in which a person can look for effects.
    pub world: &'a World,
}

impl OpenQuestion<'_> {
    /// The effects in the world for the operation in question.
    pub fn effects(&self) -> Vec<Effect> {
        let Some(record) = self.record else { return Vec::new() };
        let mut effects = self.world.effects();
        effects.retain(|effect| effect.tenant == record.tenant && effect.operation == record.key);
        effects
    }
}

/// An operator who looks into the world, and answers truthfully: for
/// [`Simulation::operator`](super::Simulation::operator).
///
/// The answer for a call in doubt says if the call happened, with `{"id": …}` as its result, as a
/// [`Service`](super::Service) answers. An effect that happened is kept; a run that was blocked is resumed.
pub fn truthful(question: &OpenQuestion<'_>) -> Option<Resolution> {
    Some(match question.question.kind {
        QuestionKind::Ambiguous | QuestionKind::UnknownTool => match question.effects().first() {
            Some(effect) => Resolution::Happened(json!({ "id": effect.id })),
            None => Resolution::DidNotHappen,
        },
        QuestionKind::Restored => return None, // the restored mode is not ended while an effect may be lost
        QuestionKind::Unpublished | QuestionKind::Unprocessed | QuestionKind::Unread => Resolution::Skip,
        kind if kind.blocks_its_run() => Resolution::Resume,
        _ => Resolution::Keep,
    })
}
