//! The tools and prompts of all servers, under the names that clients see.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{Prompt, Tool};

use super::arguments::with_again;
use super::config::ServerConfig;
use super::file::Hint;
use super::policy::{ToolPolicy, trusts};

/// The lists of the servers, as they were given last. A server that has died since keeps its own.
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

    /// Drops the lists of a server, because it has changed them.
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
        let tools = names(servers.clone().flat_map(|of| of.tools.iter().map(|tool| tool.name.as_ref())));
        let prompts =
            names(servers.clone().flat_map(|of| of.prompts.iter().map(|prompt| prompt.name.as_str())));
        for OfServer { server, config, tools: own, prompts: own_prompts } in servers {
            for mut tool in own.iter().cloned() {
                let listing = Listing::of(*server, config, &tool);
                let name = exposed(&tools, &config.name, &tool.name);
                if !listing.passes() {
                    tool.input_schema = Arc::new(with_again(&tool.input_schema));
                    // An effect that was found, or that a person knows of, has no answer of this form, and clients refuse another one.
                    tool.output_schema = None;
                }
                tool.name = name.clone().into();
                listed.tools.push(tool);
                listed.by_name.insert(name, Arc::new(listing));
            }
            for mut prompt in own_prompts.iter().cloned() {
                let name = exposed(&prompts, &config.name, &prompt.name);
                listed
                    .prompts_by_name
                    .insert(name.clone(), (*server, std::mem::replace(&mut prompt.name, name)));
                listed.prompts.push(prompt);
            }
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
        let trust = config.section.trust.as_ref();
        let claims = |hint, claim: fn(&rmcp::model::ToolAnnotations) -> Option<bool>| {
            trusts(trust, hint) && tool.annotations.as_ref().and_then(claim) == Some(true)
        };
        let own = config.tools.iter().find(|policy| policy.tool.as_deref() == Some(&*tool.name));
        let policy = match own {
            Some(own) => own,
            None if claims(Hint::Idempotent, |hints| hints.idempotent_hint) => &config.idempotent,
            None => &config.others,
        };
        Self {
            server,
            tool: tool.name.to_string(),
            schema: tool.input_schema.clone(),
            policy: policy.clone(),
            reads: own.is_none() && claims(Hint::ReadOnly, |hints| hints.read_only_hint),
        }
    }

    /// True if calls pass without a record.
    pub(super) fn passes(&self) -> bool {
        self.reads || self.policy.passes()
    }
}

/// The number of occurrences of each name.
fn names<'n>(all: impl Iterator<Item = &'n str>) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for name in all {
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

/// The name that clients see: the server's own, with the server's name in front where two servers have the same.
fn exposed(counts: &HashMap<String, usize>, server: &str, name: &str) -> String {
    if counts.get(name).is_some_and(|count| *count > 1) {
        format!("{server}_{name}")
    } else {
        name.to_owned()
    }
}
