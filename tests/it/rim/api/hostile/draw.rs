//! Chance by a seed, and the forged texts and values that are drawn by it.

use serde_json::{Value, json};

/// A source of choices. The same seed makes the same choices.
pub(super) struct Draw(u64);

impl Draw {
    pub(super) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// The next bits, by `SplitMix64`.
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the end.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.bits() % end as u64).unwrap()
    }

    /// True once in so many times.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn of_all<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A forged text: a known troublemaker, a genuine id, a spoilt one, or a long text.
    pub(super) fn text(&mut self, genuine: &[String]) -> String {
        match self.below(8) {
            0..4 => (*self.of_all(&TEXTS)).to_owned(),
            4 | 5 => self.of_all(genuine).clone(),
            6 => {
                let text = self.of_all(genuine).clone();
                self.spoilt(&text)
            }
            _ => (*self.of_all(&["x", "\u{e4}", "%", "\0", "9", "-"]))
                .repeat(*self.of_all(&[65, 129, 513, 3000])),
        }
    }

    /// A text with another character in one place, or without its end.
    pub(super) fn spoilt(&mut self, text: &str) -> String {
        let mut chars: Vec<_> = text.chars().collect();
        if chars.is_empty() {
            return "x".to_owned();
        }
        let place = self.below(chars.len());
        match self.below(3) {
            0 => chars.truncate(place),
            1 => chars[place] = if chars[place] == 'f' { 'e' } else { 'f' },
            _ => chars.insert(place, '\u{1}'),
        }
        chars.into_iter().collect()
    }

    /// A value that no field expects, or that only some do.
    fn odd(&mut self, genuine: &[String]) -> Value {
        match self.below(10) {
            0..3 => json!(self.text(genuine)),
            3..6 => self.of_all(&numbers()).clone(),
            6 => json!([]),
            7 => json!({}),
            8 => {
                let depth = *self.of_all(&[3, 60, 110, 121]);
                (0..depth).fold(
                    json!(1),
                    |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({ "a": inner }) },
                )
            }
            _ => json!({ "": null, "a\0b": vec![0; 500], "$secret": "x", "~1": "\u{1}".repeat(1000) }),
        }
    }

    /// Spoils one place of a body: a field is dropped, renamed, added, or has another value.
    pub(super) fn spoil(&mut self, value: &mut Value, genuine: &[String]) {
        match value {
            Value::Object(fields) if !fields.is_empty() && !self.one_in(6) => {
                let name = fields.keys().nth(self.below(fields.len())).unwrap().clone();
                match self.below(8) {
                    0 => drop(fields.remove(&name)),
                    1 => drop(fields.insert(self.text(genuine), self.odd(genuine))),
                    2 => {
                        let content = fields.remove(&name).unwrap();
                        fields.insert(self.spoilt(&name), content);
                    }
                    _ => self.spoil(&mut fields[&name], genuine),
                }
            }
            Value::Array(items) if !items.is_empty() && !self.one_in(3) => {
                let place = self.below(items.len());
                self.spoil(&mut items[place], genuine);
            }
            other => *other = self.odd(genuine),
        }
    }
}

fn numbers() -> [Value; 12] {
    [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(-0.0),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(u64::from(u32::MAX) + 1),
        json!(9_007_199_254_740_993_u64),
    ]
}

/// Texts that break what is careless with them.
pub(super) const TEXTS: [&str; 48] = [
    " ",
    "\0",
    "a\0b",
    "\u{1b}[31m",
    "\n",
    "a\r\nSet-Cookie: b",
    "'; DROP TABLE run; --",
    "\" OR 1=1 --",
    "%",
    "_%",
    "*",
    "..",
    "../../etc/passwd",
    "/",
    "\\",
    "<script>alert(1)</script>",
    "${jndi:ldap://x}",
    "~",
    "~counterfoil",
    "~cancel",
    ":~revision:4294967296",
    "\u{202e}abc",
    "\u{fb33}",
    "e\u{301}",
    "\u{1f600}",
    "\u{feff}",
    "null",
    "true",
    "-1",
    "0",
    "1.5",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "NaN",
    "run-",
    "run--1",
    "run-7fffffffffffffff",
    "run--8000000000000000",
    "run-10000000000000000",
    "run-1~1",
    "run-1=key",
    "run-7fffffffffffffff~-9223372036854775808",
    "question-0",
    "question--8000000000000000",
    "customer=c-7",
    "2026-13",
    "9999-12-31T23:59:59.999999Z",
];
