//! A tool whose input derives nothing.

use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};

struct Order {
    cents: u32,
}

struct Charge;

impl Tool for Charge {
    const NAME: &'static str = "charge";
    type Effect = effect::Payment;
    type Contract = contract::ReplaysKey;
    type Input = Order;
    type Output = u32;
    async fn call(&self, _: &Call, order: &Order) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(order.cents))
    }
}

fn main() {}
