//! A deletion that does not say what is to be approved.

use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};

struct DeleteCase;

impl Tool for DeleteCase {
    const NAME: &'static str = "delete_case";
    type Effect = effect::Deletion;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

fn main() {}
