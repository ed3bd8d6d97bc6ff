//! The row of a run.

use serde_json::json;

use super::sample::{self, HOSTILE, Sample, fence_others, inline, name, payload};
use super::{admit, refused};
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::payload::Stored;
use crate::store::{
    Change, InQueue, Refusal, Run, RunCursor, RunFilter, RunState, RunStateName, Store, Verdict, WaitsOn,
};

fn states() -> Vec<RunState> {
    let failure = payload(&json!({ "message": HOSTILE }));
    vec![
        RunState::Active,
        RunState::Waiting { until: None, on: WaitsOn::ANSWER },
        RunState::Waiting { until: Some(Timestamp(i64::MIN)), on: WaitsOn::NOTHING },
        RunState::Waiting { until: Some(Timestamp(i64::MAX)), on: WaitsOn::NOTHING },
        RunState::Succeeded { output: inline(json!(null)) },
        RunState::Succeeded { output: Stored::At(failure.digest()) },
        RunState::Failed { failure: failure.clone() },
        RunState::Blocked { failure },
    ]
}

async fn assert_found(store: &dyn Store, run: &Run) {
    let found = store.run_find(&run.tenant, run.id).await.unwrap();
    assert_eq!(found.as_ref(), Some(run), "by its id");
    if let Some(key) = &run.key {
        let found = store.run_keyed(&run.tenant, run.workflow.as_str(), key).await.unwrap();
        assert_eq!(found.as_ref(), Some(run), "by its key");
    }
}

/// A run comes back as it was written, in every state, when it is new and when it has changed.
pub async fn comes_back_as_it_was_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    for (i, state) in states().into_iter().enumerate() {
        let mut run = Run { state, ..sample.run(&i.to_string()) };
        admit(store, &[sample.change().run(run.clone())]).await;
        assert_found(store, &run).await;
        for state in states() {
            run = sample.run_on(&run, state);
            run.deaths = u32::MAX - run.revision;
            run.version += 1; // a newer version has taken the run over
            run.updated_at = Timestamp(-i64::from(run.revision));
            admit(store, &[sample.change().run(run.clone())]).await;
            assert_found(store, &run).await;
        }
    }
}

/// Text is stored unchanged, in every column and with any content.
pub async fn hostile_text_is_text(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let large = "x".repeat(100_000);
    let texts: Vec<_> =
        HOSTILE.into_iter().chain(["", "a\0b", "a\0c", "a", "A", "ä", "a\u{308}", &large]).collect();
    for text in &texts {
        let mut run = sample.run(text);
        run.version = u32::MAX;
        run.workflow =
            name(&text.chars().filter(|c| !c.is_control()).take(8).chain(['w']).collect::<String>());
        run.input = inline(json!({ "text": text }));
        run.state = RunState::Succeeded { output: inline(json!(text)) };
        admit(store, &[sample.change().run(run.clone())]).await;
        assert_found(store, &run).await;
    }
}

/// A start key is taken once; a second run with it is refused as `Exists`, and the first is untouched.
pub async fn a_key_is_taken_once(store: &dyn Store) {
    let (ann, bob) = (Sample::enrol(store, "ann").await, Sample::enrol(store, "bob").await);
    let (first, second) = (ann.run("a"), bob.run("a"));
    let batch = [ann.change().run(first.clone()), bob.change().run(second.clone())];
    let verdicts = store.commit(&batch).await.unwrap();
    assert_eq!(verdicts, [Verdict::Admitted, Verdict::Refused(Refusal::Exists)]);
    let ended = ann.run_on(&first, RunState::Succeeded { output: inline(json!(1)) });
    admit(store, &[ann.change().run(ended.clone())]).await;
    assert_eq!(refused(store, bob.change().run(second.clone())).await, Some(Refusal::Exists));
    assert_found(store, &ended).await;
    assert_eq!(store.run_find(&bob.tenant, second.id).await.unwrap(), None);
}

/// The same start key of another tenant or another workflow is another run.
pub async fn a_key_belongs_to_its_tenant_and_workflow(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let theirs = sample.for_tenant("globex").run("a");
    let other = Run { workflow: name("refund"), ..sample.run("a") };
    for run in [sample.run("a"), theirs, other] {
        admit(store, &[sample.change().run(run.clone())]).await;
        assert_found(store, &run).await;
    }
    assert_eq!(store.run_keyed(&sample.tenant, "ship", "a").await.unwrap(), None);
    assert_eq!(store.run_keyed(&sample.tenant, "", "a").await.unwrap(), None);
}

/// Runs without a start key never clash.
pub async fn without_a_key_there_is_no_clash(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let runs = [sample.run_without_key(), sample.run_without_key(), sample.run("")];
    admit(store, &runs.each_ref().map(|run| sample.change().run(run.clone()))).await;
    for run in &runs {
        assert_found(store, run).await;
    }
}

