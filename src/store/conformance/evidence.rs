//! Evidence: late answers of fenced workers.

use super::admit;
use super::sample::{self, HOSTILE, Sample, answered, inline};
use crate::clock::Timestamp;
use crate::id::QuestionId;
use crate::ledger::{ContractClass, Record};
use crate::store::{Change, Evidence, Question, QuestionKind, RunState, Store, WorkerChange};

fn left(evidence: &Evidence) -> Change {
    Change { evidence: Some(Box::new(evidence.clone())), ..Change::default() }
}

/// A fenced worker may still leave its late answer; the record is not touched.
pub async fn is_left_by_fenced_workers_too(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let record = old.record("a");
    admit(store, &[old.change().record(record.clone()), sample::fence_others(new.fence)]).await;
    for (i, text) in (1..).zip(HOSTILE) {
        let mut evidence = old.evidence(&record, i);
        evidence.response = inline(text.into());
        evidence.external_ref = Some(text.to_owned());
        evidence.at = Timestamp(i.into());
        admit(store, &[left(&evidence)]).await;
        assert_eq!(store.record_evidence(&old.tenant, record.id).await.unwrap().pop(), Some(evidence));
    }
    assert_eq!(store.record_find(&old.tenant, &record.key).await.unwrap(), Some(record));
}

/// The earliest evidence comes first, whichever worker left it.
pub async fn comes_back_the_earliest_first(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let record = old.record("a");
    let at = |evidence: Evidence, at: i64| Evidence { at: Timestamp(at), ..evidence };
    let (a, b) = (at(new.evidence(&record, 2), 10), at(old.evidence(&record, 3), 20));
    let c = at(old.evidence(&record, 1), 30);
    admit(store, &[left(&c), left(&a), left(&b)]).await;
    assert_eq!(store.record_evidence(&old.tenant, record.id).await.unwrap(), [a, b, c]);
}

/// The first evidence of one attempt and worker is kept; leaving it again is no error.
pub async fn the_first_of_an_attempt_stands(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let record = sample.record("a");
    let first = sample.evidence(&record, 1);
    let second = Evidence { external_ref: None, ..first.clone() };
    admit(store, &[left(&first)]).await;
    admit(store, &[left(&second), left(&first)]).await;
    assert_eq!(store.record_evidence(&sample.tenant, record.id).await.unwrap(), [first]);
}

/// Only its tenant sees the evidence.
pub async fn belongs_to_its_tenant(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let record = sample.record("a");
    admit(store, &[left(&sample.evidence(&record, 1))]).await;
    assert_eq!(store.record_evidence(&sample::tenant("globex"), record.id).await.unwrap(), []);
}

/// The heir of a worker that was taken over, its record sealed with this id after two sends, and the late answer.
struct Late {
    heir: Sample,
    sealed: Record,
    evidence: Evidence,
}

impl Late {
    /// Both workers are enrolled, the first one has ended, and the record is started.
    async fn started(store: &dyn Store, kept: &str) -> Self {
        let old = Sample::leased(store, "old", 1_000).await;
        let heir = Sample::leased(store, "heir", 9_000).await;
        let record = old.record("a");
        admit(store, &[old.change().record(record.clone())]).await;
        let worker = |change| sample::worker(Some(heir.fence), change);
        let end = WorkerChange::End { fence: old.fence, at: Timestamp(2_000) };
        admit(store, &[worker(end), worker(WorkerChange::Settle { fence: old.fence })]).await;
        let evidence = old.evidence(&record, 1);
        let sealed = Record { external_ref: Some(kept.to_owned()), attempts: 2, ..heir.committed(&record) };
        Self { heir, sealed, evidence }
    }

    fn seal(&self, rests_on: &[&Evidence]) -> Change {
        let mut change = self.heir.change().record(self.sealed.clone());
        change.contract = Some(ContractClass::Lookup);
        change.taken_over = Some(rests_on.iter().map(|late| (late.fence, late.attempt)).collect());
        change
    }

    fn left(&self) -> Change {
        Change { contract: Some(ContractClass::Lookup), ..left(&self.evidence) }
    }
}

async fn asked(store: &dyn Store) -> Vec<Question> {
    store.escalation_duplicated(QuestionId(i64::MIN), 10).await.unwrap()
}

async fn is_settled(store: &dyn Store, evidence: &Evidence) -> bool {
    store.worker_at(evidence.fence).await.unwrap().unwrap().settled
}

