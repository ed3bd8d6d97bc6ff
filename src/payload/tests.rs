//! Canonical payloads: one spelling per meaning, and no number is rounded, no field dropped, no secret shown.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::payload::{Limits, MAX_DEPTH, MAX_EXACT_INTEGER, Payload, PayloadError, Secret, parse};

fn canonical(text: &str) -> String {
    Payload::parse(text).unwrap().as_str().to_owned()
}

/// The path of the integer that was refused.
fn inexact_at<T: Serialize>(value: &T) -> String {
    match Payload::of(value) {
        Err(PayloadError::InexactInteger { path, .. }) => path,
        other => panic!("expected an inexact integer, got {other:?}"),
    }
}

// R-KEY-5: RFC 8785, sections 3.2.2 and 3.2.4.
#[test]
fn the_example_of_the_rfc() {
    let text = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
    );
    assert_eq!(canonical(text), expected);
}

// R-KEY-5, E01: RFC 8785, section 3.2.3. U+1F600 sorts before U+FB33, by its surrogates.
#[test]
fn keys_sort_by_utf16_units() {
    let text = r#"{
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let text = canonical(text);
    let at = |word: &str| text.find(word).unwrap();
    let expected = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"];
    assert!(expected.is_sorted_by_key(|word| at(word)), "{text}");
}

// R-KEY-5: RFC 8785, appendix B.
#[test]
fn numbers_are_spelled_as_the_rfc_says() {
    let table: &[(u64, &str)] = &[
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, expected) in table {
        let number = f64::from_bits(*bits);
        assert_eq!(Payload::of(&number).unwrap().as_str(), *expected);
        assert_eq!(Payload::of(&json!([number])).unwrap().as_str(), format!("[{expected}]"));
    }
}

// R-KEY-5, E02
#[test]
fn one_number_has_one_spelling() {
    for text in ["1", "1.0", "1e0", "10e-1", "0.1E1"] {
        assert_eq!(canonical(text), "1", "{text}");
    }
    for text in ["0", "-0", "-0.0", "0e7"] {
        assert_eq!(canonical(text), "0", "{text}");
    }
    assert_eq!(canonical("4.5e-324"), "5e-324");
    assert_eq!(canonical("1e21"), "1e+21");
}

#[derive(Serialize)]
struct Order {
    unsigned: u64,
    signed: i64,
    lines: Vec<BTreeMap<String, u64>>,
}

// R-KEY-5, E03
#[test]
fn integers_that_a_double_carries_exactly_are_accepted() {
    let max = i64::try_from(MAX_EXACT_INTEGER).unwrap();
    assert_eq!(max, 9_007_199_254_740_991);
    for number in [max, -max, max - 1, 0] {
        assert_eq!(Payload::of(&number).unwrap().as_str(), number.to_string());
        assert_eq!(canonical(&number.to_string()), number.to_string());
    }
    let order = Order { unsigned: MAX_EXACT_INTEGER, signed: -max, lines: vec![] };
    assert!(Payload::of(&order).is_ok());
}

