//! The pages: each link of them leads somewhere, each page is in the book, each error code and each example has its place.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use counterfoil::ErrorCode;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Markdown files of a folder, with those below it.
fn below(folder: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn pages() -> Vec<PathBuf> {
    let of_root = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|page| root().join(page));
    of_root.into_iter().chain(below("docs")).chain(below("workflows")).collect()
}

/// The lines of a page outside of code blocks, without code inside of a line.
fn prose(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap();
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The targets of the links of a page.
fn links(page: &Path) -> Vec<String> {
    let prose = prose(page);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).filter(|target| !target.contains("://")).collect()
}

/// The anchors of a page's headings, as GitHub and mdbook make them.
fn anchors(page: &Path) -> BTreeSet<String> {
    let mut taken = BTreeMap::<String, u32>::new();
    let headings = prose(page);
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let kept = line.trim_start_matches('#').trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        kept.flat_map(char::to_lowercase).collect()
    };
    headings
        .map(|line| {
            let anchor = anchor(line);
            let times = taken.entry(anchor.clone()).and_modify(|times| *times += 1).or_default();
            if *times == 0 { anchor } else { format!("{anchor}-{times}") }
        })
        .collect()
}

#[test]
fn each_link_of_the_pages_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        for link in links(&page) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let is_there = target.exists() && (anchor.is_empty() || anchors(&target).contains(anchor));
            if !is_there {
                broken.push(format!("{}: {link}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn each_page_of_the_guides_is_in_the_book_once() {
    let docs = root().join("docs");
    let mut listed = links(&docs.join("SUMMARY.md"));
    listed.sort();
    let mut there: Vec<_> = below("docs")
        .iter()
        .map(|page| page.strip_prefix(&docs).unwrap().to_str().unwrap().to_owned())
        .filter(|page| page != "SUMMARY.md")
        .collect();
    there.sort();
    assert_eq!(listed, there, "docs/SUMMARY.md lists the pages of docs");
}

#[test]
fn each_error_code_has_a_page_that_says_what_to_do() {
    let folder = root().join("docs/errors");
    let codes: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let pages = below("docs/errors");
    let there: BTreeSet<_> = pages.iter().map(|page| page.file_stem().unwrap().to_str().unwrap()).collect();
    assert_eq!(there, codes.iter().copied().chain(["README"]).collect());
    let index = fs::read_to_string(folder.join("README.md")).unwrap();
    for code in codes {
        assert!(index.contains(&format!("| [`{code}`]({code}.md) |")), "{code} is not in the index");
        let page = fs::read_to_string(folder.join(format!("{code}.md"))).unwrap();
        let mut from = 0;
        for part in [
            &format!("# {code}\n"),
            "\n## When it occurs\n",
            "\n## What is durable\n",
            "\n## What to do\n",
            "\n## Example\n",
        ] {
            let at =
                page[from..].find(part).unwrap_or_else(|| panic!("{code}.md lacks {part:?} in its place"));
            from += at + part.len();
        }
        assert!(page[from..].contains(&format!("[{code}]")), "the example of {code}.md shows no such error");
    }
}

/// The index of the examples lists each program with the command that runs it, with the features that it needs.
#[test]
fn each_example_is_in_the_index_with_the_command_that_runs_it() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let index = fs::read_to_string(root().join("workflows/README.md")).unwrap();
    let value = |table: &str, field: &str| -> Option<String> {
        let line = table.lines().find(|line| line.starts_with(field))?;
        Some(line.split_once(" = ")?.1.to_owned())
    };
    let mut declared = BTreeSet::new();
    for table in manifest.split("[[example]]").skip(1) {
        let name = value(table, "name").unwrap().replace('"', "");
        let path = value(table, "path").unwrap().replace('"', "");
        declared.insert(path.clone());
        let needs = value(table, "required-features").unwrap_or_default();
        let needs: Vec<_> =
            needs.split('"').skip(1).step_by(2).filter(|feature| *feature != "sqlite").collect();
        let features =
            if needs.is_empty() { String::new() } else { format!("--features {} ", needs.join(",")) };
        let file = path.strip_prefix("workflows/").unwrap();
        let row = index.lines().find(|line| line.contains(&format!("[`{name}`]({file})")));
        let row = row.unwrap_or_else(|| panic!("workflows/README.md lacks {name}"));
        let command = format!("cargo run {features}--example {name}");
        let is_alias = name == "demo" && row.contains("`cargo demo`");
        assert!(is_alias || row.contains(&command), "{name} is run by `{command}`:\n{row}");
    }
    let programs = super::sources("workflows").into_iter().filter(|(_, text)| text.contains("fn main("));
    let programs = programs.map(|(path, _)| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
    assert_eq!(programs.collect::<BTreeSet<_>>(), declared, "each program of workflows/ is an example");
}
