//! Does it bite? An engine that forgets one thing, at the seam where it would show.

use std::sync::Arc;

use counterfoil::flow::EngineBuilder;
use counterfoil::ledger::{ErrorKind, RecordedFailure, State};
use counterfoil::store::{Change, History, Signal, StepKind, Store, StoreFuture, Turns, Verdict};
use counterfoil::{RunId, Tenant};
use serde_json::Value;

/// What is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    /// Results of steps are acknowledged and not written.
    NoStep,
    /// That a child was begun is not written down by its parent.
    NoChild,
    /// A signal that was received is not taken away.
    NoReceipt,
    /// A signal that nobody has received yet is not found again.
    LostSignal,
    /// What a child says at its end is not written.
    NoFarewell,
    /// A call that may have happened is recorded as one that did not, and sent again.
    SentAgain,
}

impl Mutation {
    pub(super) const ALL: [Self; 6] =
        [Self::NoStep, Self::NoChild, Self::NoReceipt, Self::LostSignal, Self::NoFarewell, Self::SentAgain];

    pub(super) fn of(self, engine: EngineBuilder) -> EngineBuilder {
        engine.wrap_store(move |store| Arc::new(Mutant { store, mutation: self }))
    }

    /// The kind of step that is not written.
    const fn step(self) -> Option<StepKind> {
        match self {
            Self::NoStep => Some(StepKind::Step),
            Self::NoChild => Some(StepKind::Child),
            _ => None,
        }
    }

    fn mutated(self, mut change: Change) -> Change {
        change.steps.retain(|step| Some(step.kind) != self.step());
        match self {
            Self::NoReceipt => change.received = None,
            Self::NoFarewell if change.run.as_ref().is_some_and(|run| run.state.is_final()) => {
                change.signal = None;
            }
            Self::SentAgain => {
                if let Some(record) = &mut change.record
                    && record.state == State::Started
                    && record.revision > 1
                {
                    let (kind, message, detail) = (ErrorKind::Unknown, "dead".to_owned(), Value::Null);
                    record.state = State::Failed { failure: RecordedFailure { kind, message, detail } };
                    record.in_doubt = false;
                }
            }
            _ => {}
        }
        change
    }
}

#[derive(Debug)]
struct Mutant {
    store: Arc<dyn Store>,
    mutation: Mutation,
}

impl Store for Mutant {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let mutated: Vec<_> =
                changes.iter().map(|change| self.mutation.mutated(change.clone())).collect();
            self.store.commit(&mutated).await
        })
    }

    fn signal_pending<'a>(&'a self, runs: &'a [(Tenant, RunId)]) -> StoreFuture<'a, Vec<Signal>> {
        if self.mutation == Mutation::LostSignal {
            return Box::pin(async { Ok(Vec::new()) });
        }
        self.store.signal_pending(runs)
    }

    fn run_history<'a>(&'a self, tenant: &'a Tenant, run: RunId, turns: Turns) -> StoreFuture<'a, History> {
        Box::pin(async move {
            let mut history = self.store.run_history(tenant, run, turns).await?;
            if self.mutation == Mutation::LostSignal {
                history.signals.clear();
            }
            Ok(history)
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}
