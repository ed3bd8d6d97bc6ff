//! A step whose closure may fail.

use counterfoil::{Ctx, Failure};

async fn order(ctx: Ctx, id: String) -> Result<u32, Failure> {
    let number = ctx.step("number", &id, |id| id.parse::<u32>()).await?;
    Ok(number?)
}

fn main() {
    let _ = order;
}
