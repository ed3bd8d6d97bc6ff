//! A workflow whose output does not derive `Serialize`.

use counterfoil::{Ctx, Engine, Failure};

struct Receipt(usize);

async fn order(ctx: Ctx, id: String) -> Result<Receipt, Failure> {
    Ok(Receipt(ctx.step("length", &id, |id| id.len()).await?))
}

fn main() {
    let _ = Engine::sqlite("agents.db").workflow("order", 1, order);
}
