//! Operation keys: two different operations never get the same key, on disk or on the wire.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::id::{RunId, RunName, RunNumber, Tenant};
use crate::ledger::{Key, KeyError, OperationKey, Scope, escaped, unrevised};

const WIRE_LIMITS: [usize; 6] = [25, 36, 49, 63, 64, 255];

fn tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn text(key: &Key) -> String {
    key.render().unwrap().as_str().to_owned()
}

/// One call of the builder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Call {
    Target(String),
    Operation(String),
}

/// A key as it was requested. Two that differ mean two operations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    kind: String,
    first: First,
    calls: Vec<Call>,
    scope: Scope,
    revision: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum First {
    Nothing,
    Given(String),
    Derived(Vec<(String, String)>),
}

impl Asked {
    fn key(&self) -> Key {
        let begun = match &self.first {
            First::Nothing => Key::of(&self.kind),
            First::Given(key) => Key::given(&self.kind, key),
            First::Derived(fields) => {
                Key::derived(&self.kind, fields.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            }
        };
        let built = self.calls.iter().fold(begun, |key, call| match call {
            Call::Target(text) => key.target(text),
            Call::Operation(text) => key.operation(text),
        });
        built.scope(self.scope.clone()).revision(self.revision)
    }

    /// The meaning of the request: a tenant-wide key is one key, whatever the operation type.
    fn meaning(&self) -> Self {
        let mut meaning = self.clone();
        if self.scope == Scope::Tenant {
            meaning.kind.clear();
        }
        meaning
    }
}

// R-KEY-1, R-KEY-3, D01: every builder with up to two parts over texts that look like the key's own syntax.
#[test]
fn no_two_builders_give_one_key() {
    let texts = ["a", ":", "a:a", "%3A", "~", "~key", "~user:a", "~revision:1", "é"].map(String::from);
    let mut lists = vec![vec![]];
    let calls: Vec<_> =
        texts.iter().flat_map(|t| [Call::Target(t.clone()), Call::Operation(t.clone())]).collect();
    for call in &calls {
        lists.push(vec![call.clone()]);
        lists.extend(calls.iter().map(|second| vec![call.clone(), second.clone()]));
    }
    let given = texts.iter().cloned().map(First::Given);
    let derived = texts.iter().map(|t| First::Derived(vec![(t.clone(), t.clone())]));
    let firsts: Vec<_> = std::iter::once(First::Nothing).chain(given).chain(derived).collect();
    let scopes = [Scope::Operation, Scope::User("a".into()), Scope::User(":a".into()), Scope::Tenant];

    let mut seen: HashMap<String, Asked> = HashMap::new();
    let mut add = |asked: Asked| {
        let rendered = text(&asked.key());
        if let Some(other) = seen.insert(rendered.clone(), asked.clone()) {
            assert_eq!(other.meaning(), asked.meaning(), "both are {rendered}");
        }
    };
    for (kind, calls) in ["a", "a:~user:a"].into_iter().flat_map(|kind| lists.iter().map(move |l| (kind, l)))
    {
        for first in &firsts {
            // Long lists after every beginning would give many more keys and no other syntax.
            if *first == First::Nothing && calls.is_empty() || *first != First::Nothing && calls.len() > 1 {
                continue;
            }
            for scope in &scopes {
                for revision in [0, 1] {
                    let (first, calls, scope) = (first.clone(), calls.clone(), scope.clone());
                    add(Asked { kind: kind.to_owned(), first, calls, scope, revision });
                }
            }
        }
    }
    assert!(seen.len() > 5000, "{}", seen.len());
}

fn part() -> impl Strategy<Value = String> {
    "[:%~a3AEé😀\u{202e} /]{1,3}|~key|~user:a|~revision:1|~long:a|~sha256:a|~tenant"
}

fn asked() -> impl Strategy<Value = Asked> {
    let call = prop_oneof![part().prop_map(Call::Target), part().prop_map(Call::Operation)];
    let first = prop_oneof![
        3 => Just(First::Nothing),
        1 => part().prop_map(First::Given),
        1 => proptest::collection::vec((part(), part()), 1..3).prop_map(First::Derived),
    ];
    let scope = prop_oneof![Just(Scope::Operation), Just(Scope::Tenant), part().prop_map(Scope::User)];
    (part(), first, proptest::collection::vec(call, 1..3), scope, 0..3_u32)
        .prop_map(|(kind, first, calls, scope, revision)| Asked { kind, first, calls, scope, revision })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    // R-KEY-1, R-KEY-7, D01, D02
    #[test]
    fn different_builders_differ_on_disk_and_on_the_wire(a in asked(), b in asked()) {
        let (ka, kb) = (a.key().render().unwrap(), b.key().render().unwrap());
        prop_assert_eq!(a.meaning() == b.meaning(), ka == kb);
        for max in WIRE_LIMITS {
            let (wa, wb) = (ka.wire("ns", &tenant(), max).unwrap(), kb.wire("ns", &tenant(), max).unwrap());
            prop_assert_eq!(ka == kb, wa == wb);
        }
    }

    // R-KEY-7, D02, D13: no text of a part reaches a header.
    #[test]
    fn wire_forms_fit_and_are_plain(asked in asked(), max in 25..300_usize) {
        let wire = asked.key().render().unwrap().wire("ns", &tenant(), max).unwrap();
        prop_assert!(wire.len() >= 25 && wire.len() <= max);
        prop_assert!(wire.chars().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase()), "{}", wire);
    }