/// Only its tenant finds a run, by id, by key and in a list.
pub async fn belongs_to_its_tenant(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, other) = (sample.run("a"), sample::tenant("globex"));
    admit(store, &[sample.change().run(run.clone())]).await;
    assert_eq!(store.run_find(&other, run.id).await.unwrap(), None);
    assert_eq!(store.run_keyed(&other, run.workflow.as_str(), "a").await.unwrap(), None);
    assert_eq!(store.run_list(&other, RunId(i64::MIN), 10).await.unwrap(), []);
}

/// The runs of a tenant are listed behind a given id, in the order of their ids, up to the limit.
pub async fn is_listed_from_a_place_on(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let runs: Vec<_> = (0..5).map(|i| sample.run(&i.to_string())).collect();
    let changes: Vec<_> = runs.iter().rev().map(|run| sample.change().run(run.clone())).collect();
    admit(store, &changes).await;
    admit(store, &[sample.change().run(sample.for_tenant("globex").run("a"))]).await;
    let list =
        async |after: i64, limit: u32| store.run_list(&sample.tenant, RunId(after), limit).await.unwrap();
    assert_eq!(list(i64::MIN, 10).await, runs);
    assert_eq!(list(i64::MIN, 2).await, runs[..2]);
    assert_eq!(list(runs[1].id.0, 2).await, runs[2..4]);
    assert_eq!(list(runs[4].id.0, 2).await, []);
    assert_eq!(list(i64::MIN, 0).await, []);
}

/// Every filter lists its runs in its order, page by page, and no runs of other tenants.
pub async fn is_listed_by_every_filter(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let other = sample.for_tenant("globex");
    let runs: Vec<_> = (0..56).map(|n| any_run(&sample, n)).collect();
    let theirs: Vec<_> = (0..14).map(|n| any_run(&other, n)).collect();
    admit(store, &runs.iter().chain(&theirs).map(|run| sample.change().run(run.clone())).collect::<Vec<_>>())
        .await;
    let states = RunStateName::ALL.map(Some).into_iter().chain([None]);
    for state in states {
        for workflow in [None, Some("ship"), Some("none")] {
            for key in [None, Some("a/"), Some("a/\u{10ffff}"), Some(""), Some("zz")] {
                for (since, before) in [(None, None), (Some(Timestamp(1010)), Some(Timestamp(1030)))] {
                    for newest_first in [false, true] {
                        let (workflow, key) = (workflow.map(str::to_owned), key.map(str::to_owned));
                        let filter =
                            RunFilter { state, workflow, key, label: None, since, before, newest_first };
                        assert_pages(store, &sample.tenant, &filter, &runs).await;
                    }
                }
            }
        }
    }
}

/// A run is listed by its label, alone and with other conditions, in the order of the starts. A label of another tenant or with
/// another value lists nothing, and a run without labels has none.
pub async fn is_listed_by_its_labels(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let other = sample.for_tenant("globex");
    let runs: Vec<_> = (0..56).map(|n| any_run(&sample, n)).collect();
    let mut changes: Vec<_> = runs.iter().map(|run| sample.change().run(run.clone())).collect();
    let (with, without) = runs.split_at(40);
    for (change, run) in changes.iter_mut().zip(with) {
        change.labels = vec![sample.label(run, "customer", "c-7"), sample.label(run, "case", HOSTILE[0])];
    }
    let theirs = any_run(&other, 1);
    let labels = vec![sample.label(&theirs, "customer", "c-7")];
    changes.push(Change { labels, ..sample.change().run(theirs) });
    admit(store, &changes).await;
    let states = RunStateName::ALL.map(Some).into_iter().chain([None]);
    for state in states {
        for workflow in [None, Some("ship")] {
            for key in [None, Some("a/")] {
                for (since, before) in [(None, None), (Some(Timestamp(1010)), Some(Timestamp(1020)))] {
                    for newest_first in [false, true] {
                        let (workflow, key) = (workflow.map(str::to_owned), key.map(str::to_owned));
                        let label = Some(("customer".to_owned(), "c-7".to_owned()));
                        let filter = RunFilter { state, workflow, key, label, since, before, newest_first };
                        assert_pages(store, &sample.tenant, &filter, with).await;
                    }
                }
            }
        }
    }
    let of = |name: &str, value: &str| RunFilter::new().label(name, value);
    assert_pages(store, &sample.tenant, &of("case", HOSTILE[0]), with).await;
    assert_pages(store, &other.tenant, &of("case", HOSTILE[0]), &[]).await;
    for nothing in [of("customer", "c-"), of("c-7", "customer"), of("", "")] {
        assert_pages(store, &sample.tenant, &nothing, &[]).await;
    }
    let mut labels = store.run_labels(&sample.tenant, with[0].id).await.unwrap();
    labels.sort_by(|one, next| one.name.cmp(&next.name));
    assert_eq!(
        labels,
        [sample.label(&with[0], "case", HOSTILE[0]), sample.label(&with[0], "customer", "c-7")]
    );
    assert_eq!(store.run_labels(&other.tenant, with[0].id).await.unwrap(), []);
    assert_eq!(store.run_labels(&sample.tenant, without[0].id).await.unwrap(), []);
}

