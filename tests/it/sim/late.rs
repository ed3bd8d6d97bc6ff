//! Zombies that go on when their heirs have sent and looked once more: what they do is found out by its late answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::ledger::{Compensation, LookupResult, State, Undone};
use counterfoil::sim::{End, Incident, Offer, Schedule, Service, Simulation, Stop, World, truthful};
use counterfoil::store::QuestionKind;
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key};
use serde_json::Value;

/// Takes money at a provider that knows no keys, and gives it back.
struct Pay(Service, World);

impl Tool for Pay {
    const NAME: &'static str = "pay";
    type Effect = effect::Undoable<effect::Payment>;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = Value;

    fn key(&self, order: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(order))
    }

    async fn call(&self, call: &Call, order: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, order).await
    }
}

impl Reconcile for Pay {
    async fn reconcile(&self, call: &Call, order: &String) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, order).await
    }
}

impl Compensate for Pay {
    fn policy(&self) -> Compensation {
        Compensation::Automatic
    }

    async fn compensate(
        &self,
        call: &Call,
        forward: &OriginalCall<String, Value>,
    ) -> Result<Done<Undone>, ToolError> {
        let charge = forward.external_ref().unwrap_or_default().to_owned();
        let refund = move |request: &counterfoil::sim::Request| {
            let id = request.happened("refund").unwrap_or_else(|| request.happen("refund", &charge));
            Ok(Done::new(Undone::whole().detail(id)))
        };
        self.1.send_keyed(call, refund).await
    }

    async fn find_compensation(
        &self,
        call: &Call,
        forward: &OriginalCall<String, Value>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        let found = self.1.find(call, "refund", forward.external_ref().unwrap_or_default()).await?;
        found.try_map(|id| Ok(Undone::whole().detail(id)))
    }
}

const DAY: Duration = Duration::from_hours(24);

/// Pays, and ends when every zombie has come back.
async fn pays(ctx: Ctx, order: String) -> Result<Value, Failure> {
    let paid = ctx.call::<Pay>(order).await?;
    ctx.sleep(2 * DAY).await?;
    Ok(paid)
}

/// The same, and the run fails: what it did is undone.
async fn pays_in_vain(ctx: Ctx, order: String) -> Result<Value, Failure> {
    ctx.call::<Pay>(order).await?;
    ctx.sleep(2 * DAY).await?;
    Err(Failure::new("out of stock"))
}

/// The same, at once.
async fn pays_and_fails(ctx: Ctx, order: String) -> Result<Value, Failure> {
    ctx.call::<Pay>(order).await?;
    Err(Failure::new("out of stock"))
}

fn equipped(simulation: Simulation) -> Simulation {
    simulation.engine(|engine, world| engine.tool(Pay(world.service("bank", Offer::Lookup), world.clone())))
}

/// In so many simulations a second charge was given back, by its own id, and its question was answered by the engine.
#[derive(Clone, Default)]
struct Undid(Arc<AtomicU32>);

