//! The request hash of a key, and the difference that is shown for another request under the key.

use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use crate::ledger::{BoundFields, RequestHash, UnboundField, diff};
use crate::payload::{Payload, Secret};

fn hash(operation: &str, request: &Value) -> RequestHash {
    RequestHash::of(operation, &Payload::of(request).unwrap())
}

fn difference(first: &impl Serialize, other: &impl Serialize) -> Value {
    diff(&Payload::of(first).unwrap(), &Payload::of(other).unwrap()).unwrap().0
}

// A key that is bound to some fields: SHA-256("counterfoil/request/2\0" "pay" "\0" {"/cents":100,"/to":"ann"}).
#[test]
fn scheme_two_is_pinned() {
    let request = Payload::of(&json!({"to": "ann", "cents": 100, "note": "rent"})).unwrap();
    let bound = |fields| RequestHash::bound("pay", &request, &BoundFields::only(1, fields));
    let hash = bound(vec!["/to", "/cents"]).unwrap();
    assert_eq!(format!("{hash:?}"), "v2:20a802e69d061884e03e8a30d020cc445bf73e33a2cccb32cba6d584130d8ea1");
    assert_eq!(bound(vec!["/cents", "/to"]).unwrap(), hash, "in whatever order they are named");
    assert_eq!(bound(vec!["/cents", "/tax"]), Err(UnboundField { field: "/tax".into() }));
    let all = RequestHash::bound("pay", &request, &BoundFields::All).unwrap();
    assert_eq!(all, RequestHash::of("pay", &request));
}

// R-KEY-5, E07: records live for years; the scheme they were hashed with must not change under its number.
// Computed independently: SHA-256("counterfoil/request/1\0" "pay" "\0" {"cents":100,"to":"ann"}).
#[test]
fn scheme_one_is_pinned() {
    let hash = hash("pay", &json!({"to": "ann", "cents": 100}));
    assert_eq!(hash.version, RequestHash::VERSION);
    assert_eq!(format!("{hash:?}"), "v1:7222e58f3473f2f6229e1113fcc0eceb30a3767dd8d134ba37b9c37c66e01d7b");
}

// R-KEY-5, E07: a hash of another scheme never counts as a hash of this one.
#[test]
fn the_version_is_part_of_the_hash() {
    let one = hash("pay", &json!(1));
    assert_ne!(one, RequestHash { version: 2, ..one });
}

// R-KEY-5: the border between operation and request cannot be moved.
#[test]
fn operations_have_their_own_hashes() {
    let one = json!(1);
    assert_ne!(hash("pay", &one), hash("refund", &one));
    assert_ne!(hash("pay1", &json!(1)), hash("pay", &json!(11)));
    assert_ne!(hash("pay\0\"a\"", &json!("b")), hash("pay", &json!("a\0b")));
}

proptest! {
    // R-KEY-5
    #[test]
    fn one_request_one_hash(a in -3_i32..3, b in "[ab]{0,2}", c in -3_i32..3, d in "[ab]{0,2}") {
        let (this, same) = (json!({"n": a, "s": b}), json!({"s": b, "n": f64::from(a)}));
        prop_assert_eq!(hash("t", &this), hash("t", &same));
        let that = json!({"n": c, "s": d});
        prop_assert_eq!((a, b) == (c, d), hash("t", &this) == hash("t", &that));
    }
}

// R-KEY-6: the fields that differ, and no others.
#[test]
fn a_conflict_shows_what_differs() {
    let first = json!({"to": "ann", "cents": 100, "note": "x", "lines": [1, 2]});
    let other = json!({"to": "ann", "cents": 900, "lines": [1, 2, 3], "urgent": true});
    let mut seen: Vec<_> = difference(&first, &other).as_array().unwrap().clone();
    seen.sort_by_key(|operation| operation["path"].to_string());
    let expected = json!([
        {"op": "replace", "path": "/cents", "value": 900},
        {"op": "add", "path": "/lines/2", "value": 3},
        {"op": "remove", "path": "/note"},
        {"op": "add", "path": "/urgent", "value": true},
    ]);
    assert_eq!(Value::Array(seen), expected);
    assert_eq!(difference(&first, &first), json!([]));
}

/// A secret as the store returns it.
fn stored(digest: &str) -> Value {
    json!({"$secret": digest})
}

// R-KEY-6, E09: not even the digest of a secret is shown, wherever the secret is.
#[test]
fn a_conflict_shows_no_digest() {
    let (a, b) = ("a".repeat(64), "b".repeat(64));
    let pairs = [
        (stored(&a), stored(&b)),
        (json!({"token": stored(&a)}), json!({"token": stored(&b)})),
        (json!({}), json!({"token": stored(&b)})),
        (json!({"token": "none"}), json!({"token": stored(&b)})),
        (json!([1]), json!([{"deep": [{"token": stored(&b)}]}, stored(&a)])),
        (json!({"x": stored(&a), "y": 1}), json!({"x": 1, "y": stored(&a)})),
        (json!([stored(&a), stored(&b)]), json!([stored(&b), stored(&a)])),
    ];
    for (first, other) in pairs {
        let shown = difference(&first, &other);
        assert_ne!(shown, json!([]), "the difference itself is shown");
        let text = shown.to_string();
        assert!(!text.contains(&a) && !text.contains(&b), "{text}");
        assert!(text.contains("redacted"), "{text}");
    }
}

// R-KEY-6
#[test]
fn a_secret_that_is_equal_does_not_differ() {
    let request = |token: &str| json!({"to": "ann", "token": stored(token)});
    assert_eq!(difference(&request("d"), &request("d")), json!([]));
    assert_eq!(difference(&Secret::new("a"), &Secret::new("a")), json!([]));
}

// Rows hold the hash in this form.
#[test]
fn a_hash_is_its_version_and_its_digest() {
    let hash = hash("pay", &json!(1));
    let column = hash.column();
    assert_eq!((column[0], &column[1..]), (hash.version, &hash.digest[..]));
    assert_eq!(RequestHash::from_column(&column), Some(hash));
    for damaged in [Vec::new(), column[..32].to_vec(), [column.clone(), vec![0]].concat()] {
        assert_eq!(RequestHash::from_column(&damaged), None);
    }
}

#[test]
fn a_difference_is_shown_as_its_patch() {
    let of = |cents| Payload::of(&json!({"cents": cents})).unwrap();
    let shown = diff(&of(1), &of(2)).unwrap().to_string();
    assert_eq!(
        serde_json::from_str::<Value>(&shown).unwrap(),
        json!([{"op": "replace", "path": "/cents", "value": 2}])
    );
}
