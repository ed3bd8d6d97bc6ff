//! Draws programs and what goes wrong with them, from a seed.

use counterfoil::sim::{Fault, Incident, Schedule, Stop};

use super::tree::{Desk, End, Job, Never, Op, Source};

/// Chance that a seed owns (splitmix64).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = self.0;
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n.max(1)
    }

    fn place(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap_or(0)
    }

    fn small(&mut self, n: u32) -> u32 {
        u32::try_from(self.below(u64::from(n))).unwrap_or(0)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.place(all.len())]
    }

    /// Once in so many times.
    fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Where in a program something is to be.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is one independent fact")]
struct Place {
    /// Things follow one another here, so that a name alone tells them apart.
    in_order: bool,
    /// A loop may stand here.
    loops: bool,
    /// It may be given up at any moment.
    loose: bool,
    /// Something else gives up sooner than a person answers, who comes when nothing else is left to do.
    timed: bool,
    depth: u32,
}

impl Place {
    const fn below(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    const fn beside_others(self) -> Self {
        Self { in_order: false, loops: false, ..self.below() }
    }

    const fn loose(self) -> Self {
        Self { in_order: false, loose: true, timed: true, ..self.below() }
    }

    const fn timed(self) -> Self {
        Self { timed: true, ..self }
    }

    /// The main line of a run of its own.
    const fn child(self) -> Self {
        Self { in_order: true, loops: true, ..self.below() }
    }

    /// A provider that never leaves the answer to a person stands at the end.
    const fn desks(self) -> &'static [Desk] {
        if self.timed { Desk::ALL.split_at(4).0 } else { &Desk::ALL }
    }
}

struct Drawing {
    dice: Dice,
    /// So many operations may still be added.
    left: u32,
    tables: bool,
}

/// The program of a seed.
pub(super) fn program(seed: u64) -> Job {
    let mut dice = Dice::new(seed);
    let left = 4 + dice.small(14);
    let tables = dice.once_in(12);
    let mut drawing = Drawing { dice, left, tables };
    let place = Place { in_order: true, loops: true, loose: false, timed: false, depth: 0 };
    let mut job = drawing.job(place, true);
    if job.ops.is_empty() {
        job.ops.push(Op::Call(Desk::Looks));
    }
    job
}

impl Drawing {
    fn job(&mut self, place: Place, hears: bool) -> Job {
        let mut ops = self.ops(place, 5);
        let mut end = match self.dice.below(12) {
            0 | 1 => End::Fail,
            2 | 3 => End::Again(self.ops(place, 3)),
            _ => End::Return,
        };
        if hears {
            for _ in 0..self.dice.below(3) {
                self.insert(&mut ops, &mut end, &Op::Hear);
            }
        }
        Job { at: "0".to_owned(), peer: None, ops, end }
    }

    /// Nobody speaks to it: it ends by itself, even if it is given up.
    fn child(&mut self, place: Place) -> Job {
        self.job(place.child(), false)
    }

    /// In the main line of a run, or in its loop.
    fn insert(&mut self, ops: &mut Vec<Op>, end: &mut End, op: &Op) {
        let again = self.dice.once_in(3);
        let ops = match end {
            End::Again(more) if again => more,
            _ => ops,
        };
        let into_loop = self.dice.once_in(2);
        for known in ops.iter_mut().filter(|_| into_loop) {
            if let Op::Turns { ops, .. } = known {
                ops.insert(0, op.clone());
                return;
            }
        }
        let at = self.dice.place(ops.len() + 1);
        ops.insert(at, op.clone());
    }

    fn ops(&mut self, place: Place, most: u32) -> Vec<Op> {
        let wanted = 1 + self.dice.small(most);
        let mut ops = Vec::new();
        for _ in 0..wanted {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            ops.push(self.op(place));
        }
        ops
    }

    fn op(&mut self, place: Place) -> Op {
        if place.depth < 4 && self.dice.below(5) < 2 { self.composite(place) } else { self.leaf(place) }
    }

    fn leaf(&mut self, place: Place) -> Op {
        let desk = self.dice.one_of(place.desks());
        match self.dice.below(20) {
            0..6 => Op::Call(desk),
            6 | 7 if !place.loose => Op::Shared(self.dice.one_of(place.timed().desks()), self.dice.small(2)),
            8 => Op::Keyless,
            // One that was interrupted is refused as well, and may have happened before: a person has to say.
            9 if !place.timed => Op::Refused,
            10 => Op::Read,
            11 => Op::Large,
            12..15 => Op::Sleep { ms: self.time() },
            _ => Op::Draw(self.source(place), desk),
        }
    }

    fn source(&mut self, place: Place) -> Source {
        if self.tables && self.dice.once_in(2) {
            return Source::Transaction;
        }
        if place.in_order {
            return self.dice.one_of(&[
                Source::Now,
                Source::Uuid,
                Source::Random,
                Source::Step,
                Source::StepAsync,
                Source::Ordinal,
                Source::Race,
            ]);
        }
        self.dice.one_of(&[Source::Step, Source::StepAsync, Source::Race])
    }

