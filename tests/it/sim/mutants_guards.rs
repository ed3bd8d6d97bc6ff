//! Does the simulator bite where effects are undone, shared, told of and forgotten? Engines with one protection of these taken away.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::ledger::{Compensation, EffectClass, LookupResult, Record, Retention, State, Undone};
use counterfoil::sim::{Failing, Offer, Rule, Service, Simulation, truthful};
use counterfoil::store::{Change, QuestionKind, Run, SharedEffect, StepKind, Store, StoreFuture, Verdict};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key, RecordId, RunId, Tenant, Timestamp};
use serde_json::Value;

/// What is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// That a run is being undone is acknowledged and not written.
    NoUndoing,
    /// That an effect is undone is acknowledged and not written on its record.
    NoMark,
    /// An effect is marked as undone when it happens.
    MarkedEarly,
    /// The intent to undo is acknowledged and not written.
    NoUndoIntent,
    /// That a compensation was carried out is acknowledged and not written.
    NoUndoSeal,
    /// Nobody rests on anything.
    NoSharers,
    /// A run does not know its children.
    NoChildren,
    /// Whether an effect may be undone is not asked.
    NoMayUndo,
    /// What could not be undone is not told.
    NoLeftOver,
    /// Events are not written with what they tell of.
    NoEvents,
    /// An aggregate is marked as published further than it is.
    MarkedAhead,
    /// An aggregate is not marked as published.
    NotMarked,
    /// Of a record whose time is over, nothing is left where digests should be.
    NoTombstone,
    /// Of a run whose time is over, nothing is left where its start key should be.
    NoRunTombstone,
    /// Records look thirty days older to whoever sweeps.
    RetiredEarly,
    /// That a record is retired is acknowledged and not written.
    NotRetired,
    /// That a record was asked for, and is kept for longer, is acknowledged and not written.
    NotTouched,
}

use Mutation as M;

const DAY: Duration = Duration::from_hours(24);

#[derive(Debug)]
struct Mutant {
    store: Arc<dyn Store>,
    mutation: Mutation,
}

impl Mutant {
    /// The change as the mutant writes it; nothing if it only says that it did.
    fn mutated(&self, mut change: Change) -> Option<Change> {
        let is_undo = |is: fn(&State) -> bool| {
            change.record.as_ref().is_some_and(|r| r.class == EffectClass::Compensation && is(&r.state))
        };
        match self.mutation {
            M::NoUndoing if change.steps.iter().any(|step| step.kind == StepKind::Undoing) => return None,
            M::NoUndoIntent if is_undo(|state| *state == State::Started) => return None,
            M::NoUndoSeal if is_undo(|state| matches!(state, State::Committed { .. })) => return None,
            M::NoMark => {
                let marks = |state: &State| matches!(state, State::Compensated { .. });
                if change.record.as_ref().is_some_and(|record| marks(&record.state)) {
                    return None;
                }
            }
            M::MarkedEarly => {
                if let Some(record) = change.record.as_mut().filter(|r| r.class != EffectClass::Compensation)
                    && let State::Committed { response } = record.state.clone()
                {
                    record.state =
                        State::Compensated { compensation: response.clone(), response, whole: true };
                }
            }
            M::NoMayUndo => change.escalations.retain(|q| q.kind != QuestionKind::Compensation),
            M::NoLeftOver => change.escalations.retain(|q| q.kind != QuestionKind::Orphaned),
            M::NoEvents => change.events.clear(),
            M::MarkedAhead => change.aggregates.iter_mut().for_each(|marked| marked.published += 1),
            M::NotMarked if !change.aggregates.is_empty() => return None,
            M::NoTombstone => change.retired.iter_mut().for_each(|retired| retired.left = None),
            M::NoRunTombstone => change.retired_runs.iter_mut().for_each(|retired| retired.is_left = false),
            M::NotRetired if !change.retired.is_empty() => return None,
            M::NotTouched if change.retired.iter().any(|retired| retired.left.is_some()) => return None,
            _ => {}
        }
        Some(change)
    }
}

impl Store for Mutant {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
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

    fn record_uses<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> StoreFuture<'a, Vec<SharedEffect>> {
        match self.mutation {
            M::NoSharers => Box::pin(async { Ok(Vec::new()) }),
            _ => self.store.record_uses(tenant, id),
        }
    }

    fn run_children<'a>(
        &'a self,
        tenant: &'a Tenant,
        parent: RunId,
        after: RunId,
        limit: u32,
    ) -> StoreFuture<'a, Vec<Run>> {
        match self.mutation {
            M::NoChildren => Box::pin(async { Ok(Vec::new()) }),
            _ => self.store.run_children(tenant, parent, after, limit),
        }
    }

    fn record_expired(&self, after: Timestamp, until: Timestamp, limit: u32) -> StoreFuture<'_, Vec<Record>> {
        if self.mutation != M::RetiredEarly {
            return self.store.record_expired(after, until, limit);
        }
        Box::pin(async move {
            let mut expired = self.store.record_expired(after, until.after(30 * DAY), limit).await?;
            for record in &mut expired {
                for at in [&mut record.created_at, &mut record.updated_at] {
                    at.0 -= i64::try_from((30 * DAY).as_micros()).unwrap();
                }
            }
            Ok(expired)
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}

/// Books a room, and gives it back.
struct Book(Service, Service, Compensation);

impl Tool for Book {
    const NAME: &'static str = "book";
    type Effect = effect::Undoable<effect::InternalMutation>;
    type Contract = contract::WithLookup<contract::ReplaysKey>;
    type Input = String;
    type Output = Value;

    fn key(&self, room: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(room))
    }

    async fn call(&self, call: &Call, room: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, room).await
    }
}

