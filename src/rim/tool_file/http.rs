//! A tool of the file that is one HTTP request.

use std::time::Duration;

use super::build::{Part, pointer};
use super::file::{HttpSection, LookupSection};
use crate::rim::policy::findings::Findings;
use crate::rim::policy::plain::{Count, Truth};
use crate::rim::policy::span::Span;
use crate::tool::DynamicTool;
use crate::tool::http_tool::{HttpTool, HttpToolBuilder};
use crate::tool::lookup::HttpGet;

/// The time of a lookup, unless it is said.
pub(super) const LOOKUP: Duration = Duration::from_secs(10);

pub(super) fn tool(findings: &mut Findings, part: &Part<'_>, declared: &HttpSection) -> Option<DynamicTool> {
    let path = format!("{}.http", part.path);
    let mut tool = begun(findings, &path, declared)?.key_fields(part.key());
    if let Some(header) = &declared.key_header {
        tool = tool.key_header(header.as_str());
    }
    for (name, value) in declared.headers.iter().flatten() {
        tool = tool.header(name, value);
    }
    for (name, template) in declared.secret_headers.iter().flatten() {
        let path = format!("{path}.secret_headers.{name}");
        tool = tool.secret_header(name, part.secret(findings, &path, template)?);
    }
    if let Some(body) = &declared.body {
        tool = tool.body(body.clone());
    }
    for (pointer, value) in declared.duplicate.iter().flatten() {
        tool = tool.duplicate(pointer.as_str(), value.clone());
    }
    if let Some(header) = &declared.replayed_header {
        tool = tool.replayed_header(header.as_str());
    }
    if declared.id_from_location.is_some_and(Truth::is_true) {
        tool = tool.external_id_from_location();
    }
    let section = part.section;
    for (status, meaning) in section.means.iter().flat_map(super::file::MeansSection::all) {
        tool = tool.status(status, meaning);
    }
    if let Some(id) = &section.id {
        tool = tool.external_id(id.as_str());
    }
    tool = tool.output(pointer(section.output.as_ref()));
    if let Some(bytes) = section.max_bytes.map(Count::get) {
        tool = tool.max_response_bytes(bytes as usize);
    }
    if let Some(section) = &section.lookup {
        part.only(findings, section, &["get", "list", "newest_first", "timeout"]);
        tool = tool.lookup(lookup(findings, &part.path, section)?);
        for (pointer, value) in section.expects.iter().flatten() {
            tool = tool.expects(pointer.as_str(), value.clone());
        }
    }
    let tool = tool.build().and_then(|tool| tool.dynamic(part.name, part.effect, part.contract.clone()));
    tool.map_err(|error| findings.finding(&path, &error.to_string(), "a declaration that HTTP can carry"))
        .ok()
}

/// The tool with its method and its URL.
fn begun(findings: &mut Findings, path: &str, declared: &HttpSection) -> Option<HttpToolBuilder> {
    let HttpSection { post, put, patch, delete, get, .. } = declared;
    let given: Vec<_> = [
        post.as_ref().map(HttpTool::post),
        put.as_ref().map(HttpTool::put),
        patch.as_ref().map(HttpTool::patch),
        delete.as_ref().map(HttpTool::delete),
        get.as_ref().map(HttpTool::get),
    ]
    .into_iter()
    .flatten()
    .collect();
    match <[_; 1]>::try_from(given) {
        Ok([one]) => Some(one),
        Err(_) => {
            let why = "a request has one method with its URL";
            findings.finding(path, why, "one of `post`, `put`, `patch`, `delete` and `get`");
            None
        }
    }
}

fn lookup(findings: &mut Findings, path: &str, section: &LookupSection) -> Option<HttpGet> {
    let path = format!("{path}.lookup");
    let Some(url) = &section.get else {
        findings.finding(
            &path,
            "the lookup of an HTTP tool is a GET",
            "`get: https://pay.example/refunds?ref={token}`",
        );
        return None;
    };
    let timeout = section.timeout.map_or(LOOKUP, Span::duration);
    let is_list = section.at.is_some() || section.list.is_some_and(Truth::is_true);
    let get = if is_list {
        HttpGet::list(url, pointer(section.at.as_ref()), timeout)
    } else {
        HttpGet::one(url, timeout)
    };
    let mut get = get.map_err(|error| findings.finding(&path, &error.to_string(), "another lookup")).ok()?;
    if let Some(id) = &section.id {
        get = get.id(id.as_str());
    }
    if let Some(token) = &section.token {
        let others_lack = section.others_lack_token.is_some_and(Truth::is_true);
        get = if others_lack { get.carries_if_any(token.as_str()) } else { get.carries(token.as_str()) };
    }
    if section.newest_first.is_some_and(Truth::is_true) {
        get = get.newest_first();
    }
    Some(get)
}
