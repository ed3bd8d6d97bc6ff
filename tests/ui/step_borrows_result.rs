//! A step that returns a part of its input by reference.

use counterfoil::{Ctx, Failure};

async fn order(ctx: Ctx, id: String) -> Result<usize, Failure> {
    let short = ctx.step("short", &id, |id| &id[..1]).await?;
    Ok(short.len())
}

fn main() {
    let _ = order;
}
