//! Schedules: one row for each, changed one revision at a time, with the runs that its ticks begin.

use std::slice::from_ref;

use super::sample::{Sample, hash};
use super::{admit, refused};
use crate::clock::Timestamp;
use crate::store::{Change, Run, Schedule, ScheduleState, Store};

fn set(sample: &Sample, schedule: &Schedule) -> Change {
    Change { schedule: Some(Box::new(schedule.clone())), ..sample.change() }
}

/// A schedule comes back as it was written last, by its tenant and name.
pub async fn comes_back_as_it_was_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let mut nightly = sample.schedule("nightly", 100);
    admit(store, &[set(&sample, &nightly)]).await;
    let find = async |of: &str| store.schedule_find(&sample.tenant, of).await.unwrap();
    assert_eq!(find("nightly").await, Some(nightly.clone()));
    assert_eq!(find("weekly").await, None);
    let theirs = sample.for_tenant("globex");
    assert_eq!(store.schedule_find(&theirs.tenant, "nightly").await.unwrap(), None);
    for state in [ScheduleState::Paused, ScheduleState::Deleted] {
        (nightly.state, nightly.next_at, nightly.revision) = (state, None, nightly.revision + 1);
        (nightly.last_at, nightly.missed) = (Some(Timestamp(100)), 4);
        nightly.last_run = Some(sample.run("a").id);
        admit(store, &[set(&sample, &nightly)]).await;
        assert_eq!(find("nightly").await, Some(nightly.clone()));
    }
}

/// A tick and its run are one change, and only one such change is admitted.
pub async fn a_tick_begins_one_run(store: &dyn Store) {
    let (ann, bob) = (Sample::enrol(store, "ann").await, Sample::enrol(store, "bob").await);
    let first = ann.schedule("nightly", 100);
    admit(store, &[set(&ann, &first)]).await;
    let tick = |sample: &Sample| {
        let run = Run { input_hash: hash("order"), ..sample.run("~tick/100/nightly") };
        let next = Schedule {
            revision: 2,
            next_at: Some(Timestamp(200)),
            last_at: Some(Timestamp(100)),
            last_run: Some(run.id),
            ..first.clone()
        };
        set(sample, &next).run(run)
    };
    let (one, two) = (tick(&ann), tick(&bob));
    admit(store, from_ref(&one)).await;
    admit(store, from_ref(&one)).await;
    assert!(refused(store, two.clone()).await.is_some());
    let lost = two.run.unwrap();
    assert_eq!(store.run_find(&lost.tenant, lost.id).await.unwrap(), None);
    let run = one.run.unwrap();
    assert_eq!(store.run_keyed(&run.tenant, "order", "~tick/100/nightly").await.unwrap(), Some(*run));
}

/// Due schedules are listed for all tenants, the earliest first, and the next due instant of all is returned.
pub async fn is_due_at_its_time(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (a, b) = (sample.schedule("a", 300), sample.for_tenant("globex").schedule("b", 200));
    let paused = Schedule { state: ScheduleState::Paused, next_at: None, ..sample.schedule("c", 1) };
    admit(store, &[&a, &b, &paused].map(|schedule| set(&sample, schedule))).await;
    let due = async |until: i64, limit: u32| store.schedule_due(Timestamp(until), None, limit).await.unwrap();
    assert_eq!(due(199, 9).await, []);
    assert_eq!(due(200, 9).await, from_ref(&b));
    assert_eq!(due(i64::MAX, 9).await, [b.clone(), a.clone()]);
    assert_eq!(due(i64::MAX, 1).await, [b]);
    assert_eq!(store.next_due(Timestamp::MIN).await.unwrap(), Some(Timestamp(200)));
    assert_eq!(store.next_due(Timestamp(200)).await.unwrap(), Some(Timestamp(300)));
    let list =
        async |after: &str, limit: u32| store.schedule_list(&sample.tenant, after, limit).await.unwrap();
    assert_eq!(list("", 9).await, [a.clone(), paused.clone()]);
    assert_eq!(list("a", 9).await, [paused]);
    assert_eq!(list("", 1).await, [a]);
}
