//! The guarantee report: the promises about each workflow's calls, found without running any.

use std::fmt;

use serde::Serialize;

use super::workflow::Workflows;
use crate::ledger::WorstCase;
use crate::tool::{Guarantee, Registry};

/// The promises about the calls of each registered workflow, and of each registered tool. Printed as text by
/// [`Display`](fmt::Display), and as JSON by serde.
///
/// ```
/// use counterfoil::flow::Workflow;
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
/// let triage = Workflow::new("triage", triage).calls::<OpenTicket>();
/// let engine = Engine::sqlite("agents.db").register(triage).tool(OpenTicket);
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
    /// The promises about each tool, by name.
    pub tools: Vec<Guarantee>,
    /// The promises about what any workflow may do without a tool.
    pub without_tools: Vec<OwnGuarantee>,
}

/// A promise about something that a workflow does without a tool: it is in the ledger's own database, or begins there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OwnGuarantee {
    /// The thing that is done.
    pub what: &'static str,
    /// The worst outcome for the thing.
    pub worst_case: WorstCase,
    /// The means by which the promise is kept.
    pub by: &'static str,
}

/// The promises in the order in which they are printed. *Exactly once* is said where the change and its record are one
/// transaction of the ledger's own database.
const WITHOUT_TOOLS: &[OwnGuarantee] = &[
    own("transaction", WorstCase::ExactlyOnce, "in one transaction with its record"),
    own(
        "message processed",
        WorstCase::ExactlyOnce,
        "in one transaction with what it changes; known by its id",
    ),
    own(
        "event written",
        WorstCase::ExactlyOnce,
        "in one transaction with the step or the change that it tells of",
    ),
    own(
        "event published",
        WorstCase::Repeats,
        "in the order of its aggregate, under one id: consumers drop what they know",
    ),
    own(
        "artifact",
        WorstCase::ExactlyOnce,
        "one for each key and content; other content is refused, or a new version",
    ),
    #[cfg(feature = "memory")]
    own("memory", WorstCase::ExactlyOnce, "one for each subject, kind and content; what is equal is merged"),
    own("approval", WorstCase::ExactlyOnce, "asked once; one vote for each reviewer and version"),
    own("signal", WorstCase::ExactlyOnce, "received once, known by its id"),
    own("child, schedule's tick", WorstCase::ExactlyOnce, "started once, known by its key"),
    own(
        "step",
        WorstCase::RepeatsHarmlessly,
        "its first result is recorded and stands; its code must have no effect",
    ),
];

const fn own(what: &'static str, worst_case: WorstCase, by: &'static str) -> OwnGuarantee {
    OwnGuarantee { what, worst_case, by }
}

/// The promises about the calls of one workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkflowGuarantees {
    /// The name of the workflow.
    pub name: String,
    /// The version of the workflow.
    pub version: u32,
    /// True if the workflow declares its tools, and can call no other. Otherwise it may call all tools.
    pub declared: bool,
    /// The tools that the workflow may call, by name.
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
        Self { workflows: workflows.collect(), tools, without_tools: WITHOUT_TOOLS.to_vec() }
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
            (true, false) => return draw_own(f, &self.without_tools),
        }
        draw(f, &self.tools)?;
        writeln!(f)?;
        draw_own(f, &self.without_tools)
    }
}

fn draw_own(f: &mut fmt::Formatter<'_>, own: &[OwnGuarantee]) -> fmt::Result {
    writeln!(f, "without a tool")?;
    for OwnGuarantee { what, worst_case, by } in own {
        let words = match worst_case {
            WorstCase::Repeats => "at least once",
            worst_case => worst_case.words(),
        };
        writeln!(f, "  {what:<24} {words:<24} {by}")?;
    }
    Ok(())
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
