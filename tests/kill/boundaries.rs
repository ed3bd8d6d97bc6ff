//! Killed before and after each durable boundary of the flow layer: signals, receipts, parking, turns, children,
//! admission, ticks, commands and takeovers, in one process after the other on one SQLite file (R-SIM-1, R-SIM-3).
//! `office` is what is killed.

use std::sync::Arc;

use counterfoil::payload::Stored;
use counterfoil::sim::CrashPoint;
use counterfoil::store::{Run, RunState};
use counterfoil::{QuestionId, RunId, Tenant};
use sqlx::Connection as _;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::case_notice::classes::reference;
use crate::harness::process::Death;
use crate::harness::role::{Order, Report, TENANT};
use crate::harness::scenario::Kill;
use crate::harness::worker::Ledger;
use crate::office::{CLASS, Own, PAUSED, PEOPLE, WENT_ON, case};
use crate::{Bench, full, ledger_violations, run};

const AT_ONCE: usize = 4;
/// Without `COUNTERFOIL_FULL` so many crossings of each point are tried.
const CROSSINGS: u32 = 2;

/// Deaths that leave everything to be done, and where their recovery dies.
const FIRST: [CrashPoint; 2] = [CrashPoint::BeforeReceipt, CrashPoint::AfterAdmission];
const THEN: [CrashPoint; 6] = [
    CrashPoint::BeforeTakeover,
    CrashPoint::AfterTakeover,
    CrashPoint::BeforeReceipt,
    CrashPoint::AfterReceipt,
    CrashPoint::BeforeAdmission,
    CrashPoint::AfterAdmission,
];

/// What a clean day must cross, or it shows nothing.
const BOUNDARIES: [CrashPoint; 24] = [
    CrashPoint::BeforeRunStart,
    CrashPoint::AfterRunStart,
    CrashPoint::BeforeTick,
    CrashPoint::AfterTick,
    CrashPoint::BeforeAdmission,
    CrashPoint::AfterAdmission,
    CrashPoint::BeforeTakeover,
    CrashPoint::AfterTakeover,
    CrashPoint::BeforeCheckpoint,
    CrashPoint::AfterCheckpoint,
    CrashPoint::BeforeProgress, // the end of a turn
    CrashPoint::AfterProgress,
    CrashPoint::BeforeSignal,
    CrashPoint::AfterSignal,
    CrashPoint::BeforeReceipt,
    CrashPoint::AfterReceipt,
    CrashPoint::BeforeQuestion,
    CrashPoint::AfterQuestion,
    CrashPoint::BeforePark,
    CrashPoint::AfterPark,
    CrashPoint::BeforeAnswer,
    CrashPoint::AfterAnswer,
    CrashPoint::BeforeRunEnd,
    CrashPoint::AfterRunEnd,
];

// FLOW-4, FLOW-9, FLOW-11.
#[test]
fn at_each_boundary() {
    run(async {
        let bench = Bench::of(CLASS).await;
        let clean = lived(&bench, "clean", &[]).await.unwrap().report;
        let missed: Vec<_> = BOUNDARIES.iter().filter(|point| clean.crossed(**point) == 0).collect();
        assert!(missed.is_empty(), "a clean day does not cross {missed:?}: {:?}", clean.crossed);
        let most = if full() { u32::MAX } else { CROSSINGS };
        let times = |point| 1..=clean.crossed(point).min(most);
        let kills = BOUNDARIES.map(|point| times(point).map(move |nth| vec![Kill { point, nth }]));
        each(bench, kills.into_iter().flatten()).await;
    });
}

// G18.
#[test]
fn once_more_in_the_recovery() {
    run(async {
        let bench = Bench::of(CLASS).await;
        let first = |point| Kill { point, nth: 1 };
        let kills = FIRST.map(|before| THEN.map(|then| vec![first(before), first(then)]));
        each(bench, kills.into_iter().flatten()).await;
    });
}

