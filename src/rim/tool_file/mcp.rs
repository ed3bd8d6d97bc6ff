//! A tool of the file that is one call of a tool of an MCP server.

use std::collections::BTreeMap;

use super::build::{Part, Variables, pointer};
use super::file::{File, LookupSection, McpSection, Means, ServerSection};
use crate::rim::mcp::{McpLookup, McpServer};
use crate::rim::policy::findings::Findings;
use crate::rim::policy::plain::Truth;
use crate::rim::policy::variables::filled;
use crate::rim::policy::word::SourceName;
use crate::tool::DynamicTool;

pub(super) type Servers<'f> = BTreeMap<&'f str, McpServer>;

/// The servers of the file. What is wrong is a finding, and its server is left out.
pub(super) fn servers<'f>(findings: &mut Findings, file: &'f File, variables: &Variables<'_>) -> Servers<'f> {
    let sections = file.servers.iter().flatten();
    let servers = sections.filter_map(|(name, section)| {
        let path = format!("servers.{}", name.as_str());
        Some((name.as_str(), server(findings, (&path, name.as_str()), section, variables)?))
    });
    servers.collect()
}

fn server(
    findings: &mut Findings,
    (path, name): (&str, &str),
    section: &ServerSection,
    variables: &Variables<'_>,
) -> Option<McpServer> {
    let mut server = match (&section.command, &section.url) {
        (Some(command), None) => McpServer::program(command),
        #[cfg(feature = "mcp-http")]
        (None, Some(url)) => McpServer::url(url),
        #[cfg(not(feature = "mcp-http"))]
        (None, Some(_)) => {
            let why = "this program is built without the feature `mcp-http`";
            findings.finding(&format!("{path}.url"), why, "`command`");
            return None;
        }
        _ => {
            findings.finding(path, "a server is a program or a URL", "one of `command` and `url`");
            return None;
        }
    };
    server = server.name(name).args(section.args.iter().flatten());
    for (variable, template) in section.env.iter().flatten() {
        match filled(template, variables) {
            Ok(value) => server = server.env(variable, value),
            Err(why) => findings.finding(&format!("{path}.env.{variable}"), &why, "a variable that is set"),
        }
    }
    if section.url.is_none() && section.secret_headers.is_some() {
        let why = "headers belong to requests to a URL, and this server is a program";
        findings.finding(&format!("{path}.secret_headers"), why, "`env`");
    }
    #[cfg(feature = "mcp-http")]
    for (header, template) in section.secret_headers.iter().flatten() {
        let path = format!("{path}.secret_headers.{header}");
        let secret = super::build::secret(findings, (&path, template), variables)?;
        server = server.secret_header(header, secret);
    }
    if let Some(ready_within) = section.ready_within {
        server = server.ready_within(ready_within.duration());
    }
    server.build().map_err(|error| findings.finding(path, &error.to_string(), "another server")).ok()
}

pub(super) fn tool(
    findings: &mut Findings,
    part: &Part<'_>,
    (declared, servers): (&McpSection, &Servers<'_>),
) -> Option<DynamicTool> {
    let path = format!("{}.mcp", part.path);
    let server = declared.server.as_ref().map(SourceName::as_str).unwrap_or_default();
    let Some(server) = servers.get(server) else {
        let known = servers.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let why = format!("there is no server {server:?} under `servers` that can be used");
        let instead = if known.is_empty() { "a server under `servers`" } else { &known };
        findings.finding(&format!("{path}.server"), &why, instead);
        return None;
    };
    let mut tool = server.tool(declared.tool.as_deref().unwrap_or_default()).key_fields(part.key());
    if let Some(arguments) = &declared.arguments {
        tool = tool.arguments(arguments.clone());
    }
    if let Some(reference) = &declared.reference {
        tool = tool.reference(reference.as_str());
    }
    if let Some(errors) = declared.errors {
        tool = tool.errors(Means::meaning(errors));
    }
    let section = part.section;
    for (field, is_given) in [("means", section.means.is_some()), ("max_bytes", section.max_bytes.is_some())]
    {
        if is_given {
            let why = "a call of an MCP tool has neither a status nor a limit of its answer";
            findings.finding(&format!("{}.{field}", part.path), why, "`errors` under `mcp`");
        }
    }
    if let Some(id) = &section.id {
        tool = tool.external_id(id.as_str());
    }
    tool = tool.output(pointer(section.output.as_ref()));
    if let Some(section) = &section.lookup {
        part.only(findings, section, &["tool", "arguments", "missing_is_error", "contains"]);
        tool = tool.lookup(lookup(section));
        for (pointer, value) in section.expects.iter().flatten() {
            tool = tool.expects(pointer.as_str(), value.clone());
        }
    }
    let tool = tool.build().and_then(|tool| tool.dynamic(part.name, part.effect, part.contract.clone()));
    let instead = "another tool of the server, with another lookup";
    tool.map_err(|error| findings.finding(&path, &error.to_string(), instead)).ok()
}

fn lookup(section: &LookupSection) -> McpLookup {
    let mut lookup = McpLookup::tool(section.tool.as_deref().unwrap_or_default())
        .at(pointer(section.at.as_ref()))
        .id(section.id.as_ref().map_or("/id", |id| id.as_str()));
    if let Some(arguments) = &section.arguments {
        lookup = lookup.arguments(arguments.clone());
    }
    if let Some(token) = &section.token {
        lookup = lookup.matches(token.as_str(), "{token}");
    }
    if let Some(text) = &section.contains {
        lookup = lookup.contains(text);
    }
    if section.missing_is_error.is_some_and(Truth::is_true) {
        lookup = lookup.missing_is_error();
    }
    lookup
}
