//! The exploration of every crash window of a workflow, and of combinations.

use std::collections::BTreeSet;

use super::CrashPoint;
use super::chance::Seeded;
use super::check::{Rule, Violation};
use super::end::End;
use super::life::Crossing;
use super::machine::{self, Trial};
use super::report::{Failing, Report};
use super::schedule::{Fault, Incident, Schedule, Stop};
use super::simulation::Simulation;
use super::timeline::{Event, draw};
use super::world::Knowable;

/// A pause in seconds, after which no call that was begun is looked up any more.
const LONG_AFTER: u32 = 100_000;
/// A pause in seconds that outlasts the lease: another worker takes over, and is still at work when the pause ends.
const BEYOND_LEASE: u32 = 200;
/// The delay in seconds up to which other faults cover the late arrival of a request.
const SHORTLY: u32 = 100;
/// The time in seconds for which the store is away: longer than the queue tries a write.
const AWAY: u32 = 1;

impl Simulation {
    /// Tries a clean run, each incident alone, each crash at each point of the recovery from each other crash, each
    /// crash under each fault, a store that is away from each commit of the recovery from each power failure on, and random
    /// combinations.
    pub fn explore(&self) -> Report {
        self.explore_while(|_| true)
    }

    /// Explores for as long as `go_on` returns true: until a failure is found, or your time is up. The clean run is
    /// tried in any case.
    pub fn explore_while(&self, go_on: impl Fn(&Report) -> bool) -> Report {
        let mut report = Report::default();
        let clean = self.try_one(&Schedule::default(), &mut report);
        report.clean_run_ends(&self.end(&clean), &clean, self.fails);
        // All single incidents come before all pairs, so that the first failure is a small one.
        let singles = if self.singles { self.singles(&clean) } else { Vec::new() };
        let (mut pairs, mut downs) = (Vec::new(), Vec::new());
        report.planned = 1 + count(&singles) + self.random;
        report.more_planned = self.pairs && !singles.is_empty();
        for incident in singles {
            if !go_on(&report) {
                return report;
            }
            let schedule = Schedule::new([incident]);
            let trial = self.try_one(&schedule, &mut report);
            if self.pairs {
                let (followers, away) =
                    (self.followers(incident, &trial), self.downs_after(incident, &trial));
                report.planned += count(&followers) + count(&away);
                pairs.extend(followers.into_iter().map(|second| schedule.and(second)));
                downs.extend(away.into_iter().map(|second| schedule.and(second)));
            }
        }
        report.more_planned = false;
        // Where time ends the exploration early, another seed begins with other pairs.
        if let Some(begin) = self.seed.checked_rem(pairs.len() as u64) {
            pairs.rotate_left(usize::try_from(begin).unwrap_or_default());
        }
        let chance = Seeded::new(self.seed);
        let mixtures = (0..self.random).map(|_| random(&chance, &clean, self.restores));
        for schedule in pairs.into_iter().chain(downs).chain(mixtures) {
            if !go_on(&report) {
                return report;
            }
            self.try_one(&schedule, &mut report);
        }
        report
    }

    /// Tries one schedule, and draws its timeline.
    pub fn replay(&self, schedule: &Schedule) -> Replay {
        let trial = self.trial(schedule);
        let violations = self.violations(&trial);
        let met_not = schedule.incidents().iter().filter(|incident| !trial.has_met(incident));
        let never_happened = met_not.map(ToString::to_string).collect();
        Replay { schedule: schedule.clone(), violations, never_happened, events: trial.events }
    }

    /// The incidents that can happen in a run without another incident.
    fn singles(&self, clean: &Trial) -> Vec<Incident> {
        // A worker whose pause outlasts its lease is taken over by another worker that runs beside it.
        let beyond_lease = (self.workers > 1).then_some(Stop::PauseFor { seconds: BEYOND_LEASE });
        let stops = (1..=self.workers).flat_map(|life| stops(clean, life, beyond_lease));
        let known = clean.world.knowable();
        // A request that is doubled where nobody can tell copies is a request like any other.
        let happens = |request: u32, fault: Fault| {
            fault != Fault::Doubled || known.get(&request).is_none_or(|known| known.doubled)
        };
        let faults = (1..=clean.requests)
            .flat_map(|request| Fault::ALL.map(|fault| (request, fault)))
            .filter(|(request, fault)| happens(*request, *fault))
            .map(|(request, fault)| Incident::Fault { request, fault });
        let faults = faults.chain(known.iter().flat_map(|(request, known)| more_faults(*request, *known)));
        let backups = (0..=clean.batches()).filter(|_| self.restores);
        let backups = backups.flat_map(|batches| [false, true].map(|told| (batches, told)));
        let backups = backups.map(|(batches, told)| Incident::Restored { life: 2, batches, told });
        let commits = 1..=clean.disk.commits();
        let fails = commits.clone().map(|commit| Incident::StoreFails { commit });
        let lost = commits.clone().map(|commit| Incident::StoreAnswerLost { commit });
        let downs = commits.filter(|_| self.outlasts_the_store());
        let downs = downs.map(|commit| Incident::StoreDown { commit, seconds: AWAY });
        stops.chain(faults).chain(fails).chain(lost).chain(downs).chain(backups).collect()
    }

