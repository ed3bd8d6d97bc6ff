//! What goes wrong in a simulation, and when: written down, so that it can be tried again.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A paused process is back after this long, if nothing else is said: its work has been taken over, and its request,
/// should it be on its way, arrives inside the settle time.
pub(super) const PAUSE: Duration = Duration::from_secs(40);

/// What becomes of one request to a simulated provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// 422: nothing happened.
    Refused,
    /// 401: nothing happened.
    Unauthorized,
    /// 429 with a retry-after of 2 s: nothing happened.
    RateLimited,
    /// 500, and nothing happened.
    FailsBefore,
    /// 500, although it happened.
    FailsAfter,
    /// The request is lost and the connection breaks.
    RequestLost,
    /// It happened, and the connection breaks before the answer, or in the middle of it: a body that is cut off says
    /// no more than one that never came.
    AnswerLost,
    /// It happened, and no answer ever comes.
    Hangs,
    /// The connection breaks, and the request arrives 40 s later, inside the settle time.
    Late,
    /// The same, but it arrives 100 s later: beyond the settle time, where a duplicate cannot be prevented.
    TooLate,
    /// A proxy sends the request twice, one second apart; only to a provider that tells copies apart.
    Doubled,
    /// The same, also where copies are not told apart and the contract wants a look after a single send: without one, nobody can
    /// know.
    Twice,
    /// The connection breaks, and the request arrives so many seconds later. Tried inside the horizon of the contracts.
    Landing(u32),
    /// The answer says that it happened, and the effect is lost; only where the contract wants a look after a single send, for
    /// without one, nobody can know.
    Forgets,
}

impl Fault {
    /// Those that are tried at every request.
    pub const ALL: [Self; 11] = [
        Self::Refused,
        Self::Unauthorized,
        Self::RateLimited,
        Self::FailsBefore,
        Self::FailsAfter,
        Self::RequestLost,
        Self::AnswerLost,
        Self::Hangs,
        Self::Late,
        Self::TooLate,
        Self::Doubled,
    ];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unauthorized => "unauthorized",
            Self::RateLimited => "rate-limited",
            Self::FailsBefore => "fails-before",
            Self::FailsAfter => "fails-after",
            Self::RequestLost => "request-lost",
            Self::AnswerLost => "answer-lost",
            Self::Hangs => "hangs",
            Self::Late => "late",
            Self::TooLate => "too-late",
            Self::Doubled => "doubled",
            Self::Twice => "twice",
            Self::Landing(_) => "landing",
            Self::Forgets => "forgets",
        }
    }
}

/// How a process can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stop {
    /// The power fails: every process on the machine dies, and what was being written is lost.
    Crash,
    /// The power fails while several writes are under way, which the disk takes in any order: some of them have reached it, and
    /// the others are lost.
    Torn {
        /// The writes that have reached the disk: bit 0 for the first of those under way, bit 1 for the second, and so on.
        reached: u32,
    },
    /// The process dies: what it was writing reaches the disk all the same, and nobody was told.
    Kill,
    /// The process is paused and taken for dead. 40 s later, when another one has taken its work over, it goes on.
    Pause,
    /// The same, and it goes on after this time: also when its heir has sent, and looked once more.
    PauseFor {
        /// How long.
        seconds: u32,
    },
}

impl Stop {
    /// Those that are tried at every point; of pauses the usual one.
    pub const ALL: [Self; 3] = [Self::Crash, Self::Kill, Self::Pause];

    /// How long a paused process sleeps.
    pub(super) const fn pause(self) -> Option<Duration> {
        match self {
            Self::Crash | Self::Torn { .. } | Self::Kill => None,
            Self::Pause => Some(PAUSE),
            Self::PauseFor { seconds } => Some(Duration::from_secs(seconds as u64)),
        }
    }

    /// Whether a write that was under way, the first of them or a later one, has reached the disk.
    pub(super) fn spares(self, write: usize) -> bool {
        match self {
            Self::Torn { reached } => {
                u32::try_from(write).is_ok_and(|write| reached.checked_shr(write).unwrap_or(0) & 1 == 1)
            }
            _ => self == Self::Kill,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash => f.write_str("crash"),
            Self::Kill => f.write_str("kill"),
            Self::Pause => f.write_str("pause"),
            Self::PauseFor { seconds } => write!(f, "pause+{seconds}"),
            Self::Torn { reached } => write!(f, "torn+{reached}"),
        }
    }
}

