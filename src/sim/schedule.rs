//! The incidents of a simulation, in a written form that can be replayed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The default length of a pause: when it ends, the work has been taken over, and a request in flight still arrives
/// within the settle time.
pub(super) const PAUSE: Duration = Duration::from_secs(40);

/// The fate of one request to a simulated provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The answer is 422, and nothing happened.
    Refused,
    /// The answer is 401, and nothing happened.
    Unauthorized,
    /// The answer is 429 with a retry-after of 2 s, and nothing happened.
    RateLimited,
    /// The answer is 500, and nothing happened.
    FailsBefore,
    /// The answer is 500, although the effect happened.
    FailsAfter,
    /// The request is lost and the connection breaks.
    RequestLost,
    /// The effect happened, and the connection breaks before the answer or in the middle of it: a body that is cut
    /// off proves no more than a missing one.
    AnswerLost,
    /// The effect happened, and no answer ever comes.
    Hangs,
    /// The connection breaks, and the request arrives 40 s later, inside the settle time.
    Late,
    /// The connection breaks, and the request arrives 100 s later: after the settle time, when a duplicate cannot be
    /// prevented.
    TooLate,
    /// A proxy sends the request twice, one second apart; only to a provider that detects copies.
    Doubled,
    /// A proxy sends the request twice, also to a provider that detects no copies, if the contract requires a lookup
    /// after a single send: without one, nobody can know.
    Twice,
    /// The connection breaks, and the request arrives this number of seconds later. Tried within the horizon of the
    /// contracts.
    Landing(u32),
    /// The answer reports success, and the effect is lost; only if the contract requires a lookup after a single
    /// send: without one, nobody can know.
    Forgets,
}

impl Fault {
    /// The faults that are tried at every request.
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

    /// The stable name of the fault.
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

/// A way to stop a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stop {
    /// The power fails: every process on the machine dies, and writes in flight are lost.
    Crash,
    /// The power fails while several writes are in flight, which the disk takes in any order: some of them have
    /// reached it, and the others are lost.
    Torn {
        /// The writes that have reached the disk: bit 0 for the first write in flight, bit 1 for the second, and so
        /// on.
        reached: u32,
    },
    /// The process dies: its writes in flight reach the disk all the same, and no caller got an answer.
    Kill,
    /// The process is paused and taken for dead. It continues 40 s later, when another process has taken its work
    /// over.
    Pause,
    /// The process is paused for this time, which may end after its successor has sent and looked up the call again.
    PauseFor {
        /// The length of the pause, in seconds.
        seconds: u32,
    },
}

impl Stop {
    /// The stops that are tried at every point. Of the pauses, only the default one.
    pub const ALL: [Self; 3] = [Self::Crash, Self::Kill, Self::Pause];

    /// The length of the pause; `None` for a stop that ends the process.
    pub(super) const fn pause(self) -> Option<Duration> {
        match self {
            Self::Crash | Self::Torn { .. } | Self::Kill => None,
            Self::Pause => Some(PAUSE),
            Self::PauseFor { seconds } => Some(Duration::from_secs(seconds as u64)),
        }
    }

