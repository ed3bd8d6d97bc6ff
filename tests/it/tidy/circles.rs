//! How many files of a folder import one another in a circle, each by way of the others. What is in one can only be understood
//! together.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::{Named, Path, library, named};

/// The largest circle that each folder may have.
const LARGEST: [(&str, usize); 2] = [("exec", 2), ("flow", 3)];

#[test]
fn circles_are_small() {
    let all: BTreeMap<Path, Named> = library()
        .into_iter()
        .map(|(module, (_, text))| {
            // What tests import makes no circle.
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let named = named(code, &module);
            (module, named)
        })
        .collect();
    for (folder, largest) in LARGEST {
        let imports: BTreeMap<&Path, BTreeSet<&Path>> = all
            .iter()
            .filter(|(module, _)| module.first().is_some_and(|top| top == folder))
            .map(|(module, named)| (module, imports(&all, module, named)))
            .collect();
        let reached: BTreeMap<_, _> =
            imports.keys().map(|module| (*module, reached(&imports, module))).collect();
        let circle = |module: &Path| -> Vec<String> {
            let others = reached[module]
                .iter()
                .filter(|other| reached.get(*other).is_some_and(|r| r.contains(module)));
            others.map(|other| other.join("/")).collect()
        };
        let found = imports.keys().map(|module| circle(module)).max_by_key(Vec::len).unwrap_or_default();
        assert!(found.len() <= largest, "{} files import one another: {}", found.len(), found.join(", "));
    }
}

/// The modules that a file imports.
fn imports<'a>(all: &'a BTreeMap<Path, Named>, module: &Path, named: &Named) -> BTreeSet<&'a Path> {
    let is_own = |path: &Path| path.len() > module.len() && path.starts_with(module);
    // A folder that only passes on what its files have does not import it.
    let used = named.used.iter().filter(|(name, path)| !is_own(path) || named.words.contains(name));
    let written =
        named.written.iter().filter(|path| !is_own(path) || all.contains_key(&path[..=module.len()]));
    let found = used.map(|(_, path)| path).chain(written).map(|path| place(all, path, 0));
    found.flatten().filter(|found| *found != module).collect()
}

/// Where what a path names is declared, through the folders that pass it on.
fn place<'a>(all: &'a BTreeMap<Path, Named>, path: &[String], depth: u32) -> Option<&'a Path> {
    let known = (0..=path.len()).rev().find_map(|length| all.get_key_value(&path[..length]));
    let (module, named) = known?;
    let rest = &path[module.len()..];
    let passed_on = rest.first().and_then(|name| named.used.iter().find(|(used, _)| used == name));
    match passed_on {
        Some((_, from)) if depth < 8 => {
            let from: Path = from.iter().chain(&rest[1..]).cloned().collect();
            place(all, &from, depth + 1).or(Some(module))
        }
        _ => Some(module),
    }
}

fn reached<'a>(imports: &BTreeMap<&'a Path, BTreeSet<&'a Path>>, from: &Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Path> = imports.get(from).into_iter().flatten().copied().collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(imports.get(next).into_iter().flatten().copied());
        }
    }
    reached
}
