//! The person who answers questions in a simulation.

use serde_json::json;

use super::world::{Effect, World};
use crate::ledger::Record;
use crate::store::{Question, QuestionKind, Resolution};

/// An open question, as the operator of a simulation sees it.
#[derive(Clone, Copy, Debug)]
pub struct OpenQuestion<'a> {
    /// The question.
    pub question: &'a Question,
    /// The record that it is about, if it is about one.
    pub record: Option<&'a Record>,
    /// The world: a person can go and look.
    pub world: &'a World,
}

impl OpenQuestion<'_> {
    /// What happened in the world for the operation in question.
    pub fn effects(&self) -> Vec<Effect> {
        let Some(record) = self.record else { return Vec::new() };
        let mut effects = self.world.effects();
        effects.retain(|effect| effect.tenant == record.tenant && effect.operation == record.key);
        effects
    }
}

/// An operator who goes and looks, and answers what is true: for [`Simulation::operator`](super::Simulation::operator).
///
/// Of a call in doubt it says whether it happened, with `{"id": …}` as its result, as a
/// [`Service`](super::Service) answers. What happened is kept; a run that was stopped is let go on.
pub fn truthful(question: &OpenQuestion<'_>) -> Option<Resolution> {
    Some(match question.question.kind {
        QuestionKind::Ambiguous | QuestionKind::UnknownTool => match question.effects().first() {
            Some(effect) => Resolution::Happened(json!({ "id": effect.id })),
            None => Resolution::DidNotHappen,
        },
        QuestionKind::Restored => return None, // it is not lifted while anything may be lost
        QuestionKind::Unpublished | QuestionKind::Unprocessed | QuestionKind::Unread => Resolution::Skip,
        kind if kind.blocks_its_run() => Resolution::Resume,
        _ => Resolution::Keep,
    })
}
