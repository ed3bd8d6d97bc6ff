//! Many runs on one ledger, carried out by workers that are killed, stopped and told to go at random, with a seed; in
//! the end the provider says how often each notice was sent.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use counterfoil::ledger::{Basis, Record};
use counterfoil::store::{Question, Run, RunState, Store};
use counterfoil::{Clock as _, SystemClock, Timestamp};
use counterfoil::{Fence, QuestionId, Tenant};
use rustix::process::Signal;
use serde_json::json;

use super::Failed;
use super::case_notice::classes::{Class, operation, reference};
use super::case_notice::provider::Behaviour;
use super::process::{Process, Program, World};
use super::role::{Message, Role, TENANT};
use super::worker::{self, Ledger, Shift, case};

/// Each request has its effect so much later, also when its sender has died meanwhile.
const LATE: Duration = Duration::from_millis(60);

/// What is done to the workers, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    pub workers: usize,
    pub runs: usize,
    /// For how long workers are killed and stopped.
    pub storm: Duration,
    /// For how long they may go on undisturbed, to finish.
    pub calm: Duration,
    pub lease: Duration,
    pub settle: Duration,
    /// The provider and the way to it misbehave as well.
    pub faults: bool,
    /// Every other worker is this older build, and begins before the others: as in an update, one worker after the other.
    pub older: Option<Program>,
    pub seed: u64,
}

/// What came of it, as the provider counts.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub runs: usize,
    pub succeeded: usize,
    /// Runs that neither ended nor ask anybody.
    pub unfinished: usize,
    /// Notices that were sent, and those that were sent more than once.
    pub found: usize,
    pub duplicated: usize,
    pub silent_duplicates: usize,
    pub silent_losses: usize,
    /// Questions that are open.
    pub escalated: usize,
    pub kills: usize,
    pub stops: usize,
    pub retirements: usize,
    /// Workers whose lease ran out, and from the death of one until it was taken over, at most.
    pub takeovers: usize,
    pub longest_takeover: Duration,
}

impl Tally {
    /// No silent duplicate, no silent loss, and not because nothing happened.
    pub fn is_clean(&self) -> bool {
        self.silent() == 0 && self.unfinished == 0 && self.succeeded > 0
    }

    /// Duplicates and losses that nobody is told of.
    const fn silent(&self) -> usize {
        self.silent_duplicates + self.silent_losses
    }

    pub fn json(&self) -> serde_json::Value {
        json!({
            "effects_expected": self.runs, "effects_found": self.found, "duplicated": self.duplicated,
            "silent_duplicates": self.silent_duplicates, "silent_losses": self.silent_losses,
            "runs_succeeded": self.succeeded, "runs_unfinished": self.unfinished, "escalated": self.escalated,
            "kills": self.kills, "stops": self.stops, "retirements": self.retirements,
            "takeovers": self.takeovers, "longest_takeover_ms": self.longest_takeover.as_millis(),
        })
    }
}

/// Chance by seed (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n.max(1)
    }
}

/// One worker's place, and who fills it.
pub struct Post<'a> {
    program: &'a Program,
    shift: Shift,
    process: Process,
    stopped_until: Option<Timestamp>,
}

impl<'a> Post<'a> {
    fn fill(program: &'a Program, shift: Shift) -> Result<Self, Failed> {
        let process = program.start(&Role::Worker(shift.clone()))?;
        Ok(Self { program, shift, process, stopped_until: None })
    }

    /// Kills who is there. Another one comes when it is certain that this one is dead.
    async fn kill(&mut self, deaths: &mut Deaths) -> Result<(), Failed> {
        deaths.insert(self.process.id().unwrap_or_default(), SystemClock.now());
        self.process.kill_and_wait().await?;
        self.refill()
    }

    fn refill(&mut self) -> Result<(), Failed> {
        self.stopped_until = None;
        self.process = self.program.start(&Role::Worker(self.shift.clone()))?;
        Ok(())
    }

    /// Who stands still for longer than its lease is taken over, and finds that out when it goes on.
    fn stop(&mut self, lasting: Duration) -> Result<(), Failed> {
        self.process.signal(Signal::STOP)?;
        self.stopped_until = Some(SystemClock.now().after(lasting));
        Ok(())
    }

    /// Lets who has stood still long enough go on; fills the place of who has gone or was fenced.
    fn look_after(&mut self, now: Timestamp) -> Result<(), Failed> {
        if self.stopped_until.is_some_and(|until| until <= now) {
            self.stopped_until = None;
            self.process.signal(Signal::CONT)?;
        }
        if self.process.has_ended()? { self.refill() } else { Ok(()) }
    }
}

