//! What does compile: children in `try_join_all`, a payment that can be looked up and undone, notifications that a person or a
//! policy approves, or nobody.

use std::time::Duration;

use counterfoil::ledger::{LookupResult, Undone};
use counterfoil::tool::approval::{self, Verdict};
use counterfoil::tool::{
    ApprovalPolicy, Call, Compensate, Done, NeedsApproval, OriginalCall, Reconcile, Tool, ToolError,
    contract, effect,
};
use counterfoil::{Approval, ApprovalSubject, Ctx, Failure};
use futures_util::future::try_join_all;

struct Pay;

impl Tool for Pay {
    const NAME: &'static str = "pay";
    type Effect = effect::Undoable<effect::Payment>;
    type Contract = contract::Lookup;
    type Input = u32;
    type Output = u32;
    async fn call(&self, _: &Call, cents: &u32) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(*cents))
    }
}

impl Reconcile for Pay {
    async fn reconcile(&self, _: &Call, _: &u32) -> Result<LookupResult<u32>, ToolError> {
        Ok(LookupResult::NotFound)
    }
}

impl Compensate for Pay {
    async fn compensate(&self, _: &Call, _: &OriginalCall<u32, u32>) -> Result<Done<Undone>, ToolError> {
        Ok(Undone::whole().into())
    }
    async fn find_compensation(
        &self,
        _: &Call,
        _: &OriginalCall<u32, u32>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::Unknown)
    }
}

struct SendNotice;

impl Tool for SendNotice {
    const NAME: &'static str = "send_notice";
    type Effect = effect::Undoable<effect::Notification>;
    type Contract = contract::WithLookup<contract::ReplaysKey>;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

impl Reconcile for SendNotice {
    async fn reconcile(&self, _: &Call, _: &String) -> Result<LookupResult<u32>, ToolError> {
        Ok(LookupResult::NotFound)
    }
}

impl NeedsApproval for SendNotice {
    fn package(&self, text: &String) -> ApprovalSubject {
        ApprovalSubject::of("notice", text)
    }
}

impl Compensate for SendNotice {
    async fn compensate(&self, _: &Call, _: &OriginalCall<String, u32>) -> Result<Done<Undone>, ToolError> {
        Ok(Undone::whole().into())
    }
    async fn find_compensation(
        &self,
        _: &Call,
        _: &OriginalCall<String, u32>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::Unknown)
    }
}

struct SendReceipt;

impl Tool for SendReceipt {
    const NAME: &'static str = "send_receipt";
    type Effect = effect::Notification<approval::Policy>;
    type Contract = contract::BlindNotice;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

impl ApprovalPolicy for SendReceipt {
    const POLICY: &'static str = "transactional-mail";
    fn policy(&self, _: &String) -> Verdict {
        Verdict::Allow
    }
}

struct Ring;

impl Tool for Ring {
    const NAME: &'static str = "ring";
    type Effect = effect::Notification<approval::None>;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;
    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(1))
    }
}

async fn case(ctx: Ctx, approval: Approval) -> Result<u32, Failure> {
    ctx.call::<Pay>(100).await?;
    ctx.call::<SendReceipt>("Thank you".into()).await?;
    ctx.call::<Ring>("door".into()).await?;
    ctx.call::<SendNotice>("Dear Ann".into()).approved_by(&approval).await
}

async fn item(ctx: Ctx, id: String) -> Result<usize, Failure> {
    ctx.step("length", &id, String::len).await
}

// A child is a future: it goes into `try_join_all`, and under a limit.
async fn order(ctx: Ctx, items: Vec<String>) -> Result<usize, Failure> {
    let children = items.into_iter().map(|id| ctx.child(item, id.clone()).id(id));
    let lengths = try_join_all(children).await?;
    let last = ctx.child(item, "last".to_owned()).timeout(Duration::from_mins(1)).await?;
    let parsed = ctx.try_step("cents", "7", str::parse::<usize>).await?;
    Ok(lengths.into_iter().sum::<usize>() + last.unwrap_or(parsed))
}

fn main() {
    let engine =
        counterfoil::Engine::sqlite("agents.db").workflow("item", 1, item).workflow("order", 1, order);
    let _ = engine.workflow("case", 1, case).tool(Pay).tool(SendNotice).tool(SendReceipt).tool(Ring);
}
