//! Every example is simulated by `counterfoil simulate`, or left out for a reason that is given in `workflows/simulated.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The names of all examples, as Cargo knows them.
fn examples() -> BTreeSet<String> {
    let manifest = read("Cargo.toml");
    let tables = manifest.split("[[example]]\nname = \"").skip(1);
    tables.map(|table| table.split('"').next().unwrap().to_owned()).collect()
}

/// The files of the simulations that the program knows. It lists them for a name that it does not know.
fn simulated() -> BTreeSet<String> {
    let asked =
        Command::new(env!("CARGO_BIN_EXE_counterfoil")).args(["simulate", "nobody"]).output().unwrap();
    let said = String::from_utf8(asked.stderr).unwrap();
    let names = said.trim().split_once("there are ").unwrap_or_else(|| panic!("{said}")).1;
    names.split(", ").map(|name| name.split('/').next().unwrap().to_owned()).collect()
}

/// What is left out, and why.
fn left_out() -> BTreeMap<String, String> {
    let list = read("workflows/simulated.rs");
    let rows = list.lines().filter_map(|line| line.strip_prefix("//! - `")?.split_once("`: "));
    rows.map(|(name, reason)| (name.to_owned(), reason.to_owned())).collect()
}

#[test]
fn each_is_simulated_or_left_out_for_a_reason() {
    let (examples, simulated, left_out) = (examples(), simulated(), left_out());
    assert!(examples.len() > 15, "only {examples:?}");
    for example in &examples {
        let places = u8::from(simulated.contains(example)) + u8::from(left_out.contains_key(example));
        assert_eq!(places, 1, "{example} is simulated or left out in workflows/simulated.rs, not both");
    }
    let gone: Vec<_> = left_out.keys().filter(|name| !examples.contains(*name)).collect();
    assert!(gone.is_empty(), "left out, and no example: {gone:?}");
    assert!(left_out.values().all(|reason| reason.len() > 20), "{left_out:?}");
}