/// When which process was killed.
pub type Deaths = BTreeMap<u32, Timestamp>;

/// Carries a plan out.
pub async fn storm(program: &Program, folder: &Path, ledger: &Ledger, plan: &Plan) -> Result<Tally, Failed> {
    at_work(program, folder, ledger, plan, async |posts, tally, deaths, world| {
        disturb(posts, plan, tally, deaths, world).await
    })
    .await
}

/// Lets workers begin and carry out runs while something happens to them, then leaves them in peace, and counts.
pub async fn at_work(
    program: &Program,
    folder: &Path,
    ledger: &Ledger,
    plan: &Plan,
    happens: impl AsyncFnOnce(&mut [Post<'_>], &mut Tally, &mut Deaths, &World) -> Result<(), Failed>,
) -> Result<Tally, Failed> {
    let world = World::start(program, &folder.join("provider.db"), &healthy()).await?;
    let mut tally = Tally { runs: plan.runs, ..Tally::default() };
    let mut deaths = Deaths::new();
    let mut posts = Vec::new();
    let from = SystemClock.now();
    let shift = |cases| Shift {
        ledger: ledger.clone(),
        provider: world.url.clone(),
        cases,
        from,
        lasting: plan.storm,
        stop: None,
        lease: plan.lease,
        settle: plan.settle,
    };
    let cases = |first: usize, step| (first..plan.runs).step_by(step).map(|n| format!("case-{n}")).collect();
    let is_older = |number: &usize| plan.older.is_some() && number.is_multiple_of(2);
    let (older, newer): (Vec<_>, Vec<_>) = (0..plan.workers).partition(is_older);
    for number in older.into_iter().chain(newer) {
        let program = plan.older.as_ref().filter(|_| is_older(&number)).unwrap_or(program);
        let mut post = Post::fill(program, shift(cases(number, plan.workers)))?;
        if plan.older.is_some() {
            post.process.until_working().await?;
        }
        posts.push(post);
    }
    happens(&mut posts, &mut tally, &mut deaths, &world).await?;
    world.behave(&healthy()).await?;
    finish(&mut posts, plan).await?;
    for post in posts {
        post.process.signal(Signal::TERM)?;
        post.process.death().await?;
    }
    if plan.faults {
        // An effect that comes after the audit has looked would be a duplicate that nobody could have told.
        world.settled().await?;
        worker::audit(&shift(cases(0, 1))).await?;
    }
    count(&*ledger.open().await?, &world, &mut tally, &deaths).await?;
    Ok(tally)
}

/// The provider as it is when nothing is wrong with it: each request takes a moment to arrive.
fn healthy() -> Behaviour {
    Behaviour { contract: Class::Lookup.provider(), apply_late_ms: ms(LATE), ..Behaviour::default() }
}

/// One of the ways in which a provider, or the network on the way to it, goes wrong for a few requests.
fn misbehaving(dice: &mut Dice, settle_ms: u64) -> Behaviour {
    let what = dice.below(10);
    let some =
        Behaviour { faults_for_next: Some(1 + u32::try_from(dice.below(4)).unwrap_or(0)), ..healthy() };
    match what {
        0 => Behaviour { store_twice: true, ..some },
        1 => Behaviour { forget: true, ..some },
        2 => Behaviour { status_before: Some(503), ..some },
        3 => Behaviour { status_after: Some(500), ..some },
        4 => Behaviour { truncate_answer: true, ..some },
        // Inside the settle time, and beyond it.
        5 => Behaviour { apply_late_ms: dice.below(3 * settle_ms), ..some },
        6 => Behaviour { lookup_lag_ms: dice.below(settle_ms), ..some },
        7 => Behaviour { lookup_status: Some(503), ..healthy() },
        _ => healthy(),
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The storm: six in ten are killed, two told to go, and two stand still for longer than their lease.
async fn disturb(
    posts: &mut [Post<'_>],
    plan: &Plan,
    tally: &mut Tally,
    deaths: &mut Deaths,
    world: &World,
) -> Result<(), Failed> {
    let mut dice = Dice(plan.seed);
    let end = SystemClock.now().after(plan.storm);
    while SystemClock.now() < end {
        if plan.faults {
            world.behave(&misbehaving(&mut dice, ms(plan.settle))).await?;
        }
        SystemClock.sleep(Duration::from_millis(100 + dice.below(500))).await;
        for post in &mut *posts {
            post.look_after(SystemClock.now())?;
        }
        let (which, what) = (dice.below(u64::try_from(posts.len())?), dice.below(10));
        let lasting = plan.lease + Duration::from_millis(dice.below(2000));
        let post = &mut posts[usize::try_from(which)?];
        if post.stopped_until.is_some() {
            continue;
        }
        match what {
            0..6 => {
                post.kill(deaths).await?;
                tally.kills += 1;
            }
            6..8 => {
                post.process.signal(Signal::TERM)?;
                tally.retirements += 1;
            }
            _ => {
                post.stop(lasting)?;
                tally.stops += 1;
            }
        }
    }
    Ok(())
}

/// The calm: everybody is there, until each has seen the end of the runs that it has begun.
async fn finish(posts: &mut [Post<'_>], plan: &Plan) -> Result<(), Failed> {
    let end = SystemClock.now().after(plan.calm);
    for post in &mut *posts {
        post.look_after(Timestamp::MAX)?;
    }
    let mut through = vec![false; posts.len()];
    while through.contains(&false) && SystemClock.now() < end {
        for (post, through) in posts.iter_mut().zip(&mut through) {
            let heard = tokio::select! {
                heard = post.process.hear() => Some(heard?),
                () = SystemClock.sleep(Duration::from_millis(20)) => None,
            };
            match heard {
                Some(Some(Message::Through)) => *through = true,
                Some(None) => post.look_after(Timestamp::MAX)?, // it was fenced
                _ => {}
            }
        }
    }
    Ok(())
}

/// What the provider has counted, beside what the ledger says.
async fn count(store: &dyn Store, world: &World, tally: &mut Tally, deaths: &Deaths) -> Result<(), Failed> {
    let tenant = Tenant::new(TENANT)?;
    let questions = store.escalation_open(&tenant, QuestionId(i64::MIN), u32::MAX).await?;
    tally.escalated = questions.len();
    for question in questions.iter().take(3) {
        eprintln!("asked: {}", question.question); // a storm that is to be told from another one by more than its number
    }
    let effects = world.counted().await?.effects;
    for number in 0..tally.runs {
        let id = format!("case-{number}");
        let sent = effects.get(&reference(&tenant, &case(&id))?).copied().unwrap_or(0);
        let run = store.run_keyed(&tenant, "case_notice", &id).await?;
        let record = store.record_find(&tenant, &operation(&case(&id))?).await?;
        let (silent, unfinished) = (tally.silent(), tally.unfinished);
        tally.add(sent, run.as_ref(), record.as_ref(), &questions);
        if tally.silent() > silent {
            eprintln!("silent: {id} was sent {sent} times, and its record is {record:#?}");
        }
        if tally.unfinished > unfinished && unfinished < 3 {
            eprintln!(
                "unfinished: {id} was sent {sent} times; its run is {run:#?}, and its record {record:#?}"
            );
        }
    }
    let mut fence = Fence(1);
    while let Some(worker) = store.worker_at(fence).await? {
        fence.0 += 1;
        let Some(ended) = worker.ended_at.filter(|_| !worker.retired && worker.lease_until.is_some()) else {
            continue;
        };
        tally.takeovers += 1;
        // A worker's name begins with its process.
        let killed = worker.name.split('-').next().and_then(|id| deaths.get(&id.parse().ok()?));
        if let Some(killed) = killed {
            tally.longest_takeover = tally.longest_takeover.max(killed.until(ended));
        }
    }
    Ok(())
}

impl Tally {
    fn add(&mut self, sent: u64, run: Option<&Run>, record: Option<&Record>, questions: &[Question]) {
        let asked = questions.iter().any(|question| {
            record.is_some_and(|record| question.record == Some(record.id))
                || run.is_some_and(|run| question.run == Some(run.id))
        });
        let marked = record.is_some_and(|record| record.basis == Basis::Declaration);
        let state = run.map(|run| &run.state);
        let succeeded = matches!(state, Some(RunState::Succeeded { .. }));
        self.succeeded += usize::from(succeeded);
        let ended = state.is_some_and(RunState::is_final);
        self.unfinished += usize::from(!ended && !asked);
        self.found += usize::from(sent > 0);
        self.duplicated += usize::from(sent > 1);
        self.silent_duplicates += usize::from(sent > 1 && !asked && !marked);
        self.silent_losses += usize::from(sent == 0 && succeeded && !asked);
    }
}
