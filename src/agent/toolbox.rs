//! The tools that an agent may call, and the conversion of the model's proposals into calls. Nothing that a model
//! writes is trusted: a proposal that cannot be carried out is reported back to the model.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use schemars::JsonSchema;

use super::bounds::{ERROR, cut};
use super::builder::misuse;
use super::message::Proposal;
use crate::flow::{Failure, Unregistered};
use crate::id::RunName;
use crate::ledger::{Approval, Key, RequestHash};
use crate::payload::{Limits, Payload, PayloadError, hex, parse};
use crate::tool::{Prepared, Registry, Schema, Tool, ToolOffer, Unprepared, stable_key};

/// A tool that is offered to the model.
pub(super) struct Offered {
    name: String,
    /// The description and the schema; if absent, those of the registered tool.
    described: Option<(String, Schema)>,
    approval: Option<Approval>,
    /// True if the same arguments in a later turn are another call.
    anew: bool,
}

impl Offered {
    /// A tool whose input type has a schema.
    pub(super) fn typed<T: Tool<Input: JsonSchema>>() -> Self {
        Self { described: Some(Schema::of::<T::Input>()), ..Self::named(T::NAME) }
    }

    /// A tool that describes itself.
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), described: None, approval: None, anew: false }
    }

    pub(super) fn approved_by(mut self, approval: &Approval) -> Self {
        self.approval = Some(approval.clone());
        self
    }

    pub(super) fn anew(mut self) -> Self {
        self.anew = true;
        self
    }
}

/// The tools of one agent, found in the registry.
pub(super) struct Toolbox<'a> {
    registry: &'a Registry,
    limits: Limits,
    tools: Vec<Found<'a>>,
}

struct Found<'a> {
    offer: ToolOffer,
    schema: Schema,
    offered: &'a Offered,
    tool: &'a dyn Unprepared,
}

/// A proposal that can be carried out.
pub(super) struct Ready {
    pub(super) tool: Arc<dyn Prepared>,
    pub(super) key: Key,
    pub(super) approval: Option<Approval>,
    /// The tool and its request. Two proposals with equal values are one call.
    pub(super) same: (String, Payload),
}

impl<'a> Toolbox<'a> {
    /// Finds the tools in the registry, or fails with the name of the missing one.
    pub(super) fn find(
        registry: &'a Registry,
        limits: Limits,
        offered: &'a [Offered],
    ) -> Result<Self, Failure> {
        let mut tools: Vec<Found<'a>> = Vec::with_capacity(offered.len());
        for offered in offered {
            let name = offered.name.clone();
            let Some(tool) = registry.find(&name) else {
                return Err(Unregistered::Tool(name).into());
            };
            if tools.iter().any(|known| known.offer.name == name) {
                return Err(misuse(format!("the agent is given the tool {name:?} twice")));
            }
            let given =
                || registry.about(&name).map(|about| (about.description.clone(), about.schema.clone()));
            let Some((description, schema)) = offered.described.clone().or_else(given) else {
                return Err(misuse(format!(
                    "the tool {name:?} does not say what it takes: `.describe(…)` it"
                )));
            };
            let offer = ToolOffer { name, description, schema: schema.schema.clone() };
            tools.push(Found { offer, schema, offered, tool });
        }
        Ok(Self { registry, limits, tools })
    }

    /// The tools in the form that the model sees.
    pub(super) fn offers(&self) -> Vec<ToolOffer> {
        self.tools.iter().map(|found| found.offer.clone()).collect()
    }

    /// The call that a proposal becomes, or the error message for the model.
    pub(super) fn ready(
        &self,
        proposal: &Proposal,
        run: (RunName, u32),
        agent: &str,
        turn: u32,
    ) -> Result<Ready, String> {
        // The tool's own code reads the arguments and makes the key, and may panic on unexpected arguments.
        let ready = catch_unwind(AssertUnwindSafe(|| self.read(proposal, run, agent, turn)));
        let told = ready.unwrap_or_else(|_| Err("the tool cannot read these arguments".to_owned()));
        told.map_err(|error| cut(error, ERROR))
    }

    fn read(
        &self,
        proposal: &Proposal,
        run: (RunName, u32),
        agent: &str,
        turn: u32,
    ) -> Result<Ready, String> {
        if let Some(why) = &proposal.refused {
            return Err(why.clone());
        }
        let Some(found) = self.tools.iter().find(|found| found.offer.name == proposal.tool) else {
            let names: Vec<_> = self.tools.iter().map(|found| found.offer.name.as_str()).collect();
            return Err(format!("there is no tool {:?}; there are: {}", proposal.tool, names.join(", ")));
        };
        let Found { schema, offered, tool, .. } = found;
        let text = if proposal.arguments.trim().is_empty() { "{}" } else { &proposal.arguments };
        let input = schema.input(parse(text).map_err(|e| e.to_string())?)?;
        let input = Payload::of(&input).map_err(|e| e.to_string())?;
        let tool = self.registry.untyped(*tool, &input).map_err(|e| match e {
            PayloadError::Mismatch { reason, .. } => format!("the arguments do not fit: {reason}"),
            error => error.to_string(),
        })?;
        // The request as the tool reads it: an argument that the tool ignores makes no other call.
        let request = tool.request(None).and_then(|(request, _)| request.within(&self.limits));
        let request = request.map_err(|e| e.to_string())?;
        let key = stable_key(&*tool).map_err(|e| e.to_string())?.unwrap_or_else(|| {
            let hash = RequestHash::of(&offered.name, &request);
            let turn = if offered.anew { format!("/{turn}") } else { String::new() };
            Key::in_run(&offered.name, run.0, run.1, format!("{agent}{turn}/{}", hex(&hash.digest)))
        });
        let rendered = key.render().map_err(|e| e.to_string())?;
        let same = (rendered.as_str().to_owned(), request);
        Ok(Ready { tool, key, approval: offered.approval.clone(), same })
    }
}
