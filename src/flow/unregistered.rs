//! Tools and workflows that a run asks for and this engine does not know: the run is blocked, and goes on by itself
//! with an engine that knows them.

use serde::{Deserialize, Serialize};

use super::failure::{Failure, FailureCode};
use super::host_values::HostValues;
use super::workflow::Workflows;
use crate::payload::Payload;
use crate::tool::Registry;

/// A tool or workflow that a run asks for and that is not registered. It is stored with the blocked run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unregistered {
    /// A tool, by its name.
    Tool(String),
    /// The workflow of a child, by the type of its function: the code gives nothing else.
    Child(String),
    /// A value of the host, by its type.
    State(String),
}

impl Unregistered {
    /// The tool or workflow that a blocked run lacks, read from the run's row.
    pub(super) fn of(blocked: &Payload) -> Option<Self> {
        serde_json::from_value(blocked.value().ok()?.get_mut("detail")?.take()).ok()
    }

    /// True if this engine knows the tool, the workflow or the state.
    pub(super) fn is_here(&self, registry: &Registry, workflows: &Workflows, values: &HostValues) -> bool {
        match self {
            Self::Tool(name) => registry.find(name).is_some(),
            Self::Child(function) => workflows.has_function(function),
            Self::State(name) => values.has(name),
        }
    }
}

impl From<Unregistered> for Failure {
    fn from(what: Unregistered) -> Self {
        let message = match &what {
            Unregistered::Tool(name) => format!(
                "the tool {name:?} is not registered with this engine: add `.tool(…)` to the engine; the run waits for it"
            ),
            Unregistered::Child(function) => format!(
                "the child's workflow `{function}` is not registered with this engine: add `.workflow(name, version, function)` \
                 to the engine; the run waits for it"
            ),
            Unregistered::State(name) => format!(
                "the engine has no state of the type `{name}`: add `.state(…)` to the engine; the run waits for it"
            ),
        };
        let detail = serde_json::to_value(what).unwrap_or_default();
        Self::coded(FailureCode::Unregistered, message).detail(detail)
    }
}
