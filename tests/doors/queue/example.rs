//! The example: an order service and a billing service, with a broker between them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::nats::{client, server};
use crate::own_server::daemon::Daemon;

#[path = "../../../workflows/queue_consumer.rs"]
mod queue_consumer;

#[tokio::test]
async fn each_order_is_billed_once_and_in_the_order_of_its_customer() {
    let broker = Daemon::start(server).await;
    let nats = client(broker.port()).await;
    queue_consumer::set_up(&nats).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (executor, mut own) = queue_consumer::open(&folder.path().join("billing.db")).await.unwrap();
    let engine = queue_consumer::orders(nats.clone(), &folder.path().join("orders.db")).await.unwrap();
    for number in 1..=20 {
        queue_consumer::order(&engine, number).await.unwrap();
    }
    let running = queue_consumer::billing(&executor, &nats).await.unwrap();
    while queue_consumer::invoices(&mut own).await.unwrap().len() < 20 {}
    for consuming in running {
        assert!(consuming.shutdown(Duration::from_secs(10)).await);
    }
    let mut billed = BTreeMap::<String, Vec<u32>>::new();
    for (customer, number) in queue_consumer::invoices(&mut own).await.unwrap() {
        billed.entry(customer).or_default().push(number);
    }
    for (customer, numbers) in &billed {
        assert!(numbers.len() == 4 && numbers.is_sorted(), "{customer}: {numbers:?}");
    }
    assert_eq!(billed.len(), 5);
    engine.shutdown(Duration::from_secs(5)).await;
}