    /// The outages of the store in the recovery from a power failure of the only process. Not after the other stops: the
    /// recoveries are alike, and this keeps their number small.
    fn downs_after(&self, first: Incident, trial: &Trial) -> Vec<Incident> {
        match first {
            Incident::Stop { stop: Stop::Crash, .. } if self.workers == 1 && self.outlasts_the_store() => {
                let commits = trial.commits_since(2);
                commits.map(|commit| Incident::StoreDown { commit, seconds: AWAY }).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The deaths that can follow an incident: in the recovery from a stop, or at any point under a fault.
    fn followers(&self, first: Incident, trial: &Trial) -> Vec<Incident> {
        let (life, stop) = match first {
            // Another of the initial workers carries on.
            Incident::Stop { life, .. } if self.workers > 1 => (life % self.workers + 1, Stop::Kill),
            Incident::Stop { stop, .. } if stop.pause().is_some() => (2, Stop::Kill), // the paused process continues later
            Incident::Stop { .. } | Incident::Restored { .. } => (2, Stop::Crash),
            // The other order is tried instead: the store is away in the recovery from a crash.
            Incident::StoreDown { .. } => return Vec::new(),
            _ => (1, Stop::Crash),
        };
        crossings(trial, life).map(|(crossing, _)| Incident::Stop { stop, life, crossing }).collect()
    }

    const fn end<'a>(&self, trial: &'a Trial) -> End<'a> {
        End { trial, asks: self.asks.len() }
    }

    fn trial(&self, schedule: &Schedule) -> Trial {
        machine::run(self, schedule, self.seed)
    }

    fn violations(&self, trial: &Trial) -> Vec<Violation> {
        let mut violations = trial.violations.clone();
        for (name, check) in &self.checks {
            if let Err(what) = check(&self.end(trial)) {
                violations.push(Violation { rule: Rule::Own(name.clone()), what });
            }
        }
        violations
    }

    fn try_one(&self, schedule: &Schedule, report: &mut Report) -> Trial {
        let trial = self.trial(schedule);
        let violations = self.violations(&trial);
        report.count(schedule, &trial, &violations);
        if let Some(violation) = violations.first()
            && report.wants_failure(&violation.rule)
        {
            let schedule = self.shrunk(schedule.clone(), &violation.rule);
            let Replay { violations, events, .. } = self.replay(&schedule);
            let timeline = draw(&events);
            report.add_failure(Failing { seed: self.seed, schedule, violations, timeline, events });
        }
        trial
    }

    /// The smallest schedule with the same violation.
    fn shrunk(&self, mut schedule: Schedule, rule: &Rule) -> Schedule {
        let mut place = 0;
        while place < schedule.incidents().len() {
            let smaller = schedule.without(place);
            if self.violations(&self.trial(&smaller)).iter().any(|violation| violation.rule == *rule) {
                schedule = smaller;
            } else {
                place += 1;
            }
        }
        schedule
    }
}

/// One simulation that was tried again.
#[derive(Debug)]
pub struct Replay {
    /// The incidents of the simulation.
    pub schedule: Schedule,
    /// The violations that were found.
    pub violations: Vec<Violation>,
    /// The incidents of the schedule that did not happen, as the schedule writes them: the simulation never came to their
    /// place, or nobody could have detected them.
    pub never_happened: Vec<String>,
    /// All events of the simulation.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub events: Vec<Event>,
}

impl Replay {
    /// The events, drawn as a timeline.
    pub fn timeline(&self) -> String {
        draw(&self.events)
    }
}

fn count(incidents: &[Incident]) -> u32 {
    u32::try_from(incidents.len()).unwrap_or(u32::MAX)
}

/// The crossings of a life, numbered from 1.
fn crossings(trial: &Trial, life: u32) -> impl Iterator<Item = (u32, Crossing)> {
    let crossed = trial.crossed.get(life as usize - 1);
    (1..).zip(crossed.into_iter().flatten().copied())
}

/// All ways to stop a process at each point that a clean run crosses, with one more way if `more` is given.
fn stops(clean: &Trial, life: u32, more: Option<Stop>) -> impl Iterator<Item = Incident> {
    let stops = Stop::ALL.into_iter().chain(more).flat_map(move |stop| {
        // Without a write in flight, the death of a process and a power failure are the same.
        let differs = move |crossed: &Crossing| stop != Stop::Kill || crossed.writing > 0;
        let stops = crossings(clean, life).filter(move |(_, crossed)| differs(crossed));
        stops.map(move |(crossing, _)| Incident::Stop { stop, life, crossing })
    });
    // At a tool call, also a pause so long that the worker which took over has long finished the call.
    let torn = crossings(clean, life).flat_map(move |(crossing, crossed)| {
        parts(crossed.writing).map(move |reached| Incident::Stop {
            stop: Stop::Torn { reached },
            life,
            crossing,
        })
    });
    let calls = crossings(clean, life)
        .filter(|(_, crossed)| matches!(crossed.point, CrashPoint::BeforeCall | CrashPoint::AfterCall));
    let stop = Stop::PauseFor { seconds: LONG_AFTER };
    stops.chain(torn).chain(calls.map(move |(crossing, _)| Incident::Stop { stop, life, crossing }))
}

/// The proper, non-empty subsets of the writes, as bit sets. Of more than three writes, only the first three are
/// distinguished.
fn parts(writes: usize) -> std::ops::Range<u32> {
    1..(1 << writes.min(3)) - 1
}

/// The faults that only some contracts can detect.
fn more_faults(request: u32, known: Knowable) -> impl Iterator<Item = Incident> {
    let landing = (known.landing > SHORTLY).then_some(Fault::Landing(known.landing));
    let twice = known.twice.then_some(Fault::Twice);
    let forgets = known.forgets.then_some(Fault::Forgets);
    let faults = [landing, twice, forgets].into_iter().flatten();
    faults.map(move |fault| Incident::Fault { request, fault })
}

fn random(chance: &Seeded, clean: &Trial, restores: bool) -> Schedule {
    let known = clean.world.knowable();
    let points = crossings(clean, 1).map(|(crossing, _)| crossing).max().unwrap_or(1);
    // A long pause tests a late send. Without a call it would only show that a paused process in a consumer's
    // transaction keeps the database locked.
    let sends = crossings(clean, 1).any(|(_, crossed)| crossed.point == CrashPoint::BeforeCall);
    let incidents = 1 + chance.below(5);
    let drawn = (0..incidents).map(|_| match chance.below(8) {
        0..4 => {
            let stop = match chance.below(9) {
                0 if sends => Stop::PauseFor { seconds: 1 + chance.below(LONG_AFTER) },
                _ => chance.one_of(Stop::ALL),
            };
            Incident::Stop { stop, life: 1 + chance.below(4), crossing: 1 + chance.below(points) }
        }
        4 | 5 => {
            let request = 1 + chance.below(clean.requests + 2);
            let more = known.get(&request).into_iter().flat_map(|known| more_faults(request, *known));
            let more: Vec<_> = more.collect();
            let faults = Fault::ALL.into_iter().map(|fault| Incident::Fault { request, fault });
            let faults: Vec<_> = faults.chain(more).collect();
            faults[chance.below(count(&faults)) as usize]
        }
        _ if restores && chance.below(3) == 0 => {
            let (life, told) = (2 + chance.below(2), chance.below(2) == 0);
            Incident::Restored { life, batches: chance.below(clean.batches() + 1), told }
        }
        6 => match chance.below(2) {
            0 => Incident::StoreFails { commit: 1 + chance.below(clean.disk.commits() * 2) },
            _ => Incident::StoreAnswerLost { commit: 1 + chance.below(clean.disk.commits() * 2) },
        },
        _ => match chance.below(2) {
            0 => Incident::ClockJumps { life: 2, seconds: i64::from(chance.below(20_000)) - 10_000 },
            _ => match chance.below(100_000) {
                seconds if seconds % 3 == 0 => {
                    Incident::LookupDown { lookup: 1 + seconds % 4, seconds: seconds / 5 }
                }
                seconds => Incident::Down { life: 2, seconds },
            },
        },
    });
    let drawn: Vec<_> = drawn.collect();
    let is_long =
        |incident: &Incident| matches!(incident, Incident::Stop { stop: Stop::PauseFor { .. }, .. });
    let long = drawn.iter().copied().find(is_long);
    let mut paused = BTreeSet::new();
    Schedule::new(drawn.into_iter().filter(|incident| match (incident, long) {
        // A process that continues after the last lookup is detected by its answer alone: no other incident may
        // remove the answer.
        (Incident::Fault { .. } | Incident::Stop { stop: Stop::Crash, .. }, Some(_)) => false,
        (Incident::Stop { life, .. }, Some(Incident::Stop { life: longest, .. })) if *life == longest => {
            long == Some(*incident)
        }
        // Two pauses of one life together would be longer than any settle time.
        (Incident::Stop { stop, life, .. }, _) if stop.pause().is_some() => paused.insert(*life),
        _ => true,
    }))
}

#[cfg(test)]
mod tests {
    use super::{Stop, parts};

    #[test]
    fn of_several_writes_each_part_reaches_the_disk_alone() {
        let written = |writes: usize| {
            let parts = parts(writes).map(|reached| Stop::Torn { reached });
            parts.map(move |stop| (0..writes).map(|write| stop.spares(write)).collect::<Vec<_>>())
        };
        assert_eq!((written(0).count(), written(1).count()), (0, 0), "all or nothing is said by other stops");
        assert_eq!(written(2).collect::<Vec<_>>(), [[true, false], [false, true]]);
        assert_eq!((written(3).count(), written(9).count()), (6, 6), "more are not told apart");
    }
}
