//! The times of what happened, for charts.

use super::admit;
use super::sample::{self, Sample, answered};
use crate::clock::Timestamp;
use crate::ledger::{Basis, Record};
use crate::store::{
    AvoidedDuplicates, Change, Contact, ContactResult, Evidence, Question, QuestionKind, QuestionSpan,
    SharedEffect, Store,
};

/// A record that was settled at this instant, on this basis.
async fn settled(store: &dyn Store, sample: &Sample, target: &str, at: i64, basis: Basis) -> Record {
    let begun = sample.record(target);
    let settled = Record { basis, sealed_at: Some(Timestamp(at)), ..sample.committed(&begun) };
    admit(store, &[sample.change().record(begun), sample.change().record(settled.clone())]).await;
    settled
}

/// A lookup of a record that ended at this instant.
fn lookup(sample: &Sample, record: &Record, at: i64, result: ContactResult) -> Change {
    let contact = Contact {
        id: sample.id(),
        is_lookup: true,
        result,
        ended: Timestamp(at),
        ..sample.attempt(record, 1)
    };
    Change { contacts: vec![contact], ..sample.change() }
}

async fn avoided(store: &dyn Store, sample: &Sample, since: i64, limit: u32) -> AvoidedDuplicates {
    store.record_avoided(&sample.tenant, Timestamp(since), limit).await.unwrap()
}

fn times(times: &[i64]) -> Vec<Timestamp> {
    times.iter().copied().map(Timestamp).collect()
}

/// The times of questions are listed, the last ones first, open or answered, without those that wait for a provider.
pub async fn questions_are_listed_the_last_ones_first(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let asks =
        |sample: &Sample, kind, at| Question { kind, opened_at: Timestamp(at), ..sample.escalation("?") };
    let all = [
        asks(&sample, QuestionKind::Ambiguous, 20),
        asks(&sample, QuestionKind::Duplicated, 30),
        asks(&sample, QuestionKind::Pending, 25),
        asks(&sample, QuestionKind::Unread, 10),
        asks(&sample.for_tenant("globex"), QuestionKind::Unread, 40),
    ];
    admit(store, &all.each_ref().map(|asked| sample.change().escalation(asked.clone()))).await;
    let closed = answered(&all[0], "bob");
    admit(store, &[sample.change().escalation(closed.clone())]).await;
    let span = |asked: &Question| QuestionSpan {
        kind: asked.kind,
        opened_at: asked.opened_at,
        answered_at: asked.answer.as_ref().map(|answer| answer.at),
    };
    let expected = [span(&all[1]), span(&closed), span(&all[3])];
    assert!(expected[1].answered_at.is_some());
    assert_eq!(store.escalation_spans(&sample.tenant, 10).await.unwrap(), expected);
    assert_eq!(store.escalation_spans(&sample.tenant, 2).await.unwrap(), expected[..2]);
}

/// A call that was settled because a lookup showed its effect is a duplicate avoided, once, at the instant at which it was
/// settled. A lookup that shows no effect, and one that confirms an answer, avoid none.
pub async fn an_effect_that_a_lookup_showed_is_avoided_once(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (found, earlier) = (
        settled(store, &sample, "a", 52, Basis::Lookup).await,
        settled(store, &sample, "b", 42, Basis::Lookup).await,
    );
    let (answered, missed) = (
        settled(store, &sample, "c", 50, Basis::Answer).await,
        settled(store, &sample, "d", 50, Basis::Lookup).await,
    );
    let shown = ContactResult::Effect;
    admit(
        store,
        &[
            lookup(&sample, &found, 50, shown),
            lookup(&sample, &found, 51, shown),
            lookup(&sample, &found, 90, shown),
            lookup(&sample, &earlier, 41, shown),
            lookup(&sample, &answered, 60, shown),
            lookup(&sample, &missed, 50, ContactResult::Nothing),
        ],
    )
    .await;
    let all = AvoidedDuplicates { found: times(&[52, 42]), shared: Vec::new(), from: Timestamp(0) };
    assert_eq!(avoided(store, &sample, 0, 10).await, all);
    let since = AvoidedDuplicates { found: times(&[52]), shared: Vec::new(), from: Timestamp(45) };
    assert_eq!(avoided(store, &sample, 45, 10).await, since);
    let none = AvoidedDuplicates { found: Vec::new(), shared: Vec::new(), from: Timestamp(0) };
    assert_eq!(avoided(store, &sample.for_tenant("globex"), 0, 10).await, none);
}

/// A call that was settled because its late answer came is a duplicate avoided; so is an answer to a run from a record that
/// it does not own.
pub async fn late_answers_and_shared_effects_are_avoided(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (late, shared) = (
        settled(store, &sample, "a", 70, Basis::Lookup).await,
        settled(store, &sample, "b", 10, Basis::Answer).await,
    );
    let told = Evidence { at: Timestamp(69), ..sample.evidence(&late, 1) };
    let used = |at| {
        let run = sample.run_without_key();
        let used = SharedEffect { at: Timestamp(at), ..sample.used(&shared, &run) };
        Change { used: Some(used.into()), ..sample.change() }
    };
    let late_answer = Change { evidence: Some(told.into()), ..sample.change() };
    admit(store, &[late_answer, used(60), used(61)]).await;
    let all = AvoidedDuplicates { found: times(&[70]), shared: times(&[61, 60]), from: Timestamp(5) };
    assert_eq!(avoided(store, &sample, 5, 10).await, all);
    let none = AvoidedDuplicates { found: Vec::new(), shared: Vec::new(), from: Timestamp(0) };
    let theirs = store.record_avoided(&sample::tenant("globex"), Timestamp(0), 10).await.unwrap();
    assert_eq!(theirs, none);
}

/// Where there are more than the limit, the answer says from which instant on these are all.
pub async fn a_limit_is_told(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let mut changes = Vec::new();
    for at in [40, 50, 60] {
        let record = settled(store, &sample, &at.to_string(), at, Basis::Lookup).await;
        changes.push(lookup(&sample, &record, at, ContactResult::Effect));
    }
    admit(store, &changes).await;
    let two = AvoidedDuplicates { found: times(&[60, 50]), shared: Vec::new(), from: Timestamp(50) };
    assert_eq!(avoided(store, &sample, 0, 2).await, two);
    let all = AvoidedDuplicates { found: times(&[60, 50, 40]), shared: Vec::new(), from: Timestamp(0) };
    assert_eq!(avoided(store, &sample, 0, 4).await, all);
}
