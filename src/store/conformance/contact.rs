//! Contacts: the attempts and lookups of a record.

use super::sample::Sample;
use super::{admit, refused, sample};
use crate::ledger::Record;
use crate::store::{Change, Contact, ContactResult, DroppedContact, Refusal, Store};

fn made(sample: &Sample, contacts: &[&Contact]) -> Change {
    Change { contacts: contacts.iter().map(|contact| (*contact).clone()).collect(), ..sample.change() }
}

fn lookup(sample: &Sample, record: &Record, number: u32) -> Contact {
    let (id, result) = (sample.id(), ContactResult::Nothing);
    let attempt = sample.attempt(record, number);
    Contact { id, is_lookup: true, attempt: 1, began: None, result, error: None, message: None, ..attempt }
}

async fn kept(store: &dyn Store, record: &Record) -> Vec<Contact> {
    store.record_contacts(&record.tenant, record.id).await.unwrap()
}

/// Attempts come back as they were written, in their order, and lookups behind them.
pub async fn come_back_as_they_were_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let record = sample.record("a");
    let (first, second) = (sample.attempt(&record, 1), sample.attempt(&record, 2));
    let looks = [lookup(&sample, &record, 1), lookup(&sample, &record, 2)];
    admit(store, &[sample.change().record(record.clone())]).await;
    admit(store, &[made(&sample, &[&looks[0], &second]), made(&sample, &[&first, &looks[1]])]).await;
    let [look, again] = looks;
    assert_eq!(kept(store, &record).await, [first, second, look, again]);
}

/// The first contact under an id is kept; the same again is no error.
pub async fn the_first_of_an_id_stands(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let record = sample.record("a");
    let first = sample.attempt(&record, 1);
    let second = Contact { result: ContactResult::Lost, error: None, ..first.clone() };
    admit(store, &[made(&sample, &[&first]), made(&sample, &[&second])]).await;
    admit(store, &[made(&sample, &[&second]), made(&sample, &[&first])]).await;
    assert_eq!(kept(store, &record).await, [first]);
}

/// A contact is dropped by its id, with the one that takes its place in the history; one that is not there is no error.
pub async fn one_is_dropped_for_another(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (record, other) = (sample.record("a"), sample.record("b"));
    let attempts: Vec<_> = (1..=3).map(|number| sample.attempt(&record, number)).collect();
    let elsewhere = sample.attempt(&other, 2);
    admit(store, &[made(&sample, &[&attempts[0], &attempts[1], &elsewhere])]).await;
    let dropped = |id| DroppedContact { tenant: record.tenant.clone(), record: record.id, id };
    let change = Change { dropped_contacts: vec![dropped(2), dropped(9)], ..made(&sample, &[&attempts[2]]) };
    admit(store, &[change.clone(), change]).await;
    assert_eq!(kept(store, &record).await, [attempts[0].clone(), attempts[2].clone()]);
    assert_eq!(kept(store, &other).await, [elsewhere]);
}

/// A fenced worker adds no contact, and drops none.
pub async fn a_fenced_worker_adds_none(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let record = old.record("a");
    let first = old.attempt(&record, 1);
    admit(store, &[made(&old, &[&first]), sample::fence_others(new.fence)]).await;
    assert_eq!(refused(store, made(&old, &[&old.attempt(&record, 2)])).await, Some(Refusal::Fenced));
    let dropped = vec![DroppedContact { tenant: record.tenant.clone(), record: record.id, id: 1 }];
    let change = Change { dropped_contacts: dropped, ..old.change() };
    assert_eq!(refused(store, change).await, Some(Refusal::Fenced));
    assert_eq!(kept(store, &record).await, [first]);
}

/// Only its tenant sees a contact.
pub async fn belong_to_their_tenant(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let record = sample.record("a");
    admit(store, &[made(&sample, &[&sample.attempt(&record, 1)])]).await;
    assert_eq!(store.record_contacts(&sample::tenant("globex"), record.id).await.unwrap(), []);
}