/// A day for each of these sequences of deaths, and one without any.
async fn each(bench: Bench, days: impl Iterator<Item = Vec<Kill>>) {
    let before = sent(&bench).await;
    let (bench, slots) = (Arc::new(bench), Arc::new(Semaphore::new(AT_ONCE)));
    let mut trials = JoinSet::new();
    for kills in days {
        let (bench, slots) = (bench.clone(), slots.clone());
        trials.spawn(async move {
            let _slot = slots.acquire_owned().await.unwrap();
            let names: Vec<_> = kills.iter().map(|kill| format!("{}-{}", kill.point, kill.nth)).collect();
            let name = names.join("-then-");
            lived(&bench, &name, &kills).await.map_err(|wrong| format!("{name}: {wrong}"))
        });
    }
    let (mut notices, mut wrong) = (before, Vec::new());
    for day in trials.join_all().await {
        match day {
            Ok(day) => notices += day.notices,
            Err(said) => wrong.push(said),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(sent(&bench).await, notices, "notices that no ledger knows of");
}

/// All notices that the provider has sent.
async fn sent(bench: &Bench) -> u64 {
    bench.world.counted().await.unwrap().effects.values().sum()
}

/// A day that went well.
struct Day {
    /// What its last life said.
    report: Report,
    /// So many notices were sent.
    notices: u64,
}

/// Lives that are killed, and one that is not; or what was wrong when all was over.
async fn lived(bench: &Bench, name: &str, kills: &[Kill]) -> Result<Day, String> {
    let order = bench.place.order(&bench.world, CLASS, name);
    let mut told = Vec::new();
    for Kill { point, nth } in kills {
        let mut death = life(bench, Order { kill: Some(format!("{point}:{nth}")), ..order.clone() }).await?;
        // How often it is crossed depends on who waits for whom; once it must be.
        if !death.was_killed() && *nth == 1 {
            return Err(format!("{point} was not reached: {death:?}"));
        }
        told.append(&mut death.told);
    }
    let mut last = life(bench, order.clone()).await?;
    told.append(&mut last.told);
    let report = last.report.ok_or_else(|| format!("the last life ended with {}", last.status))?;

    let books = Books::of(&order).await;
    let mut wrong = books.wrong(&told);
    wrong.extend(ledger_violations(&order.ledger, false).await);
    let mut notices = 0;
    for about in books.written() {
        let reference = reference(&Tenant::new(TENANT).unwrap(), &case(name, &about)).unwrap();
        let effects = bench.world.effects(&reference).await.unwrap();
        if effects != 1 {
            wrong.push(format!("{effects} notices about {about}"));
        }
        notices += effects;
    }
    if wrong.is_empty() {
        Ok(Day { report, notices })
    } else {
        Err(format!("{}\n    {told:?} {report:?}", wrong.join("; ")))
    }
}

async fn life(bench: &Bench, order: Order) -> Result<Death, String> {
    let process = bench.place.program.start(&Own::Day(order)).unwrap();
    process.death().await.map_err(|stuck| stuck.to_string())
}

/// What the ledger holds when nobody is at work any more.
struct Books {
    runs: Vec<Run>,
    /// So many questions were asked, open or not: a pause is one.
    asked: i64,
    /// Questions, signals and queues that somebody would still have to see to.
    open: Vec<String>,
}

impl Books {
    async fn of(order: &Order) -> Self {
        let tenant = Tenant::new(TENANT).unwrap();
        let store = Ledger::Sqlite(order.ledger.clone()).open().await.unwrap();
        let runs = store.run_list(&tenant, RunId(i64::MIN), 1000).await.unwrap();
        let everybody: Vec<_> = runs.iter().map(|run| (tenant.clone(), run.id)).collect();
        let mut open = Vec::new();
        open.extend(
            store
                .escalation_open(&tenant, QuestionId(i64::MIN), 100)
                .await
                .unwrap()
                .iter()
                .map(|q| format!("{q:?}")),
        );
        open.extend(store.signal_pending(&everybody).await.unwrap().iter().map(|s| format!("{s:?}")));
        open.extend(store.queue_load().await.unwrap().iter().map(|load| format!("{load:?}")));
        drop(store);
        let mut db =
            sqlx::SqliteConnection::connect(&format!("sqlite://{}", order.ledger.display())).await.unwrap();
        let asked = sqlx::query_scalar("SELECT count(*) FROM escalation");
        Self { runs, asked: asked.fetch_one(&mut db).await.unwrap(), open }
    }

    fn of_workflow<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.workflow.as_str() == name)
    }

    /// What one notice each must have been sent about: each person, and each tick that began a run.
    fn written(&self) -> Vec<String> {
        let tick =
            |run: &Run| Some(run.key.as_deref()?.strip_prefix("~tick/")?.split_once('/')?.0.to_owned());
        let ticks = self.of_workflow("bulletin").map(|run| tick(run).expect("a tick has begun it"));
        PEOPLE.map(str::to_owned).into_iter().chain(ticks).collect()
    }

    fn wrong(&self, told: &[String]) -> Vec<String> {
        let mut wrong = self.open.clone();
        for name in ["office", "clerk"] {
            let results: Vec<_> = self.of_workflow(name).map(result).collect();
            if results != [Some(PEOPLE.map(str::to_owned))] {
                wrong.push(format!("{name}: {results:?}"));
            }
        }
        let bulletins: Vec<_> = self.of_workflow("bulletin").collect();
        if bulletins.is_empty()
            || bulletins.iter().any(|run| !matches!(run.state, RunState::Succeeded { .. }))
        {
            wrong.push(format!("bulletins: {bulletins:?}"));
        }
        let said = |what: &str| told.iter().filter(|told| *told == what).count();
        if self.asked != 1 || said(PAUSED) > 1 || said(WENT_ON) > 1 {
            wrong.push(format!("{} questions, and not one by one pause", self.asked));
        }
        wrong
    }
}

fn result(run: &Run) -> Option<[String; 3]> {
    match &run.state {
        RunState::Succeeded { output: Stored::Inline(output) } => output.decode().ok(),
        _ => None,
    }
}
