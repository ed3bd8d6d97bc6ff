//! The guarantee report (FLOW-10): what may be promised of each workflow's calls, without running any.

use std::fmt;

use serde::Serialize;

use super::workflow::Workflows;
use crate::tool::{Guarantee, Registry};

/// What may be promised of the calls of each registered workflow, and of each registered tool. Drawn as text by
/// [`Display`](fmt::Display), and as JSON by serde.
///
/// ```
/// use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
/// use counterfoil::{Ctx, Engine, Failure};
///
/// struct OpenTicket;
///
/// impl Tool for OpenTicket {
///     const NAME: &'static str = "open_ticket";
///     type Effect = effect::InternalMutation;
///     type Contract = contract::Blind; // the tracker takes no key, and cannot be asked
///     type Input = String;
///     type Output = ();
///     async fn call(&self, _: &Call, _: &String) -> Result<Done<()>, ToolError> {
///         Ok(Done::new(()))
///     }
/// }
///
/// async fn triage(ctx: Ctx, report: String) -> Result<(), Failure> {
///     ctx.call::<OpenTicket>(report).await
/// }
///
/// let engine = Engine::sqlite("agents.db").workflow("triage", 1, triage).calls::<OpenTicket>().tool(OpenTicket);
/// let report = engine.guarantees()?;
/// assert_eq!(report.workflows[0].calls[0].worst_case_words, "at most once, then a person decides");
/// println!("{report}");
/// # Ok::<(), counterfoil::exec::StartError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Guarantees {
    /// Each version of each workflow, by name and version.
    pub workflows: Vec<WorkflowGuarantees>,
    /// All tools, by name.
    pub tools: Vec<Guarantee>,
}

/// What may be promised of the calls of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkflowGuarantees {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: u32,
    /// It says which tools it calls, and can call no other. If it does not, it may call all.
    pub declared: bool,
    /// The tools that it may call, by name.
    pub calls: Vec<Guarantee>,
}

impl Guarantees {
    pub(super) fn of(workflows: &Workflows, registry: &Registry) -> Self {
        let tools = registry.guarantees();
        let workflows = workflows.all().map(|workflow| {
            let may_call = |guarantee: &&Guarantee| workflow.may_call(&guarantee.tool);
            WorkflowGuarantees {
                name: workflow.name.to_string(),
                version: workflow.version,
                declared: workflow.calls.is_some(),
                calls: tools.iter().filter(may_call).cloned().collect(),
            }
        });
        Self { workflows: workflows.collect(), tools }
    }
}

impl fmt::Display for Guarantees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for workflow in self.workflows.iter().filter(|workflow| workflow.declared) {
            writeln!(f, "{} {}", workflow.name, workflow.version)?;
            draw(f, &workflow.calls)?;
            writeln!(f)?;
        }
        let open = self.workflows.iter().filter(|workflow| !workflow.declared);
        let open: Vec<_> = open.map(|workflow| format!("{} {}", workflow.name, workflow.version)).collect();
        match (open.is_empty(), self.workflows.is_empty()) {
            (false, _) => writeln!(f, "{}: any registered tool", open.join(", "))?,
            (true, true) => writeln!(f, "all registered tools")?,
            (true, false) => return Ok(()),
        }
        draw(f, &self.tools)
    }
}

fn draw(f: &mut fmt::Formatter<'_>, calls: &[Guarantee]) -> fmt::Result {
    writeln!(f, "  {}", Guarantee::head())?;
    for call in calls {
        for line in call.to_string().lines() {
            writeln!(f, "  {line}")?;
        }
    }
    Ok(())
}
