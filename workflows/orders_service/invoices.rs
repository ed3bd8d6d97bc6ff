//! NATS on both ends: payments are published from the outbox, and each is invoiced once.

use std::time::Duration;

use async_nats::jetstream::consumer::AckPolicy;
use async_nats::jetstream::consumer::pull::Config as ConsumerConfig;
use async_nats::jetstream::stream::Config as StreamConfig;
use async_nats::jetstream::{self, Context};
use counterfoil::door::Reaction;
use counterfoil::policy::Policy;
use counterfoil::queue::{Consuming, Incoming, NatsQueue, NatsSink};
use counterfoil::{Executor, Tenant};

use super::books::Books;
use super::payments::Payment;
use super::{Failed, SHOP};

const STREAM: &str = "ORDERS_SERVICE";

/// Connects, and sets up what whoever runs the broker sets up once.
pub(crate) async fn broker(policy: &Policy, url: &str) -> Result<Context, Failed> {
    let (invoices, nats) = (policy.queue("invoices")?, jetstream::new(async_nats::connect(url).await?));
    let subjects = vec![invoices.subject().to_owned()];
    let max_age = invoices.broker_retention().unwrap_or_default();
    let stream = StreamConfig { name: STREAM.to_owned(), subjects, max_age, ..StreamConfig::default() };
    let consumer = ConsumerConfig {
        durable_name: Some(invoices.name().to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(10),
        max_deliver: -1, // counterfoil sets poison aside; a broker that stops delivering loses it
        ..ConsumerConfig::default()
    };
    nats.get_or_create_stream(stream).await?.get_or_create_consumer(invoices.name(), consumer).await?;
    Ok(nats)
}

pub(crate) fn sink(policy: &Policy, nats: Context) -> Result<NatsSink, Failed> {
    let subject = policy.queue("invoices")?.subject().to_owned();
    Ok(NatsSink::new(nats, move |_| subject.clone()))
}

pub(crate) async fn consume<C: Books>(
    policy: &Policy,
    executor: &Executor,
    nats: Context,
) -> Result<Consuming, Failed> {
    let invoices = policy.queue("invoices")?;
    let queue = NatsQueue::new(nats, STREAM, invoices.name());
    Ok(invoices.consumer(executor, &Tenant::new(SHOP)?, queue).start(invoice::<C>).await?)
}

async fn invoice<C: Books>(paid: Incoming) -> Result<Reaction<C>, serde_json::Error> {
    let Payment { order, .. } = paid.json()?;
    Ok(Reaction::transaction(|db: &mut C| {
        let entering = db.enter("invoice", order);
        Box::pin(async move { entering.await.map(drop) })
    }))
}
