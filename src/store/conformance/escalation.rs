//! Open questions, and their answers.

use serde_json::json;

use super::sample::{self, HOSTILE, Sample, answered};
use super::{admit, one, refused};
use crate::clock::Timestamp;
use crate::id::QuestionId;
use crate::store::{
    Answer, Question, QuestionCount, QuestionKind, QuestionLoad, Refusal, Resolution, Store, Verdict,
};

/// The id before every question.
const FIRST: QuestionId = QuestionId(i64::MIN);

/// A question comes back as it was written, of every kind and with every answer.
pub async fn comes_back_as_it_was_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, record) = (sample.run("a"), sample.record("a"));
    let kinds = [
        QuestionKind::Ambiguous,
        QuestionKind::Duplicated,
        QuestionKind::Orphaned,
        QuestionKind::Diverged,
        QuestionKind::Damaged,
        QuestionKind::Quarantined,
        QuestionKind::Unregistered,
        QuestionKind::UnknownTool,
        QuestionKind::Unconfirmed,
        QuestionKind::Missing,
        QuestionKind::Pending,
    ];
    for (i, text) in HOSTILE.into_iter().enumerate() {
        let mut open = sample.escalation(text);
        open.kind = kinds[i % kinds.len()];
        open.record = (i % 2 == 0).then_some(record.id);
        open.run = (i % 3 == 0).then_some(run.id);
        admit(store, &[sample.change().escalation(open.clone())]).await;
        assert_eq!(store.escalation_find(&sample.tenant, open.id).await.unwrap(), Some(open.clone()));

        let resolution = match i % 4 {
            0 => Resolution::Happened(json!({ "ref": text, "n": 1.5 })),
            1 => Resolution::DidNotHappen,
            2 => Resolution::Withdrawn,
            _ => Resolution::SendWithoutLooking { reason: text.to_owned() },
        };
        let because = (i % 3 == 0).then(|| text.to_owned());
        let answer = Answer { by: text.to_owned(), resolution, because, misfit: None, at: Timestamp(-1) };
        let waiting = Question { waiting: Some(answer.clone()), question: format!("{text}, waits"), ..open };
        admit(store, &[sample.change().escalation(waiting.clone())]).await;
        assert_eq!(store.escalation_find(&sample.tenant, waiting.id).await.unwrap(), Some(waiting.clone()));
        let closed = Question { answer: Some(answer), ..waiting };
        admit(store, &[sample.change().escalation(closed.clone())]).await;
        assert_eq!(store.escalation_find(&sample.tenant, closed.id).await.unwrap(), Some(closed));
    }
}

/// The open questions of a tenant are listed, the oldest first, page by page; an answered one is not open, and a page
/// may begin behind it.
pub async fn open_ones_are_listed_the_oldest_first(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let all: Vec<_> = (0..5).map(|i| sample.escalation(&i.to_string())).collect();
    let mut change = sample.change();
    change.escalations = all.iter().rev().cloned().collect();
    // A call that waits for its provider asks nobody.
    let pending = Question { kind: QuestionKind::Pending, ..sample.escalation("waits") };
    let other = sample.for_tenant("globex").escalation("theirs");
    admit(store, &[change.escalation(pending), sample.change().escalation(other)]).await;
    let open = async |after, limit| store.escalation_open(&sample.tenant, after, limit).await.unwrap();
    assert_eq!(open(FIRST, 10).await, all);
    assert_eq!(open(FIRST, 2).await, all[..2]);
    assert_eq!(open(all[1].id, 2).await, all[2..4]);
    assert_eq!(open(all[3].id, 2).await, all[4..]);
    assert_eq!(open(all[4].id, 2).await, []);

    admit(store, &[sample.change().escalation(answered(&all[1], "bob"))]).await;
    assert_eq!(open(FIRST, 2).await, [all[0].clone(), all[2].clone()]);
    assert_eq!(open(all[1].id, 1).await, all[2..3]);
}

