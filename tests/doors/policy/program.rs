//! The program: exit codes, and what it prints for people, for programs and for GitHub.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

const UNSAFE: &str = "http:\n  orders:\n    tenant: header\n";

/// What the program said about a file.
pub(super) struct Checked {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl Checked {
    /// Checks one policy.
    pub(super) fn policy(text: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("policy.yml"), text).unwrap();
        Self::of(folder.path(), &["policy.yml"])
    }

    /// Runs `counterfoil check` in a folder.
    pub(super) fn of(folder: &Path, arguments: &[&str]) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        let said = program.arg("check").args(arguments).current_dir(folder).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: said.status.code(), out: text(said.stdout), err: text(said.stderr) }
    }
}

#[test]
fn people_are_told_place_reason_and_what_to_write_without_colour_in_a_pipe() {
    let checked = Checked::policy(UNSAFE);
    assert_eq!(
        checked.out,
        "policy.yml:3:5: error[tenant-from-client] http.orders.tenant\n  \
         whoever sends a request writes its headers: with another tenant's name and a guessed key it gets that tenant's answer\n  \
         write instead: tenant: identity (or single)\n\
         policy.yml: 1 error, 0 warnings\n"
    );
    assert_eq!((checked.code, checked.err.as_str()), (Some(1), ""));
    let safe = Checked::policy("http: {orders: {tenant: identity}}");
    assert_eq!((safe.code, safe.out.as_str()), (Some(0), "policy.yml: nothing unsafe was found\n"));
}

#[test]
fn programs_are_told_the_same_as_json() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("policy.yml"), UNSAFE).unwrap();
    for arguments in [["policy.yml", "--json"].as_slice(), &["policy.yml", "--format", "json"]] {
        let checked = Checked::of(folder.path(), arguments);
        assert_eq!(checked.code, Some(1));
        let said: Value = serde_json::from_str(&checked.out).unwrap();
        let file = &said["files"][0];
        assert_eq!(
            (&file["file"], &file["errors"], &file["warnings"]),
            (&json!("policy.yml"), &json!(1), &json!(0))
        );
        let finding = &file["findings"][0];
        assert_eq!(finding["code"], "tenant-from-client");
        assert_eq!((&finding["severity"], &finding["path"]), (&json!("error"), &json!("http.orders.tenant")));
        assert_eq!((&finding["line"], &finding["column"]), (&json!(3), &json!(5)));
        assert_eq!(finding["instead"], "tenant: identity (or single)");
    }
}

#[test]
fn github_gets_one_command_a_line_with_its_signs_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let name = "a,b:100%.yml";
    std::fs::write(folder.path().join(name), "http: {\"x%\\n::warning::y\": {}}").unwrap();
    let checked = Checked::of(folder.path(), &[name, "--format", "github"]);
    assert_eq!(checked.code, Some(1));
    let head = "::error file=a%2Cb%3A100%25.yml,line=1,col=8,title=wrong-value::";
    assert!(checked.out.starts_with(head), "{}", checked.out);
    assert_eq!(checked.out.lines().count(), 1, "{}", checked.out);
    assert!(checked.out.contains("x%25"), "{}", checked.out);

    std::fs::write(folder.path().join("warned.yml"), "# nothing yet\n").unwrap();
    let warned = Checked::of(folder.path(), &["warned.yml", "--format", "github"]);
    assert!(
        warned.out.starts_with("::warning file=warned.yml,line=1,col=1,title=no-sources::"),
        "{}",
        warned.out
    );
    assert_eq!(warned.code, Some(0));
}

#[test]
fn a_file_that_cannot_be_read_is_told_apart_from_an_unsafe_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("folder.yml")).unwrap();
    for name in ["missing.yml", "folder.yml"] {
        let checked = Checked::of(folder.path(), &[name]);
        assert_eq!(checked.code, Some(2));
        assert!(checked.err.starts_with(&format!("error: {name} cannot be read: ")), "{}", checked.err);
        let github = Checked::of(folder.path(), &[name, "--format", "github"]);
        assert!(
            github.code == Some(2) && github.out.starts_with(&format!("::error file={name}::")),
            "{}",
            github.out
        );
        let json: Value = serde_json::from_str(&Checked::of(folder.path(), &[name, "--json"]).out).unwrap();
        assert!(json["files"][0]["error"].is_string(), "{json}");
    }
    // Of two files the one that can be read is checked all the same.
    std::fs::write(folder.path().join("policy.yml"), UNSAFE).unwrap();
    let both = Checked::of(folder.path(), &["policy.yml", "--guarantees", "missing.json"]);
    assert!(both.code == Some(2) && both.out.contains("tenant-from-client"), "{}", both.out);
    assert_eq!(Checked::of(folder.path(), &[]).code, Some(2), "nothing to check");
}
