//! Create a draft, archive the duplicate. The office's drafting system takes no key: a request that the network doubles, or that
//! lands after it was taken for lost, leaves a second draft. The system can be asked, so the second one is found, and is archived
//! under the same tool that made it. When the case turns out to be known already, the run fails, and its own draft is archived.
//!
//! ```text
//! cargo run --release --features sim --example draft_archive      # crashed everywhere
//! ```

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "an example, which tests and `counterfoil simulate` include as a module"
)]

use counterfoil::ledger::{ErrorKind, LookupResult, Undone};
use counterfoil::sim::{End, Offer, Service, Simulation};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    pub id: String,
    /// The earlier case that this one repeats, as the clerk finds out.
    pub repeats: Option<String>,
}

/// Drafts an answer to a case, and gives it up if the case was answered before.
pub async fn answer(ctx: Ctx, case: Case) -> Result<Value, Failure> {
    let draft = ctx.call::<CreateDraft>(case.id.clone()).await?;
    match ctx.step("compare", &case, |case| case.repeats.clone()).await? {
        None => Ok(draft),
        Some(earlier) => Err(Failure::new(format!("{} repeats {earlier}", case.id))),
    }
}

/// Creates a draft. Nobody is shown it yet, and still a second one is a duplicate.
pub struct CreateDraft(Service);

impl Tool for CreateDraft {
    const NAME: &'static str = "create_draft";
    type Effect = effect::Undoable<effect::Draft>;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = Value;

    fn key(&self, case: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(case))
    }

    async fn call(&self, call: &Call, case: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, case).await
    }
}

impl Reconcile for CreateDraft {
    async fn reconcile(&self, call: &Call, case: &String) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, case).await
    }
}

/// Archives a draft by its id: that of a failed run, or the second of two. Archiving it again changes nothing, but is counted.
impl Compensate for CreateDraft {
    async fn compensate(
        &self,
        call: &Call,
        draft: &OriginalCall<String, Value>,
    ) -> Result<Done<Undone>, ToolError> {
        self.0.create(call, &archived(draft)?).await?;
        Ok(Undone::whole().into())
    }

    async fn find_compensation(
        &self,
        call: &Call,
        draft: &OriginalCall<String, Value>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        self.0.find(call, &archived(draft)?).await?.try_map(|_| Ok(Undone::whole()))
    }
}

/// The system's note that a draft is archived.
fn archived(draft: &OriginalCall<String, Value>) -> Result<String, ToolError> {
    let id = draft.external_ref().ok_or_else(|| ToolError::new(ErrorKind::Validation, "which draft?"))?;
    Ok(format!("archived {id}"))
}

const SYSTEM: &str = "drafts";

/// A new case, and one that repeats it.
fn cases() -> [Case; 2] {
    let repeats = Some("C-1".to_owned());
    [Case { id: "C-1".to_owned(), repeats: None }, Case { id: "C-2".to_owned(), repeats }]
}

pub fn simulation() -> Simulation {
    let [new, known] = cases();
    Simulation::of(answer, new)
        .with_run(Simulation::TENANT, "known", answer, known)
        .engine(|engine, world| engine.tool(CreateDraft(world.service(SYSTEM, Offer::Lookup))))
        .check("one draft of the new case", |end| at_most(end, "C-1", 1))
        .check("no draft of the known case", |end| at_most(end, "C-2", 0))
        .fails(1)
}

/// Of a case, so many drafts are left that are not archived, unless somebody is asked.
fn at_most(end: &End<'_>, case: &str, wanted: usize) -> Result<(), String> {
    let effects = end.effects();
    let is_archived = |id: &str| effects.iter().any(|effect| effect.reference == format!("archived {id}"));
    let left = effects.iter().filter(|draft| draft.reference == case && !is_archived(&draft.id)).count();
    if left > wanted && end.questions().is_empty() {
        return Err(format!("{left} drafts of {case} are left, and nobody is asked"));
    }
    Ok(())
}

#[allow(dead_code, reason = "tests and `counterfoil simulate` have a main of their own")]
fn main() {
    let report = simulation().explore();
    report.print();
    std::process::exit(i32::from(!report.is_ok()));
}
