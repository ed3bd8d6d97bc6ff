//! The tools of the workflow tests' world, one per way in which a call is told from another.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use counterfoil::ledger::{self, Backoff, ContractClass, ErrorKind, LookupResult, RetryPolicy};
use counterfoil::tool::{Call, Done, NeedsApproval, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{ApprovalSubject, Ctx, Failure, Key};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flow::world::World;

/// Changes something of our own; no key; can be looked up. What a changed path leaves behind is adopted.
pub(crate) struct Post(pub(crate) Arc<World>);
/// A payment with a key from its input; the provider replays the key.
pub(crate) struct Pay(pub(crate) Arc<World>, pub(crate) OnceLock<u32>);
/// A notification: needs an approval.
pub(crate) struct Tell(pub(crate) Arc<World>);
/// Nobody can tell whether it rang.
pub(crate) struct Ring(pub(crate) Arc<World>);

/// A payment's input.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Bill {
    pub(crate) reference: String,
    pub(crate) cents: u32,
}

impl Bill {
    pub(crate) fn new(reference: &str, cents: u32) -> Self {
        Self { reference: reference.to_owned(), cents }
    }
}

/// No pauses between attempts: whoever owns the clock need not turn it for them.
const AT_ONCE: RetryPolicy = RetryPolicy {
    attempts: 5,
    backoff: Backoff { base: Duration::ZERO, cap: Duration::ZERO },
    attempt_timeout: Duration::from_secs(3600),
    retry_after_cap: Duration::from_secs(3600),
};

/// One call: held before its effect, then the effect, then held after it.
async fn act(world: &World, tool: &'static str, call: &Call, what: &str) -> Result<Done<u32>, ToolError> {
    let calls = world.count(&format!("{tool} called"));
    if what.starts_with("broke twice") && calls <= 2 {
        return Err(ToolError::new(ErrorKind::Validation, "no money"));
    }
    world.pass(&format!("{tool} before")).await;
    world.pass(&format!("{tool} before {what}")).await;
    let number = world.happen(tool, call.key(), what);
    world.pass(&format!("{tool} after")).await;
    world.pass(&format!("{tool} after {what}")).await;
    Ok(Done::new(number))
}

fn look_up(world: &World, tool: &str, call: &Call) -> LookupResult<u32> {
    world.count(&format!("{tool} looked up"));
    let found = world.see(|seen| {
        let mut of_tool = seen.effects.iter().filter(|(by, ..)| *by == tool);
        of_tool.position(|(_, key, _)| key == call.key())
    });
    found.map_or(LookupResult::NotFound, |n| LookupResult::Committed {
        output: u32::try_from(n + 1).unwrap(),
        external_ref: None,
    })
}

impl Tool for Post {
    const NAME: &'static str = "post";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = u32;

    fn contract(&self) -> ledger::Contract {
        ledger::Contract::new(ContractClass::Lookup).settle(Duration::ZERO).ends_with_sender()
    }

    fn retry(&self) -> RetryPolicy {
        AT_ONCE
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<u32>, ToolError> {
        act(&self.0, "post", call, what).await
    }
}

impl Reconcile for Post {
    async fn reconcile(&self, call: &Call, _: &String) -> Result<LookupResult<u32>, ToolError> {
        Ok(look_up(&self.0, "post", call))
    }
}

impl Tool for Pay {
    const NAME: &'static str = "pay";
    type Effect = effect::Payment;
    type Contract = contract::WithLookup<contract::ReplaysKey>;
    type Input = Bill;
    type Output = u32;

    fn retry(&self) -> RetryPolicy {
        AT_ONCE
    }

    /// A reference of "random" is a mistake that shows only after a crash: a key that each process draws anew.
    fn key(&self, bill: &Bill) -> Option<Key> {
        let operation = match bill.reference.as_str() {
            "random" => format!("draw {}", self.1.get_or_init(|| self.0.count("keys drawn"))),
            reference => reference.to_owned(),
        };
        Some(Key::of(Self::NAME).target("ann").operation(operation))
    }

    async fn call(&self, call: &Call, bill: &Bill) -> Result<Done<u32>, ToolError> {
        act(&self.0, "pay", call, &format!("{} {}", bill.reference, bill.cents)).await
    }
}

impl Reconcile for Pay {
    async fn reconcile(&self, call: &Call, _: &Bill) -> Result<LookupResult<u32>, ToolError> {
        Ok(look_up(&self.0, "pay", call))
    }
}

impl Tool for Tell {
    const NAME: &'static str = "tell";
    type Effect = effect::Notification;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = u32;

    fn contract(&self) -> ledger::Contract {
        ledger::Contract::new(ContractClass::Lookup).settle(Duration::ZERO).ends_with_sender()
    }

    fn retry(&self) -> RetryPolicy {
        AT_ONCE
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<u32>, ToolError> {
        act(&self.0, "tell", call, what).await
    }
}

impl Reconcile for Tell {
    async fn reconcile(&self, call: &Call, _: &String) -> Result<LookupResult<u32>, ToolError> {
        Ok(look_up(&self.0, "tell", call))
    }
}

impl NeedsApproval for Tell {
    fn package(&self, what: &String) -> ApprovalSubject {
        ApprovalSubject::of("notice", what)
    }
}

impl Tool for Ring {
    const NAME: &'static str = "ring";
    type Effect = effect::InternalMutation;
    type Contract = contract::Blind;
    type Input = String;
    type Output = u32;

    fn retry(&self) -> RetryPolicy {
        AT_ONCE
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<u32>, ToolError> {
        act(&self.0, "ring", call, what).await
    }
}

pub(crate) async fn post(ctx: &Ctx, what: &str) -> Result<u32, Failure> {
    ctx.call::<Post>(what.to_owned()).await
}
