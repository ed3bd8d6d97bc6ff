//! An effect that is said to be undoable, and nothing that undoes it.

use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};

struct Charge;

impl Tool for Charge {
    const NAME: &'static str = "charge";
    type Effect = effect::Undoable<effect::Payment>;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

fn main() {}