    /// True if a write in flight has reached the disk. `write` is its position among the writes in flight.
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

/// One incident. Lives, crossings, requests, lookups and commits are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Incident {
    /// The process is stopped at a crash point.
    Stop {
        /// The way in which it is stopped.
        stop: Stop,
        /// The life, which is the number of the process.
        life: u32,
        /// The crossing, counted over the points that this life crosses.
        crossing: u32,
    },
    /// A provider misbehaves.
    Fault {
        /// The number of the request, over all lives and providers.
        request: u32,
        /// The fault of the provider.
        fault: Fault,
    },
    /// A commit fails, and nothing of it is written.
    StoreFails {
        /// The number of the commit, over all lives.
        commit: u32,
    },
    /// All commits fail for some time, and nothing of them is written.
    StoreDown {
        /// The number of the first failing commit, over all lives.
        commit: u32,
        /// The duration, in seconds.
        seconds: u32,
    },
    /// A commit is written, and its answer is lost.
    StoreAnswerLost {
        /// The number of the commit, over all lives.
        commit: u32,
    },
    /// The wall clock is set forward or back.
    ClockJumps {
        /// The life before which the clock is set.
        life: u32,
        /// The change, in seconds; negative is back.
        seconds: i64,
    },
    /// Lookups fail for some time.
    LookupDown {
        /// The number of the first failing lookup, over all lives and providers.
        lookup: u32,
        /// The duration, in seconds.
        seconds: u32,
    },
    /// No process is alive for some time, while the world goes on.
    Down {
        /// The life before which the machine is down.
        life: u32,
        /// The duration, in seconds.
        seconds: u32,
    },
    /// A life begins with the ledger of a backup, and all later writes are lost. The life before it ends when nothing
    /// is left to do, if no other incident has stopped it. Your own tables are unchanged.
    Restored {
        /// The life that begins with the backup.
        life: u32,
        /// The number of batches that were written before the backup was made.
        batches: u32,
        /// True if the engine is told the instant of the backup. Otherwise it detects the restore.
        told: bool,
    },
}

impl Incident {
    /// The kind of the incident: its written form without numbers, such as `crash` or `store-fails`.
    pub(super) fn kind(&self) -> String {
        let written = self.to_string();
        let kind = written.split(|c: char| c == '@' || c.is_ascii_digit()).next().unwrap_or_default();
        kind.trim_end_matches(['+', '-']).to_owned()
    }
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
            Self::StoreDown { commit, seconds } => write!(f, "store-down+{seconds}@{commit}"),
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
                } else if let Some(seconds) = what.strip_prefix("store-down+") {
                    Self::StoreDown { commit: number(place)?, seconds: number(seconds)? }
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

/// All incidents of one simulation.
///
/// ```
/// use counterfoil::sim::Schedule;
/// let schedule: Schedule = "crash@1.7 answer-lost@2 down+90000@2".parse()?;
/// assert_eq!(schedule.incidents().len(), 3);
/// assert_eq!(schedule.to_string(), "crash@1.7 answer-lost@2 down+90000@2");
/// assert_eq!("store-down+1@4".parse::<Schedule>()?.to_string(), "store-down+1@4");
/// assert_eq!(Schedule::default().to_string().parse(), Ok(Schedule::default()));
/// # Ok::<(), counterfoil::sim::UnknownIncident>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Schedule(Vec<Incident>);

impl Schedule {
    /// A schedule of these incidents.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn new(incidents: impl IntoIterator<Item = Incident>) -> Self {
        Self(incidents.into_iter().collect())
    }

    /// The incidents of the schedule.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn incidents(&self) -> &[Incident] {
        &self.0
    }

    /// The backup with which a life begins, and true if the engine is told.
    pub(super) fn restored(&self, of: u32) -> Option<(u32, bool)> {
        self.0.iter().find_map(|incident| match *incident {
            Incident::Restored { life, batches, told } if life == of => Some((batches, told)),
            _ => None,
        })
    }

    pub(super) fn and(&self, incident: Incident) -> Self {
        Self(self.0.iter().copied().chain([incident]).collect())
    }

    /// The crossings at which a life is stopped, and the kind of each stop.
    pub(super) fn stops(&self, of: u32) -> BTreeMap<usize, Stop> {
        let stop = |incident: &Incident| match *incident {
            Incident::Stop { stop, life, crossing } if life == of => Some((crossing as usize, stop)),
            _ => None,
        };
        self.0.iter().filter_map(stop).collect()
    }

    /// The schedule without one incident. If that incident stopped a process, there is one life less, and later lives
    /// are renumbered.
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

/// The text form of an empty schedule.
const NOTHING: &str = "nothing goes wrong";

/// The error for a text that is no incident.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no incident {text:?}: it is written as in `crash@1.7`, `answer-lost@2` or `clock-3600@2`")]
pub struct UnknownIncident {
    /// The text as given.
    pub text: String,
}
