//! A workflow that holds a lock while it waits.

use std::sync::{Arc, Mutex};

use counterfoil::{Ctx, Engine, Failure};

fn main() {
    let count = Arc::new(Mutex::new(0));
    let order = move |ctx: Ctx, id: String| {
        let count = count.clone();
        async move {
            let mut held = count.lock().unwrap();
            *held += ctx.step("length", &id, |id| id.len()).await?;
            Ok::<_, Failure>(*held)
        }
    };
    let _ = Engine::sqlite("agents.db").workflow("order", 1, order);
}
