//! The tools and prompts of all servers, under the names that clients see.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rmcp::model::{Prompt, Tool};

use super::arguments::with_again;
use super::call::operation;
use super::config::ServerConfig;
use super::file::Hint;
use super::policy::{ToolPolicy, trusts};
use super::upstream::Upstream;
use crate::exec::Executor;
use crate::tool::RegisterError;

/// The lists of the servers, as they were given last. A server that has died since keeps its own until it is started anew.
#[derive(Default)]
pub(super) struct Catalogue(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    of: BTreeMap<usize, OfServer>,
    /// How often a server has changed its lists: what was asked for before a change is not kept after it.
    changes: HashMap<usize, u64>,
    listed: Arc<Listed>,
}

impl Catalogue {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lists of all servers that are known.
    pub(super) fn listed(&self) -> Arc<Listed> {
        self.lists().listed.clone()
    }

    pub(super) fn knows(&self, server: usize) -> bool {
        self.lists().of.contains_key(&server)
    }

    /// How often a server has changed its lists so far.
    pub(super) fn changes(&self, server: usize) -> u64 {
        self.lists().changes.get(&server).copied().unwrap_or_default()
    }

    /// Keeps the lists of a server, which were asked for after so many changes. False if the server has changed them since.
    pub(super) fn keep(&self, of: OfServer, changes: u64) -> bool {
        let mut lists = self.lists();
        let are_current = lists.changes.get(&of.server).copied().unwrap_or_default() == changes;
        if are_current {
            lists.of.insert(of.server, of);
            lists.listed = Arc::new(Listed::of(lists.of.values()));
        }
        are_current
    }

    /// Drops the lists of a server, because it has changed them, or was started anew.
    pub(super) fn forget(&self, server: usize) {
        let mut lists = self.lists();
        *lists.changes.entry(server).or_default() += 1;
        lists.of.remove(&server);
        lists.listed = Arc::new(Listed::of(lists.of.values()));
    }
}

/// The tools and prompts of one server.
pub(super) struct OfServer {
    /// The position of the server in the configuration.
    pub(super) server: usize,
    pub(super) config: Arc<ServerConfig>,
    pub(super) tools: Vec<Tool>,
    pub(super) prompts: Vec<Prompt>,
}

/// A tool of a server.
pub(super) struct Listing {
    /// The position of the server in the configuration.
    pub(super) server: usize,
    /// The server's own name of the tool.
    pub(super) tool: String,
    pub(super) schema: Arc<rmcp::model::JsonObject>,
    pub(super) policy: Arc<ToolPolicy>,
    /// Set when the executor knows the operation.
    is_known: OnceLock<()>,
    /// True if the server says that it only reads, and is believed.
    pub(super) reads: bool,
}

/// The lists of all servers.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) tools: Vec<Tool>,
    by_name: HashMap<String, Arc<Listing>>,
    pub(super) prompts: Vec<Prompt>,
    prompts_by_name: HashMap<String, (usize, String)>,
}

impl Listed {
    fn of<'o>(servers: impl Iterator<Item = &'o OfServer> + Clone) -> Self {
        let mut listed = Self::default();
        let tools = named(servers.clone(), |of| of.tools.iter().map(|tool| (tool.name.as_ref(), tool)));
        for (of, tool, name) in tools {
            let (listing, mut tool) = (Listing::of(of.server, &of.config, tool), tool.clone());
            if !listing.passes() {
                tool.input_schema = Arc::new(with_again(&tool.input_schema));
                // An effect that was found, or that a person knows of, has no answer of this form, and clients refuse another one.
                tool.output_schema = None;
            }
            tool.name = name.clone().into();
            listed.tools.push(tool);
            listed.by_name.insert(name, Arc::new(listing));
        }
        let prompts = named(servers, |of| of.prompts.iter().map(|prompt| (prompt.name.as_str(), prompt)));
        for (of, prompt, name) in prompts {
            let mut prompt = prompt.clone();
            let own = std::mem::replace(&mut prompt.name, name.clone());
            listed.prompts_by_name.insert(name, (of.server, own));
            listed.prompts.push(prompt);
        }
        listed
    }

    /// The tool that clients call by this name.
    pub(super) fn tool(&self, name: &str) -> Option<Arc<Listing>> {
        self.by_name.get(name).cloned()
    }

    /// The server of the prompt that clients call by this name, and its own name for it.
    pub(super) fn prompt(&self, name: &str) -> Option<&(usize, String)> {
        self.prompts_by_name.get(name)
    }
}

