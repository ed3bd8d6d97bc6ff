//! The row about dependencies.

use std::collections::BTreeSet;
use std::process::Command;

use crate::options::Options;
use crate::report::{Finding, Values};

/// Counts the other crates that a program with the default features compiles, including those at build time.
pub(crate) fn crates(_: &Options) -> Result<Vec<Finding>, String> {
    let listed = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["tree", "--offline", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(|e| format!("cargo cannot be run: {e}"))?;
    if !listed.status.success() {
        return Err(String::from_utf8_lossy(&listed.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&listed.stdout);
    // Name and version; the rest of the line says where the crate was seen before.
    let crates: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| (name, rest.split_whitespace().next().unwrap_or_default()))
        .collect();
    let others = crates.iter().filter(|(name, _)| *name != env!("CARGO_PKG_NAME")).count();
    let subject = Values::new("crates", vec![others as f64]);
    let measure = "crates in the default dependency tree".to_owned();
    Ok(vec![Finding::absolute("crates", measure, subject, None).at_most(150.0, 130.0)])
}
