//! Reads the sources of the stores, for tests of every statement in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use counterfoil::store::transfer::columns;

/// The texts of the files of a folder, with their names.
pub(crate) fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    let is_source = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "rs");
    let mut sources: Vec<_> = files.filter(is_source).map(read).collect();
    sources.sort();
    assert!(!sources.is_empty(), "the files have moved");
    sources
}

/// The statements as a file that people read, each on a line.
pub(crate) fn pinned(statements: impl Iterator<Item = String>) -> String {
    let lines: BTreeSet<_> =
        statements.map(|sql| sql.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

/// The statements that both databases are given in the same words. A text that goes on behind a query is of the table of the rows
/// that its function answers. `either` chooses between what stands in them for each.
pub(crate) fn shared_reads(either: impl Fn(String, String) -> String) -> Vec<String> {
    let mut reads = Vec::new();
    for (file, source) in files("src/store/sql") {
        if ["queried.rs", "retention.rs", "inbox.rs", "run_page.rs", "survey.rs"].contains(&file.as_str()) {
            continue; // users' own, for each database in its words; put together for each; an operator's, of whole tables
        }
        let (mut chosen, mut first) = (constants(), None);
        for (before, mut text, _) in literals(&source) {
            if let Some((name, sqlite)) = first.take() {
                let text = either(sqlite, text);
                if is_whole(&text) {
                    reads.push(text.clone());
                }
                chosen.insert(name, text);
                continue;
            }
            if before.ends_with("::either(") {
                let name = before.rsplit("let ").next().unwrap().split(' ').next().unwrap();
                first = Some((format!("{{{name}}}"), text));
                continue;
            }
            for (name, words) in &chosen {
                text = text.replace(name, words);
            }
            if text.contains('{') {
                continue; // it is put together elsewhere
            }
            if is_whole(&text) {
                reads.push(text);
            } else if let Some(table) = table_answered(before)
                && text.contains("WHERE ")
            {
                let columns: Vec<_> =
                    columns().filter(|(name, _)| *name == table).map(|(_, column)| column).collect();
                assert!(!columns.is_empty(), "{table}");
                reads.push(format!("SELECT {} FROM {table} {text}", columns.join(", ")));
            }
        }
    }
    assert!(reads.len() >= 40, "found only {reads:#?}: has their form changed?");
    reads
}

/// The texts that are constants of what both databases are told, as they stand in other texts.
pub(crate) fn constants() -> BTreeMap<String, String> {
    let mut constants = BTreeMap::new();
    for (_, source) in files("src/store/sql") {
        for (before, text, _) in literals(&source) {
            if let Some(constant) = before.strip_suffix(": &str =") {
                let name = constant.rsplit(' ').next().unwrap();
                constants.insert(format!("{{{name}}}"), text);
            }
        }
    }
    constants
}

/// The table whose rows a function answers, or a constant is of, that a text stands in.
fn table_answered(before: &str) -> Option<String> {
    if let Some(constant) = before.strip_suffix(": &str =") {
        return Some(match constant.rsplit(' ').next()? {
            "EVIDENCE" => "evidence".to_owned(),
            "EVENT" => "outbox".to_owned(),
            "AGGREGATE" => "outbox_aggregate".to_owned(),
            _ => return None,
        });
    }
    let answers = [before.rfind("> Found<"), before.rfind("> Listed<")].into_iter().flatten().max()?;
    let row = before[answers..].split(['<', '>']).nth(2)?;
    Some(match row {
        "SharedEffect" => "use".to_owned(),
        "Question" => "escalation".to_owned(),
        "Aggregate" => "outbox_aggregate".to_owned(),
        "OutboxEvent" => "outbox".to_owned(),
        "PublishedValue" => "published".to_owned(),
        "RunLabel" => "run_label".to_owned(),
        "RecordLabel" => "record_label".to_owned(),
        row => row.to_lowercase(),
    })
}

/// It is a statement by itself.
fn is_whole(text: &str) -> bool {
    ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH "].iter().any(|verb| text.starts_with(verb))
}

/// The string literals of a source file: what stands before each, its text, what stands behind.
pub(crate) fn literals(source: &str) -> Vec<(&str, String, &str)> {
    let mut found = Vec::new();
    let mut rest = 0;
    while let Some(start) = source[rest..].find(['"', '/']).map(|at| at + rest) {
        if source[start..].starts_with("//") {
            rest = start + source[start..].find('\n').unwrap();
            continue;
        }
        rest = start + 1;
        if source[start..].starts_with('/') {
            continue;
        }
        let mut text = String::new();
        let mut chars = source[rest..].char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break rest + at,
                (_, '\\') => match chars.next().unwrap().1 {
                    '\n' => {
                        let skip = chars.as_str().len() - chars.as_str().trim_start().len();
                        for _ in 0..skip {
                            chars.next();
                        }
                    }
                    'n' => text.push('\n'),
                    escaped => write!(text, "{escaped}").unwrap(),
                },
                (_, c) => text.push(c),
            }
        };
        found.push((source[..start].trim_end(), text, &source[end + 1..]));
        rest = end + 1;
    }
    found
}
