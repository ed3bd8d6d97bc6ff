//! The tools and prompts of all servers, under the names that clients see.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{Prompt, Tool};

use super::arguments::with_again;
use super::config::ServerConfig;
use super::file::Hint;
use super::policy::{ToolPolicy, trusts};

/// The lists of the servers, as they were given last.
#[derive(Default)]
pub(super) struct Catalogue(Mutex<Option<Arc<Listed>>>);

impl Catalogue {
    pub(super) fn known(&self) -> Option<Arc<Listed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn keep(&self, listed: Arc<Listed>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(listed);
    }

    /// Drops the lists, because a server has changed its own.
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The tools and prompts of one server.
pub(super) struct OfServer {
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
    pub(super) fn of(servers: Vec<OfServer>) -> Self {
        let mut listed = Self::default();
        let tools = names(servers.iter().flat_map(|of| of.tools.iter().map(|tool| tool.name.as_ref())));
        let prompts =
            names(servers.iter().flat_map(|of| of.prompts.iter().map(|prompt| prompt.name.as_str())));
        for OfServer { server, config, tools: own, prompts: own_prompts } in servers {
            for mut tool in own {
                let listing = Listing::of(server, &config, &tool);
                let name = exposed(&tools, &config.name, &tool.name);
                if !listing.passes() {
                    tool.input_schema = Arc::new(with_again(&tool.input_schema));
                }
                tool.name = name.clone().into();
                listed.tools.push(tool);
                listed.by_name.insert(name, Arc::new(listing));
            }
            for mut prompt in own_prompts {
                let name = exposed(&prompts, &config.name, &prompt.name);
                listed
                    .prompts_by_name
                    .insert(name.clone(), (server, std::mem::replace(&mut prompt.name, name)));
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
