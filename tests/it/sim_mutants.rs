//! Does the simulator bite? Each mutant is an engine with one protection taken away, at the seam where it would
//! show: the simulator must find a schedule that breaks a rule, for every one of them.

use std::sync::Arc;

use counterfoil::RunId;
use counterfoil::ledger::{Basis, ErrorKind, RecordedFailure, State};
use counterfoil::sim::{Failing, Offer, Rule, Service, Simulation};
use counterfoil::store::{Asked, Change, EscalationKind, Run, Store, Verdict};
use counterfoil::tool::{Tool, effect};
use serde_json::Value;

use crate::sim::{Blind, Looks, Replays, twice};

/// What is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// Intents are acknowledged and not written.
    NoIntent,
    /// Intents are acknowledged before they are durable.
    EarlyIntent,
    /// Results of calls are acknowledged and not written.
    NoSeal,
    /// The end of a run is acknowledged and not written.
    NoRunEnd,
    /// Questions are not written.
    NoQuestions,
    /// Confirming lookups are never due.
    NoConfirming,
    /// That a lookup saw two is not told.
    NoDuplicated,
    /// A restart takes no run over.
    NoTakeover,
    /// What a failed run leaves behind is not told.
    NoOrphans,
    /// That an answer rests on the provider's word alone is not told.
    NoDeclaration,
    /// A dead attempt is recorded as one that did not happen.
    AmbiguousFails,
}

#[derive(Debug)]
struct Mutant {
    store: Arc<dyn Store>,
    mutation: Mutation,
}

impl Mutant {
    /// The change as the mutant writes it; nothing if it only says that it did.
    fn mutated(&self, mut change: Change) -> Option<Change> {
        let committed =
            |c: &Change| c.record.as_ref().is_some_and(|r| matches!(r.state, State::Committed { .. }));
        match self.mutation {
            Mutation::NoIntent if is_intent(&change) => return None,
            Mutation::NoSeal if committed(&change) => return None,
            Mutation::NoRunEnd if change.run.as_ref().is_some_and(|run| run.state.is_final()) => return None,
            Mutation::AmbiguousFails => {
                if let Some(record) = &mut change.record
                    && record.state == State::Started
                    && record.revision > 1
                {
                    let (kind, message, detail) = (ErrorKind::Unknown, "dead".to_owned(), Value::Null);
                    record.state = State::Failed { failure: RecordedFailure { kind, message, detail } };
                    record.in_doubt = false;
                }
            }
            Mutation::NoQuestions => change.escalations.clear(),
            Mutation::NoDuplicated => change.escalations.retain(|q| q.kind != EscalationKind::Duplicated),
            Mutation::NoOrphans => change.escalations.retain(|q| q.kind != EscalationKind::Orphaned),
            Mutation::NoConfirming => {
                if let Some(record) = &mut change.record {
                    record.confirm_at = None;
                }
            }
            Mutation::NoDeclaration => {
                if let Some(record) = &mut change.record
                    && record.basis == Basis::Declaration
                {
                    record.basis = Basis::Answer;
                }
            }
            _ => {}
        }
        Some(change)
    }
}

fn is_intent(change: &Change) -> bool {
    change.record.as_ref().is_some_and(|record| record.state == State::Started && record.revision == 1)
}

impl Store for Mutant {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> Asked<'a, Vec<Verdict>> {
        Box::pin(async move {
            if self.mutation == Mutation::EarlyIntent && changes.iter().any(is_intent) {
                let (store, changes) = (self.store.clone(), changes.to_vec());
                let admitted = vec![Verdict::Admitted; changes.len()];
                tokio::spawn(async move { store.commit(&changes).await });
                return Ok(admitted);
            }
            let mutated: Vec<_> = changes.iter().map(|change| self.mutated(change.clone())).collect();
            let kept: Vec<_> = mutated.iter().flatten().cloned().collect();
            let mut verdicts = self.store.commit(&kept).await?.into_iter();
            let answer = |change: &Option<Change>| match change {
                Some(_) => verdicts.next().unwrap_or(Verdict::Admitted),
                None => Verdict::Admitted,
            };
            Ok(mutated.iter().map(answer).collect())
        })
    }

    fn run_orphans(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        match self.mutation {
            Mutation::NoTakeover => Box::pin(async { Ok(Vec::new()) }),
            _ => self.store.run_orphans(after, limit),
        }
    }

    counterfoil::delegate_reads!(self => self.store; record_find record_at record_orphans record_unconfirmed record_uses
        record_evidence run_find run_keyed run_history run_answered run_due next_due run_list escalation_find
        escalation_open worker_find tenant_key payload_find);
}

fn mutant<T>(mutation: Mutation, offer: Offer, tool: fn(Service) -> T) -> Simulation
where
    T: Tool<Input = String, Output = Value, Effect = effect::InternalMutation>,
{
    Simulation::of(twice::<T>, "case".to_owned()).singles_only().engine(move |engine, world| {
        let mutate = move |store| Arc::new(Mutant { store, mutation }) as Arc<dyn Store>;
        engine.wrap_store(mutate).tool(tool(world.service("desk", offer)))
    })
}

/// The smallest schedule that exposes each, by the rule that it breaks.
#[test]
fn every_mutant_is_found_out() {
    use Mutation as M;
    let mutants = [
        (M::NoIntent, mutant(M::NoIntent, Offer::Lookup, Looks), Rule::IntentBeforeEffect),
        (M::EarlyIntent, mutant(M::EarlyIntent, Offer::Lookup, Looks), Rule::IntentBeforeEffect),
        (M::NoSeal, mutant(M::NoSeal, Offer::Lookup, Looks), Rule::NothingDropped),
        (M::NoRunEnd, mutant(M::NoRunEnd, Offer::Lookup, Looks), Rule::NothingDropped),
        (M::NoQuestions, mutant(M::NoQuestions, Offer::Blind, Blind), Rule::NothingDropped),
        (M::NoConfirming, mutant(M::NoConfirming, Offer::Lookup, Looks), Rule::SilentDuplicate),
        (M::NoDuplicated, mutant(M::NoDuplicated, Offer::Lookup, Looks), Rule::SilentDuplicate),
        (M::NoTakeover, mutant(M::NoTakeover, Offer::Lookup, Looks), Rule::NothingDropped),
        (M::NoOrphans, mutant(M::NoOrphans, Offer::Lookup, Looks), Rule::NoEffectForgotten),
        (M::NoDeclaration, mutant(M::NoDeclaration, Offer::IgnoresKey, Replays), Rule::SilentDuplicate),
        (M::AmbiguousFails, mutant(M::AmbiguousFails, Offer::Blind, Blind), Rule::WrongFailure),
    ];
    for (mutation, simulation, rule) in mutants {
        let exposes = |failing: &&Failing| failing.violations.iter().any(|v| v.rule == rule);
        let report = simulation.explore_while(|report| report.failures().iter().all(|f| !exposes(&f)));
        let found = report.failures().iter().find(exposes);
        let found =
            found.unwrap_or_else(|| panic!("{mutation:?} survives, or breaks another rule: {report}"));
        println!("{mutation:?}: {}", found.schedule);
    }
}