impl Reconcile for Book {
    async fn reconcile(&self, call: &Call, room: &String) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, room).await
    }
}

impl Compensate for Book {
    fn policy(&self) -> Compensation {
        self.2.clone()
    }

    async fn compensate(
        &self,
        call: &Call,
        forward: &OriginalCall<String, Value>,
    ) -> Result<Done<Undone>, ToolError> {
        let done = self.1.create(call, forward.input().map_or("", String::as_str)).await?;
        Ok(done.map(|_| Undone::whole()))
    }

    async fn find_compensation(
        &self,
        call: &Call,
        forward: &OriginalCall<String, Value>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        let found = self.1.find(call, forward.input().map_or("", String::as_str)).await?;
        found.try_map(|_| Ok(Undone::whole()))
    }
}

/// Books, waits so many minutes, and fails if they are many.
async fn trip(ctx: Ctx, minutes: u64) -> Result<(), Failure> {
    ctx.sleep(Duration::from_mins(if minutes > 30 { 0 } else { minutes })).await?;
    ctx.call::<Book>("room".to_owned()).await?;
    ctx.sleep(Duration::from_mins(minutes)).await?;
    if minutes > 30 { Err(Failure::new("sold out")) } else { Ok(()) }
}

fn booking(policy: Compensation) -> Simulation {
    Simulation::of(trip, 60).fails(1).operator(truthful).engine(move |engine, world| {
        let service = |name| world.service(name, Offer::ReplaysKeyAndLookup);
        engine.tool(Book(service("hotel"), service("cancellations"), policy.clone()))
    })
}

/// Two who want one room; the first one gives it back.
fn shared() -> Simulation {
    booking(Compensation::Automatic).with_run(Simulation::TENANT, "other", trip, 20)
}

// SAGA-6 in the simulator: without a mutation nothing is broken.
#[test]
fn a_shared_effect_stands_wherever_it_is_crashed() {
    crate::sim::quick(shared()).explore().assert_ok();
    for policy in [Compensation::Automatic, Compensation::Approved] {
        crate::sim::quick(booking(policy)).explore().assert_ok();
    }
}

fn mutants() -> Vec<(Mutation, Simulation, Rule)> {
    let booked = || booking(Compensation::Automatic);
    let outbox = || crate::sim::outbox::simulation();
    let late = crate::sim::scenarios::asked_again_later;
    let own = |name: &str| Rule::Own(name.to_owned());
    vec![
        (M::NoUndoing, booked(), Rule::NothingDropped),
        (M::NoMark, booked(), Rule::NothingDropped),
        (M::MarkedEarly, booked(), Rule::UndoneTruly),
        (M::NoUndoIntent, booked(), Rule::IntentBeforeEffect),
        (M::NoUndoSeal, booked(), Rule::NothingDropped),
        (M::NoSharers, shared(), Rule::UndoneTruly),
        (M::NoChildren, crate::sim::family::simulation(), Rule::NoEffectForgotten),
        (M::NoMayUndo, booking(Compensation::Approved), Rule::NothingDropped),
        (M::NoLeftOver, booked(), Rule::OneTransaction),
        (M::NoEvents, outbox(), own("what is told is told of what happened")),
        (M::MarkedAhead, outbox(), Rule::SilentLoss),
        (M::NotMarked, outbox(), Rule::NothingDropped),
        (M::NoTombstone, late(Retention::tombstone_after(DAY)), Rule::NoBlindRepeat),
        (
            M::NoRunTombstone,
            crate::sim::scenarios::started_again_later(Retention::tombstone_after(DAY)),
            own("booked once"),
        ),
        (M::RetiredEarly, late(Retention::forget_after(20 * DAY)), Rule::WindowOutlivesRetries),
        (M::NotRetired, late(Retention::tombstone_after(DAY)), Rule::NothingDropped),
        (M::NotTouched, late(Retention::forget_after(6 * DAY).from_last_access()), Rule::NoBlindRepeat),
    ]
}

#[test]
fn every_mutant_of_the_guards_is_found_out() {
    let mut survivors = Vec::new();
    for (mutation, simulation, rule) in mutants() {
        let mutant = simulation
            .engine(move |engine, _| engine.wrap_store(move |store| Arc::new(Mutant { store, mutation })));
        let exposes = |failing: &&Failing| failing.violations.iter().any(|v| v.rule == rule);
        let report = mutant.explore_while(|report| {
            report.schedules() < 1500 && report.failures().iter().all(|f| !exposes(&f))
        });
        match report.failures().iter().find(exposes) {
            Some(found) => println!("{mutation:<16?} {:<40} {rule}", found.schedule.to_string()),
            None => survivors.push(format!("{mutation:?} survives, or breaks another rule: {report}")),
        }
    }
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}
