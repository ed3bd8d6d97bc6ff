//! Who sends to a service that is killed: again and again, until each message is taken, as clients, providers and brokers do.

use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config as StreamConfig, Stream};
use counterfoil::{Clock as _, SystemClock};
use reqwest::Client;

use crate::harness::sender::signed;
use crate::queue::{in_order, nats};
use crate::service::{Asked, Does, Door, Service};

const AGAIN: Duration = Duration::from_millis(10);

/// What is sent by a door, in this order. Charges are looked up once more in the background: what nobody can ask about comes before, so
/// that it is in hand only when a death is meant for it.
pub(crate) fn sent(door: Door) -> &'static [Does] {
    match door {
        Door::Http => &[Does::Entry, Does::Letter, Does::Charge],
        Door::Webhook | Door::Nats => &[Does::Entry, Does::Letter, Does::Charge, Does::Parcel],
    }
}

/// Sends everything to one service.
pub(crate) enum Sender {
    Http { client: Client, url: String },
    Webhook { client: Client, url: String },
    Nats { stream: Box<Stream> },
}

impl Sender {
    pub(crate) async fn to(service: &Service) -> Self {
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap();
        let url = format!("http://127.0.0.1:{}", service.port);
        match service.door {
            Door::Http => Self::Http { client, url },
            Door::Webhook => Self::Webhook { client, url: format!("{url}/hook") },
            Door::Nats => Self::Nats { stream: Box::new(published(service).await) },
        }
    }

    /// Until all is taken. A client and a provider begin from the beginning each time, and send everything twice.
    pub(crate) async fn delivers(&self) {
        match self {
            Self::Http { client, url } => {
                for does in sent(Door::Http) {
                    let first = asks(client, url, *does).await;
                    assert_eq!(asks(client, url, *does).await, first, "{does:?} has two answers");
                }
            }
            Self::Webhook { client, url } => {
                for does in sent(Door::Webhook).iter().flat_map(|does| [does; 2]) {
                    tells(client, url, *does).await;
                }
            }
            Self::Nats { stream } => acknowledged(stream).await,
        }
    }
}

/// One answer, or that nobody knows.
async fn asks(client: &Client, url: &str, does: Does) -> String {
    let route = format!("{does:?}").to_lowercase();
    loop {
        let request = client.post(format!("{url}/{route}")).header("idempotency-key", "one");
        let answer = async {
            let response = request.json(&Asked { does }).send().await?;
            Ok::<_, reqwest::Error>((response.status(), response.text().await?))
        };
        match answer.await {
            Ok((status, text)) if status.is_success() => return text,
            // Only what cannot be asked is left open.
            Ok((_, text)) if text.contains("outcome-unknown") && does == Does::Letter => {
                return "unknown".to_owned();
            }
            Ok((status, text)) => {
                let passing = ["request-in-progress", "ledger-unavailable", "outcome-unknown"];
                assert!(passing.iter().any(|problem| text.contains(problem)), "{does:?}: {status} {text}");
            }
            Err(_) => {} // it is not up yet
        }
        SystemClock.sleep(AGAIN).await;
    }
}

async fn tells(client: &Client, url: &str, does: Does) {
    let body = serde_json::to_string(&Asked { does }).unwrap();
    loop {
        let request = signed(client.post(url), &format!("{does:?}"), &body);
        match request.send().await.map(|answer| answer.status().as_u16()) {
            Ok(200) => return,
            Ok(503) | Err(_) => {}
            Ok(other) => panic!("{does:?} is answered {other}"),
        }
        SystemClock.sleep(AGAIN).await;
    }
}

/// A stream with all messages in it, and its consumer.
async fn published(service: &Service) -> Stream {
    let (nats, name) = (nats(service.port).await.unwrap(), &service.stream);
    let config = StreamConfig { name: name.clone(), subjects: vec![name.clone()], ..StreamConfig::default() };
    let stream = nats.create_stream(config).await.unwrap();
    stream.create_consumer(in_order(name.clone())).await.unwrap();
    for does in sent(Door::Nats) {
        let payload = serde_json::to_vec(&Asked { does: *does }).unwrap();
        let message = PublishMessage::build().message_id(format!("{does:?}")).payload(payload.into());
        nats.send_publish(name.clone(), message).await.unwrap().await.unwrap();
    }
    stream
}

async fn acknowledged(stream: &Stream) {
    let name = stream.cached_info().config.name.clone();
    let all = u64::try_from(sent(Door::Nats).len()).unwrap();
    loop {
        // It may be asked while nobody answers in time.
        if let Ok(info) = stream.consumer_info(&name).await
            && info.ack_floor.stream_sequence == all
        {
            return;
        }
        SystemClock.sleep(AGAIN).await;
    }
}
