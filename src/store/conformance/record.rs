//! The idempotency record.

use serde_json::json;

use super::sample::{self, HOSTILE, Sample, fence_others, inline, name, payload};
use super::{admit, refused};
use crate::clock::Timestamp;
use crate::id::{DeclarationId, QuestionId, RecordId};
use crate::ledger::{
    Basis, EffectClass, ErrorKind, Key, OperationKey, Owner, Record, RecordedFailure, Scopes, State,
};
use crate::payload::{Oversized, Stored};
use crate::store::{
    Change, Question, QuestionKind, Refusal, Run, RunState, SharedEffect, Store, Verdict, WaitsOn,
};

fn states() -> Vec<State> {
    let response = || inline(json!({ "id": "ch_1", "cents": 12.5 }));
    let large = || Stored::At(payload(&json!("large")).digest());
    let oversized = || {
        let digest = payload(&json!("larger")).digest();
        Stored::Oversized(Oversized { digest, bytes: 5_000_000_000 })
    };
    let failure = |detail| RecordedFailure { kind: ErrorKind::Unknown, message: HOSTILE.join("\n"), detail };
    vec![
        State::Started,
        State::Committed { response: response() },
        State::Committed { response: large() },
        State::Committed { response: oversized() },
        State::Compensated { response: oversized(), compensation: response(), whole: true },
        State::Failed { failure: failure(json!(null)) },
        State::Failed { failure: failure(json!({ "code": [1, "two", null] })) },
        State::Compensated { response: response(), compensation: large(), whole: true },
        State::Compensated { response: large(), compensation: response(), whole: false },
        State::Abandoned { reason: String::new() },
        State::Abandoned { reason: HOSTILE.join("\0") },
    ]
}

async fn assert_found(store: &dyn Store, record: &Record) {
    let found = store.record_find(&record.tenant, &record.key).await.unwrap();
    assert_eq!(found.as_ref(), Some(record), "by its key");
    let found = store.record_at(&record.tenant, record.id).await.unwrap();
    assert_eq!(found.as_ref(), Some(record), "by its place");
}

/// A record comes back as it was written, in every state, when it is new and when it has changed.
pub async fn comes_back_as_it_was_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    for (i, state) in states().into_iter().enumerate() {
        let mut new = sample.call(&run, "pay/1", &i.to_string());
        new.class = EffectClass::ALL[i % EffectClass::ALL.len()];
        new.basis = Basis::ALL[i % Basis::ALL.len()];
        new.state = state;
        new.cost = (i % 4 == 3).then_some(7);
        new.scopes = (i % 3 == 2).then(|| Box::new(Scopes::key("device").lookup("room")));
        new.approval = (i % 2 == 1).then(|| Box::new(sample::approval("ann")));
        admit(store, &[sample.change().record(new.clone())]).await;
        assert_found(store, &new).await;
        for state in states() {
            new = sample.record_on(&new, state);
            new.basis = Basis::ALL[new.revision as usize % Basis::ALL.len()];
            new.attempts += 1;
            new.spent += 1;
            new.external_ref = Some(format!("ch_{}", new.revision));
            new.declaration = DeclarationId(i64::from(new.revision));
            new.escalation = (new.revision % 2 == 0).then_some(QuestionId(i64::MAX));
            new.cost = (new.revision % 4 == 1).then_some(u64::from(new.revision));
            new.sealed_at = (new.revision % 3 == 1).then_some(Timestamp(i64::MAX));
            new.scopes = (new.revision % 5 == 0).then(|| Box::new(Scopes::of(HOSTILE.join("\n"))));
            new.approval = (new.revision % 4 == 0).then(|| Box::new(sample::approval(&HOSTILE.join("\n"))));
            new.not_before = (new.revision % 3 == 0).then_some(Timestamp(i64::MIN));
            new.updated_at = new.updated_at.after(std::time::Duration::from_secs(1));
            admit(store, &[sample.change().record(new.clone())]).await;
            assert_found(store, &new).await;
        }
    }
    let mut extreme = sample.record("extreme");
    (extreme.declaration, extreme.attempts, extreme.spent) = (DeclarationId(i64::MAX), u32::MAX, u32::MAX);
    (extreme.created_at, extreme.updated_at) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    admit(store, &[sample.change().record(extreme.clone())]).await;
    assert_found(store, &extreme).await;
}

