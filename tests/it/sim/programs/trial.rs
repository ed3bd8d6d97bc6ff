//! One program: tried without a crash, tried with crashes, compared; and made smaller when it fails.

use std::fmt::Write as _;

use counterfoil::sim::{Happened, Replay, Schedule};

use super::draw::{self, Dice, Extent};
use super::mutants::Mutation;
use super::tree::Job;
use super::world::{Seen, simulation};

/// So many schedules for each program.
const SCHEDULES: u32 = 2;
/// So many trials to make a failure smaller.
const PATIENCE: u32 = 600;

/// Tries the program of a seed.
pub(super) fn of_seed(seed: u64) -> Result<(), String> {
    let job = draw::program(seed);
    let (clean, extent) = clean(seed, &job, None)
        .map_err(|what| format!("seed {seed}: without a crash, {what}\n{job:?}\n{}", again(seed)))?;
    for schedule in schedules(seed, extent) {
        if fails(seed, &job, None, &clean, &schedule).is_some() {
            return Err(shrunk(seed, job, None, schedule));
        }
    }
    Ok(())
}

/// Whether the program of a seed finds an engine out that forgets something, and how.
pub(super) fn finds_out(seed: u64, mutation: Mutation) -> Option<String> {
    let job = draw::program(seed);
    let (clean, extent) = clean(seed, &job, None).ok()?;
    let mut schedules = schedules(seed, extent);
    let found = schedules.find_map(|schedule| fails(seed, &job, Some(mutation), &clean, &schedule));
    found.map(|(wrong, replay)| format!("seed {seed}, {}: {wrong}", replay.schedule))
}

fn schedules(seed: u64, extent: Extent) -> impl Iterator<Item = Schedule> {
    let mut dice = Dice::new(seed ^ 0xdead);
    (0..SCHEDULES).map(move |_| draw::schedule(&mut dice, extent))
}

fn again(seed: u64) -> String {
    let next = seed + 1;
    format!("again: COUNTERFOIL_SEEDS={seed}..{next} cargo test --features full --test it programs::")
}

/// What a run without a crash comes to, and what there is of it to go wrong.
fn clean(seed: u64, job: &Job, mutation: Option<Mutation>) -> Result<(Seen, Extent), String> {
    let (simulation, sight) = simulation(seed, job, mutation);
    let replay = simulation.replay(&Schedule::default());
    let outcome = sight.lock().unwrap().clone();
    if let Some(violation) = replay.violations.first() {
        return Err(format!("{violation}\n{}", replay.timeline()));
    }
    if let Some(wrong) = outcome.wrong.first() {
        return Err(wrong.clone());
    }
    Ok((outcome, extent(&replay)))
}

fn extent(replay: &Replay) -> Extent {
    let count = |counts: fn(&Happened) -> bool| {
        u32::try_from(replay.events.iter().filter(|event| counts(&event.what)).count()).unwrap()
    };
    Extent {
        crossings: count(|what| matches!(what, Happened::Crossed(_))),
        requests: count(|what| matches!(what, Happened::Sent { .. })),
    }
}

/// What is wrong with a run under this schedule, and what happened.
fn fails(
    seed: u64,
    job: &Job,
    mutation: Option<Mutation>,
    clean: &Seen,
    schedule: &Schedule,
) -> Option<(String, Replay)> {
    let (simulation, sight) = simulation(seed, job, mutation);
    let replay = simulation.replay(schedule);
    let outcome = sight.lock().unwrap().clone();
    let wrong = replay.violations.first().map(ToString::to_string).or_else(|| clean.differs(&outcome))?;
    Some((wrong, replay))
}

/// The same failure, with as little going wrong in as small a program as can be found soon.
fn shrunk(seed: u64, mut job: Job, mutation: Option<Mutation>, mut schedule: Schedule) -> String {
    let mut patience = PATIENCE;
    let (mut clean_run, mut extent) = clean(seed, &job, mutation).expect("it was clean before");
    let mut again_smaller = true;
    while again_smaller && patience > 0 {
        again_smaller = false;
        for fewer in fewer(&schedule) {
            patience = patience.saturating_sub(1);
            if fails(seed, &job, mutation, &clean_run, &fewer).is_some() {
                (schedule, again_smaller) = (fewer, true);
                break;
            }
        }
        for less in job.smaller() {
            if patience == 0 {
                break;
            }
            patience -= 1;
            let Ok((outcome, reach)) = clean(seed, &less, mutation) else { continue };
            let found = moved(&schedule, extent, reach).into_iter().find(|schedule| {
                patience = patience.saturating_sub(1);
                fails(seed, &less, mutation, &outcome, schedule).is_some()
            });
            if let Some(found) = found {
                (job, schedule, clean_run, extent, again_smaller) = (less, found, outcome, reach, true);
                break;
            }
        }
    }
    told(seed, &job, &schedule, fails(seed, &job, mutation, &clean_run, &schedule))
}

/// All of it but one.
fn fewer(schedule: &Schedule) -> Vec<Schedule> {
    let all = schedule.incidents();
    (0..all.len()).map(|i| Schedule::new([&all[..i], &all[i + 1..]].concat())).collect()
}

/// The same in a program with fewer crossings: a little earlier.
fn moved(schedule: &Schedule, from: Extent, to: Extent) -> Vec<Schedule> {
    use counterfoil::sim::Incident;
    let most = from.crossings.saturating_sub(to.crossings).min(24);
    let earlier = |by: u32| {
        let moved = schedule.incidents().iter().map(|incident| match *incident {
            Incident::Stop { stop, life: 1, crossing } => {
                Incident::Stop { stop, life: 1, crossing: crossing.saturating_sub(by).max(1) }
            }
            other => other,
        });
        Schedule::new(moved)
    };
    (0..=most).map(earlier).collect()
}

fn told(seed: u64, job: &Job, schedule: &Schedule, failed: Option<(String, Replay)>) -> String {
    let mut text = format!(
        "seed {seed}, made smaller:\n  program: {:?}\n  ends:    {:?}\n  goes wrong: {schedule}\n",
        job.ops, job.end
    );
    if let Some((wrong, replay)) = failed {
        let _ = write!(text, "{}\n{wrong}\n", replay.timeline());
    }
    text + &again(seed)
}
