//! The simulator against reality: the same death, at the same crossing, in front of the same kind of provider, in a
//! simulated process and in a real one. What comes of it must be the same, or the simulator proves nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use counterfoil::sim::{CrashPoint, End, Event, Happened, Replay, Schedule};
use counterfoil::store::QuestionKind;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::case_notice::classes::Class;
use crate::harness::case_notice::simulated::{self, DESK, simulation};
use crate::harness::process::World;
use crate::harness::role::Ended;
use crate::harness::scenario::{Fault, Kill, Scenario};
use crate::harness::trial::Place;
use crate::{Bench, PACE, full, run};

const AT_ONCE: usize = 3;
/// Without `COUNTERFOIL_FULL`, one crossing in so many is tried; another one for each class.
const SAMPLE: usize = 7;

// R-SIM-3.
for_each_class! { simulated_and_real_agree }

/// What both can say.
#[derive(Debug, PartialEq)]
struct Outcome {
    effects: u64,
    /// State, basis and attempts.
    record: Option<(String, String, u32)>,
    questions: Vec<QuestionKind>,
    succeeded: bool,
    /// What the last life crossed, as far as it must be the same.
    crossed: Vec<CrashPoint>,
}

/// What goes wrong, and what comes of it in the simulator.
struct Case {
    schedule: Schedule,
    scenario: Scenario,
    simulated: Outcome,
}

fn simulated_and_real_agree(class: Class) {
    let cases = cases(class);
    assert!(cases.len() > 6, "only {} cases", cases.len());
    let disagreements = run(compare(class, cases));
    assert!(disagreements.is_empty(), "{}:\n{}", class.name(), disagreements.join("\n"));
}

/// Nothing going wrong, a death at each crossing, a death at each crossing of the recovery from a call of unknown
/// outcome, done and not done, and what a provider can do to the answer.
fn cases(class: Class) -> Vec<Case> {
    let (clean, crossed) = case(class, "", Scenario::Crash(Vec::new()));
    assert!(crossed.len() > 18, "too few points were crossed: {crossed:?}");
    let mut cases = vec![clean];
    for (first, kill) in kills(&crossed) {
        let is_ambiguous = matches!(kill.point, CrashPoint::BeforeCall | CrashPoint::AfterCall);
        if is_ambiguous || is_tried(class, first) {
            let schedule = format!("kill@1.{first}");
            let (crash, recovery) = case(class, &schedule, Scenario::Crash(vec![kill]));
            cases.push(crash);
            if is_ambiguous {
                cases.extend(crashes_of_recovery(class, &schedule, kill, &recovery));
            }
        }
    }
    cases.push(case(class, "hangs@1", Scenario::Fault(Fault::Hangs)).0);
    cases.push(case(class, "fails-after@1", Scenario::Fault(Fault::FailsAfterwards)).0);
    cases.push(case(class, "answer-lost@1", Scenario::Fault(Fault::CutsAnswer)).0);
    cases
}

fn crashes_of_recovery(class: Class, first: &str, kill: Kill, recovery: &[CrashPoint]) -> Vec<Case> {
    // Whoever asks for the run once more does so beside the recovery: that is somewhere else each time.
    let seconds = kills(recovery).filter(|(_, then)| then.point != CrashPoint::BeforeRunStart);
    let tried = seconds.filter(|(second, _)| is_tried(class, *second));
    let crash = |(second, then): (usize, Kill)| {
        let scenario = Scenario::Crash(vec![kill, then]);
        case(class, &format!("{first} kill@2.{second}"), scenario).0
    };
    tried.map(crash).collect()
}

/// What comes of it in the simulator, and all that its last life crossed.
fn case(class: Class, schedule: &str, scenario: Scenario) -> (Case, Vec<CrashPoint>) {
    let schedule = schedule.parse().unwrap();
    let (simulated, crossed) = simulated(class, &schedule);
    (Case { schedule, scenario, simulated }, crossed)
}

/// The crossings of a life, from 1, and how a real process counts each.
fn kills(crossed: &[CrashPoint]) -> impl Iterator<Item = (usize, Kill)> {
    crossed.iter().enumerate().map(|(before, point)| {
        let earlier = crossed[..before].iter().filter(|earlier| *earlier == point).count();
        (before + 1, Kill { point: *point, nth: u32::try_from(earlier).unwrap() + 1 })
    })
}

fn is_tried(class: Class, crossing: usize) -> bool {
    full() || crossing % SAMPLE == class as usize % SAMPLE
}

