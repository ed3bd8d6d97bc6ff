//! Reads the sources of the stores, for tests of every statement in them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The texts of the files of a folder, with their names.
pub(crate) fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    let mut sources: Vec<_> = files.map(read).collect();
    sources.sort();
    assert!(sources.len() > 5, "the files have moved");
    sources
}

/// The statements as a file that people read: one after the other, each part of a batch on a line of its own.
pub(crate) fn pinned(statements: &BTreeSet<String>) -> String {
    let lines = |sql: &String| sql.split_whitespace().collect::<Vec<_>>().join(" ").replace("), ", "),\n  ");
    statements.iter().map(lines).collect::<Vec<_>>().join("\n")
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
