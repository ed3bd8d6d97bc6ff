//! EXE-4: the budget of a run that goes on as new. What it has used up stays used up, also when the records of it have expired.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{FailureCode, RunError, Workflow, WorkflowFn};
use counterfoil::ledger::{Backoff, Budget, Price, Quota, Retention, RetryPolicy};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Failure, RunId};

use crate::flow;
use crate::flow::lives::NAME;
use crate::flow::store::Tapped;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

/// The sweeper looks at least every second.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Asks a model, at 40 cents a question. Its records are kept for so long.
struct Ask(Arc<World>, Retention);

impl Tool for Ask {
    const NAME: &'static str = "ask";
    type Effect = effect::ModelCall;
    type Contract = contract::Blind;
    type Input = u32;
    type Output = u32;

    /// No further attempt: the records need not outlast any.
    fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            attempts: 1,
            backoff: Backoff { base: Duration::ZERO, cap: Duration::ZERO },
            attempt_timeout: RetryPolicy::NO_TIMEOUT,
            retry_after_cap: Duration::ZERO,
        }
    }

    fn retention(&self) -> Retention {
        self.1
    }

    fn quota(&self) -> Quota {
        Quota::default().price(Price::new(40, "cent"))
    }

    async fn call(&self, call: &Call, life: &u32) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(self.0.happen("ask", call.key(), &life.to_string())))
    }
}

/// Asks once in each life. The second life lasts until it is told to go on.
fn agent(world: &Arc<World>) -> impl WorkflowFn<u32, u32> + Clone + use<> {
    flow!(world, |ctx, life: u32| {
        ctx.call::<Ask>(life).await?;
        if life == 1 {
            ctx.signal::<()>("go on").await?;
        }
        if life < 5 { ctx.continue_as_new(&(life + 1)).await } else { Ok::<u32, Failure>(life) }
    })
}

/// A record has gone, and nothing is left of it.
fn forgotten(tapped: &Tapped) -> bool {
    tapped.batches.iter().flatten().flat_map(|change| &change.retired).any(|retired| retired.left.is_none())
}

/// The name of the budget with which the run has failed.
fn used_up(process: &Process, run: RunId) -> String {
    let result = process.on(async { process.acme().handle::<u32>(run).result().await });
    let Err(RunError::Failed { failure, .. }) = result else { panic!("{result:?}") };
    assert_eq!(failure.code, FailureCode::BudgetExceeded, "{failure:?}");
    failure.detail["detail"]["budget"].as_str().unwrap().to_owned()
}

#[test]
fn what_a_run_has_used_up_counts_when_the_records_of_it_have_expired() {
    let budgets =
        [(Budget::default().cost("cent", 100), "run.cost"), (Budget::default().attempts(2), "run.attempts")];
    for (shared, (budget, name)) in budgets.iter().flat_map(|budget| [(false, budget), (true, budget)]) {
        let (world, schema) = (World::new(), Schema::new());
        let code = agent(&world);
        let life = || {
            let ask = Ask(world.clone(), Retention::forget_after(AT_ONCE));
            let agent = Workflow::new(NAME, code.clone()).budget(budget.clone());
            Process::start(&world, world.engine_in(&schema, shared).tool(ask).register(agent))
        };
        let process = life();
        let run = process.on(async { process.acme().run(code.clone(), 0).start().await.unwrap().id() });
        process.on(process.state(run, "waiting"));
        assert_eq!(world.effects("ask").len(), 2, "two lives");
        process.on(world.tap.until(forgotten));
        process.shut_down();
        // The next process counts what is recorded, and knows of no other.
        let process = life();
        process.on(async { process.acme().handle::<u32>(run).signal("go on", ()).await.unwrap() });
        assert_eq!(used_up(&process, run), *name);
        assert_eq!(world.effects("ask").len(), 2, "the third life has nothing left");
        process.shut_down();
    }
}

// The records of earlier lives are there beside the sum that was carried over.
#[test]
fn what_a_run_has_used_up_counts_once() {
    let world = World::new();
    let code = agent(&world);
    let ask = Ask(world.clone(), Retention::keep());
    let agent = Workflow::new(NAME, code.clone()).budget(Budget::default().cost("cent", 170));
    let process = Process::start(&world, world.engine().tool(ask).register(agent));
    let run = process.on(async {
        let run = process.acme().run(code, 0).start().await.unwrap().id();
        process.acme().handle::<u32>(run).signal("go on", ()).await.unwrap();
        run
    });
    assert_eq!(used_up(&process, run), "run.cost");
    assert_eq!(world.effects("ask").len(), 4, "four times forty cents of 170");
    process.shut_down();
}
