//! A compensation of a tool that does not say that its effect is undoable: it would never be registered.

use counterfoil::ledger::{LookupResult, Undone};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Tool, ToolError, contract, effect};

struct Charge;

impl Tool for Charge {
    const NAME: &'static str = "charge";
    type Effect = effect::Payment;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

impl Compensate for Charge {
    async fn compensate(&self, _: &Call, _: &OriginalCall<String, u32>) -> Result<Done<Undone>, ToolError> {
        Ok(Undone::whole().into())
    }
    async fn find_compensation(&self, _: &Call, _: &OriginalCall<String, u32>) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::Unknown)
    }
}

fn main() {}
