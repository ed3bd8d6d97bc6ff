//! docs/requirements.md: each requirement has a row, and each test that a row names is there.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

/// The requirements of each family, by their numbers. Of the doors, those for operators alone.
const FAMILIES: [(&str, RangeInclusive<usize>); 10] = [
    ("KEY", 1..=7),
    ("REC", 1..=11),
    ("EXE", 1..=13),
    ("FLOW", 1..=13),
    ("GUARD", 1..=7),
    ("SAGA", 1..=6),
    ("EDGE", 7..=7),
    ("SCALE", 1..=8),
    ("OBS", 1..=4),
    ("SIM", 1..=4),
];

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap_or_default()
}

/// The rows of the page: the name of each, and the tests that it names, each with its file.
fn rows(page: &str) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let cells = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let row = cells.next().filter(|row| row.contains('-') && !row.contains("--"))?;
        let tests = cells.nth(1)?.split('`').filter_map(|named| named.split_once("::")).collect();
        Some((row, tests))
    });
    cells.collect()
}

#[test]
fn each_requirement_has_a_row_and_each_test_that_it_names_is_there() {
    let page = read("docs/requirements.md");
    let rows = rows(&page);
    let expected =
        FAMILIES.iter().flat_map(|(family, rows)| rows.clone().map(move |row| format!("{family}-{row}")));
    let missing: Vec<_> = expected.clone().filter(|row| !rows.contains_key(row.as_str())).collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
    assert_eq!(rows.len(), expected.count(), "a row of no requirement");
    let mut gone = Vec::new();
    for (row, tests) in &rows {
        assert!(!tests.is_empty(), "{row} names no test");
        for (file, test) in tests {
            let text = read(file);
            if !["(", "<"].iter().any(|next| text.contains(&format!("fn {test}{next}"))) {
                gone.push(format!("{row}: {file}::{test}"));
            }
        }
    }
    assert!(gone.is_empty(), "named, and not there: {gone:#?}");
}
