//! Budgets of runs: declared with their workflow, and counted from their records, so that no crash resets them.
//!
//! Records of what a run did before it went on as new may expire before the run ends. So the run carries over what it
//! had used up by then, in a checkpoint of its own.

use std::sync::Arc;

use super::identity::{Identity, Kind};
use super::inner::Inner;
use super::live::Live;
use crate::exec::{Core, ExecError, Purse};
use crate::ledger::BudgetUsage;
use crate::payload::Payload;
use crate::store::{PastCall, PastStep, Run, Step, StepKind, Store as _, StoreError, Turns};

/// The number of turns that are read at once.
const TURNS: u32 = 256;
/// The name of the checkpoint with what the run had used up when it went on as new.
const SPENT: &str = "spent";

/// The rest of the run's budget, if the run has one. A fresh run has spent nothing.
pub(super) async fn purse(
    engine: &Inner,
    run: &Run,
    is_fresh: bool,
) -> Result<Option<Arc<Purse>>, ExecError> {
    let workflow = engine.workflows.find(run.workflow.as_str(), run.version);
    let Some(budget) = workflow.and_then(|workflow| workflow.budget.clone()) else { return Ok(None) };
    // Boxed because it is rare: the future of every run would need the room for it.
    let spent = if is_fresh { BudgetUsage::default() } else { Box::pin(spent(engine, run)).await? };
    Ok(Some(Purse::new(budget, run.created_at, spent)))
}

/// The checkpoint with what the run has used up so far, for a run that goes on as new, and a payload row if it is large.
/// `None` for a run without a budget.
///
/// It belongs to the last turn of the input that is over: no resume reads that turn again, and no fork is given it.
pub(super) fn carried_on(live: &Live) -> Result<Option<(Step, Option<Payload>)>, ExecError> {
    let Some(purse) = live.purse() else { return Ok(None) };
    let (value, large) = live.core.storable(Payload::of(&purse.spent().recorded())?);
    let (turn, name) = (live.run().turn, SPENT.to_owned());
    let identity = Identity { turn, kind: Kind::Step, name, id: "0".into() };
    Ok(Some((live.step(&identity, StepKind::Input, None, value), large)))
}

/// True if this checkpoint holds what the run had used up when it went on with its present input.
fn is_carried(run: &Run, step: &PastStep) -> bool {
    step.turn.checked_add(1) == Some(run.base) && step.kind == StepKind::Input && step.name == SPENT
}

/// The usage of the run in all its turns and under all its inputs.
///
/// What was carried over counts at least what the records of earlier inputs that are left count. These may count more: a
/// call that failed under an earlier input may have been tried again since.
async fn spent(engine: &Inner, run: &Run) -> Result<BudgetUsage, ExecError> {
    let core = &engine.core;
    let (mut before, mut since) = (BudgetUsage::default(), BudgetUsage::default());
    let (mut carried, mut first) = (BudgetUsage::default(), 0_u32);
    loop {
        let last = first.saturating_add(TURNS - 1).min(run.turn);
        // A history always includes its base, which here is the first turn of the page: no turn is counted twice.
        let turns = Turns { base: first, first, last };
        let history = core.group.run_history(&run.tenant, run.id, turns).await;
        let history = history.map_err(|source| ExecError::Store { key: run.id.to_string(), source })?;
        for call in &history.calls {
            count(core, if call.turn < run.base { &mut before } else { &mut since }, call);
        }
        if let Some(step) = history.steps.iter().find(|step| is_carried(run, step)) {
            carried = read(core, run, step).await?;
        }
        match last.checked_add(1).filter(|next| *next <= run.turn) {
            Some(next) => first = next,
            None => return Ok(carried.at_least(&before).plus(&since)),
        }
    }
}

/// Adds the attempts of a recorded call.
fn count(core: &Core, spent: &mut BudgetUsage, call: &PastCall) {
    let tool = core.registry.find(&call.operation);
    let price = tool.and_then(|tool| tool.spec().quota.price.as_ref());
    spent.add(call.attempts, price);
    if let Some((price, cost)) = price.zip(call.cost) {
        spent.settle(price, cost);
    }
}

/// Reads what was carried over.
async fn read(core: &Core, run: &Run, step: &PastStep) -> Result<BudgetUsage, ExecError> {
    let damaged = |detail| ExecError::Store {
        key: run.id.to_string(),
        source: StoreError::Corrupt { row: "step (spent)".into(), detail },
    };
    let Some(value) = &step.value else { return Err(damaged("it has no value".to_owned())) };
    let carried = core.load(&run.tenant, value).await?;
    carried.decode().map_err(|error| damaged(error.to_string()))
}
