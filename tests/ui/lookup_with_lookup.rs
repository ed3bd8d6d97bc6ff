//! A contract that has its lookup already.

use counterfoil::ledger::LookupResult;
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};

struct OpenTicket;

impl Tool for OpenTicket {
    const NAME: &'static str = "open_ticket";
    type Effect = effect::InternalMutation;
    type Contract = contract::WithLookup<contract::Lookup>;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

impl Reconcile for OpenTicket {
    async fn reconcile(&self, _: &Call, _: &String) -> Result<LookupResult<u32>, ToolError> {
        Ok(LookupResult::NotFound)
    }
}

fn main() {}
