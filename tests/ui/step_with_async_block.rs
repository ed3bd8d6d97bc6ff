//! An `async` block in a synchronous step.

use counterfoil::{Ctx, Failure};

async fn order(ctx: Ctx, id: String) -> Result<usize, Failure> {
    let page = ctx.step("page", &id, |id| async { id.len() }).await?;
    Ok(page.await)
}

fn main() {
    let _ = order;
}
