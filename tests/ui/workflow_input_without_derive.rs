//! A workflow whose input does not derive `Deserialize`.

use counterfoil::{Ctx, Engine, Failure};

struct Order {
    id: String,
}

async fn order(ctx: Ctx, order: Order) -> Result<usize, Failure> {
    ctx.step("length", &order.id, |id| id.len()).await
}

fn main() {
    let _ = Engine::sqlite("agents.db").workflow("order", 1, order);
}
