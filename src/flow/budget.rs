//! Budgets of runs: declared with their workflow, and counted from their records, so that no crash resets them.

use std::sync::Arc;

use super::inner::Inner;
use crate::exec::{ExecError, Purse};
use crate::ledger::BudgetUsage;
use crate::store::{Run, Store as _, Turns};

/// The number of turns that are read at once.
const TURNS: u32 = 256;

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

/// The usage of the run in all its turns and under all its inputs.
async fn spent(engine: &Inner, run: &Run) -> Result<BudgetUsage, ExecError> {
    let core = &engine.core;
    let (mut spent, mut first) = (BudgetUsage::default(), 0_u32);
    loop {
        let last = first.saturating_add(TURNS - 1).min(run.turn);
        // A history always includes its base, which here is the first turn of the page: no turn is counted twice.
        let turns = Turns { base: first, first, last };
        let history = core.group.run_history(&run.tenant, run.id, turns).await;
        let history = history.map_err(|source| ExecError::Store { key: run.id.to_string(), source })?;
        for call in history.calls {
            let tool = core.registry.find(&call.operation);
            let price = tool.and_then(|tool| tool.spec().quota.price.as_ref());
            spent.add(call.attempts, price);
            if let Some((price, cost)) = price.zip(call.cost) {
                spent.settle(price, cost);
            }
        }
        match last.checked_add(1).filter(|next| *next <= run.turn) {
            Some(next) => first = next,
            None => return Ok(spent),
        }
    }
}
