//! A workflow that borrows from the function that registers it.

use counterfoil::{Ctx, Engine};

fn main() {
    let prefix = String::from("order");
    let order = |ctx: Ctx, id: String| async {
        let prefix = &prefix;
        ctx.step("name", &id, |id| format!("{prefix} {id}")).await
    };
    let _ = Engine::sqlite("agents.db").workflow("order", 1, order);
}
