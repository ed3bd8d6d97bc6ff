//! A workflow that takes its context by reference.

use counterfoil::{Ctx, Engine, Failure};

async fn order(ctx: &Ctx, id: String) -> Result<usize, Failure> {
    ctx.step("length", &id, |id| id.len()).await
}

fn main() {
    let _ = Engine::sqlite("agents.db").workflow("order", 1, order);
}
