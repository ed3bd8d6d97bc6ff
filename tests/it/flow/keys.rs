//! One record, one key: whatever the tool would draw the next time (D11).

use std::sync::Arc;

use counterfoil::Key;
use counterfoil::flow::RunError;
use counterfoil::ledger::{ErrorKind, RetryPolicy};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};

use crate::flow;
use crate::flow::lives::NAME;
use crate::flow::tools::Post;
use crate::flow::world::{Process, World};

/// Its key is another one after each attempt, and the first attempts do not get through.
struct Drawn(Arc<World>);

impl Tool for Drawn {
    const NAME: &'static str = "drawn";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = ();
    type Output = u32;

    fn key(&self, (): &()) -> Option<Key> {
        Some(Key::of(Self::NAME).target("ann").operation(self.0.effects("drawn").len()))
    }

    fn retry(&self) -> RetryPolicy {
        Post(self.0.clone()).retry()
    }

    async fn call(&self, call: &Call, (): &()) -> Result<Done<u32>, ToolError> {
        let attempt = self.0.happen("drawn", call.key(), "");
        if attempt < 4 {
            return Err(ToolError::new(ErrorKind::Unreachable, "no route"));
        }
        Ok(Done::new(attempt))
    }
}

// D11: all attempts of one record carry one key, even if the tool would draw another.
#[test]
fn all_attempts_of_a_call_carry_the_key_that_was_made_first() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| ctx.call::<Drawn>(()).await);
    let builder = world.engine().tool(Drawn(world.clone())).workflow(NAME, 1, code.clone());
    let process = Process::start(&world, builder);
    assert_eq!(process.on(async { process.acme().run(code, ()).await }).unwrap(), 4);
    let keys: Vec<String> = world.see(|seen| seen.effects.iter().map(|(_, key, _)| key.clone()).collect());
    assert_eq!(keys, vec![keys[0].clone(); 4]);
    process.shut_down();
}

// A key that begins with `~` is the engine's own: under it a tick, a child, a fork or a command could be lost.
#[test]
fn keys_of_the_engines_own_form_are_refused() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| ctx.signal::<u32>("go").await);
    let process = Process::start(&world, world.engine().workflow(NAME, 1, code.clone()));
    process.on(async {
        let acme = process.acme();
        let run = acme.run(code.clone(), ()).start().await.unwrap();
        let refused = [
            ("start", acme.run(code.clone(), ()).key("~tick/0/nightly").start().await.err()),
            ("cancel", run.cancel("ann", "why").key("~0").await.err()),
            ("pause", run.pause("ann", "why").key("~0").await.err()),
            ("resume", run.resume("ann", "why").key("~0").await.err()),
            ("retry", run.retry("ann", "why").key("~0").await.err()),
            ("fork", run.fork("ann", "why").key("~0").await.err()),
            ("signal", run.signal("~!cancel", ()).await.err()),
        ];
        for (what, error) in refused {
            assert!(matches!(error, Some(RunError::Id(_))), "{what}: {error:?}");
        }
        run.signal("go", 7).id("~0").await.unwrap(); // a signal's id is its sender's
        assert_eq!(run.result().await.unwrap(), 7);
        assert_eq!(acme.runs(None).await.unwrap().len(), 1);
    });
    process.shut_down();
}
