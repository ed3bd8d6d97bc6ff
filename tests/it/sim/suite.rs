//! Suites and their reports: what is counted, what is said of what was not tried, and the program around them.

use std::collections::BTreeSet;
use std::process::{Command, ExitCode, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use counterfoil::sim::{Offer, Options, Report, Schedule, Service, Simulation, Suite, SuiteError};
use counterfoil::store::{Change, Store, StoreFuture, Verdict};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure};
use serde_json::{Value, json};

use crate::sim::{Blind, Looks, Naive, simulation};

fn honest() -> Simulation {
    simulation(Offer::Lookup, Looks).single_crashes()
}

/// With every pair, and not too many of them.
fn of_one_call() -> Simulation {
    async fn one(ctx: Ctx, case: String) -> Result<Value, Failure> {
        ctx.call::<Looks>(case).await
    }
    Simulation::of(one, "case".to_owned())
        .engine(|engine, world| engine.tool(Looks(world.service("desk", Offer::Lookup))))
}

/// Blind retry: it makes duplicates, and nothing says so.
fn naive() -> Simulation {
    simulation(Offer::Blind, Naive).single_crashes()
}

fn until(schedules: u32, simulation: &Simulation) -> Report {
    simulation.explore_while(|report| report.schedules() < schedules)
}

// SIM-4: `--pairs` tries the pairs of a simulation that leaves them out.
#[test]
fn pairs_are_tried_where_they_are_asked_for() {
    let suite = || Suite::new().with("one", || of_one_call().single_crashes());
    let tried = |pairs: bool| {
        let results = suite().explore(&Options { pairs, ..Options::default() }).unwrap();
        assert!(results.is_ok(), "{results}");
        results.explored()[0].report().schedules()
    };
    let (singles, all) = (tried(false), tried(true));
    assert_eq!(all, of_one_call().explore().schedules());
    assert!(all > 3 * singles, "{all} with pairs, {singles} without");
}

// Issue 3, 7: an exploration that ended early says so, and how much of what was planned was tried.
#[test]
fn an_early_end_is_told() {
    let whole = of_one_call().explore();
    assert!(!whole.ended_early() && whole.schedules() == whole.planned(), "{whole}");
    assert!(whole.to_string().contains("all that were planned"), "{whole}");

    // Before all singles were tried, nobody knows how many pairs there are.
    let early = until(3, &of_one_call());
    assert_eq!((early.schedules(), early.ended_early()), (3, true));
    assert!(early.planned() < whole.planned(), "{} are planned of {}", early.planned(), whole.planned());
    let said = format!("ENDED EARLY: of at least {} planned schedules, 3 were tried", early.planned());
    assert!(early.to_string().contains(&said), "{early}");
    assert_eq!((&early.json()["ended_early"], &early.json()["schedules"]), (&json!(true), &json!(3)));

    let late = until(whole.planned() - 1, &of_one_call());
    assert_eq!((late.planned(), late.ended_early()), (whole.planned(), true));
    assert!(late.to_string().contains("ENDED EARLY: of "), "{late}");
    assert!(!late.to_string().contains("at least"), "{late}");
}

fn tool(report: &Report) -> Value {
    let json = report.json();
    assert_eq!(json["tools"].as_array().map(Vec::len), Some(1), "{json}");
    json["tools"][0].clone()
}

// Issue 3, 4: per tool and class, what became of its calls, as the world and the records say.
#[test]
fn calls_are_counted_by_tool_and_class() {
    let looks = tool(&honest().explore());
    assert_eq!((&looks["tool"], &looks["class"]), (&json!("Looks"), &json!("lookup")));
    assert_eq!(looks["effect_class"], "internal mutation");
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    assert!(number(&looks, "by_lookup") > 0, "{looks}");
    assert!(number(&looks, "by_lookup") < number(&looks, "committed"), "{looks}");
    // Beyond the settle time a duplicate cannot be prevented: it is found, counted and asked about.
    assert!(number(&looks, "duplicates_marked") > 0, "{looks}");
    assert_eq!(number(&looks, "duplicates_marked"), number(&looks["questions"], "duplicated"), "{looks}");
    assert_eq!((number(&looks, "duplicates_silent"), number(&looks, "lost")), (0, 0), "{looks}");

    let blind = tool(&simulation(Offer::Blind, Blind).single_crashes().explore());
    assert_eq!((number(&blind, "by_lookup"), number(&blind, "on_declaration")), (0, 0), "{blind}");
    assert!(number(&blind["questions"], "ambiguous") > 0, "{blind}");
    assert!(number(&blind, "asked") >= number(&blind["questions"], "ambiguous"), "{blind}");

    let naive = tool(&naive().explore());
    assert!(number(&naive, "duplicates_silent") > 0, "{naive}");
}

