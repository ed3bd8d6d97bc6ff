//! A payment at a provider over HTTP that replays keys and can be searched: the whole of its tool.

use counterfoil::Key;
use counterfoil::ledger::LookupResult;
use counterfoil::tool::lookup::{Expected, HttpGet};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use reqwest::Client;

use super::{Order, Receipt};

/// The client, the URL of the charges, and the way to find one of them again.
pub(crate) struct Charge(pub(crate) Client, pub(crate) String, pub(crate) HttpGet);

impl Tool for Charge {
    const NAME: &'static str = "charge";
    type Effect = effect::Payment;
    type Contract = contract::WithLookup<contract::ReplaysKey>;
    type Input = Order;
    type Output = Receipt;

    fn key(&self, order: &Order) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&order.id))
    }

    async fn call(&self, call: &Call, order: &Order) -> Result<Done<Receipt>, ToolError> {
        let sent = self.0.post(&self.1).header("Idempotency-Key", call.key()).json(order).send().await?;
        Ok(Done::new(ToolError::unless_ok(sent).await?.json().await?))
    }
}

impl Reconcile for Charge {
    async fn reconcile(&self, call: &Call, order: &Order) -> Result<LookupResult<Receipt>, ToolError> {
        self.2.find(call, &Expected::new().field("/cents", order.cents), serde_json::from_value).await
    }
}
