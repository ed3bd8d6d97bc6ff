//! A workflow that returns an error of its own.

use std::error::Error;

use counterfoil::{Ctx, Engine};

async fn order(ctx: Ctx, id: String) -> Result<usize, Box<dyn Error + Send + Sync>> {
    Ok(ctx.step("length", &id, |id| id.len()).await.unwrap())
}

fn main() {
    let _ = Engine::sqlite("agents.db").workflow("order", 1, order);
}