// Issue 3, 4: how often each point was a death, and the boundaries that nothing crossed.
#[test]
fn coverage_is_honest() {
    let report = honest().explore();
    let stops: u32 = report.crashed_at().values().sum();
    assert!(stops > 0 && stops < report.schedules(), "{stops} stops in {} schedules", report.schedules());
    assert!(report.never_crossed().iter().all(|point| !report.crashed_at().contains_key(point)));
    let text = report.to_string();
    let never = text.split("nothing is proven about them: ").nth(1).unwrap();
    assert!(never.contains("transaction") && !never.contains("seal"), "{never}");
    assert!(!never.contains("before-transaction"), "one name for each boundary: {never}");
}

// A fault that does not happen is not counted as tried: a provider that cannot tell copies never gets two.
#[test]
fn what_never_happens_is_told() {
    let blind = simulation(Offer::Blind, Blind).single_crashes();
    let report = blind.explore();
    assert_eq!(report.never_happened(), Vec::<String>::new(), "each single incident happens: {report}");

    let replay = blind.replay(&"doubled@1 late@9 crash@1.5 crash@7.1".parse().unwrap());
    let never: BTreeSet<_> = replay.never_happened.iter().map(ToString::to_string).collect();
    let expected = ["doubled@1", "late@9", "crash@7.1"].map(str::to_owned);
    assert_eq!(never, BTreeSet::from(expected), "{}", replay.timeline());

    let drawn = blind.random_only().random(200).explore();
    assert_eq!(drawn.never_happened(), ["lookup-down"], "a blind call is not looked up: {drawn}");
    assert!(drawn.to_string().contains("happened in no schedule: lookup-down"), "{drawn}");
    assert_eq!(drawn.json()["never_happened"], json!(drawn.never_happened()));
    let ran = counterfoil(&["simulate", "prove", "--replay", "late@99"]);
    assert!(String::from_utf8(ran.stdout).unwrap().contains("did not happen: late@99"));
}

/// A tool whose name is longer than a table is wide.
struct Long(Service);

impl Tool for Long {
    const NAME: &'static str =
        "a_tool_whose_name_is_longer_than_any_column_of_a_table_could_ever_be_made_and_longer_than_the_table";
    type Effect = effect::InternalMutation;
    type Contract = contract::Blind;
    type Input = String;
    type Output = Value;

    async fn call(&self, call: &Call, case: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, case).await
    }
}

fn widest(text: &str) -> usize {
    let drawn = text.lines().take_while(|line| !line.contains("the smallest that breaks it"));
    drawn.map(|line| line.chars().count()).max().unwrap()
}

#[test]
fn the_table_fits_a_hundred_columns_and_is_coloured_only_on_request() {
    async fn call(ctx: Ctx, case: String) -> Result<Value, Failure> {
        ctx.call::<Long>(case).await
    }
    let long = Simulation::of(call, "case".to_owned())
        .engine(|engine, world| engine.tool(Long(world.service("desk", Offer::Blind))));
    for report in [long.explore(), honest().explore(), naive().explore()] {
        let (plain, coloured) = (report.to_string(), format!("{report:#}"));
        assert!(widest(&plain) <= 100, "{} columns\n{plain}", widest(&plain));
        assert!(!plain.contains('\x1b') && coloured.contains("\x1b["), "{coloured}");
        let uncoloured = ["\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"];
        let stripped = uncoloured.iter().fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(stripped, plain);
    }
}

fn both() -> Suite {
    Suite::new().with("honest", honest).with("naive", naive).command("prove-it")
}

fn named(names: &[&str]) -> Options {
    Options { names: names.iter().map(ToString::to_string).collect(), ..Options::default() }
}

#[test]
fn a_suite_runs_what_is_named_and_refuses_what_it_does_not_know() {
    let results = both().explore(&named(&["honest"])).unwrap();
    assert_eq!(results.explored().len(), 1);
    assert_eq!((results.explored()[0].name(), results.explored()[0].seeds()), ("honest", 1));
    assert!(results.is_ok(), "{results}");
    assert!(!both().explore(&Options::default()).unwrap().is_ok(), "one of two breaks rules");

    let unknown = both().explore(&named(&["honest", "hones"])).unwrap_err();
    assert_eq!(unknown, SuiteError::Unknown { name: "hones".into(), known: "honest, naive".into() });
    let many = both().replay(&Schedule::default(), &Options::default()).unwrap_err();
    assert_eq!(many, SuiteError::Replay { known: "honest, naive".into() });
}

// Exit codes for CI: 0, 1, and 2 for what makes no sense.
#[test]
fn a_suite_says_how_it_went_by_its_exit_code() {
    assert_eq!(both().run(&named(&["honest"])), ExitCode::SUCCESS);
    assert_eq!(both().run(&named(&["naive"])), ExitCode::FAILURE);
    assert_eq!(both().run(&named(&["nobody"])), ExitCode::from(2));
    let replay = |schedule: &str| Options { replay: Some(schedule.parse().unwrap()), ..named(&["naive"]) };
    assert_eq!(both().run(&replay("")), ExitCode::SUCCESS);
    assert_eq!(both().run(&replay("answer-lost@1")), ExitCode::FAILURE);
    assert_eq!(both().run(&Options { names: Vec::new(), ..replay("") }), ExitCode::from(2));
}