impl Listing {
    fn of(server: usize, config: &ServerConfig, tool: &Tool) -> Self {
        let claims = |claim: fn(&rmcp::model::ToolAnnotations) -> Option<bool>| {
            tool.annotations.as_ref().and_then(claim) == Some(true)
        };
        let policy = config.policy(&tool.name, claims(|hints| hints.idempotent_hint));
        let trusts_reads = trusts(config.section.trust.as_ref(), Hint::ReadOnly);
        Self {
            server,
            tool: tool.name.to_string(),
            schema: tool.input_schema.clone(),
            is_known: OnceLock::new(),
            reads: !policy.is_written && trusts_reads && claims(|hints| hints.read_only_hint),
            policy,
        }
    }

    /// Makes the operation known to the executor before it is carried out. What the file has a section for is known from the start.
    ///
    /// # Errors
    /// [`RegisterError`] if the name of the tool cannot be recorded.
    pub(super) fn make_known(
        &self,
        executor: &Executor,
        server: &Arc<Upstream>,
    ) -> Result<(), RegisterError> {
        if !self.policy.is_written && self.is_known.get().is_none() {
            executor.meet_dynamic(operation(&self.policy, server))?;
            let _ = self.is_known.set(()); // two first calls meet it twice, which is the same
        }
        Ok(())
    }

    /// True if calls pass without a record.
    pub(super) fn passes(&self) -> bool {
        self.reads || self.policy.passes()
    }
}

/// What servers list, with the name of each that clients see: the server's own, and with the server's name in front where several
/// servers have it. No two have one name, so that no call reaches the tool of another server. What a server lists twice counts once.
fn named<'o, T: 'o, L>(
    servers: impl Iterator<Item = &'o OfServer>,
    lists: impl Fn(&'o OfServer) -> L,
) -> Vec<(&'o OfServer, &'o T, String)>
where
    L: Iterator<Item = (&'o str, &'o T)>,
{
    let mut seen = HashSet::new();
    let all: Vec<_> = servers
        .flat_map(|of| lists(of).map(move |(name, one)| (of, name, one)))
        .filter(|(of, name, _)| seen.insert((of.server, *name)))
        .collect();
    let mut counts = HashMap::<_, usize>::new();
    for (_, name, _) in &all {
        *counts.entry(*name).or_default() += 1;
    }
    let mut taken: HashSet<_> =
        counts.iter().filter(|(_, n)| **n == 1).map(|(name, _)| (*name).to_owned()).collect();
    let mut with_server = |server: &str, name: &str| {
        let (mut free, mut number) = (format!("{server}_{name}"), 1);
        while !taken.insert(free.clone()) {
            number += 1;
            free = format!("{server}_{name}_{number}");
        }
        free
    };
    all.into_iter()
        .map(|(of, name, one)| {
            let seen = if counts[name] == 1 { name.to_owned() } else { with_server(&of.config.name, name) };
            (of, one, seen)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::rim::mcp::McpConfig;

    #[test]
    fn each_tool_of_each_server_has_a_name_of_its_own() {
        let servers = ["git", "hub", "more"].map(|name| format!("{name}: {{ command: x }}")).join(", ");
        let config = McpConfig::parse(format!("ledger: x.db\nservers: {{ {servers} }}")).unwrap();
        let tools = [vec!["status", "log", "log"], vec!["status"], vec!["git_status", "log"]];
        let of = config.servers.iter().zip(tools).enumerate().map(|(server, (config, tools))| OfServer {
            server,
            config: config.clone(),
            tools: tools.into_iter().map(|name| Tool::new(name, "", Map::new())).collect(),
            prompts: Vec::new(),
        });
        let of: Vec<_> = of.collect();
        let listed = Listed::of(of.iter());
        let seen: Vec<_> = listed.tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(seen, ["git_status_2", "git_log", "hub_status", "git_status", "more_log"]);
        let at = |name: &str| listed.tool(name).map(|listing| (listing.server, listing.tool.clone()));
        assert_eq!(at("git_status_2"), Some((0, "status".to_owned())));
        assert_eq!(at("git_status"), Some((2, "git_status".to_owned())));
    }
}