    // R-KEY-2: the assignment of values to fields counts.
    #[test]
    fn different_fields_give_different_keys(
        a in proptest::collection::vec(("[ab]{0,2}", "[ab]{0,2}"), 1..4),
        b in proptest::collection::vec(("[ab]{0,2}", "[ab]{0,2}"), 1..4),
    ) {
        let key = |fields: &[(String, String)]| {
            text(&Key::derived("t", fields.iter().map(|(n, v)| (n.as_str(), v.as_str()))))
        };
        prop_assert_eq!(a == b, key(&a) == key(&b));
    }
}

// R-KEY-1: the text of a key.
#[test]
fn a_key_reads_as_its_parts() {
    assert_eq!(text(&Key::of("send").target("case:9").operation("draft 4")), "send:case%3A9:draft 4");
    assert_eq!(text(&Key::of("send").operation("a")), "send:~operation:a");
    assert_eq!(text(&Key::of("send").target("a").target("b")), "send:a:~target:b");
    assert_eq!(text(&Key::given("send", "k~1").revision(2)), "send:~key:k%7E1:~revision:2");
    assert_eq!(text(&Key::of("send").target("a").scope(Scope::User("ann".into()))), "send:~user:ann:a");
}

// R-KEY-3: one key for the whole tenant, and then no narrower one.
#[test]
fn a_tenant_wide_key_is_the_same_for_every_operation_type() {
    let wide = |kind: &str| text(&Key::of(kind).target("a").scope(Scope::Tenant));
    assert_eq!(wide("send"), wide("pay"));
    assert_ne!(wide("send"), text(&Key::of("send").target("a")));
    assert_ne!(wide("send"), text(&Key::of("~tenant").target("a")));
    assert_ne!(text(&Key::of("send").target("a")), text(&Key::of("pay").target("a")));
}

// R-KEY-1
#[test]
fn empty_parts_are_refused() {
    let empty = |part| Err(KeyError::Empty { part });
    assert_eq!(Key::of("").target("a").render(), empty("operation type"));
    assert_eq!(Key::of("t").target("").render(), empty("target"));
    assert_eq!(Key::of("t").target("a").operation("").render(), empty("operation"));
    assert_eq!(Key::of("t").render(), empty("target"));
    assert_eq!(Key::of("t").scope(Scope::Tenant).render(), empty("target"));
    assert_eq!(Key::given("t", "").render(), empty("key"));
    assert_eq!(Key::derived("t", []).render(), empty("derived"));
    assert_eq!(Key::of("t").target("a").scope(Scope::User(String::new())).render(), empty("user"));
    assert_eq!(Key::of("").target("a").hashed().render(), empty("operation type"));
}

