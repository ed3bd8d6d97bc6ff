//! A notification that does not say what is to be approved.

use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};

struct SendNotice;

impl Tool for SendNotice {
    const NAME: &'static str = "send_notice";
    type Effect = effect::Notification;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

fn main() {}
