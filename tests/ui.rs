//! What must not compile, and what the compiler then says in our words (DESIGN 4.4, R-EXE-1).
//!
//! Each case is checked against the library that this test is linked with: to have cargo do it would build all
//! dependencies once more.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

// What does compile.
#[allow(dead_code)]
#[path = "ui/pass.rs"]
mod pass;

/// The folder with the libraries that cargo has built, and ours among them: the newest one, of whatever features.
fn library() -> (PathBuf, PathBuf) {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap());
    let ours = files.filter(|file| {
        let path = file.path();
        let is_ours = file.file_name().to_string_lossy().starts_with("libcounterfoil-");
        is_ours && path.extension().is_some_and(|ending| ending == "rlib")
    });
    let newest = ours.max_by_key(|file| file.metadata().unwrap().modified().unwrap()).unwrap();
    (folder, newest.path())
}

/// What the compiler says of a case: its errors, where they are, and what to do about them; none of the library's lines.
fn said(case: &str) -> String {
    let (folder, library) = library();
    let checked = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition=2024", "--emit=metadata", "--error-format=json", "--out-dir"])
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg(format!("-Ldependency={}", folder.display()))
        .arg(format!("--extern=counterfoil={}", library.display()))
        .arg(format!("tests/ui/{case}.rs"))
        .output()
        .unwrap();
    assert!(!checked.status.success(), "{case} compiles");
    let mut said = String::new();
    for line in String::from_utf8(checked.stderr).unwrap().lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        if message["spans"].as_array().is_none_or(Vec::is_empty) {
            continue; // that there were errors
        }
        writeln!(said, "{}: {}", message["level"].as_str().unwrap(), message["message"].as_str().unwrap())
            .unwrap();
        for span in message["spans"].as_array().unwrap().iter().filter(|span| span["is_primary"] == true) {
            let (line, label) = (&span["line_start"], span["label"].as_str().unwrap_or_default());
            writeln!(said, "  in line {line}: {label}").unwrap();
        }
        for more in message["children"].as_array().unwrap() {
            writeln!(said, "  {}: {}", more["level"].as_str().unwrap(), more["message"].as_str().unwrap())
                .unwrap();
        }
    }
    said
}

#[test]
fn the_type_rules_refuse_what_is_unsafe() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("ui");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| {
        for case in [
            "payment_blind",
            "notification_without_package",
            "deletion_without_package",
            "notification_without_approval",
            "payment_without_approval",
            "policy_without_a_policy",
            "payment_by_policy_blind",
            "lookup_without_reconcile",
            "rejects_key_without_reconcile",
            "compensation_forgotten",
            "undoable_without_compensate",
            "undoable_read",
        ] {
            insta::assert_snapshot!(case, said(case));
        }
    });
}
