//! docs/observe.md and the events in `src`: neither has one that the other has not, nor another level or other fields.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The levels and the fields of the events with one message.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kind {
    levels: BTreeSet<String>,
    fields: BTreeSet<String>,
}

type Kinds = BTreeMap<String, Kind>;

/// What an event is written with, and the fields that come with it.
const MACROS: [(&str, &[&str]); 4] = [
    ("tracing::", &[]),
    ("log_call!(", &["tenant", "run", "tool", "key"]),
    ("log_record!(", &["tenant", "run", "tool", "key"]),
    ("log_trouble!(", &["error"]),
];
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// The arguments of a macro, from behind its opening bracket.
fn arguments(code: &str) -> Vec<String> {
    let (mut arguments, mut depth, mut text, mut chars) = (vec![String::new()], 0, false, code.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' if text => {
                arguments.last_mut().unwrap().extend([c, chars.next().unwrap()]);
                continue;
            }
            '"' => text = !text,
            '(' | '[' | '{' if !text => depth += 1,
            ')' if !text && depth == 0 => break,
            ')' | ']' | '}' if !text => depth -= 1,
            ',' if !text && depth == 0 => {
                arguments.push(String::new());
                continue;
            }
            _ => {}
        }
        arguments.last_mut().unwrap().push(c);
    }
    arguments.iter().map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}

/// The events that a source file can write.
fn written(code: &str, kinds: &mut Kinds) {
    let code = code.lines().map(|line| line.split("// ").next().unwrap()).collect::<Vec<_>>().join("\n");
    for (name, always) in MACROS {
        for (at, _) in code.match_indices(name) {
            let rest = &code[at + name.len()..];
            let (levels, arguments): (Vec<&str>, _) = match name {
                "tracing::" => {
                    let level = LEVELS.iter().find(|level| rest.starts_with(&format!("{level}!(")));
                    let Some(level) = level else { continue };
                    (vec![level], arguments(&rest[level.len() + 2..]))
                }
                "log_trouble!(" => (vec!["error", "debug"], arguments(rest)[1..].to_vec()),
                _ => {
                    let all = arguments(rest);
                    let level = LEVELS.iter().find(|level| **level == all[0]).unwrap();
                    (vec![level], all[2..].to_vec())
                }
            };
            let (message, fields) = arguments.split_last().unwrap();
            let kind = kinds.entry(message.trim_matches('"').to_owned()).or_default();
            kind.levels.extend(levels.into_iter().map(ToOwned::to_owned));
            kind.fields.extend(always.iter().map(|field| (*field).to_owned()));
            let field =
                |one: &String| one.split('=').next().unwrap().trim_matches(['%', '?', ' ']).to_owned();
            kind.fields.extend(fields.iter().map(field));
        }
    }
}

/// The words in backticks.
fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

#[test]
fn the_page_lists_each_event_with_its_level_and_its_fields() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut kinds = Kinds::new();
    for (path, code) in crate::tidy::sources("src") {
        if !path.ends_with("src/log.rs") {
            written(&code, &mut kinds);
        }
    }
    assert!(kinds.len() > 100, "{}", kinds.len());
    let page = std::fs::read_to_string(root.join("docs/observe.md")).unwrap();
    let mut listed = Kinds::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [message, levels, fields, advice] = cells[..] else { panic!("four cells: {row}") };
        assert!(advice.ends_with('.'), "a sentence: {row}");
        let levels = levels.split(" or ").map(ToOwned::to_owned).collect();
        let twice =
            listed.insert(message.trim_matches('`').to_owned(), Kind { levels, fields: quoted(fields) });
        assert!(twice.is_none(), "listed twice: {row}");
    }
    for (message, kind) in &kinds {
        assert_eq!(listed.get(message), Some(kind), "{message:?} in docs/observe.md, and in src");
    }
    let gone: Vec<_> = listed.keys().filter(|message| !kinds.contains_key(*message)).collect();
    assert!(gone.is_empty(), "only in docs/observe.md: {gone:?}");
}

/// A message is read beside its fields: it begins in lower case with its subject, and is short.
#[test]
fn messages_are_short() {
    let mut kinds = Kinds::new();
    for (_, code) in crate::tidy::sources("src") {
        written(&code, &mut kinds);
    }
    for message in kinds.keys().filter(|message| !message.contains('$')) {
        let is_plain = !message.contains(['{', '!', '?', '"', '\n']) && message.len() <= 80;
        let begins = ["the ", "a ", "an ", "its ", "it ", "not ", "of ", "this ", "whether ", "cannot "];
        assert!(is_plain && !begins.iter().any(|word| message.starts_with(word)), "{message:?}");
    }
}
