//! A tool of the file that is one process.

use super::build::{Part, pointer};
use super::file::{CommandSection, LookupSection};
use super::http::LOOKUP;
use crate::rim::policy::findings::Findings;
use crate::rim::policy::plain::{Count, Truth};
use crate::rim::policy::span::Span;
use crate::tool::DynamicTool;
use crate::tool::command_tool::{CommandLookup, CommandTool};

pub(super) fn tool(
    findings: &mut Findings,
    part: &Part<'_>,
    declared: &CommandSection,
) -> Option<DynamicTool> {
    let path = format!("{}.command", part.path);
    let (program, args) = run(findings, &path, declared.run.as_ref())?;
    let mut tool = CommandTool::new(program).args(args).key_fields(part.key());
    if let Some(name) = &declared.key_env {
        tool = tool.key_env(name);
    }
    for (name, value) in declared.env.iter().flatten() {
        tool = tool.env(name, value);
    }
    for (name, template) in declared.secret_env.iter().flatten() {
        let path = format!("{path}.secret_env.{name}");
        tool = tool.secret_env(name, part.secret(findings, &path, template)?);
    }
    tool = tool.pass_env(declared.pass_env.iter().flatten());
    if let Some(folder) = &declared.folder {
        tool = tool.current_dir(folder);
    }
    if let Some(json) = &declared.stdin {
        tool = tool.stdin(json.clone());
    } else if !declared.reads_input.is_none_or(Truth::is_true) {
        tool = tool.without_stdin();
    }
    if declared.text.is_some_and(Truth::is_true) {
        tool = tool.text_output();
    }
    let section = part.section;
    for (code, meaning) in section.means.iter().flat_map(super::file::MeansSection::all) {
        tool = tool.exit(i32::from(code), meaning);
    }
    if let Some(id) = &section.id {
        tool = tool.external_id(id.as_str());
    }
    tool = tool.output(pointer(section.output.as_ref()));
    if let Some(bytes) = section.max_bytes.map(Count::get) {
        tool = tool.max_output_bytes(bytes as usize);
    }
    if let Some(timeout) = section.timeout {
        tool = tool.timeout(timeout.duration());
    }
    if let Some(section) = &section.lookup {
        part.only(findings, section, &["run", "list", "missing_exit", "newest_first", "timeout"]);
        tool = tool.lookup(lookup(findings, &part.path, section)?);
        for (pointer, value) in section.expects.iter().flatten() {
            tool = tool.expects(pointer.as_str(), value.clone());
        }
    }
    let tool = tool.build().and_then(|tool| tool.dynamic(part.name, part.effect, part.contract.clone()));
    tool.map_err(|error| findings.finding(&path, &error.to_string(), "a declaration that a process can have"))
        .ok()
}

/// The program and its arguments.
fn run<'r>(
    findings: &mut Findings,
    path: &str,
    run: Option<&'r Vec<String>>,
) -> Option<(&'r String, &'r [String])> {
    let split = run.and_then(|run| run.split_first());
    if split.is_none() {
        let instead = "`run: [refund-cli, refund, '--charge={charge}']`";
        findings.finding(&format!("{path}.run"), "there is no program", instead);
    }
    split
}

fn lookup(findings: &mut Findings, path: &str, section: &LookupSection) -> Option<CommandLookup> {
    let path = format!("{path}.lookup");
    let (program, args) = run(findings, &path, section.run.as_ref())?;
    let is_list = section.at.is_some() || section.list.is_some_and(Truth::is_true);
    let lookup = match (is_list, section.missing_exit) {
        (true, None) => CommandLookup::list(program, pointer(section.at.as_ref())),
        (false, Some(code)) => CommandLookup::one(program, i32::from(code)),
        _ => {
            let why = "a command shows a list, or one thing and an exit code where there is none";
            findings.finding(&path, why, "one of `at`, `list: true` and `missing_exit: 4`");
            return None;
        }
    };
    let mut lookup = lookup.args(args).timeout(section.timeout.map_or(LOOKUP, Span::duration));
    if let Some(id) = &section.id {
        lookup = lookup.id(id.as_str());
    }
    if let Some(token) = &section.token {
        let others_lack = section.others_lack_token.is_some_and(Truth::is_true);
        let token = token.as_str();
        lookup = if others_lack { lookup.carries_if_any(token) } else { lookup.carries(token) };
    }
    if section.newest_first.is_some_and(Truth::is_true) {
        lookup = lookup.newest_first();
    }
    Some(lookup)
}
