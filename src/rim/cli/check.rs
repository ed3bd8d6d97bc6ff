//! `counterfoil check`: finds unsafe settings in a policy, and unsafe tools in the guarantee report of an
//! application.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::rim::policy::{Policy, PolicyError, PolicyFinding, Severity, check_guarantees, schema};

/// The maximum size of a file, in bytes: reports are larger than policies, and both are smaller than this.
const MAX_BYTES: u64 = 8 * 1024 * 1024;

/// The files to check, and the form of the output.
#[derive(Args)]
pub(super) struct Options {
    /// The policy, as YAML
    #[arg(required_unless_present_any = ["guarantees", "schema"])]
    policy: Option<PathBuf>,
    /// A guarantee report as JSON: of `Engine::guarantees`, or of `counterfoil guarantees --json`
    #[arg(long, value_name = "REPORT")]
    guarantees: Vec<PathBuf>,
    /// The format of the findings
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Prints the JSON Schema of policies, for editors, and checks nothing
    #[arg(long, conflicts_with_all = ["policy", "guarantees", "format", "json"])]
    schema: bool,
}

/// The format of the findings.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text for people
    Text,
    /// JSON for programs
    Json,
    /// Annotations beside the lines, for GitHub Actions
    Github,
}

/// A file with its findings.
struct Checked {
    file: String,
    read: Result<Vec<PolicyFinding>, io::Error>,
}

/// Checks the files. The exit code is 0 if nothing is unsafe, 1 if something is, and 2 if a file could not be read.
pub(super) fn run(options: &Options) -> ExitCode {
    if options.schema {
        say(&format!("{:#}", schema()));
        return ExitCode::SUCCESS;
    }
    let policy = options.policy.iter().map(|path| check(path, |bytes| findings_of_policy(&bytes)));
    let reports = options.guarantees.iter().map(|path| check(path, |bytes| findings_of_report(&bytes)));
    let checked: Vec<_> = policy.chain(reports).collect();
    match if options.json { Format::Json } else { options.format } {
        Format::Text => checked.iter().for_each(tell),
        Format::Json => say(&format!("{:#}", as_json(&checked))),
        Format::Github => checked.iter().for_each(annotate),
    }
    let findings = checked.iter().filter_map(|checked| checked.read.as_ref().ok()).flatten();
    if checked.iter().any(|checked| checked.read.is_err()) {
        ExitCode::from(2)
    } else if count(findings, Severity::Error) > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn check(path: &Path, findings: impl Fn(Vec<u8>) -> Vec<PolicyFinding>) -> Checked {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    Checked { file: path.display().to_string(), read: read.map(|_| findings(bytes)) }
}

fn findings_of_policy(bytes: &[u8]) -> Vec<PolicyFinding> {
    match Policy::parse(bytes) {
        Ok(policy) => policy.check(),
        Err(PolicyError::Malformed(finding)) => vec![*finding],
        Err(PolicyError::Unsafe(findings)) => findings,
        Err(PolicyError::NoSuchSource { .. }) => Vec::new(), // no source was asked for
    }
}

/// The findings of a report. Invalid UTF-8 is no report, which the check of reports finds.
fn findings_of_report(bytes: &[u8]) -> Vec<PolicyFinding> {
    check_guarantees(&String::from_utf8_lossy(bytes))
}

fn count<'f>(findings: impl IntoIterator<Item = &'f PolicyFinding>, severity: Severity) -> usize {
    findings.into_iter().filter(|finding| finding.severity() == severity).count()
}

/// Prints a text on standard output. A reader that closes the pipe early (`| head`) is no failure.
fn say(what: &str) {
    drop(writeln!(io::stdout(), "{what}"));
}

/// True if standard output is a terminal, and `NO_COLOR` is not set (no-color.org).
fn in_colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn tell(Checked { file, read }: &Checked) {
    let findings = match read {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("error: {file} cannot be read: {error}");
            return;
        }
    };
    for finding in findings {
        let PolicyFinding { rule, path, line, column, why, instead, .. } = finding;
        let severity = finding.severity();
        let name = match (in_colour(), severity) {
            (false, _) => severity.name().to_owned(),
            (true, Severity::Error) => format!("\x1b[31m{}\x1b[0m", severity.name()),
            (true, Severity::Warning) => format!("\x1b[33m{}\x1b[0m", severity.name()),
        };
        let at = if path.is_empty() { "the file" } else { path };
        say(&format!("{file}:{line}:{column}: {name}[{}] {at}", rule.code()));
        say(&format!("  {why}"));
        say(&format!("  write instead: {instead}"));
    }
    let (errors, warnings) = (count(findings, Severity::Error), count(findings, Severity::Warning));
    say(&match (errors, warnings) {
        (0, 0) => format!("{file}: nothing unsafe was found"),
        _ => format!("{file}: {}, {}", several(errors, "error"), several(warnings, "warning")),
    });
}

fn several(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn as_json(checked: &[Checked]) -> Value {
    let files = checked.iter().map(|Checked { file, read }| match read {
        Ok(findings) => {
            let of_file: Vec<_> = findings.iter().map(finding_as_json).collect();
            let (errors, warnings) = (count(findings, Severity::Error), count(findings, Severity::Warning));
            json!({ "file": file, "errors": errors, "warnings": warnings, "findings": of_file })
        }
        Err(error) => json!({ "file": file, "error": error.to_string() }),
    });
    json!({ "files": files.collect::<Vec<_>>() })
}

fn finding_as_json(finding: &PolicyFinding) -> Value {
    let PolicyFinding { rule, path, line, column, why, instead, .. } = finding;
    json!({
        "code": rule.code(),
        "severity": finding.severity().name(),
        "path": path,
        "line": line,
        "column": column,
        "why": why,
        "instead": instead,
    })
}

/// Prints workflow commands for GitHub Actions. A command is one line, so line breaks in it are escaped.
fn annotate(Checked { file, read }: &Checked) {
    let at = escaped_property(file);
    match read {
        Ok(findings) => {
            for finding in findings {
                let PolicyFinding { rule, path, line, column, why, instead, .. } = finding;
                let message = escaped(&format!("{path}: {why}. Write instead: {instead}"));
                let (kind, title) = (finding.severity().name(), escaped_property(rule.code()));
                say(&format!("::{kind} file={at},line={line},col={column},title={title}::{message}"));
            }
        }
        Err(error) => {
            let message = escaped(&format!("the file cannot be read: {error}"));
            say(&format!("::error file={at}::{message}"));
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn escaped_property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}
