//! A service is killed with SIGKILL at each crash point that its doors cross: HTTP, webhooks, a consumer of NATS. It is started again, and
//! its senders send again. Each effect is then counted outside of it: once, and nobody is asked but about what nobody can be asked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use counterfoil::Executor;
use counterfoil::sim::CrashPoint;
use counterfoil::store::QuestionKind;
use rustix::process::Signal;
use sqlx::Executor as _;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::Failed;
use crate::harness::process::{Death, Program};
use crate::harness::role::{Message, Report};
use crate::harness::scenario::{Kill, Scenario};
use crate::own_server::daemon::Daemon;
use crate::own_server::port::Port;
use crate::senders::{Sender, sent};
use crate::service::{Does, Door, Service};
use crate::{FOR_EVER, ledger_violations, queue, run};

const AT_ONCE: usize = 4;

/// Boundaries: each has a point before it and one behind it.
struct Crossed {
    /// What a clean life crosses, and how often.
    clean: &'static [(&'static str, u32)],
    /// What recoveries cross beside, and after which death.
    recovering: &'static [(&'static str, &'static [&'static str])],
}

/// What is handled is called: the entry, too, whose transaction seals its record. The other two are sealed behind their calls.
const HTTP: Crossed = Crossed {
    clean: &[
        ("enrolment", 2),
        ("started", 3),
        ("call", 3),
        ("seal", 2),
        ("transaction", 1),
        ("retirement", 1),
    ],
    recovering: &[
        // A route is known from its first request on: before that, what is left of it is a question, which the route answers.
        ("after-call:3", &["adoption", "lookup", "question", "answer"]),
        ("before-call:3", &["attempt", "confirming", "confirmed"]),
    ],
};

/// Two messages are calls, and the run makes another one. Charges are looked up once more.
const MESSAGES: Crossed = Crossed {
    clean: &[
        ("enrolment", 2),
        ("started", 3),
        ("call", 3),
        ("seal", 3),
        ("processed", 4),
        ("lookup", 2),
        ("confirming", 2),
        ("confirmed", 2),
        ("run-end", 1),
        ("retirement", 1),
    ],
    recovering: &[
        ("after-call:2", &["adoption"]),
        ("before-call:2", &["attempt"]),
        ("after-call", &["question"]),
        ("after-processed:4", &["takeover", "progress"]),
    ],
};

#[test]
fn http_writes_at_each_point() {
    run(at_each_point(Door::Http, &HTTP));
}

#[test]
fn webhooks_at_each_point() {
    run(at_each_point(Door::Webhook, &MESSAGES));
}

#[test]
fn messages_of_nats_at_each_point() {
    run(at_each_point(Door::Nats, &MESSAGES));
}

