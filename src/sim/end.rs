//! How a simulation ended: what the checks of its user look at.

use serde_json::Value;

use super::machine::{Told, Trial};
use super::timeline::Happened;
use super::world::Effect;
use crate::ledger::Record;
use crate::store::{Question, QuestionKind, Run, SharedEffect};

/// How a simulation ended: what a check looks at.
pub struct End<'a> {
    pub(super) trial: &'a Trial,
    pub(super) asks: usize,
}

impl End<'_> {
    /// All workflows returned, and their callers were told.
    pub fn succeeded(&self) -> bool {
        self.results().iter().all(Option::is_some)
    }

    /// What the callers of the runs were told, in their order; nothing where a run has not succeeded.
    pub fn results(&self) -> Vec<Option<Value>> {
        let result = |place: usize| {
            let mut told = self.trial.told.iter().filter_map(|life| life.get(&place));
            told.find_map(|told| match told {
                Told::Succeeded(result) => Some(result.clone()),
                Told::Failed(_) => None,
            })
        };
        (0..self.asks).map(result).collect()
    }

    /// How often something happened in the world.
    pub fn count(&self, system: &str, reference: &str) -> usize {
        self.trial.world.count(system, reference)
    }

    /// Everything that happened in the world.
    pub fn effects(&self) -> Vec<Effect> {
        self.trial.world.effects()
    }

    /// The records.
    pub fn records(&self) -> Vec<Record> {
        self.trial.disk.model.records()
    }

    /// The runs.
    pub fn runs(&self) -> Vec<Run> {
        self.trial.disk.model.runs()
    }

    /// The runs that were answered from another one's record.
    pub fn uses(&self) -> Vec<SharedEffect> {
        self.trial.disk.model.uses()
    }

    /// What somebody [beside](super::Simulation::with_actor) the run was told, as often as they were told anything.
    pub fn heard(&self, by: &str) -> Vec<&str> {
        let events = self.trial.events.iter();
        let told = events.filter_map(|event| match &event.what {
            Happened::Told { who, what } if who == by => Some(what.as_str()),
            _ => None,
        });
        told.collect()
    }

    /// What was published to the [sink](super::World::sink), as often as it was.
    pub fn published(&self) -> Vec<crate::exec::outbox::Event> {
        self.trial.world.heard().unwrap_or_default()
    }

    /// The questions that are open.
    pub fn questions(&self) -> Vec<Question> {
        let mut questions = self.asked();
        questions.retain(|question| question.answer.is_none());
        questions
    }

    /// All questions that were ever opened, answered or not.
    pub fn asked(&self) -> Vec<Question> {
        self.trial.disk.model.escalations()
    }

    /// Looks into your own tables, those of `ctx.transaction` and of `process_once`.
    ///
    /// # Errors
    /// With the database's words: also if no transaction ever made these tables.
    #[cfg(feature = "sqlite")]
    pub fn tables<T, F>(&self, read: F) -> Result<T, String>
    where
        F: for<'c> FnOnce(
            &'c mut sqlx::sqlite::SqliteConnection,
        ) -> futures_util::future::BoxFuture<'c, Result<T, sqlx::Error>>,
    {
        self.trial.disk.tables.read(&self.trial.disk.model, read)
    }

    /// An effect happened once if the workflow succeeded, and never more than once; unless a question says so.
    ///
    /// # Errors
    /// With what was counted.
    pub fn exactly_once_if_succeeded(&self, system: &str, reference: &str) -> Result<(), String> {
        let count = self.count(system, reference);
        let is_missed = || self.asked().iter().any(|question| question.kind == QuestionKind::Missing);
        let enough = count > 0 || !self.succeeded() || is_missed();
        // That the ledger may be older says nothing about an effect.
        let is_asked = self.questions().iter().any(|question| question.kind != QuestionKind::Restored);
        if enough && (count < 2 || is_asked) {
            return Ok(());
        }
        Err(format!("{system}: {reference} happened {count} times"))
    }
}
