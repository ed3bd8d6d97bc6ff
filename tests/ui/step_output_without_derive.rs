//! A step whose result derives nothing.

use counterfoil::{Ctx, Failure};

struct Draft(String);

async fn order(ctx: Ctx, id: String) -> Result<String, Failure> {
    let draft = ctx.step("draft", &id, |id| Draft(id.clone())).await?;
    Ok(draft.0)
}

fn main() {
    let _ = order;
}