/// The answered questions of a tenant are listed, the oldest first, page by page; and they are counted by kind.
pub async fn answered_ones_are_listed_and_counted(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let mut all: Vec<_> = (0..4).map(|i| sample.escalation(&i.to_string())).collect();
    all[3].kind = QuestionKind::Unread;
    let mut change = sample.change();
    change.escalations = all.clone();
    let theirs = sample.for_tenant("globex").escalation("theirs");
    admit(store, &[change, sample.change().escalation(theirs.clone())]).await;
    let tenant = &sample.tenant;
    let listed = async |after, limit| store.escalation_answered(tenant, after, limit).await.unwrap();
    assert_eq!(listed(FIRST, 10).await, []);
    for question in &mut all[1..] {
        *question = answered(question, "bob");
        admit(store, &[sample.change().escalation(question.clone())]).await;
    }
    admit(store, &[sample.change().escalation(answered(&theirs, "bob"))]).await;
    assert_eq!(listed(FIRST, 10).await, all[1..]);
    assert_eq!(listed(FIRST, 2).await, all[1..3]);
    assert_eq!(listed(all[2].id, 2).await, all[3..]);
    let count = |kind, open, answered| QuestionCount { kind, open, answered };
    let counted = store.escalation_count(tenant).await.unwrap();
    assert_eq!(counted, [count(all[0].kind, 1, 2), count(QuestionKind::Unread, 0, 1)]);
}

/// The open questions of all tenants are counted by kind, with the oldest one, without those that wait for a provider.
pub async fn open_ones_are_counted_for_all_tenants(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let theirs = sample.for_tenant("globex");
    let asks =
        |sample: &Sample, kind, at| Question { kind, opened_at: Timestamp(at), ..sample.escalation("?") };
    let all = [
        asks(&sample, QuestionKind::Ambiguous, 30),
        asks(&theirs, QuestionKind::Ambiguous, 20),
        asks(&sample, QuestionKind::Ambiguous, 10),
        asks(&sample, QuestionKind::Pending, 5),
        asks(&theirs, QuestionKind::Unread, 40),
    ];
    admit(store, &all.each_ref().map(|asked| sample.change().escalation(asked.clone()))).await;
    admit(store, &[sample.change().escalation(answered(&all[2], "bob"))]).await;
    let load = |kind, open, oldest| QuestionLoad { kind, open, oldest: Timestamp(oldest) };
    let expected = [load(QuestionKind::Ambiguous, 2, 20), load(QuestionKind::Unread, 1, 40)];
    assert_eq!(store.escalation_load().await.unwrap(), expected);
}

/// The open questions of all tenants are listed, the oldest first, without those that wait for a provider.
pub async fn open_ones_are_listed_for_all_tenants(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let theirs = sample.for_tenant("globex");
    let of_kind = |sample: &Sample, kind| Question { kind, ..sample.escalation("?") };
    let all = [
        of_kind(&theirs, QuestionKind::Ambiguous),
        of_kind(&sample, QuestionKind::Unread),
        of_kind(&sample, QuestionKind::Pending),
        of_kind(&theirs, QuestionKind::Ambiguous),
        of_kind(&sample, QuestionKind::Ambiguous),
    ];
    let opened: Vec<_> = all.iter().rev().map(|one| sample.change().escalation(one.clone())).collect();
    admit(store, &opened).await;
    admit(store, &[sample.change().escalation(answered(&all[3], "bob"))]).await;
    let [first, second, _, _, last] = all;
    let everywhere = async |after, limit| store.escalation_open_everywhere(after, limit).await.unwrap();
    assert_eq!(everywhere(FIRST, 10).await, [first.clone(), second.clone(), last.clone()]);
    assert_eq!(everywhere(FIRST, 2).await, [first, second.clone()]);
    assert_eq!(everywhere(second.id, 2).await, std::slice::from_ref(&last));
    assert_eq!(everywhere(last.id, 2).await, []);
}

/// The open questions about a run are listed, the oldest first: all of them, or the first without those that wait for a
/// provider.
pub async fn those_about_a_run_are_listed(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a").id;
    let about = |run| Question { run, ..sample.escalation("?") };
    let all =
        [about(Some(run)), about(None), about(Some(run)), about(Some(sample.run("b").id)), about(Some(run))];
    let other = Question { run: Some(run), ..sample.for_tenant("globex").escalation("theirs") };
    let mut change = sample.change();
    change.escalations = all.iter().rev().cloned().collect();
    admit(store, &[change, sample.change().escalation(other)]).await;
    let [first, _, second, _, third] = all;
    admit(store, &[sample.change().escalation(answered(&second, "bob"))]).await;
    assert_eq!(store.escalation_about(&sample.tenant, run).await.unwrap(), [first.clone(), third.clone()]);
    let waits = Question { kind: QuestionKind::Pending, ..about(Some(run)) };
    let last = about(Some(run));
    let mut change = sample.change();
    change.escalations = vec![waits.clone(), last.clone()];
    admit(store, &[change]).await;
    let all = store.escalation_about(&sample.tenant, run).await.unwrap();
    assert_eq!(all, [first.clone(), third.clone(), waits, last.clone()]);
    let open = async |limit| store.escalation_open_about(&sample.tenant, run, limit).await.unwrap();
    assert_eq!(open(10).await, [first.clone(), third.clone(), last]);
    assert_eq!(open(2).await, [first, third]);
}