// R-KEY-5, E03
#[test]
fn integers_beyond_are_refused_with_their_path() {
    let over = MAX_EXACT_INTEGER + 1;
    let under = -i64::try_from(over).unwrap();
    for number in
        [json!(over), json!(over + 1), json!(under), json!(under - 1), json!(u64::MAX), json!(i64::MIN)]
    {
        assert_eq!(inexact_at(&number), "$");
        assert_eq!(inexact_at(&json!({"a": [true, {"b": number}]})), "$.a[1].b");
    }
    assert_eq!(inexact_at(&Order { unsigned: over, signed: 0, lines: vec![] }), "$.unsigned");
    assert_eq!(inexact_at(&Order { unsigned: 0, signed: under, lines: vec![] }), "$.signed");
    let lines = vec![BTreeMap::new(), BTreeMap::from([("cents".to_owned(), u64::MAX)])];
    assert_eq!(inexact_at(&Order { unsigned: 0, signed: 0, lines }), "$.lines[1].cents");
    assert_eq!(inexact_at(&(1, Some(over))), "$[1]");
    // These are wider than the integers of `serde_json`; 10^21 + 1 would pass for 10^21.
    assert_eq!(inexact_at(&[10_u128.pow(21) + 1]), "$[0]");
    assert_eq!(inexact_at(&[-(10_i128.pow(21)) - 1]), "$[0]");
    // The integer keys of a map go through the same double.
    assert!(Payload::of(&BTreeMap::from([(over + 1, 0)])).is_err());
    assert_eq!(Payload::of(&BTreeMap::from([(7_u64, 0)])).unwrap().as_str(), r#"{"7":0}"#);
}

// R-KEY-5, E03: in text, an integer beyond u64 is not quietly read as a double.
#[test]
fn long_integer_literals_in_text_are_refused() {
    for number in [
        "9007199254740993",
        "-9007199254740993",
        "18446744073709551617",
        "-9223372036854775809",
        "1000000000000000000001",
    ] {
        let at = |text: String| match Payload::parse(&text) {
            Err(PayloadError::InexactInteger { path, number: named }) => {
                assert_eq!(named, number);
                path
            }
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(at(number.to_owned()), "$");
        assert_eq!(at(format!(r#"{{"a": [0, {{"b": {number} }}]}}"#)), "$.a[1].b");
    }
    assert_eq!(canonical(r#"["18446744073709551617"]"#), r#"["18446744073709551617"]"#);
}

// R-KEY-5: a float says of itself that it is approximate.
#[test]
fn large_floats_are_fine() {
    assert_eq!(Payload::of(&1e20).unwrap().as_str(), "100000000000000000000");
    assert_eq!(Payload::of(&json!({"a": 1e16})).unwrap().as_str(), r#"{"a":10000000000000000}"#);
    assert_eq!(canonical("1e20"), "100000000000000000000");
    assert_eq!(canonical("12345678901234567890.5"), "12345678901234567000");
    assert_eq!(canonical("0.12345678901234567890"), "0.12345678901234568");
}

#[derive(Serialize)]
struct Measure<N> {
    value: N,
}

#[derive(Serialize)]
enum Reading {
    One(f64),
    Two(f64, f64),
    Named { value: f64 },
}

// R-KEY-5, E05: a NaN does not become null, which would be the payload of another request.
#[test]
fn what_is_not_a_number_is_refused_wherever_it_stands() {
    #[derive(Serialize)]
    struct Amount(f64);
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let refused = [
            Payload::of(&bad),
            Payload::of(&Amount(bad)),
            Payload::of(&Some(bad)),
            Payload::of(&[bad]),
            Payload::of(&(1, bad)),
            Payload::of(&Measure { value: bad }),
            Payload::of(&Measure { value: vec![Some(bad)] }),
            Payload::of(&BTreeMap::from([("a", bad)])),
            Payload::of(&Reading::One(bad)),
            Payload::of(&Reading::Two(0.0, bad)),
            Payload::of(&Reading::Named { value: bad }),
            Payload::of(&Measure { value: f32::NAN }),
        ];
        for result in refused {
            assert!(matches!(result, Err(PayloadError::NotJson { .. })), "{result:?}");
        }
    }
    let error = Payload::of(&Measure { value: [0.0, f64::NAN] }).unwrap_err().to_string();
    assert!(error.contains("$.value[1]"), "{error}");
}

// R-KEY-5, E05
#[test]
fn broken_text_is_refused() {
    for (text, field) in [
        (r#"{"a": 1, "a": 1}"#, "a"),
        (r#"{"a": 1, "\u0061": 2}"#, "a"),
        (r#"[{"x": {"b": 1, "c": 2, "b": 1}}]"#, "b"),
    ] {
        assert_eq!(Payload::parse(text), Err(PayloadError::DuplicateField { field: field.to_owned() }));
    }
    for text in [
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#"{"\ud83d": 1}"#,
        "1 2",
        "{} x",
        "[1,]",
        "{\"a\":1,}",
        "",
        "NaN",
        "Infinity",
        "-",
        "01",
        "1e400",
        "\"a\nb\"",
        "'a'",
        "nul",
    ] {
        assert!(matches!(Payload::parse(text), Err(PayloadError::NotJson { .. })), "{text:?}");
    }
}

// E05: a field that a typed value would write twice is refused as well.
#[test]
fn a_field_flattened_over_another_is_refused() {
    #[derive(Serialize)]
    struct Outer {
        a: u8,
        #[serde(flatten)]
        rest: BTreeMap<String, u8>,
    }
    let rest = |name: &str| BTreeMap::from([(name.to_owned(), 2)]);
    assert_eq!(Payload::of(&Outer { a: 1, rest: rest("b") }).unwrap().as_str(), r#"{"a":1,"b":2}"#);
    assert!(Payload::of(&Outer { a: 1, rest: rest("a") }).is_err());
}

#[derive(Serialize)]
enum Wrap {
    One(Value),
    Two(Value, Value),
    Named { inner: Value },
}

fn nested(depth: usize) -> Value {
    (0..depth)
        .fold(json!(1), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({"a": inner}) })
}

// E10: a value that is accepted can also be read back.
#[test]
fn depth_is_limited_and_what_is_accepted_reads_back() {
    let deep = |depth: usize| Payload::parse(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
    let too_deep = PayloadError::TooDeep { max: MAX_DEPTH };
    for depth in [MAX_DEPTH + 1, 200, 1000, 100_000] {
        assert_eq!(deep(depth), Err(too_deep.clone()));
    }
    assert!(deep(MAX_DEPTH).is_ok());
    assert_eq!(Payload::of(&nested(1000)), Err(too_deep.clone()));
    assert_eq!(Payload::of(&nested(MAX_DEPTH + 1)), Err(too_deep.clone()));
    let deepest = nested(MAX_DEPTH);
    assert_eq!(Payload::of(&deepest).unwrap().value().unwrap(), deepest);

    // A variant is one level in the text, and two levels if it holds several values.
    assert!(Payload::of(&Wrap::One(nested(MAX_DEPTH - 1))).unwrap().value().is_ok());
    assert_eq!(Payload::of(&Wrap::One(nested(MAX_DEPTH))), Err(too_deep.clone()));
    assert!(Payload::of(&Wrap::Two(nested(MAX_DEPTH - 2), Value::Null)).unwrap().value().is_ok());
    assert_eq!(Payload::of(&Wrap::Two(nested(MAX_DEPTH - 1), Value::Null)), Err(too_deep.clone()));
    assert_eq!(Payload::of(&Wrap::Named { inner: nested(MAX_DEPTH - 1) }), Err(too_deep));
}

// R-REC-5, E10
#[test]
fn a_payload_beyond_the_hard_limit_is_refused() {
    let large = Payload::of(&"x".repeat(10 << 20)).unwrap();
    let limits = Limits::default();
    let refused = large.within(&limits);
    assert_eq!(refused, Err(PayloadError::TooLarge { bytes: (10 << 20) + 2, max: limits.max_bytes }));
    let tight = Limits { max_bytes: 5, ..limits };
    assert!(Payload::of("abc").unwrap().within(&tight).is_ok());
    assert!(Payload::of("abcd").unwrap().within(&tight).is_err());
}

// R-KEY-5, D02
#[test]
fn any_text_round_trips() {
    for text in [
        "\u{0}",
        "\u{202e}שלום",
        "😀👩‍👩‍👧",
        "é",
        "e\u{301}",
        "\u{2028}",
        "\"\\/\u{7f}",
        "{\"a\":1}",
        "9007199254740993",
    ] {
        let payload = Payload::of(&json!({ text: [text] })).unwrap();
        assert_eq!(payload.value().unwrap(), json!({ text: [text] }));
        assert_eq!(Payload::parse(payload.as_str()).unwrap(), payload);
    }
    // Composed and decomposed forms stay two strings, as the RFC demands.
    assert_ne!(Payload::of("é").unwrap(), Payload::of("e\u{301}").unwrap());
}

const CANARY: &str = "canary-7f3a";

#[derive(Serialize, Deserialize, Debug)]
struct Login {
    user: String,
    token: Secret<String>,
}

fn login() -> Login {
    Login { user: "ann".into(), token: Secret::new(CANARY.into()) }
}

#[derive(Deserialize, Debug)]
#[allow(dead_code, reason = "only its failure to parse is looked at")]
struct Numeric {
    token: Secret<u64>,
}

// R-KEY-5, E09
#[test]
fn a_secret_is_shown_nowhere() {
    let payload = Payload::of(&login()).unwrap();
    let mismatch = payload.decode::<u8>().unwrap_err();
    // JSON from outside has a secret of the wrong type: the message of serde itself would quote it.
    let outside = Payload::of(&json!({"user": "ann", "token": [CANARY]})).unwrap();
    let wrong = outside.decode::<Login>().unwrap_err();
    let number = Payload::of(&json!({"user": "ann", "token": CANARY})).unwrap();
    let quoted = number.decode::<Numeric>().unwrap_err();
    for text in [
        payload.as_str().to_owned(),
        format!("{payload:?}"),
        format!("{:?}", login()),
        mismatch.to_string(),
        format!("{wrong:?} {wrong}"),
        format!("{quoted:?} {quoted}"),
    ] {
        assert!(!text.contains(CANARY), "{text}");
    }
}

// R-KEY-5: a payload from the store holds no secret; a payload from a caller holds one.
#[test]
fn a_secret_read_back_exposes_nothing() {
    assert_eq!(login().token.expose().unwrap(), CANARY);
    let stored: Login = Payload::of(&login()).unwrap().decode().unwrap();
    assert_eq!(stored.user, "ann");
    assert_eq!(stored.token.expose(), None);
    assert_eq!(Payload::of(&stored).unwrap(), Payload::of(&login()).unwrap());
    let sent: Login = parse_into(r#"{"user": "ann", "token": "t"}"#);
    assert_eq!(sent.token.expose().unwrap(), "t");
}

fn parse_into<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_json::from_value(parse(text).unwrap()).unwrap()
}

/// JSON values whose numbers a double carries exactly.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Value::from),
        "[a:\\\\\"é😀\u{0}]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map("[ab😀\u{fb33}]{0,2}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// The same meaning in another spelling: fields in another order, whole numbers as floats.
fn respelled(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .rev()
                .map(|(k, v)| format!("{} : {}", Value::from(k.as_str()), respelled(v)))
                .collect();
            format!("{{ {} }}", fields.join(" ,\n"))
        }
        Value::Array(items) => {
            format!("[ {} ]", items.iter().map(respelled).collect::<Vec<_>>().join(" , "))
        }
        Value::Number(n) if n.is_i64() || n.is_u64() => format!("{n}.0E0"),
        other => other.to_string(),
    }
}

/// Equality as JSON: 1 and 1.0 are one number, 0 and -0 too.
#[allow(clippy::float_cmp, reason = "the question is whether they are the same number")]
fn equal(a: &Value, b: &Value) -> bool {
    let fields = |a: &Map<String, Value>, b: &Map<String, Value>| {
        a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| equal(v, w)))
    };
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => fields(a, b),
        (a, b) => a == b,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    // R-KEY-5, E01, E02
    #[test]
    fn equal_meaning_equal_bytes(value in value()) {
        let payload = Payload::of(&value).unwrap();
        prop_assert_eq!(&Payload::parse(&respelled(&value)).unwrap(), &payload);
        prop_assert!(equal(&payload.value().unwrap(), &value));
    }

    // R-KEY-5
    #[test]
    fn other_meaning_other_bytes(a in value(), b in value()) {
        let (pa, pb) = (Payload::of(&a).unwrap(), Payload::of(&b).unwrap());
        prop_assert_eq!(equal(&a, &b), pa == pb);
        prop_assert_eq!(pa == pb, pa.digest() == pb.digest());
    }
}
