//! Random histories, fed to a database and to the model: both must give the same verdicts and hold the same state.
//!
//! A history is made from a seed, which a failure prints: `COUNTERFOIL_SEED=7 cargo test differential` runs it
//! alone, and `COUNTERFOIL_SEEDS=500` runs more of them. The test refuses to pass unless every kind of change
//! was admitted and every kind of refusal occurred where it can, so that a generator which has lost its bite is
//! noticed.

mod author;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use counterfoil::store::conformance::state::{Names, State};
use counterfoil::store::sqlite::Sqlite;
use counterfoil::store::{Model, Refusal, Store, Verdict};

use author::{Author, Kind, WRITES, writes};

const BATCHES: usize = 30;
const SEEDS: u64 = 10;

#[tokio::test]
async fn sqlite_and_the_model_agree() {
    histories(async || {
        let folder = tempfile::tempdir().unwrap();
        (Box::new(Sqlite::open(folder.path().join("test.db")).await.unwrap()), folder)
    })
    .await;
}

#[tokio::test]
async fn postgres_and_the_model_agree() {
    histories(async || (crate::store::postgres::fresh().await, ())).await;
}

#[tokio::test]
async fn encrypted_sqlite_and_the_model_agree() {
    histories(async || {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path().join("test.db")).await.unwrap();
        (Box::new(super::encryption::encrypted(std::sync::Arc::new(store))), folder)
    })
    .await;
}

async fn histories<S: Deref<Target: Store + Sized>, K>(fresh: impl AsyncFn() -> (S, K)) {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().expect("a number"));
    let (first, count) = (number("COUNTERFOIL_SEED"), number("COUNTERFOIL_SEEDS"));
    let count = count.unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let (mut tally, mut written) = (BTreeMap::new(), BTreeSet::new());
    for seed in (first.unwrap_or(1)..).take(usize::try_from(count).unwrap()) {
        let (store, _kept) = fresh().await;
        history(seed, &*store, &mut tally, &mut written).await;
    }
    if first.is_none() {
        assert_all_was_tried(&tally, &written);
    }
}

/// Runs one history. Counts how each kind of change fared, and notes each kind of write that was admitted.
async fn history(
    seed: u64,
    store: &dyn Store,
    tally: &mut BTreeMap<(Kind, &'static str), usize>,
    written: &mut BTreeSet<&'static str>,
) {
    let model = Model::new();
    let mut author = Author::new(seed);
    let mut names = Names::default();
    for number in 0..BATCHES {
        let (kinds, batch): (Vec<_>, Vec<_>) = author.batch().into_iter().unzip();
        let at = format!("seed {seed}, batch {number}: {batch:#?}");
        let verdicts = store.commit(&batch).await.unwrap();
        assert_eq!(unworded(&verdicts), unworded(&model.commit(&batch).await.unwrap()), "store, model; {at}");
        for (kind, verdict) in kinds.into_iter().zip(&verdicts) {
            *tally.entry((kind, name(verdict))).or_default() += 1;
        }
        let admitted = batch.iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_admitted());
        written.extend(admitted.flat_map(|(change, _)| writes(change)));
        // What the batch names, and all lists; everything is compared at the end.
        let mut touched = Names::default();
        for change in &batch {
            touched.learn(change);
            names.learn(change);
        }
        let difference = State::of(store, &touched).await.difference(&State::of(&model, &touched).await);
        assert!(difference.is_empty(), "store, model: {}\n{at}", difference.join("\n"));
        author.learn(&batch, &verdicts, &model).await;
    }
    let state = State::of(store, &names).await;
    let difference = state.difference(&State::of(&model, &names).await);
    assert!(difference.is_empty(), "seed {seed}: store, model: {}", difference.join("\n"));
    let difference = state.difference(&State::of(&model.crash(), &names).await);
    assert!(difference.is_empty(), "seed {seed}: before, after the model's crash: {}", difference.join("\n"));
}

/// The words of `Invalid` are the store's own.
fn unworded(verdicts: &[Verdict]) -> Vec<Verdict> {
    let unword = |verdict: &Verdict| match verdict {
        Verdict::Refused(Refusal::Invalid(_)) => Verdict::Refused(Refusal::Invalid(String::new())),
        verdict => verdict.clone(),
    };
    verdicts.iter().map(unword).collect()
}

fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Admitted => "admitted",
        Verdict::Refused(Refusal::Fenced) => "fenced",
        Verdict::Refused(Refusal::Exists) => "exists",
        Verdict::Refused(Refusal::Stale) => "stale",
        Verdict::Refused(Refusal::Predecessor) => "predecessor",
        Verdict::Refused(Refusal::Invalid(_)) => "invalid",
        Verdict::Refused(Refusal::UnderWay(_)) => "under way",
        Verdict::Refused(other) => panic!("what about {other:?}?"),
    }
}

fn assert_all_was_tried(tally: &BTreeMap<(Kind, &'static str), usize>, written: &BTreeSet<&'static str>) {
    use Kind::{
        Again, Answer, Ask, ChangeRecord, ChangeRun, Document, Emit, Enrol, Erase, Look, Many, Mark,
        NewRecord, NewRun, Receive, Schedule, SharedEffect, Signal, Step, Work,
    };
    let all = Kind::ALL;
    let mut wanted: BTreeSet<_> = all.into_iter().map(|kind| (kind, "admitted")).collect();
    wanted.extend(all.into_iter().filter(|kind| *kind != Enrol).map(|kind| (kind, "fenced")));
    wanted.extend(all.map(|kind| (kind, "predecessor")));
    wanted.insert((Erase, "under way"));
    wanted.extend(
        [Enrol, NewRecord, NewRun, Step, Signal, Document, Emit, Work, Many, Again]
            .map(|kind| (kind, "exists")),
    );
    wanted.extend(
        [NewRecord, ChangeRecord, ChangeRun, Receive, Ask, Answer, Many, Again, Look, Schedule, Mark, Work]
            .map(|kind| (kind, "stale")),
    );
    let guarded = [NewRecord, ChangeRecord, NewRun, ChangeRun, Step, SharedEffect, Ask, Answer, Many, Look];
    wanted.extend(guarded.map(|kind| (kind, "invalid")));
    wanted.retain(|outcome| !tally.contains_key(outcome));
    assert!(wanted.is_empty(), "these never happened: {wanted:?}\nthese did: {tally:#?}");
    let unwritten: Vec<_> = WRITES.into_iter().filter(|write| !written.contains(write)).collect();
    assert!(unwritten.is_empty(), "these were never written: {unwritten:?}");
}
