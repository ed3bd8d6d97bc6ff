//! A payment that nobody could find out about.

use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};

struct Pay;

impl Tool for Pay {
    const NAME: &'static str = "pay";
    type Effect = effect::Payment;
    type Contract = contract::Blind;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

fn main() {}