impl Undid {
    fn look(&self, end: &End<'_>) -> Result<(), String> {
        let charges: Vec<_> = end.effects().into_iter().filter(|effect| effect.system == "bank").collect();
        let kept = end.records().into_iter().find(|record| record.operation.as_str() == "pay");
        for charge in &charges {
            let back = end.count("refund", &charge.id);
            if back > 1 {
                return Err(format!("{} was given back {back} times", charge.id));
            }
            let is_kept = kept.as_ref().is_some_and(|record| {
                record.external_ref.as_ref() == Some(&charge.id)
                    && matches!(record.state, State::Committed { .. })
            });
            if is_kept && back > 0 {
                return Err(format!("{} was to be kept", charge.id));
            }
        }
        let answered = |asked: &counterfoil::store::Question| {
            asked.kind == QuestionKind::Duplicated
                && asked.question.contains("answered late")
                && asked.answer.as_ref().is_some_and(|answer| answer.by == "counterfoil")
        };
        if end.asked().iter().any(answered) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Tries a zombie that goes on after a day at each place, and the death of its heir at each place after that.
fn undone_in(simulation: Simulation) -> u32 {
    let undid = Undid::default();
    let look = undid.clone();
    let simulation =
        equipped(simulation).check("each second charge goes back once", move |end| look.look(end));
    for crossing in 6..16 {
        let zombie = Incident::Stop { stop: Stop::PauseFor { seconds: 100_000 }, life: 1, crossing };
        for crossing in 1..75 {
            let death = Incident::Stop { stop: Stop::Kill, life: 2, crossing };
            let replay = simulation.replay(&Schedule::new([zombie, death]));
            assert!(replay.violations.is_empty(), "{}\n{:?}", replay.timeline(), replay.violations);
        }
    }
    undid.0.load(Ordering::Relaxed)
}

// The second charge of a zombie that comes back after the confirming lookup is found by its late answer. A process that
// starts afterwards gives it back; until then the question is open.
#[test]
fn what_a_zombie_does_after_everybody_has_looked_is_undone() {
    assert!(undone_in(Simulation::of(pays, "o1".to_owned())) > 0);
}

// The same when the first charge has been given back by then: the second one must not stand.
#[test]
fn what_a_zombie_does_after_it_was_undone_is_undone_too() {
    assert!(undone_in(Simulation::of(pays_in_vain, "o1".to_owned()).fails(1)) > 0);
    let at_once =
        equipped(Simulation::of(pays_and_fails, "o1".to_owned()).fails(1)).single_crashes().explore();
    at_once.assert_ok();
}

// Of two zombies, the later one cannot know what the earlier one sent meanwhile. Both late charges are asked about.
#[test]
fn two_zombies_that_come_back_one_after_the_other_are_both_found_out() {
    let thrice = Arc::new(AtomicU32::new(0));
    let seen = thrice.clone();
    let simulation = equipped(Simulation::of(pays, "o1".to_owned())).check(
        "each late charge is asked about",
        move |end| {
            let charges = end.effects().into_iter().filter(|effect| effect.system == "bank").count();
            let asked = end.asked().iter().filter(|asked| asked.kind == QuestionKind::Duplicated).count();
            seen.fetch_add(u32::from(charges == 3 && asked == 2), Ordering::Relaxed);
            if charges == asked + 1 { Ok(()) } else { Err(format!("{charges} charges, {asked} questions")) }
        },
    );
    let pause = |life, crossing, seconds| Incident::Stop { stop: Stop::PauseFor { seconds }, life, crossing };
    for first in 6..12 {
        for second in 6..22 {
            let schedule = Schedule::new([pause(1, first, 32_000), pause(2, second, 80_000)]);
            let replay = simulation.replay(&schedule);
            assert!(replay.violations.is_empty(), "{}\n{:?}", replay.timeline(), replay.violations);
        }
    }
    assert!(thrice.load(Ordering::Relaxed) > 0);
}

// A zombie that comes back after the last look, sends, and dies with its answer unwritten leaves no trace. An audit finds the
// second charge, and it goes back.
#[test]
fn what_a_zombie_does_unseen_after_the_last_look_is_found_by_an_audit() {
    let mut found = 0;
    for paused in 6..16 {
        for dies in paused + 1..paused + 6 {
            let schedule = format!("pause+100000@1.{paused} kill@1.{dies}");
            let replay = equipped(Simulation::of(pays, "o1".to_owned())).replay(&schedule.parse().unwrap());
            assert!(replay.violations.is_empty(), "{}\n{:?}", replay.timeline(), replay.violations);
            let timeline = replay.timeline();
            found += u32::from(
                timeline.split_once("an audit begins").is_some_and(|(_, after)| after.contains("refund: ")),
            );
        }
    }
    assert!(found > 0);
}

/// Notes something at a provider that can do nothing but take it.
struct Note(Service);

impl Tool for Note {
    const NAME: &'static str = "note";
    type Effect = effect::InternalMutation;
    type Contract = contract::Blind;
    type Input = String;
    type Output = Value;

    fn key(&self, case: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(case))
    }

    async fn call(&self, call: &Call, case: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, case).await
    }
}

async fn notes(ctx: Ctx, case: String) -> Result<Value, Failure> {
    ctx.call::<Note>(case).await
}

// Where nobody can look, a person said that it did not happen, which was true then. A zombie that goes on after that makes a
// second effect, and the person is asked again.
#[test]
fn a_persons_word_that_a_zombie_breaks_is_asked_about() {
    let simulation = Simulation::of(notes, "case".to_owned())
        .engine(|engine, world| engine.tool(Note(world.service("desk", Offer::Blind))))
        .operator(truthful);
    simulation.single_crashes().explore().assert_ok();
}

// A schedule says for how long a process stands still, and is read back as it is written.
#[test]
fn a_pause_may_be_of_any_length() {
    let incident = Incident::Stop { stop: Stop::PauseFor { seconds: 200 }, life: 1, crossing: 7 };
    assert_eq!(incident.to_string(), "pause+200@1.7");
    assert_eq!("pause+200@1.7".parse(), Ok(incident));
    assert!("pause+@1.7".parse::<Incident>().is_err());
    assert!("pause+200".parse::<Incident>().is_err());
}
