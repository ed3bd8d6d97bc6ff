//! Runs whose process dies at a known point, to be resumed by another one.

use std::sync::Arc;

use counterfoil::flow::WorkflowFn;
use counterfoil::{Ctx, Failure, RunId};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use crate::flow::world::{Process, World};

/// The name under which a life's workflow is registered: the code behind it may change between lives.
pub(crate) const NAME: &str = "errand";

/// Waits, with all that came before it durable, for as long as the world holds it.
pub(crate) async fn stand(ctx: &Ctx, world: &Arc<World>) -> Result<(), Failure> {
    let world = world.clone();
    ctx.step_async("stand", &(), || async move { world.pass("stand").await }).await
}

/// A process that knows this code.
pub(crate) fn life<W: WorkflowFn<(), u32>>(world: &Arc<World>, code: W) -> Process {
    Process::start(world, world.engine().workflow(NAME, 1, code))
}

/// A run whose process died when somebody waited at `point`.
pub(crate) fn died_at<W>(world: &Arc<World>, point: &str, code: W) -> RunId
where
    W: WorkflowFn<(), u32> + Clone,
{
    died_in(world, life(world, code.clone()), point, code)
}

/// The same in this process.
pub(crate) fn died_in<W: WorkflowFn<(), u32>>(
    world: &World,
    process: Process,
    point: &str,
    code: W,
) -> RunId {
    world.hold(point);
    let run = process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        world.reached(point).await;
        run.id()
    });
    process.crash();
    world.release(point);
    run
}

/// A connection to the world's file that knows nothing of the engine.
pub(crate) async fn plain(world: &World) -> SqliteConnection {
    SqliteConnectOptions::new().filename(world.path()).connect().await.unwrap()
}
