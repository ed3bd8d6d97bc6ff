//! `POST /webhooks/bank`: a payment is a run. The bank announces it, which starts the run, and settles it, which signals it.

use counterfoil::door::Reaction;
use counterfoil::policy::Policy;
use counterfoil::webhook::{Webhook, WebhookEvent};
use counterfoil::{Ctx, Engine, Failure, Tenant};
use serde::{Deserialize, Serialize};

use super::books::Books;
use super::{Failed, SHOP, Secrets};

/// What the bank says of a payment, and what whoever writes invoices is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Payment {
    pub(crate) order: String,
    #[serde(default)]
    pub(crate) cents: i64,
}

/// Waits for the money, for as long as that takes, enters it, and tells whoever writes invoices.
pub(crate) async fn payment<C: Books>(ctx: Ctx, order: String) -> Result<i64, Failure> {
    let cents: i64 = ctx.signal("settled").await?;
    let paid = order.clone();
    ctx.transaction("payment", |books: &mut C| {
        Box::pin(async move { Ok(books.enter("payment", paid).await?) })
    })
    .await?;
    ctx.emit(format!("order/{order}"), "paid", &Payment { order, cents }).await?;
    Ok(cents)
}

pub(crate) fn door<C: Books>(policy: &Policy, engine: &Engine, secrets: &Secrets) -> Result<Webhook, Failed> {
    let (bank, shop) = (policy.webhook("bank")?, engine.tenant(SHOP)?);
    let source = bank.source(Tenant::new(SHOP)?, |variable| secrets.get(variable).cloned())?;
    let door = source.on(&engine.executor(), move |event: WebhookEvent| {
        let shop = shop.clone();
        async move {
            let reaction: Reaction<C> = match event.kind() {
                Some("payment.announced") => {
                    let Payment { order, .. } = event.json()?;
                    Reaction::start(shop.run(payment::<C>, order.clone()).key(order))
                }
                Some("payment.settled") => {
                    let Payment { order, cents } = event.json()?;
                    // One that overtakes its announcement fails here, and is delivered again.
                    let run =
                        shop.run_of(payment::<C>, &order).find().await?.ok_or("it was not announced yet")?;
                    Reaction::signal(run.signal("settled", cents))
                }
                _ => Reaction::ignore(),
            };
            Ok::<_, Failed>(reaction)
        }
    });
    Ok(door?)
}
