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

/// Lists of other crates' types, and files of this machine.
fn depends_on_dependencies(said: &str) -> bool {
    said.contains("implement trait `serde_core")
        || said.starts_with("the full name for the type")
        || said.starts_with("consider using `--verbose`")
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
            if depends_on_dependencies(more["message"].as_str().unwrap()) {
                continue;
            }
            writeln!(said, "  {}: {}", more["level"].as_str().unwrap(), more["message"].as_str().unwrap())
                .unwrap();
        }
    }
    said
}

/// Compares what the compiler says of each case with its snapshot in `tests/ui`.
fn are_refused(cases: &[&str]) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("ui");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| {
        for case in cases {
            insta::assert_snapshot!(*case, said(case));
        }
    });
}

#[test]
fn the_type_rules_refuse_what_is_unsafe() {
    are_refused(&[
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
        "lookup_with_lookup",
        "draft_idempotent",
    ]);
}

#[test]
fn a_step_says_what_its_closure_may_be() {
    are_refused(&[
        "step_fallible",
        "step_with_async_block",
        "step_output_without_derive",
        "step_borrows_result",
    ]);
}

// The compiler's own words, pinned: docs/compiler-messages.md explains them.
#[test]
fn the_compilers_own_messages_are_as_the_guide_explains_them() {
    are_refused(&[
        "workflow_not_send",
        "workflow_holds_lock",
        "workflow_borrows_input",
        "workflow_borrows_local",
        "workflow_takes_context_by_reference",
        "workflow_with_another_error",
        "workflow_input_without_derive",
        "workflow_output_without_derive",
        "tool_input_without_derive",
    ]);
}