/// Text is stored unchanged, in every column and with any content.
pub async fn hostile_text_is_text(store: &dyn Store) {
    let large = "x".repeat(100_000);
    for (i, text) in HOSTILE.into_iter().chain(["a\0b", &large]).enumerate() {
        let sample = Sample::enrol(store, &format!("worker {i}")).await;
        let mut record = sample.record("a");
        let short: String = text.chars().filter(|c| !c.is_control()).take(8).collect();
        record.tenant = sample::tenant(&short);
        record.operation = name(&short);
        record.key = Key::of(short.clone()).target(&short).operation(&short).render().expect("a valid key");
        record.request = inline(json!({ "text": text }));
        record.owner = Owner { step: Some(text.into()), call_id: Some(text.into()), ..Owner::default() };
        record.state = State::Committed { response: inline(json!(text)) };
        record.external_ref = Some(text.into());
        admit(store, &[sample.change().record(record.clone())]).await;
        assert_found(store, &record).await;
    }
}

/// A key is taken once: a second record with it is refused as `Exists`, and the first is untouched.
pub async fn a_key_is_taken_once(store: &dyn Store) {
    let (ann, bob) = (Sample::enrol(store, "ann").await, Sample::enrol(store, "bob").await);
    let (first, second) = (ann.record("a"), bob.record("a"));
    let batch = [ann.change().record(first.clone()), bob.change().record(second.clone())];
    let verdicts = store.commit(&batch).await.unwrap();
    assert_eq!(verdicts, [Verdict::Admitted, Verdict::Refused(Refusal::Exists)]);
    assert_eq!(refused(store, bob.change().record(second.clone())).await, Some(Refusal::Exists));
    assert_found(store, &first).await;
    assert_eq!(store.record_at(&bob.tenant, second.id).await.unwrap(), None);

    let committed = ann.committed(&first);
    admit(store, &[ann.change().record(committed.clone())]).await;
    assert_eq!(refused(store, bob.change().record(second)).await, Some(Refusal::Exists));
    assert_found(store, &committed).await;
}

/// The same key of another tenant is another record.
pub async fn a_key_belongs_to_its_tenant(store: &dyn Store) {
    let ann = Sample::enrol(store, "ann").await;
    let other = ann.for_tenant("globex");
    let (ours, theirs) = (ann.record("a"), other.record("a"));
    admit(store, &[ann.change().record(ours.clone()), other.change().record(theirs.clone())]).await;
    assert_found(store, &ours).await;
    assert_found(store, &theirs).await;
}

/// A change cannot reach the record of another key by its id.
pub async fn an_update_stays_with_its_key(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let record = sample.record("a");
    admit(store, &[sample.change().record(record.clone())]).await;
    let other = Record { key: sample::key("b"), ..sample.committed(&record) };
    assert_eq!(refused(store, sample.change().record(other)).await, Some(Refusal::Stale));
    assert_found(store, &record).await;
}

/// Only its tenant finds a record, by key or by id.
pub async fn belongs_to_its_tenant(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (record, run) = (sample.record("a"), sample.run("a"));
    let other = sample::tenant("globex");
    let mut change = sample.change().record(record.clone());
    change.used = Some(Box::new(sample.used(&record, &run)));
    admit(store, &[change]).await;
    assert_eq!(store.record_find(&other, &record.key).await.unwrap(), None);
    assert_eq!(store.record_at(&other, record.id).await.unwrap(), None);
    assert_eq!(store.record_uses(&other, record.id).await.unwrap(), []);
}

/// Orphans are started records of fenced workers, outside any run and without an open question.
pub async fn orphans_are_started_and_nobodys(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let orphan = old.record("orphan");
    let foreign = old.for_tenant("globex").record("orphan");
    let committed = Record { state: old.committed(&orphan).state, ..old.record("committed") };
    let of_run = old.call(&old.run("a"), "pay/1", "of a run");
    let asked = Record { escalation: Some(QuestionId(1)), ..old.record("asked") };
    let alive = new.record("alive");
    let all = [&orphan, &foreign, &committed, &of_run, &asked];
    admit(store, &all.map(|record| old.change().record(record.clone()))).await;
    admit(store, &[new.change().record(alive)]).await;
    assert_eq!(orphans(store).await, [], "nobody has been fenced");
    admit(store, &[fence_others(new.fence)]).await;
    assert_eq!(orphans(store).await, [orphan.clone(), foreign.clone()], "of all tenants");

    admit(store, &[new.change().record(new.record_on(&orphan, State::Started))]).await;
    assert_eq!(orphans(store).await, [foreign], "taken over is no orphan any more");
}