/// Each crossing of a clean life is a place to die at, and each point that is new in a recovery.
async fn at_each_point(door: Door, expected: &Crossed) {
    let bench = Arc::new(Bench::new(door).await);
    let clean = bench.lived(&[]).await.unwrap();
    let first = bench.first();
    let (mut known, mut recovering) = (clean.clone(), Vec::new());
    for first in &first {
        for (point, _) in bench.lived(&[*first]).await.unwrap() {
            if known.insert(point, 1).is_none() {
                recovering.push(vec![*first, Kill { point, nth: 1 }]);
            }
        }
    }
    let names: Vec<_> = recovering.iter().map(|kills| Scenario::Crash(kills.clone()).to_string()).collect();
    assert_eq!((numbered(&clean), names), (expected.clean(), expected.recovering()));

    let each = clean.into_iter().flat_map(|(point, times)| (1..=times).map(move |nth| Kill { point, nth }));
    let deaths = each.filter(|kill| !first.contains(kill)).map(|kill| vec![kill]).chain(recovering);
    let (slots, mut trials) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for kills in deaths {
        let (bench, slots) = (bench.clone(), slots.clone());
        trials.spawn(async move {
            let _slot = slots.acquire_owned().await.unwrap();
            let lived = bench.lived(&kills).await;
            lived.map_err(|wrong| format!("{}: {wrong}", Scenario::Crash(kills)))
        });
    }
    let lived = trials.join_all().await;
    eprintln!("{door:?}: died in {} ways", lived.len() + first.len());
    let wrong: Vec<_> = lived.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn numbered(crossed: &BTreeMap<CrashPoint, u32>) -> Vec<(String, u32)> {
    crossed.iter().map(|(point, times)| (point.name().to_owned(), *times)).collect()
}

impl Crossed {
    fn clean(&self) -> Vec<(String, u32)> {
        let both = self.clean.iter().flat_map(|(name, times)| points(name).map(|point| (point, *times)));
        both.collect()
    }

    fn recovering(&self) -> Vec<String> {
        let after = |(first, names): &(&str, &[&str])| {
            let points: Vec<_> = names.iter().flat_map(|name| points(name)).collect();
            points.into_iter().map(|point| format!("{first}, then {point}")).collect::<Vec<_>>()
        };
        self.recovering.iter().flat_map(after).collect()
    }
}

fn points(boundary: &str) -> [String; 2] {
    ["before", "after"].map(|side| format!("{side}-{boundary}"))
}

/// Where services of one door live.
struct Bench {
    door: Door,
    program: Program,
    broker: Option<Daemon>,
    folder: TempDir,
}

impl Bench {
    async fn new(door: Door) -> Self {
        let broker = match door {
            Door::Nats => Some(Daemon::start(queue::server).await),
            Door::Http | Door::Webhook => None,
        };
        let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
        Self { door, program, broker, folder: tempfile::tempdir().unwrap() }
    }

    /// Which call this is, of those that are made under the guard of a tool or of a route.
    fn call(&self, of: Does) -> u32 {
        let guarded = |does: &&Does| self.door == Door::Http || **does != Does::Entry;
        let place = sent(self.door).iter().filter(guarded).position(|does| *does == of);
        u32::try_from(place.unwrap()).unwrap() + 1
    }

    /// Deaths whose recoveries cross more than a clean life does: behind a call and in front of it, of what can be asked and of what
    /// cannot, and before a run that was started has done anything.
    fn first(&self) -> Vec<Kill> {
        let (charge, letter) = (self.call(Does::Charge), self.call(Does::Letter));
        let mut first = vec![
            Kill { point: CrashPoint::AfterCall, nth: charge },
            Kill { point: CrashPoint::BeforeCall, nth: charge },
            Kill { point: CrashPoint::AfterCall, nth: letter },
        ];
        if let Some(parcel) = sent(self.door).iter().position(|does| *does == Does::Parcel) {
            let nth = u32::try_from(parcel).unwrap() + 1;
            first.push(Kill { point: CrashPoint::AfterProcessed, nth });
        }
        first
    }

    /// Lives that are killed, and one that is not: what it crosses, or what was wrong when all was over.
    async fn lived(&self, kills: &[Kill]) -> Result<BTreeMap<CrashPoint, u32>, String> {
        let names: Vec<_> = kills.iter().map(|kill| format!("{}-{}", kill.point, kill.nth)).collect();
        let name = format!("life-{}", names.join("-then-"));
        let folder = self.folder.path().join(&name);
        std::fs::create_dir(&folder).unwrap();
        let port = Port::free();
        let service = Service {
            door: self.door,
            folder,
            port: self.broker.as_ref().map_or(port.number, Daemon::port),
            stream: name,
            kill: None,
        };
        let executor = Executor::sqlite(service.ledger()).open().await.unwrap();
        executor.shutdown(FOR_EVER).await;
        let table = "CREATE TABLE entry (what INTEGER NOT NULL)";
        service.own().await.unwrap().execute(table).await.unwrap();

        let sender = Sender::to(&service).await;
        for kill in kills {
            let kill = Some(format!("{}:{}", kill.point, kill.nth));
            let death = self.life(&Service { kill, ..service.clone() }, &sender).await?;
            if !death.was_killed() {
                return Err(format!("it was not reached: {death:?}"));
            }
        }
        let last = self.life(&service, &sender).await?;
        let report = last.report.ok_or_else(|| format!("the last life ended with {}", last.status))?;
        let wrong = self.wrong(&service, &report, kills).await;
        if !wrong.is_empty() {
            return Err(format!("{}\n    {report:?}", wrong.join("; ")));
        }
        let crossed = CrashPoint::ALL.map(|point| (point, report.crossed(point)));
        Ok(crossed.into_iter().filter(|(_, times)| *times > 0).collect())
    }

    /// One life, which is asked to end when everything was taken.
    async fn life(&self, service: &Service, sender: &Sender) -> Result<Death, String> {
        let stuck = |error: Failed| error.to_string();
        let mut process = self.program.start(service).map_err(stuck)?;
        if let Some(Message::Working) = process.hear().await.map_err(stuck)? {
            tokio::select! {
                biased;
                // It says nothing before it is asked to end.
                died = process.hear() => drop(died.map_err(|error| format!("not all is taken: {error}"))?),
                () = sender.delivers() => process.signal(Signal::TERM).map_err(stuck)?,
            }
        }
        process.death().await.map_err(stuck)
    }

    /// What has happened outside of the ledger, and in its database.
    async fn wrong(&self, service: &Service, report: &Report, kills: &[Kill]) -> Vec<String> {
        let mut wrong = ledger_violations(&service.ledger(), false).await;
        let mut own = service.own().await.unwrap();
        let has_runs = sent(self.door).contains(&Does::Parcel);
        let rows = "SELECT (SELECT count(*) FROM entry), (SELECT count(*) FROM run)";
        let (entries, runs): (i64, i64) = sqlx::query_as(rows).fetch_one(&mut own).await.unwrap();
        if (entries, runs) != (1, i64::from(has_runs)) {
            wrong.push(format!("{entries} entries, {runs} runs"));
        }
        let (letters, asked) = self.letter(kills);
        let charges = 1 + usize::from(has_runs);
        for (file, wanted) in [(service.charges(), charges), (service.letters(), letters)] {
            let lines = lines(&file);
            if lines.len() != wanted || lines.values().any(|times| *times != 1) {
                wrong.push(format!("{}: {lines:?}", file.display()));
            }
        }
        if report.questions != asked {
            wrong.push(format!("asked: {:?}", report.questions));
        }
        wrong
    }

    /// So many letters are written, and this is asked: about a letter whose process died from the moment on at which it could have been
    /// written until that was recorded.
    fn letter(&self, kills: &[Kill]) -> (usize, Vec<QuestionKind>) {
        let written = kills.first().and_then(|kill| match kill.point {
            CrashPoint::AfterStarted | CrashPoint::BeforeCall => {
                Some((kill.nth == self.call(Does::Letter), 0))
            }
            CrashPoint::AfterCall => Some((kill.nth == self.call(Does::Letter), 1)),
            CrashPoint::BeforeSeal => Some((kill.nth == 1, 1)), // no transaction crosses it
            _ => None,
        });
        match written {
            Some((true, letters)) if self.door == Door::Http => (letters, vec![QuestionKind::UnknownTool]),
            Some((true, letters)) => (letters, vec![QuestionKind::Ambiguous]),
            _ => (1, Vec::new()),
        }
    }
}

/// The lines of a file, and how often each is there.
fn lines(file: &PathBuf) -> BTreeMap<String, u32> {
    let mut lines = BTreeMap::new();
    for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
        *lines.entry(line.to_owned()).or_default() += 1;
    }
    lines
}
