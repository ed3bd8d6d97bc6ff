//! The end of a simulation, which the user's checks inspect.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::machine::{Told, Trial};
use super::timeline::Happened;
use super::world::Effect;
use crate::flow::{PastCall, RunStatus};
use crate::id::RunId;
use crate::ledger::Record;
use crate::store::{Question, QuestionKind};
#[cfg(feature = "unstable-core")]
use crate::store::{Run, SharedEffect};

/// The state at the end of a simulation, which a check inspects.
pub struct End<'a> {
    pub(super) trial: &'a Trial,
    pub(super) asks: usize,
}

impl End<'_> {
    /// True if all workflows returned, and their callers got the results.
    pub fn succeeded(&self) -> bool {
        self.results().iter().all(Option::is_some)
    }

    /// The results that the callers of the runs got, in their order; `None` for a run that has not succeeded.
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

    /// The number of times that an effect happened in the world.
    pub fn count(&self, system: &str, reference: &str) -> usize {
        self.trial.world.count(system, reference)
    }

    /// All effects in the world.
    pub fn effects(&self) -> Vec<Effect> {
        self.trial.world.effects()
    }

    /// The calls in the ledger, those of all runs and tenants.
    pub fn calls(&self) -> Vec<PastCall> {
        self.trial.disk.model.records().iter().map(PastCall::from).collect()
    }

    /// The status of each run.
    pub fn runs(&self) -> Vec<RunStatus> {
        self.trial.disk.model.runs().into_iter().map(RunStatus::from).collect()
    }

    /// The input of a run. `None` if the run is unknown, or its input is large or not of this type.
    pub fn input<I: DeserializeOwned>(&self, run: RunId) -> Option<I> {
        let row = self.trial.disk.model.runs().into_iter().find(|row| row.id == run)?;
        row.input.inline()?.decode().ok()
    }

    /// All records of the ledger.
    #[cfg(feature = "unstable-core")]
    pub fn records(&self) -> Vec<Record> {
        self.trial.disk.model.records()
    }

    /// The row of each run.
    #[cfg(feature = "unstable-core")]
    pub fn rows(&self) -> Vec<Run> {
        self.trial.disk.model.runs()
    }

    /// The effects from whose records other runs were answered.
    #[cfg(feature = "unstable-core")]
    pub fn uses(&self) -> Vec<SharedEffect> {
        self.trial.disk.model.uses()
    }

    /// The values that an actor [beside](super::Simulation::with_actor) the run was told, one for each time.
    pub fn heard(&self, by: &str) -> Vec<&str> {
        let events = self.trial.events.iter();
        let told = events.filter_map(|event| match &event.what {
            Happened::Told { who, what } if who == by => Some(what.as_str()),
            _ => None,
        });
        told.collect()
    }

    /// The events that were published to the [sink](super::World::sink), one for each time.
    pub fn published(&self) -> Vec<crate::exec::outbox::Event> {
        self.trial.world.heard().unwrap_or_default()
    }

    /// The questions that are open.
    pub fn questions(&self) -> Vec<Question> {
        let mut questions = self.asked();
        questions.retain(|question| question.answer.is_none());
        questions
    }

    /// All questions that were ever opened, answered or not. The row of a call that its provider has
    /// [accepted](crate::tool::ToolError::accepted) is no question.
    pub fn asked(&self) -> Vec<Question> {
        self.trial.questions()
    }

    /// Reads your own tables, those of `ctx.transaction` and of `process_once`.
    ///
    /// # Errors
    /// The database's error message: also if no transaction ever made these tables.
    #[cfg(feature = "sqlite")]
    pub fn tables<T, F>(&self, read: F) -> Result<T, String>
    where
        F: for<'c> FnOnce(
            &'c mut sqlx::sqlite::SqliteConnection,
        ) -> futures_util::future::BoxFuture<'c, Result<T, sqlx::Error>>,
    {
        self.trial.disk.tables.read(&self.trial.disk.model, read)
    }

    /// Checks that an effect happened once if the workflow succeeded, and never more than once. A question about a call
    /// that made this effect reports what is missing or too many, answered or not: that it happened twice, that it may
    /// have, or that it is missing. So does a question that stopped the run of such a call.
    ///
    /// # Errors
    /// The count that was found.
    pub fn exactly_once_if_succeeded(&self, system: &str, reference: &str) -> Result<(), String> {
        let count = self.count(system, reference);
        let is_told = match count {
            0 => !self.succeeded() || self.is_missed(system, reference),
            1 => true,
            _ => self.is_surplus_asked_about(system, reference),
        };
        if is_told { Ok(()) } else { Err(format!("{system}: {reference} happened {count} times")) }
    }

    /// True if a question says that an effect about this reference is missing.
    fn is_missed(&self, system: &str, reference: &str) -> bool {
        let records = self.records_of(&self.trial.world.forgotten_about(system, reference));
        let asked = self.asked();
        let about = |record: &Record| {
            asked.iter().any(|q| q.kind == QuestionKind::Missing && q.record == Some(record.id))
        };
        records.iter().any(about)
    }

    /// True if a question about an operation with an effect about this reference says that there may be a second one.
    fn is_surplus_asked_about(&self, system: &str, reference: &str) -> bool {
        use QuestionKind::{Ambiguous, Duplicated, Missing, Unconfirmed, UnknownTool};
        let records = self.records_of(&self.trial.world.found(system, reference));
        let asked = self.asked();
        let about = |record: &Record| {
            let doubts = |q: &Question| {
                matches!(q.kind, Ambiguous | Duplicated | Missing | UnknownTool | Unconfirmed)
                    && q.record == Some(record.id)
            };
            let stops =
                |q: &Question| q.kind.blocks_its_run() && q.run.is_some() && q.run == record.owner.run;
            asked.iter().any(|q| doubts(q) || stops(q))
        };
        records.iter().any(about)
    }

    /// The records of the operations that made these effects.
    fn records_of(&self, effects: &[Effect]) -> Vec<Record> {
        let mut records = self.trial.disk.model.records();
        records.retain(|record| {
            effects.iter().any(|effect| (&effect.tenant, &effect.operation) == (&record.tenant, &record.key))
        });
        records
    }
}
