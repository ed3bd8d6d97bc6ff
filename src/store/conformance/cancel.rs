//! A future of `commit` that is dropped may or may not take effect; no change is half written.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::admit;
use super::sample::Sample;
use crate::store::{Change, Store, Turns};

/// Polls a future as often as it is woken, but at most `polls` times: then the future is dropped, and the result is
/// `None`.
pub fn drop_after<F: Future + Unpin>(future: F, polls: usize) -> impl Future<Output = Option<F::Output>> {
    struct DropAfter<F>(Option<F>, usize);
    impl<F: Future + Unpin> Future for DropAfter<F> {
        type Output = Option<F::Output>;
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            let Some(future) = &mut self.0 else { return Poll::Ready(None) };
            let polled = Pin::new(future).poll(context).map(Some);
            self.1 = self.1.saturating_sub(1);
            if polled.is_pending() && self.1 == 0 {
                self.0 = None;
                return Poll::Ready(None);
            }
            polled
        }
    }
    DropAfter(Some(future), polls)
}

/// A change whose commit was dropped, at whatever await, is there as a whole or not at all.
pub async fn nothing_is_half_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    for polls in 1.. {
        let changes = whole(&sample, polls);
        let ended = drop_after(store.commit(&changes), polls).await;
        admit(store, &[sample.change().record(sample.record(&format!("after {polls}")))]).await;
        assert_whole(store, &sample, &changes).await;
        if ended.is_some() {
            break;
        }
    }
}

/// A commit that was dropped spoils no later one, not even one that has to be judged change by change.
pub async fn the_next_commit_is_whole(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let taken = sample.record("taken");
    admit(store, &[sample.change().record(taken)]).await;
    for polls in 1.. {
        let mut changes = whole(&sample, polls);
        changes.push(sample.change().record(sample.record("taken")));
        let ended = drop_after(store.commit(&changes), polls).await;
        let mut next = whole(&sample, 1_000_000 + polls);
        admit(store, &next).await;
        next.push(sample.change().record(sample.record("taken")));
        let verdicts = store.commit(&next).await.unwrap();
        assert_eq!(verdicts.iter().filter(|verdict| !verdict.is_admitted()).count(), 1);
        for change in &next[..next.len() - 1] {
            let record = change.record.as_ref().unwrap();
            assert!(
                store.record_at(&sample.tenant, record.id).await.unwrap().is_some(),
                "after {polls} polls"
            );
        }
        assert_whole(store, &sample, &changes[..changes.len() - 1]).await;
        if ended.is_some() {
            break;
        }
    }
}

fn whole(sample: &Sample, i: usize) -> Vec<Change> {
    let change = |part: &str| {
        let run = sample.run(&format!("{part} {i}"));
        let record = sample.call(&run, "pay/1", &format!("{part} {i}"));
        sample.change().step(sample.step(&run, "1")).run(run).record(record)
    };
    vec![change("first"), change("second"), change("third")]
}

async fn assert_whole(store: &dyn Store, sample: &Sample, changes: &[Change]) {
    for change in changes {
        let (run, record) = (change.run.as_ref().unwrap(), change.record.as_ref().unwrap());
        let is_run = store.run_find(&sample.tenant, run.id).await.unwrap().is_some();
        let is_record = store.record_at(&sample.tenant, record.id).await.unwrap().is_some();
        let steps = store.run_history(&sample.tenant, run.id, Turns::ALL).await.unwrap().steps.len();
        let written = (is_run, is_record, steps);
        assert!(written == (true, true, 1) || written == (false, false, 0), "half written: {written:?}");
    }
}