/// Does the same to real processes, in front of a real provider.
async fn compare(class: Class, cases: Vec<Case>) -> Vec<String> {
    let Bench { place, world, _folder } = Bench::of(class).await;
    let (world, slots) = (Arc::new(world), Arc::new(Semaphore::new(AT_ONCE)));
    let mut trials = JoinSet::new();
    for Case { schedule, scenario, simulated } in cases {
        let (place, world, slots) = (place.clone(), world.clone(), slots.clone());
        trials.spawn(async move {
            let _slot = slots.acquire_owned().await.unwrap();
            let real = real(&place, &world, class, &scenario, &schedule.to_string()).await;
            (real.as_ref() != Ok(&simulated))
                .then(|| format!("{scenario} ({schedule})\n  simulated {simulated:?}\n  real      {real:?}"))
        });
    }
    let mut disagreements = Vec::new();
    while let Some(trial) = trials.join_next().await {
        disagreements.extend(trial.unwrap());
    }
    disagreements
}

/// Simulated processes have no orderly end. And whoever asks for a run that is there does so beside what has become of
/// it by then, sooner or later.
fn comparable(crossed: impl Iterator<Item = CrashPoint>) -> Vec<CrashPoint> {
    let crossed: Vec<_> = crossed.collect();
    let is_begun = crossed.contains(&CrashPoint::AfterRunStart);
    let must_be_equal = |point: &CrashPoint| match point {
        CrashPoint::BeforeRetirement | CrashPoint::AfterRetirement => false,
        CrashPoint::BeforeRunStart => is_begun,
        _ => true,
    };
    until_confirming(crossed).into_iter().filter(must_be_equal).collect()
}

/// Without the confirming lookups. The simulated ones go on to the horizon: for so long no real process is waited for.
fn until_confirming(crossed: Vec<CrashPoint>) -> Vec<CrashPoint> {
    crossed.into_iter().take_while(|point| *point != CrashPoint::BeforeConfirming).collect()
}

fn simulated(class: Class, schedule: &Schedule) -> (Outcome, Vec<CrashPoint>) {
    let seen = Rc::new(RefCell::new(None));
    let found = seen.clone();
    let simulation = simulation(class).check("it is looked at", move |end| {
        *found.borrow_mut() = Some(outcome(end));
        Ok(())
    });
    let replay = simulation.replay(schedule);
    assert_eq!(replay.violations, [], "{}: {schedule}\n{}", class.name(), replay.timeline());
    let outcome = seen.borrow_mut().take().expect("it was looked at");
    let crossed = last_life(&replay);
    (Outcome { crossed: comparable(crossed.iter().copied()), ..outcome }, until_confirming(crossed))
}

fn outcome(end: &End<'_>) -> Outcome {
    let records = end.records();
    let record = records.first();
    Outcome {
        effects: end.count(DESK, &simulated::case().id) as u64,
        record: record
            .map(|record| (record.state.name().to_owned(), format!("{:?}", record.basis), record.attempts)),
        questions: end.questions().iter().map(|question| question.kind).collect(),
        succeeded: end.succeeded(),
        crossed: Vec::new(),
    }
}

fn last_life(replay: &Replay) -> Vec<CrashPoint> {
    let last = replay.events.iter().map(|event| event.life).max();
    let of_last = replay.events.iter().filter(|event| Some(event.life) == last);
    let crossing = |event: &Event| match event.what {
        Happened::Crossed(point) => Some(point),
        _ => None,
    };
    of_last.filter_map(crossing).collect()
}

async fn real(
    place: &Place,
    shared: &World,
    class: Class,
    scenario: &Scenario,
    name: &str,
) -> Result<Outcome, String> {
    let case = format!("{}-{}", simulated::case().id, name.replace(' ', "-"));
    let own;
    let world = if scenario.needs_own_world() {
        let db = place.folder.join(format!("{case}-provider.db"));
        own = World::start(&place.program, &db, &scenario.behaviour(class, PACE)).await.unwrap();
        &own
    } else {
        shared
    };
    let ours = place.ours(world, class, scenario, &case).await.map_err(|error| error.to_string())?;
    Ok(Outcome {
        effects: ours.effects,
        record: ours.report.record.map(|record| (record.state, record.basis, record.attempts)),
        questions: ours.report.questions,
        succeeded: ours.report.ended == Ended::Succeeded,
        crossed: comparable(ours.report.crossed.iter().map(|name| name.parse().unwrap())),
    })
}