    fn time(&mut self) -> u64 {
        match self.dice.below(4) {
            0 => self.dice.below(100),
            1 => self.dice.below(10_000),
            _ => self.dice.below(7_200_000),
        }
    }

    fn never(&mut self) -> Never {
        self.dice.one_of(&[Never::Signal, Never::Morning])
    }

    fn composite(&mut self, place: Place) -> Op {
        match self.dice.below(20) {
            0 | 1 => Op::All(self.branches(place)),
            2 | 3 => {
                let (width, ordered) = (1 + self.dice.place(3), self.dice.once_in(2));
                Op::Stream { width, ordered, items: self.branches(place) }
            }
            4 | 5 => {
                let winner = self.ops(place.beside_others().timed(), 3);
                // A run is in one loop at a time, so one of those that race may have one.
                let rival = |nth| Place { loops: place.loops && nth == 0, ..place };
                let losers: Vec<_> = (0..=self.dice.below(2)).map(|nth| self.loser(rival(nth))).collect();
                let place = self.dice.place(losers.len() + 1);
                Op::Race { place, winner, losers }
            }
            6 | 7 => Op::Within(self.ops(place.below().timed(), 3)),
            8 | 9 => {
                let (ops, never) = self.loser(place);
                Op::GivenUp { ms: self.dice.below(600_000), ops, never }
            }
            10..13 if place.loops => {
                let inside = Place { loops: false, ..place.below() };
                let turns = 1 + self.dice.small(4);
                let keep = self.dice.once_in(3).then(|| self.dice.small(3));
                Op::Turns { turns, keep, ops: self.ops(inside, 3) }
            }
            13 => Op::Detached(self.child(place)),
            16 if !place.loose => {
                let listener = self.job(place.child(), true);
                let mut speaker = self.job(place.child(), false);
                let missing = listener.hears();
                self.tells(&mut speaker, missing);
                Op::Pair(listener, speaker)
            }
            17 if !place.loose => {
                let mut child = self.job(place.child(), true);
                let tells = self.dice.place(3);
                self.tells(&mut child, tells);
                Op::Converse(child)
            }
            _ => Op::Child(self.child(place)),
        }
    }

    /// So many in all, and none in a loop, where one would be several.
    fn tells(&mut self, job: &mut Job, times: usize) {
        for _ in 0..times {
            let at = self.dice.place(job.ops.len() + 1);
            job.ops.insert(at, Op::Tell);
        }
    }

    fn loser(&mut self, place: Place) -> (Vec<Op>, Never) {
        let place = place.loose();
        let ops = if self.dice.once_in(3) { Vec::new() } else { self.ops(place, 2) };
        (ops, self.never())
    }

    fn branches(&mut self, place: Place) -> Vec<Vec<Op>> {
        (0..2 + self.dice.below(3)).map(|_| self.ops(place.beside_others(), 2)).collect()
    }
}

/// What a crash-free run has crossed and sent: what can go wrong with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) crossings: u32,
    pub(super) requests: u32,
}

/// What a program comes through without a word: nothing that a provider refuses, nothing beyond the settle time.
const FAULTS: [Fault; 8] = [
    Fault::RateLimited,
    Fault::FailsBefore,
    Fault::FailsAfter,
    Fault::RequestLost,
    Fault::AnswerLost,
    Fault::Hangs,
    Fault::Late,
    Fault::Doubled,
];

/// Up to four things that go wrong, the first of them a process that is stopped.
pub(super) fn schedule(dice: &mut Dice, extent: Extent) -> Schedule {
    let first = stop(dice, extent, 1);
    let mut all = vec![first];
    for _ in 0..dice.below(4) {
        let next = match dice.below(10) {
            0..4 => {
                let life = 1 + dice.small(3);
                stop(dice, extent, life)
            }
            4..7 => {
                let fault = dice.one_of(&FAULTS);
                Incident::Fault { request: 1 + dice.small(extent.requests + 1), fault }
            }
            7 => Incident::StoreFails { commit: 1 + dice.small(extent.crossings) },
            8 => Incident::StoreAnswerLost { commit: 1 + dice.small(extent.crossings) },
            _ if dice.once_in(2) => {
                // Set back beyond the time of a timer that was over, it makes the run wait for that timer anew.
                Incident::ClockJumps { life: 2, seconds: i64::from(dice.small(10_000)) }
            }
            _ => Incident::Down { life: 2, seconds: dice.small(100_000) },
        };
        if !all.iter().any(|known| together_too_late(*known, next)) {
            all.push(next);
        }
    }
    Schedule::new(all)
}

/// Who is paused twice, or sends a late request after a pause, sends beyond the settle time: then two of an effect are
/// allowed, if that is told.
const fn together_too_late(one: Incident, two: Incident) -> bool {
    const fn is_slow(incident: Incident) -> bool {
        matches!(
            incident,
            Incident::Stop { stop: Stop::Pause, .. } | Incident::Fault { fault: Fault::Late, .. }
        )
    }
    is_slow(one) && is_slow(two)
}

fn stop(dice: &mut Dice, extent: Extent, life: u32) -> Incident {
    let stop = dice.one_of(&Stop::ALL);
    Incident::Stop { stop, life, crossing: 1 + dice.small(extent.crossings) }
}