/// A run that ended unsettled resumes nothing: its started calls are orphans, and only those.
pub async fn orphans_are_left_by_runs_that_ended_unsettled(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let waits = RunState::Waiting { until: None, on: WaitsOn::ANSWER };
    let blocked = RunState::Blocked { failure: payload(&json!("why")) };
    let failed = RunState::Failed { failure: payload(&json!("why")) };
    let succeeded = RunState::Succeeded { output: inline(json!(7)) };
    let mut left = Vec::new();
    let states = [RunState::Active, waits, blocked, failed.clone(), succeeded.clone(), failed, succeeded];
    for (i, state) in states.into_iter().enumerate() {
        let run = Run { state, unsettled: i > 4, ..old.run(&i.to_string()) };
        let (started, done) =
            (old.call(&run, "pay/1", &format!("{i}")), old.call(&run, "pay/2", &format!("{i} done")));
        admit(store, &[old.change().run(run.clone()).record(started.clone())]).await;
        admit(store, &[old.change().record(Record { state: old.committed(&done).state, ..done })]).await;
        // A run of another tenant does not count.
        let foreign = old.for_tenant("globex").call(&run, "pay/1", &format!("{i}"));
        admit(store, &[old.change().record(foreign)]).await;
        left.extend(run.unsettled.then_some(started));
    }
    assert_eq!(orphans(store).await, [], "nobody has been fenced");
    admit(store, &[fence_others(new.fence)]).await;
    assert_eq!(orphans(store).await, left);
}

/// An orphan whose tool was not registered when its question was asked is still one, until the question has an
/// answer.
pub async fn orphans_may_wait_for_their_tool(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let mut waiting = Vec::new();
    for kind in [QuestionKind::UnknownTool, QuestionKind::Ambiguous, QuestionKind::UnknownTool] {
        let question = Question { kind, ..old.escalation("?") };
        let record = Record { escalation: Some(question.id), ..old.record(&question.id.to_string()) };
        admit(store, &[old.change().record(record.clone()).escalation(question.clone())]).await;
        waiting.extend((kind == QuestionKind::UnknownTool).then_some((record, question)));
    }
    admit(store, &[fence_others(new.fence)]).await;
    let records = |of: &[(Record, Question)]| of.iter().map(|(record, _)| record.clone()).collect::<Vec<_>>();
    assert_eq!(orphans(store).await, records(&waiting));
    let answer = sample::answered(&waiting[0].1, "bob");
    admit(store, &[new.change().escalation(answer)]).await;
    assert_eq!(orphans(store).await, records(&waiting[1..]));
}

/// Orphans are listed up to the limit, from a given id on.
pub async fn orphans_are_limited(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let records: Vec<_> = (0..5).map(|i| old.record(&i.to_string())).collect();
    let changes: Vec<_> = records.iter().map(|record| old.change().record(record.clone())).collect();
    admit(store, &changes).await;
    admit(store, &[fence_others(new.fence)]).await;
    let listed = async |after: i64, limit: u32| store.record_orphans(RecordId(after), limit).await.unwrap();
    assert_eq!(listed(i64::MIN, 0).await, []);
    assert_eq!(listed(i64::MIN, 3).await, records[..3]);
    assert_eq!(listed(records[1].id.0, 2).await, records[2..4]);
    assert_eq!(listed(records[4].id.0, 2).await, []);
    assert_eq!(listed(i64::MIN, u32::MAX).await, records);
}

async fn orphans(store: &dyn Store) -> Vec<Record> {
    store.record_orphans(RecordId(i64::MIN), 10).await.unwrap()
}

/// The runs that a record answered, each once.
pub async fn uses_are_listed_by_run(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (record, runs) = (sample.record("a"), [sample.run("a"), sample.run("b")]);
    let uses = [0, 1].map(|i| sample.used(&record, &runs[i]));
    let change = |used: &SharedEffect| Change { used: Some(Box::new(used.clone())), ..sample.change() };
    let again = SharedEffect { step: "pay/2".into(), at: Timestamp(9), ..uses[0].clone() };
    admit(
        store,
        &[sample.change().record(record.clone()), change(&uses[1]), change(&uses[0]), change(&again)],
    )
    .await;
    assert_eq!(store.record_uses(&sample.tenant, record.id).await.unwrap(), uses);
    assert_eq!(store.record_uses(&sample.tenant, sample.record("b").id).await.unwrap(), []);
}

