//! A workflow that holds an `Rc` while it waits.

use std::rc::Rc;

use counterfoil::{Ctx, Engine, Failure};

async fn order(ctx: Ctx, id: String) -> Result<String, Failure> {
    let shared = Rc::new(id);
    ctx.step("first", "", |_| 1).await?;
    Ok(shared.to_string())
}

fn main() {
    let _ = Engine::sqlite("agents.db").workflow("order", 1, order);
}
