//! Small workflow programs as values: what a run does, in its order.
//!
//! Every program comes to an end by itself, and to the same one whenever it is crashed: what is raced has one branch that
//! can win, and what may or may not have been done when it is given up is told apart as *loose*.

use counterfoil::RunId;
use serde::{Deserialize, Serialize};

/// What one run does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    /// Where in the program it stands.
    pub(super) at: String,
    /// Whom its [`Op::Tell`]s are said to, and under which name.
    pub(super) peer: Option<(RunId, String)>,
    pub(super) ops: Vec<Op>,
    pub(super) end: End,
}

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum End {
    Return,
    Fail,
    /// It goes on as new, and does these.
    Again(Vec<Op>),
}

/// A provider, by what it offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Desk {
    Replays,
    ReplaysAndLooks,
    Rejects,
    Looks,
    // Of these, a person may have to say what they have done.
    Natural,
    Blind,
}

impl Desk {
    pub(super) const ALL: [Self; 6] =
        [Self::Replays, Self::ReplaysAndLooks, Self::Rejects, Self::Looks, Self::Natural, Self::Blind];
}

/// Where a value comes from that is another one each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Source {
    Now,
    Uuid,
    Random,
    Step,
    StepAsync,
    /// A step that has a name and no id, where steps follow one another.
    Ordinal,
    /// Which of some waits is over first, of which any may be.
    Race,
    Transaction,
}

/// What never comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Never {
    Signal,
    Morning,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Op {
    Call(Desk),
    /// One effect, however many ask for it.
    Shared(Desk, u32),
    /// A call of a tool that has no key.
    Keyless,
    /// A call that the provider refuses.
    Refused,
    Read,
    /// A value is drawn, and the world is told of it: it must never be another one.
    Draw(Source, Desk),
    /// A result that is too large for its row.
    Large,
    Sleep {
        ms: u64,
    },
    /// The next thing that is said to this run.
    Hear,
    /// Something is said to the peer.
    Tell,
    Child(Job),
    Detached(Job),
    /// A child that is spoken to, and answers.
    Converse(Job),
    /// Two children, of which the second speaks to the first.
    Pair(Job, Job),
    All(Vec<Vec<Op>>),
    Stream {
        width: usize,
        ordered: bool,
        items: Vec<Vec<Op>>,
    },
    /// The one at this place wins: the others wait for what never comes.
    Race {
        place: usize,
        winner: Vec<Op>,
        losers: Vec<(Vec<Op>, Never)>,
    },
    /// Within a limit that is not reached.
    Within(Vec<Op>),
    /// Within a limit that is.
    GivenUp {
        ms: u64,
        ops: Vec<Op>,
        never: Never,
    },
    Turns {
        turns: u32,
        keep: Option<u32>,
        ops: Vec<Op>,
    },
}

impl Job {
    /// So many things are to be said to it.
    pub(super) fn hears(&self) -> usize {
        let again = if let End::Again(ops) = &self.end { ops.as_slice() } else { &[] };
        count(&self.ops, &Op::Hear) + count(again, &Op::Hear)
    }

    /// It says so many things.
    pub(super) fn tells(&self) -> usize {
        let again = if let End::Again(ops) = &self.end { ops.as_slice() } else { &[] };
        count(&self.ops, &Op::Tell) + count(again, &Op::Tell)
    }

    /// It needs tables.
    pub(super) fn has_tables(&self) -> bool {
        format!("{self:?}").contains("Draw(Transaction")
    }

    /// This program with a little less in it, in all ways.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut all: Vec<_> =
            smaller(&self.ops).into_iter().map(|ops| Self { ops, ..self.clone() }).collect();
        if self.end != End::Return {
            all.insert(0, Self { end: End::Return, ..self.clone() });
        }
        if let End::Again(ops) = &self.end {
            all.extend(smaller(ops).into_iter().map(|ops| Self { end: End::Again(ops), ..self.clone() }));
        }
        all
    }
}

/// In the main line of a run, and in the turns of its loops.
fn count(ops: &[Op], what: &Op) -> usize {
    let count = |op: &Op| match op {
        Op::Turns { turns, ops, .. } => *turns as usize * count(ops, what),
        op => usize::from(op == what),
    };
    ops.iter().map(count).sum()
}

/// Without one of them, or with less in one of them.
fn smaller(ops: &[Op]) -> Vec<Vec<Op>> {
    let mut all = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        let with = |instead: Vec<Op>| [&ops[..i], &instead, &ops[i + 1..]].concat();
        all.push(with(Vec::new()));
        all.extend(op.inside().into_iter().map(with));
        all.extend(op.smaller().into_iter().map(|op| with(vec![op])));
    }
    all
}

fn smaller_branches(branches: &[Vec<Op>]) -> Vec<Vec<Vec<Op>>> {
    let mut all = Vec::new();
    for i in 0..branches.len() {
        let mut fewer = branches.to_vec();
        let branch = fewer.remove(i);
        all.push(fewer);
        for less in smaller(&branch) {
            let mut branches = branches.to_vec();
            branches[i] = less;
            all.push(branches);
        }
    }
    all
}

impl Op {
    /// What could stand in its place.
    fn inside(&self) -> Vec<Vec<Self>> {
        match self {
            Self::All(branches) | Self::Stream { items: branches, .. } => branches.clone(),
            Self::Race { winner: ops, .. } | Self::Within(ops) | Self::Turns { ops, .. } => vec![ops.clone()],
            _ => Vec::new(),
        }
    }

    fn smaller(&self) -> Vec<Self> {
        match self.clone() {
            Self::Child(job) => job.smaller().into_iter().map(Self::Child).collect(),
            Self::Detached(job) => job.smaller().into_iter().map(Self::Detached).collect(),
            Self::Converse(job) => job.smaller().into_iter().map(Self::Converse).collect(),
            Self::Pair(one, two) => {
                let less = one.smaller().into_iter().map(|one| Self::Pair(one, two.clone()));
                less.chain(two.smaller().into_iter().map(|two| Self::Pair(one.clone(), two))).collect()
            }
            Self::All(branches) => smaller_branches(&branches).into_iter().map(Self::All).collect(),
            Self::Stream { width, ordered, items } => {
                let less = smaller_branches(&items).into_iter();
                less.map(|items| Self::Stream { width, ordered, items }).collect()
            }
            Self::Race { place, winner, losers } => {
                let less = smaller(&winner).into_iter();
                less.map(|winner| Self::Race { place, winner, losers: losers.clone() }).collect()
            }
            Self::Within(ops) => smaller(&ops).into_iter().map(Self::Within).collect(),
            Self::GivenUp { ms, ops, never } => {
                smaller(&ops).into_iter().map(|ops| Self::GivenUp { ms, ops, never }).collect()
            }
            Self::Turns { turns, keep, ops } => {
                let fewer = (turns > 1).then(|| Self::Turns { turns: turns - 1, keep, ops: ops.clone() });
                let less = smaller(&ops).into_iter().map(|ops| Self::Turns { turns, keep, ops });
                fewer.into_iter().chain(less).collect()
            }
            _ => Vec::new(),
        }
    }
}
