//! A payment that needs an approval is not sent without one.

use counterfoil::tool::{Call, Done, NeedsApproval, Tool, ToolError, approval, contract, effect};
use counterfoil::{Ctx, Failure, ApprovalSubject};

struct Transfer;

impl Tool for Transfer {
    const NAME: &'static str = "transfer";
    type Effect = effect::Payment<approval::Person>;
    type Contract = contract::ReplaysKey;
    type Input = u64;
    type Output = String;

    async fn call(&self, _: &Call, _: &u64) -> Result<Done<String>, ToolError> {
        Ok(Done::new("tr_1".to_owned()))
    }
}

impl NeedsApproval for Transfer {
    fn package(&self, cents: &u64) -> ApprovalSubject {
        ApprovalSubject::of("transfer", cents)
    }
}

async fn pay(ctx: Ctx, cents: u64) -> Result<String, Failure> {
    ctx.call::<Transfer>(cents).await
}

fn main() {}