impl FromStr for Stop {
    type Err = UnknownIncident;

    fn from_str(text: &str) -> Result<Self, UnknownIncident> {
        let unknown = || UnknownIncident { text: text.to_owned() };
        let number = |text: &str| text.parse().map_err(|_| unknown());
        match text.split_once('+') {
            Some(("pause", seconds)) => Ok(Self::PauseFor { seconds: number(seconds)? }),
            Some(("torn", reached)) => Ok(Self::Torn { reached: number(reached)? }),
            _ => Self::ALL.into_iter().find(|stop| stop.to_string() == text).ok_or_else(unknown),
        }
    }
}

/// One thing that goes wrong. Lives, crossings, requests, lookups and commits are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Incident {
    /// The process is stopped at a crash point: in which life, and at which of the points that this life crosses.
    Stop {
        /// How.
        stop: Stop,
        /// Which process.
        life: u32,
        /// Which of its crossings.
        crossing: u32,
    },
    /// A provider misbehaves.
    Fault {
        /// Which request, over all lives and providers.
        request: u32,
        /// How.
        fault: Fault,
    },
    /// A commit fails, and nothing of it is written.
    StoreFails {
        /// Which commit, over all lives.
        commit: u32,
    },
    /// A commit is written, and its answer is lost.
    StoreAnswerLost {
        /// Which commit, over all lives.
        commit: u32,
    },
    /// The wall clock is set by so many seconds.
    ClockJumps {
        /// Before which life.
        life: u32,
        /// How far; negative is back.
        seconds: i64,
    },
    /// Lookups have no answer for so long.
    LookupDown {
        /// From which lookup on, over all lives and providers.
        lookup: u32,
        /// How long.
        seconds: u32,
    },
    /// No process lives for so long, while the world goes on.
    Down {
        /// Before which life.
        life: u32,
        /// How long.
        seconds: u32,
    },
    /// A life begins with the ledger of a backup, and everything that was written since is lost. The life before it ends when
    /// nothing is left to do, if nothing has stopped it. Your own tables stay as they are.
    Restored {
        /// Which life.
        life: u32,
        /// After so many writes the backup was made.
        batches: u32,
        /// The engine is told of what instant the backup is. Otherwise it recognises that it was restored.
        told: bool,
    },
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop { stop, life, crossing } => write!(f, "{stop}@{life}.{crossing}"),
            Self::Fault { request, fault: Fault::Landing(seconds) } => {
                write!(f, "landing+{seconds}@{request}")
            }
            Self::Fault { request, fault } => write!(f, "{}@{request}", fault.name()),
            Self::StoreFails { commit } => write!(f, "store-fails@{commit}"),
            Self::StoreAnswerLost { commit } => write!(f, "store-answer-lost@{commit}"),
            Self::ClockJumps { life, seconds } => write!(f, "clock{seconds:+}@{life}"),
            Self::Down { life, seconds } => write!(f, "down+{seconds}@{life}"),
            Self::LookupDown { lookup, seconds } => write!(f, "lookup-down+{seconds}@{lookup}"),
            Self::Restored { life, batches, told: false } => write!(f, "restored+{batches}@{life}"),
            Self::Restored { life, batches, told: true } => write!(f, "restored-told+{batches}@{life}"),
        }
    }
}

impl FromStr for Incident {
    type Err = UnknownIncident;

