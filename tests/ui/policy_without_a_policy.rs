//! A notification by a policy whose tool has no policy.

use counterfoil::tool::{Call, Done, Tool, ToolError, approval, contract, effect};

struct SendReceipt;

impl Tool for SendReceipt {
    const NAME: &'static str = "send_receipt";
    type Effect = effect::Notification<approval::Policy>;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

fn main() {}
