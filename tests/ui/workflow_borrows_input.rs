//! A workflow whose input is borrowed.

use counterfoil::{Ctx, Engine, Failure};

async fn order(ctx: Ctx, id: &str) -> Result<usize, Failure> {
    ctx.step("length", id, |id| id.len()).await
}

fn main() {
    let _ = Engine::sqlite("agents.db").workflow("order", 1, order);
}
