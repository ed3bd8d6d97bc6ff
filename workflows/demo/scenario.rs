//! What is done to a run: where its process is killed, and how the provider misbehaves.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use counterfoil::sim::CrashPoint;

use super::Failed;
use super::case_notice::classes::Class;
use super::case_notice::provider::Behaviour;
use super::process::World;
use super::trial::Place;

/// How fast things go: everything as in earnest, only sooner.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// What the tools declare: so long a request may be on its way after its sender has died.
    pub settle: Duration,
    /// After so long without an answer a sender gives up waiting.
    pub patience: Duration,
}

impl Pace {
    /// A request that arrives late, but within what was declared.
    fn late(self) -> Duration {
        self.settle / 3
    }

    /// A request that arrives later than was declared.
    fn too_late(self) -> Duration {
        self.settle + self.settle / 4
    }
}

/// A crash point, and which crossing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    pub point: CrashPoint,
    pub nth: u32,
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nth {
            1 => write!(f, "{}", self.point),
            nth => write!(f, "{}:{nth}", self.point),
        }
    }
}

/// What goes wrong at the provider, for the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The sender is killed while its request is on the way, and the request arrives all the same.
    ArrivesLate,
    /// The same, but it arrives later than the settle time that was declared.
    ArrivesTooLate,
    /// The notice is sent, and the provider never answers.
    Hangs,
    /// The notice is sent, and the answer is 503.
    FailsAfterwards,
    /// The notice is sent, and the answer breaks off.
    CutsAnswer,
    /// One request sends two notices, and the sender dies before it has recorded the answer.
    SendsTwice,
}

impl Fault {
    pub const ALL: [Self; 6] = [
        Self::ArrivesLate,
        Self::ArrivesTooLate,
        Self::Hangs,
        Self::FailsAfterwards,
        Self::CutsAnswer,
        Self::SendsTwice,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::ArrivesLate => "killed in flight, request arrives late",
            Self::ArrivesTooLate => "killed in flight, later than declared",
            Self::Hangs => "provider hangs after the effect",
            Self::FailsAfterwards => "provider answers 503 after the effect",
            Self::CutsAnswer => "provider's answer breaks off",
            Self::SendsTwice => "provider sends twice, after-call",
        }
    }

    fn behaviour(self, class: Class, pace: Pace) -> Behaviour {
        let healthy =
            Behaviour { contract: class.provider(), faults_for_next: Some(1), ..Behaviour::default() };
        match self {
            Self::ArrivesLate => Behaviour { apply_late_ms: ms(pace.late()), ..healthy },
            Self::ArrivesTooLate => Behaviour { apply_late_ms: ms(pace.too_late()), ..healthy },
            Self::Hangs => Behaviour { hang_after_commit: true, ..healthy },
            Self::FailsAfterwards => Behaviour { status_after: Some(503), ..healthy },
            Self::CutsAnswer => Behaviour { truncate_answer: true, ..healthy },
            Self::SendsTwice => Behaviour { store_twice: true, ..healthy },
        }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How one life ends before its time.
#[derive(Clone, Copy, Debug)]
pub enum Dying {
    /// At this point, by its own hand.
    At(Kill),
    /// By ours, when the provider has its first request.
    InFlight,
}

/// What is done to a run.
#[derive(Clone, Debug)]
pub enum Scenario {
    /// One life after the other is killed, then one is left alone.
    Crash(Vec<Kill>),
    /// The provider misbehaves.
    Fault(Fault),
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash(kills) => {
                let names: Vec<_> = kills.iter().map(Kill::to_string).collect();
                f.write_str(&names.join(", then "))
            }
            Self::Fault(fault) => f.write_str(fault.name()),
        }
    }
}

impl Scenario {
    /// The lives that are cut short.
    pub fn deaths(&self) -> Vec<Dying> {
        match self {
            Self::Crash(kills) => kills.iter().copied().map(Dying::At).collect(),
            Self::Fault(Fault::ArrivesLate | Fault::ArrivesTooLate) => vec![Dying::InFlight],
            Self::Fault(Fault::SendsTwice) => vec![Dying::At(Kill { point: CrashPoint::AfterCall, nth: 1 })],
            Self::Fault(_) => Vec::new(),
        }
    }

    pub fn behaviour(&self, class: Class, pace: Pace) -> Behaviour {
        match self {
            Self::Crash(_) => Behaviour { contract: class.provider(), ..Behaviour::default() },
            Self::Fault(fault) => fault.behaviour(class, pace),
        }
    }

    /// Its fault is meant for one sender: it needs a provider of its own.
    pub const fn needs_own_world(&self) -> bool {
        matches!(self, Self::Fault(_))
    }

    /// How long after the end of a run its notice may still be under way.
    pub fn straggles(&self, pace: Pace) -> Duration {
        match self {
            Self::Fault(Fault::ArrivesLate) => pace.late(),
            Self::Fault(Fault::ArrivesTooLate) => pace.too_late(),
            _ => Duration::ZERO,
        }
    }
}

/// How many crossings of a point are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The first one.
    First,
    /// Each of them.
    Each,
}

/// Every crash point that a run of this class can cross, and every fault. Clean runs number the points: one that
/// nothing happens to, and one each that finds a call of unknown outcome, done and not done.
pub async fn of_class(
    place: &Place,
    world: &World,
    class: Class,
    depth: Depth,
) -> Result<Vec<Scenario>, Failed> {
    let mut known = BTreeSet::new();
    let mut scenarios = Vec::new();
    for first in [None, Some(CrashPoint::AfterCall), Some(CrashPoint::BeforeCall)] {
        let before: Vec<_> = first.map(|point| Kill { point, nth: 1 }).into_iter().collect();
        let case = format!("{}-numbering-{}", class.name(), first.map_or("clean", CrashPoint::name));
        let clean = place.ours(world, class, &Scenario::Crash(before.clone()), &case).await?;
        let crossed = CrashPoint::ALL.into_iter().filter(|point| clean.report.crossed(*point) > 0);
        for point in crossed.filter(|point| known.insert(*point)) {
            let times = if depth == Depth::Each { clean.report.crossed(point) } else { 1 };
            for nth in 1..=times {
                let mut kills = before.clone();
                kills.push(Kill { point, nth });
                scenarios.push(Scenario::Crash(kills));
            }
        }
    }
    scenarios.extend(Fault::ALL.map(Scenario::Fault));
    Ok(scenarios)
}
