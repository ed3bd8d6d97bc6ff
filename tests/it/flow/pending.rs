//! A run waits as a row for a call that its provider has accepted and finishes by itself: over crashes, on both stores.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::ExecError;
use counterfoil::flow::{FailureCode, RunError, WorkflowFn};
use counterfoil::ledger::{LookupResult, Undone};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Completed, Completion, RunId};
use serde_json::json;

use crate::flow;
use crate::flow::answers::Place;
use crate::flow::lives::NAME;
use crate::flow::wait::HOUR;
use crate::flow::world::{Process, World};

const SECOND: Duration = Duration::from_secs(1);

/// A job that its provider accepts, and finishes when the world lets it.
struct Render {
    world: Arc<World>,
    look_again: Duration,
}

impl Tool for Render {
    const NAME: &'static str = "render";
    type Effect = effect::Undoable<effect::InternalMutation>;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = u32;

    async fn call(&self, call: &Call, what: &String) -> Result<Done<u32>, ToolError> {
        self.world.happen("render", call.key(), what);
        self.world.pass("render accepted").await;
        Err(ToolError::accepted(Some("job-1".into())).retry_after(self.look_again))
    }
}

impl Reconcile for Render {
    async fn reconcile(&self, call: &Call, _: &String) -> Result<LookupResult<u32>, ToolError> {
        self.world.count("render looked up");
        let external_ref = Some("job-1".to_owned());
        if !self.world.see(|seen| seen.effects.iter().any(|(_, key, _)| key == call.key())) {
            return Ok(LookupResult::NotFound);
        }
        Ok(match self.world.counted("finished") {
            0 => LookupResult::Pending { external_ref, look_again: self.look_again },
            _ => LookupResult::Committed { output: 7, external_ref },
        })
    }
}

impl Compensate for Render {
    async fn compensate(
        &self,
        call: &Call,
        of: &OriginalCall<String, u32>,
    ) -> Result<Done<Undone>, ToolError> {
        self.world.happen("delete", call.key(), of.external_ref().unwrap_or("unnamed"));
        Ok(Undone::whole().into())
    }

    async fn find_compensation(
        &self,
        _: &Call,
        _: &OriginalCall<String, u32>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::NotFound)
    }
}

fn life<W: WorkflowFn<(), u32>>(place: &Place, world: &Arc<World>, look_again: Duration, code: W) -> Process {
    let render = Render { world: world.clone(), look_again };
    Process::start(world, place.engine(world).tool(render).workflow(NAME, 1, code))
}

async fn complete(process: &Process, output: serde_json::Value) -> Result<Completed, ExecError> {
    let (executor, tenant) = (process.engine().executor().clone(), crate::world::acme());
    executor.complete(&tenant, Completion::done("render", "job-1", output)).await
}

/// The call is accepted, and the run waits as a row. Nobody is asked.
async fn waits(process: &Process, run: RunId) {
    process.state(run, "waiting").await;
    assert_eq!(process.acme().questions().await.unwrap(), []);
}

// R-EXE-13
#[test]
fn a_run_goes_on_with_what_a_lookup_or_a_callback_shows() {
    for place in Place::both() {
        for by_callback in [true, false] {
            let world = World::new();
            // A callback that arrives during a lookup is kept until the lookup ends. No lookup comes within an hour.
            let look_again = if by_callback { HOUR } else { SECOND };
            let life = |code| life(&place, &world, look_again, code);
            let code = flow!(world, |ctx, _input: ()| ctx.call::<Render>("a film".into()).await);
            world.hold("render accepted");
            let process = life(code.clone());
            let run = process.on(async {
                let run = process.acme().run(code.clone(), ()).start().await.unwrap().id();
                world.reached("render accepted").await;
                run
            });
            process.crash(); // before the 202 is recorded
            world.release("render accepted");

            let process = life(code.clone());
            process.on(waits(&process, run));
            process.crash(); // while it waits

            let process = life(code.clone());
            process.on(async {
                waits(&process, run).await;
                if by_callback {
                    let misfit = complete(&process, json!("seven")).await.unwrap_err();
                    assert!(misfit.to_string().contains("does not fit u32"), "{misfit}");
                    assert_eq!(complete(&process, json!(7)).await.unwrap(), Completed::Taken);
                } else {
                    world.count("finished");
                }
                assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 7);
                assert_eq!(process.acme().questions().await.unwrap(), []);
            });
            assert_eq!(world.effects("render").len(), 1);
            process.shut_down();
        }
    }
}

// What is under way is followed to its end before it is undone.
#[test]
fn a_cancelled_run_undoes_it_when_it_is_finished() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| ctx.call::<Render>("a film".into()).await);
        let process = life(&place, &world, SECOND, code.clone());
        process.on(async {
            let run = process.acme().run(code.clone(), ()).start().await.unwrap();
            waits(&process, run.id()).await;
            run.cancel("ann", "not needed").await.unwrap();
            world.counts("render looked up", 2).await;
            assert_eq!(world.effects("delete").len(), 0);
            complete(&process, json!(7)).await.unwrap();
            let Err(RunError::Failed { failure, .. }) = run.result().await else { panic!() };
            assert_eq!(failure.code, FailureCode::Cancelled);
        });
        assert_eq!(world.effects("delete"), ["job-1"]);
        assert_eq!(world.effects("render").len(), 1);
        process.shut_down();
    }
}
