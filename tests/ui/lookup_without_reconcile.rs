//! A contract that stands and falls with a lookup, and no lookup.

use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};

struct OpenTicket;

impl Tool for OpenTicket {
    const NAME: &'static str = "open_ticket";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

fn main() {}