// R-KEY-1, D13
#[test]
fn control_characters_are_refused() {
    for bad in ["\0", "a\nb", "\r\nX-Evil: 1", "\t", "\u{7f}", "\u{85}", "\u{1b}[31m"] {
        let control = |part| Err(KeyError::Control { part });
        assert_eq!(Key::of(bad).target("a").render(), control("operation type"));
        assert_eq!(Key::of("t").target(bad).render(), control("target"));
        assert_eq!(Key::of("t").target("a").operation(bad).render(), control("operation"));
        assert_eq!(Key::given("t", bad).hashed().render(), control("key"));
        assert_eq!(Key::of("t").target("a").scope(Scope::User(bad.into())).render(), control("user"));
    }
    // A derived key holds a digest of its fields, which may hold any text.
    assert!(Key::derived("t", [("text", "a\nb")]).render().is_ok());
}

// R-KEY-1
#[test]
fn the_length_limit_is_exact_and_counts_what_is_rendered() {
    let of = |n: usize| Key::of("t").target("x".repeat(n));
    assert_eq!(text(&of(510)).len(), Key::MAX_BYTES);
    assert_eq!(of(511).render(), Err(KeyError::TooLong { bytes: 513, max: 512 }));
    assert_eq!(
        Key::of("t").target(":".repeat(200)).render(),
        Err(KeyError::TooLong { bytes: 602, max: 512 })
    );
    assert!(of(510).revision(1).render().is_err());
}

// R-KEY-1, D03: a long key is hashed, never cut, and only if it would have been refused.
#[test]
fn long_keys_can_be_hashed_and_stay_distinct() {
    let long = |last: &str| Key::of("t").target("x".repeat(4000)).operation(last).hashed();
    assert!(text(&long("a")).len() < 100);
    assert_ne!(text(&long("a")), text(&long("b")));
    assert_ne!(text(&long("a")), text(&long("a").revision(1)));
    assert_ne!(text(&long("a").revision(1)), text(&long("a").revision(2)));
    assert_ne!(text(&long("a")), text(&Key::of("t").target("x".repeat(4001)).operation("a").hashed()));
    // No written key has the same text as the hash.
    let posing = Key::of(text(&long("a")).split(':').next().unwrap()).target("a");
    assert_ne!(text(&posing), text(&long("a")));
    for n in 480..520 {
        for revision in [0, 1, u32::MAX] {
            let key = Key::of("t").target("x".repeat(n)).revision(revision);
            let hashed = key.clone().hashed().render().unwrap();
            if let Ok(plain) = key.render() {
                assert_eq!(plain, hashed, "asking for a hash later must not change a key that fits");
            }
        }
    }
}

// R-KEY-7, D09, D15: tenants and deployments that share a provider account stay apart.
#[test]
fn wire_forms_differ_by_tenant_and_namespace() {
    let key = Key::of("t").target("a").render().unwrap();
    let other = Tenant::new("acmes").unwrap();
    for max in WIRE_LIMITS {
        let wire = |ns: &str, tenant: &Tenant| key.wire(ns, tenant, max).unwrap();
        assert_eq!(wire("prod", &tenant()), wire("prod", &tenant()));
        assert_ne!(wire("prod", &tenant()), wire("prod", &other));
        assert_ne!(wire("prod", &tenant()), wire("test", &tenant()));
        // The border between namespace and tenant is part of the hash.
        assert_ne!(wire("s", &tenant()), wire("", &Tenant::new("sacme").unwrap()));
        assert_ne!(wire("", &other), wire("", &tenant()));
    }
    for max in [0, 1, 16, 24] {
        assert_eq!(key.wire("prod", &tenant(), max), Err(KeyError::WireTooShort { max }));
    }
}

