//! The tools and prompts of all servers, under the names that clients see.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
    /// The names of each server. They are never forgotten: what a client calls by a name must not become the tool of another server,
    /// because the one that it knew is down or has changed its lists.
    names: BTreeMap<usize, Names>,
    listed: Arc<Listed>,
}

/// The server's own names of the tools and prompts that it has, or has had.
#[derive(Default)]
struct Names {
    server: String,
    tools: BTreeSet<String>,
    prompts: BTreeSet<String>,
}

/// What became of a server's lists.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// The server has changed them since they were asked for.
    Outdated,
    /// They are kept, and what was listed before has its names still.
    Added,
    /// They are kept, and a tool that was listed before is called by another name now.
    Renamed,
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

    /// Keeps the names of tools of a server that are known before it has listed them.
    pub(super) fn know(&self, number: usize, server: &str, tools: impl Iterator<Item = String>) {
        let mut lists = self.lists();
        let names = lists.names.entry(number).or_default();
        server.clone_into(&mut names.server);
        names.tools.extend(tools);
    }

    /// Keeps the lists of a server, which were asked for after so many changes.
    pub(super) fn keep(&self, of: OfServer, changes: u64) -> Kept {
        self.know(of.server, &of.config.name, of.tools.iter().map(|tool| tool.name.to_string()));
        let mut lists = self.lists();
        if lists.changes.get(&of.server).copied().unwrap_or_default() != changes {
            return Kept::Outdated;
        }
        let names = lists.names.entry(of.server).or_default();
        names.prompts.extend(of.prompts.iter().map(|prompt| prompt.name.clone()));
        lists.of.insert(of.server, of);
        let now = Arc::new(Listed::of(lists.of.values(), &lists.names));
        let before = std::mem::replace(&mut lists.listed, now.clone());
        if now.has_all_of(&before) { Kept::Added } else { Kept::Renamed }
    }

    /// Drops the lists of a server, because it has changed them, or was started anew.
    pub(super) fn forget(&self, server: usize) {
        let mut lists = self.lists();
        *lists.changes.entry(server).or_default() += 1;
        lists.of.remove(&server);
        lists.listed = Arc::new(Listed::of(lists.of.values(), &lists.names));
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
    fn of<'o>(
        servers: impl Iterator<Item = &'o OfServer> + Clone,
        known: &'o BTreeMap<usize, Names>,
    ) -> Self {
        let mut listed = Self::default();
        let mut names = visible(known, |names| &names.tools);
        for (of, tool) in servers.clone().flat_map(|of| of.tools.iter().map(move |tool| (of, tool))) {
            // What a server lists twice counts once.
            let Some(name) = names.remove(&(of.server, &*tool.name)) else { continue };
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
        let mut names = visible(known, |names| &names.prompts);
        for (of, prompt) in servers.flat_map(|of| of.prompts.iter().map(move |prompt| (of, prompt))) {
            let Some(name) = names.remove(&(of.server, prompt.name.as_str())) else { continue };
            let mut prompt = prompt.clone();
            let own = std::mem::replace(&mut prompt.name, name.clone());
            listed.prompts_by_name.insert(name, (of.server, own));
            listed.prompts.push(prompt);
        }
        listed
    }

    /// True if each tool of an earlier list has its name still.
    fn has_all_of(&self, before: &Self) -> bool {
        before.by_name.iter().all(|(name, was)| {
            self.by_name.get(name).is_some_and(|is| (is.server, &is.tool) == (was.server, &was.tool))
        })
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

/// The names that clients see: the server's own, and with the server's name in front where several servers have it, or have had it. No
/// two have one name, so that no call reaches the tool of another server.
fn visible(
    known: &BTreeMap<usize, Names>,
    of: fn(&Names) -> &BTreeSet<String>,
) -> HashMap<(usize, &str), String> {
    let all: Vec<_> = known
        .iter()
        .flat_map(|(number, names)| of(names).iter().map(move |own| (*number, names, own.as_str())))
        .collect();
    let mut counts = HashMap::<_, usize>::new();
    for (_, _, own) in &all {
        *counts.entry(*own).or_default() += 1;
    }
    let mut taken: HashSet<_> =
        counts.iter().filter(|(_, n)| **n == 1).map(|(own, _)| (*own).to_owned()).collect();
    let mut with_server = |server: &str, own: &str| {
        let (mut free, mut number) = (format!("{server}_{own}"), 1);
        while !taken.insert(free.clone()) {
            number += 1;
            free = format!("{server}_{own}_{number}");
        }
        free
    };
    all.into_iter()
        .map(|(number, names, own)| {
            let seen = if counts[own] == 1 { own.to_owned() } else { with_server(&names.server, own) };
            ((number, own), seen)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::rim::mcp::McpConfig;

    fn of(server: usize, config: &Arc<ServerConfig>, tools: &[&'static str]) -> OfServer {
        OfServer {
            server,
            config: config.clone(),
            tools: tools.iter().map(|name| Tool::new(*name, "", Map::new())).collect(),
            prompts: Vec::new(),
        }
    }

    #[test]
    fn a_name_that_another_server_has_had_stays_that_servers() {
        let file = "ledger: x.db\nservers: { git: { command: x }, hub: { command: x } }";
        let config = McpConfig::parse(file).unwrap();
        let (git, hub) = (&config.servers[0], &config.servers[1]);
        let catalogue = Catalogue::default();
        let at = |name: &str| catalogue.listed().tool(name).map(|listing| listing.server);
        assert_eq!(catalogue.keep(of(0, git, &["status", "log"]), 0), Kept::Added);
        assert_eq!(at("status"), Some(0));
        assert_eq!(catalogue.keep(of(1, hub, &["status"]), 0), Kept::Renamed);
        assert_eq!((at("status"), at("git_status"), at("hub_status")), (None, Some(0), Some(1)));
        assert_eq!(at("log"), Some(0));
        catalogue.forget(0);
        assert_eq!((at("status"), at("git_status"), at("hub_status")), (None, None, Some(1)));
        assert_eq!(catalogue.keep(of(0, git, &["log"]), 0), Kept::Outdated);
        assert_eq!(catalogue.keep(of(0, git, &["log"]), 1), Kept::Added);
        assert_eq!((at("status"), at("hub_status")), (None, Some(1)));
    }

    #[test]
    fn each_tool_of_each_server_has_a_name_of_its_own() {
        let servers = ["git", "hub", "more"].map(|name| format!("{name}: {{ command: x }}")).join(", ");
        let config = McpConfig::parse(format!("ledger: x.db\nservers: {{ {servers} }}")).unwrap();
        let tools = [vec!["status", "log", "log"], vec!["status"], vec!["git_status", "log"]];
        let catalogue = Catalogue::default();
        for (server, (config, tools)) in config.servers.iter().zip(tools).enumerate() {
            catalogue.keep(of(server, config, &tools), 0);
        }
        let listed = catalogue.listed();
        let seen: Vec<_> = listed.tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(seen, ["git_status_2", "git_log", "hub_status", "git_status", "more_log"]);
        let at = |name: &str| listed.tool(name).map(|listing| (listing.server, listing.tool.clone()));
        assert_eq!(at("git_status_2"), Some((0, "status".to_owned())));
        assert_eq!(at("git_status"), Some((2, "git_status".to_owned())));
    }
}