/// A run in one of all states, of one of three workflows; every fourth has no key, and several were started at one instant.
fn any_run(sample: &Sample, n: u8) -> Run {
    let queue = InQueue { name: name("slow"), key: None, priority: 0, admitted_at: None };
    let state = match n % 7 {
        0 => RunState::Active,
        1 => RunState::Queued,
        2 => RunState::Waiting { until: None, on: WaitsOn::SIGNAL },
        3 => RunState::Succeeded { output: inline(json!({ "paid": n })) },
        4 => RunState::Failed { failure: payload(&json!({ "message": "no" })) },
        5 => RunState::Blocked { failure: payload(&json!({ "message": "diverged" })) },
        _ => RunState::Expired { succeeded: n.is_multiple_of(2), outcome: "5f".into() },
    };
    let keys = ["a/", "a/\u{10ffff}", "b/"];
    Run {
        queue: (state == RunState::Queued).then(|| Box::new(queue)),
        state,
        workflow: name(["order", "ship", "bill"][usize::from(n % 3)]),
        key: (!n.is_multiple_of(4)).then(|| format!("{}{}", keys[usize::from(n % 3)], 100 - n)),
        created_at: Timestamp(1000 + (i64::from(n) * 37 % 56) / 2),
        ..sample.run_without_key()
    }
}

async fn assert_pages(store: &dyn Store, tenant: &Tenant, filter: &RunFilter, all: &[Run]) {
    let mut expected: Vec<_> = all.iter().filter(|run| filter.takes(run)).collect();
    match (filter.key.as_ref().filter(|_| filter.label.is_none()), filter.newest_first) {
        (Some(_), _) => expected.sort_by_key(|run| (run.key.clone(), run.id)),
        (None, false) => expected.sort_by_key(|run| (run.created_at, run.id)),
        (None, true) => expected.sort_by_key(|run| std::cmp::Reverse((run.created_at, run.id))),
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = store.run_page(tenant, filter, after.as_ref(), 5).await.unwrap();
        assert!(page.runs.len() <= 5, "{filter:?}");
        listed.extend(page.runs);
        // The cursor leaves the process as text.
        after = page.next.map(|cursor| cursor.to_string().parse::<RunCursor>().unwrap());
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed.iter().collect::<Vec<_>>(), expected, "{filter:?}");
}

/// A list that must look at each run goes on from page to page until it has found the run.
pub async fn a_rare_one_is_found_among_many_keys(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let ended = |n: usize| Run {
        state: RunState::Succeeded { output: inline(json!(n)) },
        ..sample.run(&format!("k/{n:04}"))
    };
    let runs: Vec<_> = (0..900).map(ended).collect();
    let blocked = RunState::Blocked { failure: payload(&json!({ "message": "diverged" })) };
    let rare = Run { state: blocked, ..sample.run("k/0850") };
    let changes: Vec<_> = runs
        .iter()
        .filter(|run| run.key != rare.key)
        .chain([&rare])
        .map(|run| sample.change().run(run.clone()))
        .collect();
    admit(store, &changes).await;
    let filter = RunFilter::new().key("k/").state(RunStateName::Blocked);
    assert_pages(store, &sample.tenant, &filter, &[rare]).await;
}

/// Orphans are active runs of fenced workers; they are listed from a given id on, in the order of their ids, up to
/// the limit.
pub async fn orphans_are_active_and_nobodys(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let first = old.run("first");
    let waiting = Run { state: RunState::Waiting { until: None, on: WaitsOn::ANSWER }, ..old.run("waiting") };
    let ended = Run { state: RunState::Succeeded { output: inline(json!(1)) }, ..old.run("ended") };
    let second = old.for_tenant("globex").run("second");
    let third = old.run("third");
    let all = [&first, &waiting, &ended, &second, &third];
    admit(store, &all.map(|run| old.change().run(run.clone()))).await;
    admit(store, &[new.change().run(new.run("alive"))]).await;
    let orphans = async |after: i64, limit: u32| store.run_orphans(RunId(after), limit).await.unwrap();
    assert_eq!(orphans(0, 10).await, [], "nobody has been fenced");
    admit(store, &[fence_others(new.fence)]).await;
    assert_eq!(orphans(0, 10).await, [first.clone(), second.clone(), third.clone()], "of all tenants");
    assert_eq!(orphans(first.id.0, 1).await, std::slice::from_ref(&second));

    admit(store, &[new.change().run(new.run_on(&first, RunState::Active))]).await;
    assert_eq!(orphans(0, 10).await, [second, third], "taken over is no orphan any more");
}
