//! Documents: one for each id, changed one revision at a time, listed by their ids.

use std::slice::from_ref;
use std::task::{Context, Waker};

use futures_util::FutureExt as _;
use futures_util::future::{join, join_all};

use super::sample::{Sample, name};
use super::{admit, refused};
use crate::clock::Timestamp;
use crate::store::{Change, Document, Refusal, Store};

fn set(sample: &Sample, document: &Document) -> Change {
    Change { documents: vec![document.clone()], ..sample.change() }
}

/// A document comes back as it was written last, by its tenant, guard and id.
pub async fn comes_back_as_it_was_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let mut notice = sample.document("notice/7");
    admit(store, &[set(&sample, &notice)]).await;
    let find = async |kind: &str, id: &str| store.document_find(&sample.tenant, kind, id).await.unwrap();
    assert_eq!(find("approval", "notice/7").await, Some(notice.clone()));
    assert_eq!(find("artifact", "notice/7").await, None);
    let theirs = sample.for_tenant("globex");
    assert_eq!(store.document_find(&theirs.tenant, "approval", "notice/7").await.unwrap(), None);
    notice = Document { revision: 2, open: false, body: "{}".into(), updated_at: Timestamp(3), ..notice };
    admit(store, &[set(&sample, &notice)]).await;
    assert_eq!(find("approval", "notice/7").await, Some(notice));
}

/// A change of several documents is admitted if each of them is, and writes none otherwise; the same change again is
/// admitted.
pub async fn several_are_written_together_or_not_at_all(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (a, b, c) = (sample.document("a"), sample.document("b"), sample.document("c"));
    let all = |documents: &[Document]| Change { documents: documents.to_vec(), ..sample.change() };
    admit(store, &[all(&[a.clone(), b.clone()])]).await;
    admit(store, &[all(&[a.clone(), b.clone()])]).await;
    let second = Document { revision: 2, ..a.clone() };
    let other = Document { open: false, ..b.clone() };
    for refused_one in [[second.clone(), c.clone(), other.clone()], [other, second.clone(), c.clone()]] {
        assert_eq!(refused(store, all(&refused_one)).await, Some(Refusal::Exists));
    }
    let list = async || store.document_list(&sample.tenant, "approval", "", 9).await.unwrap();
    assert_eq!(list().await, [a, b.clone()]);
    admit(store, &[all(&[second.clone(), c.clone()])]).await;
    assert_eq!(list().await, [second, b, c]);
}

/// Several documents are requested at the same time: each caller gets its own, even if some callers go away.
pub async fn several_are_asked_for_at_once(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let theirs = sample.for_tenant("globex");
    let ids = ["a", "b", "it's \"c\"", "%2F/\\u0000", "ä\u{1f4a1}", "not there"];
    for id in &ids[..5] {
        admit(store, &[set(&sample, &sample.document(id))]).await;
    }
    admit(store, &[set(&theirs, &theirs.document("a"))]).await;
    for _ in 0..3 {
        let mut left = join_all(ids.map(|id| store.document_find(&sample.tenant, "approval", id)));
        let asked = left.poll_unpin(&mut Context::from_waker(Waker::noop()));
        let own = join_all(ids.map(|id| store.document_find(&sample.tenant, "approval", id)));
        let others = join_all(ids.map(|id| store.document_find(&theirs.tenant, "approval", id)));
        drop((left, asked));
        let (own, others) = join(own, others).await;
        for (id, (own, other)) in ids.iter().zip(own.into_iter().zip(others)) {
            assert_eq!(own.unwrap(), (*id != "not there").then(|| sample.document(id)), "{id}");
            assert_eq!(other.unwrap(), (*id == "a").then(|| theirs.document(id)), "{id}");
        }
    }
}

/// The documents of one guard are listed by their ids, from a given id on; the open ones are listed by themselves.
pub async fn is_listed_from_a_place_on(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (a, c) = (sample.document("a"), sample.document("c"));
    let b = Document { open: false, ..sample.document("b") };
    let of_another = Document { kind: name("artifact"), ..sample.document("a") };
    let theirs = sample.for_tenant("globex").document("a");
    admit(store, &[&c, &b, &a, &of_another, &theirs].map(|document| set(&sample, document))).await;
    let tenant = &sample.tenant;
    let list =
        async |after: &str, limit: u32| store.document_list(tenant, "approval", after, limit).await.unwrap();
    let open =
        async |after: &str, limit: u32| store.document_open(tenant, "approval", after, limit).await.unwrap();
    assert_eq!(list("", 9).await, [a.clone(), b.clone(), c.clone()]);
    assert_eq!(list("a", 1).await, from_ref(&b));
    assert_eq!(open("", 9).await, [a.clone(), c.clone()]);
    assert_eq!(open("a", 9).await, [c]);
    assert_eq!(open("", 1).await, [a]);
}
