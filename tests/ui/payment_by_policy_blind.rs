//! A policy does not make up for a contract: nobody could find out what became of this payment.

use counterfoil::tool::approval::{self, Verdict};
use counterfoil::tool::{ApprovalPolicy, Call, Done, Tool, ToolError, contract, effect};

struct Refund;

impl Tool for Refund {
    const NAME: &'static str = "refund";
    type Effect = effect::Payment<approval::Policy>;
    type Contract = contract::Blind;
    type Input = u64;
    type Output = u32;
    async fn call(&self, _: &Call, _: &u64) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

impl ApprovalPolicy for Refund {
    const POLICY: &'static str = "small-refunds";
    fn policy(&self, _: &u64) -> Verdict {
        Verdict::Allow
    }
}

fn main() {}