    fn from_str(text: &str) -> Result<Self, UnknownIncident> {
        let unknown = || UnknownIncident { text: text.to_owned() };
        let (what, place) = text.split_once('@').ok_or_else(unknown)?;
        let number = |text: &str| text.parse().map_err(|_| unknown());
        if let Ok(stop) = what.parse() {
            let (life, crossing) = place.split_once('.').ok_or_else(unknown)?;
            return Ok(Self::Stop { stop, life: number(life)?, crossing: number(crossing)? });
        }
        Ok(match what {
            "store-fails" => Self::StoreFails { commit: number(place)? },
            "store-answer-lost" => Self::StoreAnswerLost { commit: number(place)? },
            _ => {
                if let Some(seconds) = what.strip_prefix("clock") {
                    let seconds = seconds.parse().map_err(|_| unknown())?;
                    Self::ClockJumps { life: number(place)?, seconds }
                } else if let Some(seconds) = what.strip_prefix("lookup-down+") {
                    Self::LookupDown { lookup: number(place)?, seconds: number(seconds)? }
                } else if let Some(seconds) = what.strip_prefix("down+") {
                    Self::Down { life: number(place)?, seconds: number(seconds)? }
                } else if let Some(batches) = what.strip_prefix("restored+") {
                    Self::Restored { life: number(place)?, batches: number(batches)?, told: false }
                } else if let Some(batches) = what.strip_prefix("restored-told+") {
                    Self::Restored { life: number(place)?, batches: number(batches)?, told: true }
                } else if let Some(seconds) = what.strip_prefix("landing+") {
                    Self::Fault { request: number(place)?, fault: Fault::Landing(number(seconds)?) }
                } else {
                    let mut faults = Fault::ALL.into_iter().chain([Fault::Twice, Fault::Forgets]);
                    let fault = faults.find(|fault| fault.name() == what);
                    Self::Fault { request: number(place)?, fault: fault.ok_or_else(unknown)? }
                }
            }
        })
    }
}

/// Everything that goes wrong in one simulation.
///
/// ```
/// use counterfoil::sim::Schedule;
/// let schedule: Schedule = "crash@1.7 answer-lost@2 down+90000@2".parse()?;
/// assert_eq!(schedule.incidents().len(), 3);
/// assert_eq!(schedule.to_string(), "crash@1.7 answer-lost@2 down+90000@2");
/// assert_eq!(Schedule::default().to_string().parse(), Ok(Schedule::default()));
/// # Ok::<(), counterfoil::sim::UnknownIncident>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Schedule(Vec<Incident>);

impl Schedule {
    /// These incidents.
    pub fn new(incidents: impl IntoIterator<Item = Incident>) -> Self {
        Self(incidents.into_iter().collect())
    }

    /// What goes wrong.
    pub fn incidents(&self) -> &[Incident] {
        &self.0
    }

    /// With which backup a life begins, and whether it is told.
    pub(super) fn restored(&self, of: u32) -> Option<(u32, bool)> {
        self.0.iter().find_map(|incident| match *incident {
            Incident::Restored { life, batches, told } if life == of => Some((batches, told)),
            _ => None,
        })
    }

    pub(super) fn and(&self, incident: Incident) -> Self {
        Self(self.0.iter().copied().chain([incident]).collect())
    }

    /// At which of its crossings a life is stopped, and how.
    pub(super) fn stops(&self, of: u32) -> BTreeMap<usize, Stop> {
        let stop = |incident: &Incident| match *incident {
            Incident::Stop { stop, life, crossing } if life == of => Some((crossing as usize, stop)),
            _ => None,
        };
        self.0.iter().filter_map(stop).collect()
    }

    /// Without one of them. If that stopped a process, there is one life less, and what befell later ones moves up.
    pub(super) fn without(&self, place: usize) -> Self {
        let mut left = self.0.clone();
        let gone = left.remove(place);
        if let Incident::Stop { life: ended, .. } = gone {
            for incident in &mut left {
                if let Incident::Stop { life, .. }
                | Incident::ClockJumps { life, .. }
                | Incident::Restored { life, .. }
                | Incident::Down { life, .. } = incident
                    && *life > ended
                {
                    *life -= 1;
                }
            }
        }
        Self(left)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(NOTHING);
        }
        let texts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join(" "))
    }
}

impl FromStr for Schedule {
    type Err = UnknownIncident;
    fn from_str(text: &str) -> Result<Self, UnknownIncident> {
        let text = if text == NOTHING { "" } else { text };
        text.split_whitespace().map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// How an empty schedule is written.
const NOTHING: &str = "nothing goes wrong";

/// There is no such incident.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no incident {text:?}: it is written as in `crash@1.7`, `answer-lost@2` or `clock-3600@2`")]
pub struct UnknownIncident {
    /// What was written.
    pub text: String,
}
