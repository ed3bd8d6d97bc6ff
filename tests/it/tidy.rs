//! What no compiler checks: imports run downwards, SQL stays in the store, files say what they are for.

mod circles;
mod codes;
mod pages;
mod paths;
mod requirements;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use paths::{library, named};

/// The layers from the ground up. A file may import from its own layer and from those below. Not listed are `lib`, which only passes
/// on what the layers have, and `main`, which is another crate.
const LAYERS: [&[&str]; 10] = [
    &["clock", "crash", "id", "log", "meter", "metrics", "page", "panics", "trace", "unstable", "payload"],
    &["ledger"],
    &["store"],
    &["tool"],
    &["exec"],
    &["flow"],
    &["agent", "guard"],
    &["sim"],
    &["errors", "rim"], // the table of codes names the doors' errors, and the HTTP API answers with codes
    &["guides"],
];

pub(crate) fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

#[test]
fn imports_run_downwards() {
    for (module, (path, text)) in library() {
        let Some(top) = module.first().filter(|top| *top != "main") else { continue };
        let own = layer_of(top).unwrap_or_else(|| panic!("{} is in no layer", path.display()));
        let named = named(&text, &module);
        for named in named.used.iter().map(|(_, path)| path).chain(&named.written) {
            // A path that does not begin at the root, or below it, climbs no higher than its own module.
            let Some(first) = named.first().filter(|first| *first != top) else { continue };
            let layer = layer_of(first).unwrap_or_else(|| {
                panic!("{} names {first} by the crate's root: name the module that has it", path.display())
            });
            assert!(layer <= own, "{} imports upwards: {}", path.display(), named.join("::"));
        }
    }
}

#[test]
fn the_ledger_is_pure() {
    for (path, text) in sources("src/ledger") {
        for banned in
            ["async fn", ".await", "tokio", "sqlx", "std::fs", "SystemTime", "Instant::now", "rand::"]
        {
            assert!(!text.contains(banned), "{} holds {banned:?}", path.display());
        }
    }
}

#[test]
fn sql_stands_in_the_store_and_nowhere_else() {
    for (path, text) in sources("src") {
        // The SQL sink writes to other databases than the store's.
        if path.components().any(|part| ["store", "sql_sink"].iter().any(|own| part.as_os_str() == *own)) {
            continue;
        }
        let code: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for banned in ["SELECT ", "INSERT INTO", "UPDATE ", "DELETE FROM", "sqlx::query"] {
            let found = code.iter().find(|line| line.contains(banned));
            assert!(found.is_none(), "{} holds SQL: {found:?}", path.display());
        }
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for folder in ["src", "tests", "workflows", "benches"] {
        for (path, text) in sources(folder) {
            if path.components().any(|part| part.as_os_str() == "ui") {
                continue;
            }
            assert!(text.starts_with("//!"), "{} begins without a module comment", path.display());
        }
    }
}

#[test]
fn only_two_files_read_clocks_or_draw_chance() {
    let allowed = BTreeSet::from(["clock.rs", "id.rs"]);
    for (path, text) in sources("src") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if allowed.contains(name.as_str()) {
            continue;
        }
        for banned in
            ["SystemTime::now", "Instant::now", "tokio::time::sleep", "getrandom::", "new_v4", "now_v7"]
        {
            assert!(!text.contains(banned), "{} holds {banned:?}", path.display());
        }
    }
}

/// A choice that draws lots draws them where no seed owns them.
#[test]
fn every_choice_is_biased() {
    for (path, text) in sources("src") {
        for (_, choice) in text.match_indices("select! {").map(|(at, what)| text[at..].split_at(what.len())) {
            let biased = choice.trim_start().starts_with("biased;");
            assert!(biased, "{} chooses by chance: {}", path.display(), choice.lines().nth(1).unwrap());
        }
    }
}

/// Migrations are numbered without gaps, and the store knows all of them.
#[test]
fn migrations_are_all_known() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/sqlite");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let known: Vec<_> = counterfoil::store::sqlite::migrations()
        .map(|(number, name, _)| format!("{number:04}_{name}.sql"))
        .collect();
    assert_eq!(files, known);
}
