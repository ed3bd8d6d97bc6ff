//! The data of a tenant beside its rows: a key for digests, and large payloads.

use serde_json::json;

use super::admit;
use super::sample::{self, HOSTILE, Sample, payload};
use crate::payload::DigestKey;
use crate::store::{Change, Store};

/// The first key of a tenant is kept; each tenant has its own.
pub async fn the_first_key_stays(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (acme, globex) = (sample::tenant("acme"), sample::tenant("globex"));
    let give = |tenant: &crate::id::Tenant, byte: u8| Change {
        tenant_key: Some((tenant.clone(), DigestKey::new([byte; 32]))),
        ..sample.change()
    };
    let key = async |tenant| store.tenant_key(tenant).await.unwrap().map(|key| *key.bytes());
    assert_eq!(key(&acme).await, None);
    admit(store, &[give(&acme, 1), give(&acme, 2), give(&globex, 3)]).await;
    admit(store, &[give(&acme, 4)]).await;
    assert_eq!((key(&acme).await, key(&globex).await), (Some([1; 32]), Some([3; 32])));
}

/// The tenants that have rows are listed by their names. A key alone is no row.
pub async fn those_with_rows_are_listed(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let of = |name: &str| sample.for_tenant(name);
    let mut key_only = sample.change();
    key_only.tenant_key = Some((sample::tenant("key-only"), DigestKey::new([1; 32])));
    let changes = [
        key_only,
        sample.change().run(of("b-run").run("a")),
        sample.change().escalation(of("C-question").escalation("?")),
        sample.change().record(of("a-record").record("k")),
    ];
    admit(store, &changes).await;
    let list = async |after, limit| {
        let listed = store.tenant_list(after, limit).await.unwrap();
        listed.iter().map(|tenant| tenant.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list("", 10).await, ["C-question", "a-record", "b-run"]);
    assert_eq!(list("", 2).await, ["C-question", "a-record"]);
    assert_eq!(list("a-record", 2).await, ["b-run"]);
    assert_eq!(list("b-run", 2).await, [""; 0]);
}

/// A large payload is found by its digest, byte for byte; adding it again is no error.
pub async fn a_payload_is_found_by_its_digest(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let large = payload(&json!({ "text": "0123456789".repeat(10_000), "hostile": HOSTILE }));
    assert!(large.as_str().len() > 100_000);
    let bodies = [large, payload(&json!(null)), payload(&json!("\u{0}"))];
    for _ in 0..2 {
        let payloads = bodies.iter().map(|body| (sample.tenant.clone(), body.clone())).collect();
        admit(store, &[Change { payloads, ..sample.change() }]).await;
    }
    for body in bodies {
        let found = store.payload_find(&sample.tenant, body.digest()).await.unwrap();
        assert_eq!(found, Some(body));
    }
}

/// A digest finds nothing for another tenant.
pub async fn a_payload_belongs_to_its_tenant(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (body, other) = (payload(&json!("secret")), sample::tenant("globex"));
    let payloads = vec![(sample.tenant.clone(), body.clone())];
    admit(store, &[Change { payloads, ..sample.change() }]).await;
    assert_eq!(store.payload_find(&other, body.digest()).await.unwrap(), None);
}