/// Open questions about unknown workflows are listed for all tenants, from a given id on, the oldest first, up to the
/// limit.
pub async fn unknown_workflows_are_listed_for_all_tenants(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let theirs = sample.for_tenant("globex");
    let asks = |sample: &Sample, kind| Question { kind, ..sample.escalation("?") };
    let all = [
        asks(&theirs, QuestionKind::Unregistered),
        asks(&sample, QuestionKind::Unregistered),
        asks(&sample, QuestionKind::UnknownTool),
        asks(&theirs, QuestionKind::Unregistered),
        asks(&sample, QuestionKind::Unregistered),
    ];
    admit(store, &all.each_ref().map(|open| sample.change().escalation(open.clone()))).await;
    let open = async |after: i64, limit: u32| {
        store.escalation_unknown_workflow(QuestionId(after), limit).await.unwrap()
    };
    let [first, second, _tool, third, fourth] = all.clone();
    assert_eq!(open(i64::MIN, 10).await, [first.clone(), second.clone(), third.clone(), fourth.clone()]);
    assert_eq!(open(first.id.0, 2).await, [second.clone(), third.clone()]);
    assert_eq!(open(fourth.id.0, 2).await, []);

    admit(store, &[sample.change().escalation(answered(&second, "bob"))]).await;
    assert_eq!(open(i64::MIN, 2).await, [first, third], "an answered one is not open");
}

/// The first answer counts: another one is stale, and so is opening the question again.
pub async fn the_first_answer_stands(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let open = sample.escalation("?");
    let first = answered(&open, "ann");
    admit(store, &[sample.change().escalation(open.clone())]).await;
    let two = [sample.change().escalation(first.clone()), sample.change().escalation(answered(&open, "bob"))];
    let verdicts = store.commit(&two).await.unwrap();
    assert_eq!(verdicts, [Verdict::Admitted, Verdict::Refused(Refusal::Stale)]);
    assert_eq!(refused(store, two[1].clone()).await, Some(Refusal::Stale));
    assert_eq!(refused(store, sample.change().escalation(open.clone())).await, Some(Refusal::Stale));
    let waits = Question { waiting: first.answer.clone(), ..open };
    assert_eq!(refused(store, sample.change().escalation(waits)).await, Some(Refusal::Stale));
    assert_eq!(store.escalation_find(&sample.tenant, first.id).await.unwrap(), Some(first));
}

/// An answer, or an answer that waits, is stale unless its question is open.
pub async fn an_answer_needs_a_question(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let never_asked = answered(&sample.escalation("?"), "ann");
    assert_eq!(refused(store, sample.change().escalation(never_asked.clone())).await, Some(Refusal::Stale));
    assert_eq!(store.escalation_find(&sample.tenant, never_asked.id).await.unwrap(), None);
    let never_asked = Question { waiting: never_asked.answer, answer: None, ..sample.escalation("?") };
    assert_eq!(refused(store, sample.change().escalation(never_asked)).await, Some(Refusal::Stale));
}

/// A question is asked and answered within its tenant.
pub async fn belongs_to_its_tenant(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let other = sample::tenant("globex");
    let open = sample.escalation("?");
    admit(store, &[sample.change().escalation(open.clone())]).await;
    assert_eq!(store.escalation_find(&other, open.id).await.unwrap(), None);
    assert_eq!(store.escalation_open(&other, FIRST, 10).await.unwrap(), []);

    let foreign = Question { tenant: other, ..answered(&open, "mallory") };
    let verdict = one(store, sample.change().escalation(foreign)).await;
    assert_eq!(verdict, Verdict::Refused(Refusal::Stale));
    assert_eq!(store.escalation_find(&sample.tenant, open.id).await.unwrap(), Some(open));
}