/// The schedule and seed of a line that replays a failure.
fn replayed(line: &str) -> (u64, Schedule) {
    let rest = line.strip_prefix("prove-it naive --seed ").unwrap_or_else(|| panic!("{line}"));
    let (seed, schedule) = rest.split_once(" --replay ").unwrap();
    (seed.parse().unwrap(), schedule.trim_matches('"').parse().unwrap())
}

// Long runs go on with new seeds until their time is up; every seed that fails comes with the line that replays it.
#[test]
fn time_that_is_left_goes_into_new_seeds() {
    let options = Options { seed: 40, seconds: Some(3), random: Some(5), ..named(&["naive"]) };
    let results = both().explore(&options).unwrap();
    let explored = &results.explored()[0];
    assert!(explored.seeds() > 1, "{results}");
    assert!(!explored.report().ended_early(), "what was planned was tried: {results}");
    let json = &results.json()["simulations"][0];
    assert_eq!((&json["first_seed"], &json["seeds"]), (&json!(40), &json!(explored.seeds())));
    let failing = json["failing_seeds"].as_array().unwrap();
    let lines: Vec<_> = failing.iter().map(|failing| failing["replay"].as_str().unwrap()).collect();
    assert!(lines.iter().all(|line| results.to_string().contains(line)), "{results}");
    let last = lines.last().unwrap();
    let (seed, schedule) = replayed(last);
    assert!(seed > 40, "another seed fails, too: {last}");
    let replay = both().replay(&schedule, &Options { seed, ..named(&["naive"]) }).unwrap();
    assert!(!replay.violations.is_empty(), "{last}");
}

// A budget is shared, and whoever comes last is tried, too.
#[test]
fn a_budget_that_is_too_small_is_shared() {
    let endless = || simulation(Offer::Lookup, Looks).random(100_000);
    let suite = Suite::new().with("first", endless).with("last", endless);
    let results = suite.explore(&Options { seconds: Some(1), ..Options::default() }).unwrap();
    assert!(results.is_ok(), "{results}");
    for explored in results.explored() {
        assert!(explored.report().ended_early(), "{results}");
        assert!(explored.report().schedules() > 10, "{results}");
    }
}

fn counterfoil(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_counterfoil")).args(arguments).output().unwrap()
}

// EDGE-7: `counterfoil simulate`.
#[test]
fn the_program_simulates_the_example_workflows() {
    let ran = counterfoil(&["simulate", "prove", "--random", "5", "--seed", "7", "--json"]);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let json: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(json["simulations"][0]["name"], "prove");
    assert_eq!(json["simulations"][0]["first_seed"], 7);
    let progress = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(progress.lines().count(), 1, "a line for each simulation: {progress}");

    let ran = counterfoil(&["simulate", "--seconds", "1"]);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let table = String::from_utf8(ran.stdout).unwrap();
    assert!(table.contains("── prove ─") && table.contains("── five_calls ─"), "{table}");
    assert!(!table.contains('\x1b'), "no colour where nobody sees it");

    let replay = counterfoil(&["simulate", "prove", "--replay", "crash@1.7"]);
    assert!(String::from_utf8(replay.stdout).unwrap().contains("✗ the power fails at"));
    for wrong in [&["simulate", "prov"][..], &["simulate", "prove", "--replay", "crash"], &["simulat"], &[]] {
        let ran = counterfoil(wrong);
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(2), 0), "{wrong:?}: {ran:?}");
        assert!(!ran.stderr.is_empty());
    }
}

/// A store that counts the writes which fail in a row.
#[derive(Debug)]
struct Failures {
    store: Arc<dyn Store>,
    in_a_row: AtomicUsize,
    most: Arc<AtomicUsize>,
}

impl Store for Failures {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let written = self.store.commit(changes).await;
            if written.is_err() {
                let failed = self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
                self.most.fetch_max(failed, Ordering::Relaxed);
            } else {
                self.in_a_row.store(0, Ordering::Relaxed);
            }
            written
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}

// The queue tries a write four times: an error reaches its writer only if more fails than one commit.
#[test]
fn an_exploration_has_a_store_that_is_away_for_longer_than_the_queue_tries() {
    let most = Arc::<AtomicUsize>::default();
    let counted = most.clone();
    let simulation = of_one_call().single_crashes().engine(move |engine, _| {
        let most = counted.clone();
        engine.wrap_store(move |store| Arc::new(Failures { store, in_a_row: AtomicUsize::new(0), most }))
    });
    simulation.explore().assert_ok();
    let most = most.load(Ordering::Relaxed);
    assert!(most > 4, "at most {most} writes failed in a row");
}
