//! A draft that is declared idempotent, although a second one is a second draft.

use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};

struct WriteDraft;

impl Tool for WriteDraft {
    const NAME: &'static str = "write_draft";
    type Effect = effect::Draft;
    type Contract = contract::Idempotent;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

fn main() {}