/// A late answer that comes after the seal of its record, and is of another effect, opens the question, once. Its
/// worker is listed again, so that others look.
pub async fn of_a_second_effect_opens_one_question(store: &dyn Store) {
    let late = Late::started(store, "ch_2").await;
    admit(store, &[late.seal(&[])]).await;
    assert_eq!(asked(store).await, []);
    assert!(is_settled(store, &late.evidence).await);

    admit(store, &[late.left(), late.left()]).await;
    let [question] = asked(store).await.try_into().expect("one question");
    assert_eq!((question.kind, question.record), (QuestionKind::Duplicated, Some(late.sealed.id)));
    assert_eq!((question.tenant.clone(), question.run), (late.sealed.tenant.clone(), late.sealed.owner.run));
    assert!(
        question.question.contains("ch_1") && question.question.contains("ch_2"),
        "{}",
        question.question
    );
    let open = store.escalation_open(&late.sealed.tenant, QuestionId(i64::MIN), 10).await.unwrap();
    assert_eq!(open, std::slice::from_ref(&question));
    assert!(!is_settled(store, &late.evidence).await);
    let record = store.record_find(&late.sealed.tenant, &late.sealed.key).await.unwrap();
    assert_eq!(record, Some(late.sealed.clone()), "the record is not touched");

    admit(store, &[late.heir.change().escalation(answered(&question, "ann"))]).await;
    admit(store, &[late.left()]).await;
    assert_eq!(asked(store).await, [], "it was answered");
}

/// A late answer that comes before the seal proves nothing yet; the seal of a record that was taken over opens the
/// question.
pub async fn that_came_before_the_seal_is_compared_by_it(store: &dyn Store) {
    let late = Late::started(store, "ch_2").await;
    admit(store, &[late.left()]).await;
    assert_eq!(asked(store).await, []);
    admit(store, &[late.seal(&[])]).await;
    let [question] = asked(store).await.try_into().expect("one question");
    assert_eq!(question.record, Some(late.sealed.id));
    admit(store, &[late.seal(&[]), late.left()]).await;
    assert_eq!(asked(store).await, [question], "whoever looks again opens the same one");
}

/// A late answer and a seal are also compared within one batch.
pub async fn is_compared_within_a_batch(store: &dyn Store) {
    let late = Late::started(store, "ch_2").await;
    admit(store, &[late.left(), late.seal(&[])]).await;
    assert_eq!(asked(store).await.len(), 1);
}

/// A late answer to a call whose run has ended opens the question although the record is still started: nobody else
/// reads the answer.
pub async fn of_a_call_that_its_run_left_is_asked_about(store: &dyn Store) {
    let old = Sample::leased(store, "old", 1_000).await;
    let heir = Sample::leased(store, "heir", 9_000).await;
    let run = old.run("start");
    let (left_behind, parked) = (old.call(&run, "a", "a"), old.call(&run, "b", "b"));
    let asked_about = Question { record: Some(parked.id), ..old.escalation("what became of it?") };
    let parked = Record { escalation: Some(asked_about.id), ..parked };
    let end = WorkerChange::End { fence: old.fence, at: Timestamp(2_000) };
    let begun = [old.change().run(run.clone()), old.change().record(left_behind.clone())];
    admit(store, &begun).await;
    admit(store, &[old.change().record(parked.clone()).escalation(asked_about)]).await;
    admit(store, &[sample::worker(Some(heir.fence), end)]).await;
    let answer = |record: &Record, attempt| Change {
        contract: Some(ContractClass::Lookup),
        ..left(&old.evidence(record, attempt))
    };

    admit(store, &[answer(&left_behind, 1)]).await;
    assert_eq!(asked(store).await, [], "its run goes on, and reads it");

    admit(
        store,
        &[heir.change().run(heir.run_on(&run, RunState::Succeeded { output: sample::inline(1.into()) }))],
    )
    .await;
    admit(store, &[answer(&left_behind, 2), answer(&parked, 1)]).await;
    let [question] =
        asked(store).await.try_into().expect("one question: about the other a person is asked already");
    assert_eq!(question.record, Some(left_behind.id));
}

/// No question follows from an answer of the record's own effect, from an answer that the seal rests on, or without a
/// contract to compare by.
pub async fn of_the_effect_of_its_record_asks_nothing(store: &dyn Store) {
    let late = Late::started(store, "ch_1").await;
    admit(store, &[late.seal(&[]), late.left()]).await;
    assert_eq!(asked(store).await, []);

    let (other, theirs) = (sample::tenant("globex"), late.heir.for_tenant("globex"));
    let record = theirs.record("a");
    let evidence = Evidence { tenant: other, external_ref: None, ..theirs.evidence(&record, 1) };
    let sealed = Record { attempts: 2, ..theirs.committed(&record) };
    let rests = Late { heir: theirs.clone(), sealed, evidence };
    admit(store, &[theirs.change().record(record), rests.left(), rests.seal(&[&rests.evidence])]).await;
    assert_eq!(asked(store).await, [], "the seal rests on it");

    let again = Evidence { attempt: 2, external_ref: Some("ch_9".into()), ..late.evidence.clone() };
    admit(store, &[left(&again)]).await;
    assert_eq!(asked(store).await, []);
    assert!(is_settled(store, &again).await);
}
