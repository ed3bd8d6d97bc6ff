//! A compensation of what leaves nothing behind.

use counterfoil::ledger::{LookupResult, Undone};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Tool, ToolError, contract, effect};

struct Search;

impl Tool for Search {
    const NAME: &'static str = "search";
    type Effect = effect::Undoable<effect::ReadOnly>;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

impl Compensate for Search {
    async fn compensate(&self, _: &Call, _: &OriginalCall<String, u32>) -> Result<Done<Undone>, ToolError> {
        Ok(Undone::whole().into())
    }
    async fn find_compensation(&self, _: &Call, _: &OriginalCall<String, u32>) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::Unknown)
    }
}

fn main() {}