/// Records are listed in the order of their keys, by the beginning of the key, from behind a key on.
pub async fn are_listed_by_the_beginning_of_their_keys(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let other = sample.for_tenant("globex");
    let keys = ["a", "b", "b:1", "b:2", "b\u{10ffff}", "b\u{10ffff}1", "c", "\u{10ffff}"];
    for key in keys {
        let record = Record { key: OperationKey::stored(key), ..sample.record(key) };
        admit(store, &[sample.change().record(record)]).await;
    }
    let foreign = Record { key: OperationKey::stored("b:3"), ..other.record("b:3") };
    admit(store, &[other.change().record(foreign)]).await;
    let list = async |prefix, after, limit| {
        let found = store.record_list(&sample.tenant, prefix, after, limit).await.unwrap();
        found.into_iter().map(|record| record.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list("", "", 99).await, keys);
    assert_eq!(list("b", "", 99).await, keys[1..6]);
    assert_eq!(list("b:", "", 99).await, keys[2..4]);
    assert_eq!(list("b", "b", 2).await, keys[2..4]);
    assert_eq!(list("b\u{10ffff}", "", 99).await, keys[4..6]);
    assert_eq!(list("\u{10ffff}", "", 99).await, keys[7..]);
    assert_eq!(list("b", "b\u{10ffff}1", 99).await, [] as [&str; 0]);
    assert_eq!(list("d", "", 99).await, [] as [&str; 0]);
}

/// Records are listed by a label, in the order of their keys, by the beginning of the key, from behind a key on. A label of another
/// tenant or with another value lists nothing, a record without labels has none, and the first label of a name is kept.
pub async fn are_listed_by_their_labels(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let other = sample.for_tenant("globex");
    let record = |of: &Sample, key: &str| Record { key: OperationKey::stored(key), ..of.record(key) };
    let labelled = |of: &Sample, record: &Record, labels: &[(&str, &str)]| Change {
        record_labels: labels.iter().map(|(name, value)| of.record_label(record, name, value)).collect(),
        ..of.change().record(record.clone())
    };
    let keys = ["b:2", "a", "b\u{10ffff}", "b:1"];
    let with = keys.map(|key| record(&sample, key));
    let labels = [("customer", "c-7"), ("case", HOSTILE[0])];
    let mut changes: Vec<_> = with.iter().map(|record| labelled(&sample, record, &labels)).collect();
    let (without, theirs) = (record(&sample, "b:3"), record(&other, "b:4"));
    changes.extend([
        sample.change().record(without.clone()),
        labelled(&sample, &record(&sample, "b:5"), &[("customer", "c-8")]),
    ]);
    changes.push(labelled(&other, &theirs, &labels));
    admit(store, &changes).await;
    let taken = record(&sample, "a");
    assert_eq!(refused(store, labelled(&sample, &taken, &[("subject", "s")])).await, Some(Refusal::Exists));
    let later = vec![sample.record_label(&with[1], "customer", "c-9")];
    admit(store, &[Change { record_labels: later, ..sample.change() }]).await;

    let list = async |(name, value): (&str, &str), prefix, after, limit| {
        let found = store.record_labelled(&sample.tenant, (name, value), prefix, after, limit).await.unwrap();
        found.into_iter().map(|record| record.key.to_string()).collect::<Vec<_>>()
    };
    let customer = labels[0];
    assert_eq!(list(customer, "", "", 99).await, ["a", "b:1", "b:2", "b\u{10ffff}"]);
    assert_eq!(list(labels[1], "", "", 99).await, ["a", "b:1", "b:2", "b\u{10ffff}"]);
    assert_eq!(list(customer, "b:", "", 99).await, ["b:1", "b:2"]);
    assert_eq!(list(customer, "", "a", 2).await, ["b:1", "b:2"]);
    assert_eq!(list(customer, "b", "b:2", 99).await, ["b\u{10ffff}"]);
    assert_eq!(list(("customer", "c-8"), "", "", 99).await, ["b:5"]);
    for nothing in [("customer", "c-"), ("customer", "c-9"), ("case", "c-7"), ("subject", "s")] {
        assert_eq!(list(nothing, "", "", 99).await, [] as [&str; 0]);
    }
    let found = store.record_labelled(&other.tenant, customer, "", "", 99).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&theirs));
    let mut of_first = store.record_labels(&sample.tenant, with[1].id).await.unwrap();
    of_first.sort_by(|one, next| one.name.cmp(&next.name));
    let expected =
        [("case", HOSTILE[0]), customer].map(|(name, value)| sample.record_label(&with[1], name, value));
    assert_eq!(of_first, expected);
    for (tenant, record) in [
        (&other.tenant, &with[1]),
        (&sample.tenant, &without),
        (&sample.tenant, &theirs),
        (&sample.tenant, &taken),
    ] {
        assert_eq!(store.record_labels(tenant, record.id).await.unwrap(), []);
    }
}
