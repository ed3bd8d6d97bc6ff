//! Budgets of runs: declared with their workflow, counted by their records, so that they survive whatever dies.

use std::sync::Arc;

use super::builder::EngineBuilder;
use super::engine::Inner;
use super::live::Live;
use crate::exec::{ExecError, Purse};
use crate::ledger::{Budget, Spent};
use crate::store::{Run, Store as _, Turns};

/// So many turns are read at once.
const TURNS: u32 = 256;

impl EngineBuilder {
    /// What each run of the workflow that was registered last may use up: attempts, time and cost, of all its calls together.
    /// A call that it cannot afford is not made, and fails with [`FailureCode::BudgetExceeded`](super::FailureCode), which
    /// names the budget. What a run has used up is counted by its records: a crash gives nothing back. Its children have
    /// budgets of their own.
    ///
    /// ```
    /// # use counterfoil::{Ctx, Engine, Failure};
    /// use std::time::Duration;
    /// use counterfoil::ledger::Budget;
    ///
    /// # async fn research(ctx: Ctx, question: String) -> Result<String, Failure> { Ok(question) }
    /// let engine = Engine::sqlite("agents.db")
    ///     .workflow("research", 1, research)
    ///     .budget(Budget::default().attempts(200).cost("cent", 150).within(Duration::from_hours(2)));
    /// ```
    pub fn budget(self, budget: Budget) -> Self {
        self.of_last(|workflows| workflows.budget(budget))
    }
}

/// What is left of the budget of a run, if it has one. A fresh run has spent nothing.
pub(super) async fn purse(
    engine: &Arc<Inner>,
    run: &Run,
    is_fresh: bool,
) -> Result<Option<Arc<Purse>>, ExecError> {
    let workflow = engine.workflows.find(run.workflow.as_str(), run.version);
    let Some(budget) = workflow.and_then(|workflow| workflow.budget.clone()) else { return Ok(None) };
    // Boxed because it is rare: every run would have to carry the room for it.
    let spent = if is_fresh { Spent::default() } else { Box::pin(spent(engine, run)).await? };
    Ok(Some(Purse::new(budget, run.created_at, spent)))
}

/// What the run has used up, in all its turns and under all its inputs.
async fn spent(engine: &Arc<Inner>, run: &Run) -> Result<Spent, ExecError> {
    let core = &engine.core;
    let (mut spent, mut first) = (Spent::default(), 0_u32);
    loop {
        let last = first.saturating_add(TURNS - 1).min(run.turn);
        // The base is read whatever the turns are: it is counted with the first of them.
        let turns = Turns { base: first, first, last };
        let history = core.group.run_history(&run.tenant, run.id, turns).await;
        let history = history.map_err(|source| ExecError::Store { key: run.id.to_string(), source })?;
        for call in history.calls {
            let tool = core.registry.find(&call.operation);
            let price = tool.and_then(|tool| tool.spec().quota.price.as_ref());
            spent.add(call.attempts, price);
        }
        match last.checked_add(1).filter(|next| *next <= run.turn) {
            Some(next) => first = next,
            None => return Ok(spent),
        }
    }
}

impl Live {
    /// The budget of the run, if it has one.
    pub(super) fn purse(&self) -> Option<Arc<Purse>> {
        self.purse.get().cloned()
    }
}
