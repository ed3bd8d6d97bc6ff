//! The policy file and `counterfoil check`: each rule, the program's answers, hostile files, and the doors that a policy makes.

mod documents;
mod hostile;
mod layers;
mod program;
mod reports;
mod round_trip;
mod rules;
mod strict;

use counterfoil::policy::{Policy, PolicyError, PolicyFinding};

/// What is found in a policy that can be read.
fn findings(text: &str) -> Vec<PolicyFinding> {
    Policy::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}")).check()
}

fn codes(findings: &[PolicyFinding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.rule.code()).collect()
}

/// Why a policy cannot be read.
fn malformed(file: impl AsRef<[u8]>) -> PolicyFinding {
    match Policy::parse(file) {
        Err(PolicyError::Malformed(finding)) => *finding,
        other => panic!("{other:?}"),
    }
}
