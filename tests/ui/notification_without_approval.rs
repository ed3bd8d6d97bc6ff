//! A notification that is awaited without an approval.

use counterfoil::tool::{Call, Done, NeedsApproval, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, ApprovalSubject};

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

impl NeedsApproval for SendNotice {
    fn package(&self, text: &String) -> ApprovalSubject {
        ApprovalSubject::of("notice", text)
    }
}

async fn case(ctx: Ctx, text: String) -> Result<u32, Failure> {
    ctx.call::<SendNotice>(text).await
}

fn main() {}