// R-KEY-7: keys live for years at providers; their form must not change under them.
#[test]
fn wire_forms_are_pinned() {
    let key = Key::of("send_notice").target("case:9").operation("draft 4").render().unwrap();
    let wire = |max| key.wire("prod", &tenant(), max).unwrap();
    assert_eq!(wire(25), wire(50)[..25]);
    assert_eq!(wire(64), wire(255));
    assert_eq!(wire(50), wire(63));
    assert_eq!(wire(50), "dx34ivr7n1s6yxkg0kp1l8n690fms67w2pi29ckjhydronaw66");
    assert_eq!(wire(64), "f86b5f8a021db447677c875a179369491de9289959a3036dc8b3a3971dff8ae1");
}

// R-KEY-2
#[test]
fn client_keys_are_fresh_and_usable() {
    let (a, b) = (crate::id::client_key(), crate::id::client_key());
    assert_ne!(a, b);
    assert!(Key::given("t", &a).render().is_ok());
}

// The errors say what to do.
#[test]
fn refusals_name_the_part_and_the_remedy() {
    let text = |e: KeyError| e.to_string();
    assert!(text(Key::of("t").target("").render().unwrap_err()).contains("target is empty"));
    assert!(text(Key::of("t").target("x".repeat(600)).render().unwrap_err()).contains(".hashed()"));
    assert!(text(Key::of("t").target("\n").render().unwrap_err()).contains("control character"));
}

// D11: a call without a key of its own has its run, its turn and its id, or its ordinal among the calls without an
// id.
#[test]
fn a_call_in_a_run_is_told_by_its_id_or_its_ordinal() {
    let run = RunName { id: RunId(7), number: RunNumber(10) };
    let name = run.text();
    assert_eq!(text(&Key::in_run("t", run, 0, "a:b")), format!("t:~{name}:a%3Ab"));
    assert_eq!(text(&Key::in_run("t", run, 3, "a")), format!("t:~{name}:~turn:3:a"));
    assert_eq!(text(&Key::nth_in_run("t", run, 0, "2")), format!("t:~{name}:~2"));
    assert_ne!(text(&Key::nth_in_run("t", run, 0, "2")), text(&Key::in_run("t", run, 0, "~2")));
    let another = RunName { number: RunNumber(11), ..run };
    assert_ne!(text(&Key::in_run("t", run, 0, "a")), text(&Key::in_run("t", another, 0, "a")));
    assert_eq!(Key::in_run("t", run, 0, "a").kind(), "t");
}

#[test]
fn a_key_read_back_is_the_one_that_was_rendered() {
    let key = Key::of("t").target("a").render().unwrap();
    let stored = OperationKey::stored(key.as_str());
    assert_eq!(stored, key);
    assert_eq!((key.to_string().as_str(), &*key.text()), ("t:a", "t:a"));
    assert_eq!(escaped("a:~%b"), "a%3A%7E%25b");
}

// An effect that was undone may be made once more: under the next revision, whatever the length.
#[test]
fn the_next_revision_is_the_one_that_the_builder_gives() {
    let short = |revision| Key::of("t").target("a").revision(revision).render().unwrap();
    assert_eq!(short(0).next_revision(), short(1));
    assert_eq!(short(1).next_revision(), short(2));
    assert_eq!(short(9).next_revision(), short(10));
    assert_eq!(unrevised(short(12).as_str()), ("t:a", 12));
    assert_eq!(unrevised("t:a"), ("t:a", 0));
    assert_eq!(unrevised("t:~revision:x"), ("t:~revision:x", 0), "no number");
    // The longest key that fits stays unchanged; with one more character it is hashed, as the builder does.
    for n in 495..=510 {
        let of = |revision| Key::of("t").target("x".repeat(n)).hashed().revision(revision).render().unwrap();
        assert_eq!(of(0).next_revision(), of(1), "{n}");
        assert!(of(0).next_revision().as_str().len() <= Key::MAX_BYTES);
        assert_eq!(of(0).next_revision().next_revision(), of(2), "{n}");
    }
}

#[test]
fn the_fewest_characters_are_enough() {
    let key = Key::of("t").target("a").render().unwrap();
    assert_eq!(key.wire("ns", &tenant(), OperationKey::WIRE_MIN).unwrap().len(), 25);
}
