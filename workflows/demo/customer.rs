//! Who sends: a client of the order service that tries again until it is answered, under one key.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use counterfoil::{Clock as _, SystemClock};
use reqwest::{Client, RequestBuilder, StatusCode};

use super::harness::Failed;
use super::harness::sender::signed;
use super::harness::shop::Asked;

/// The first try has so long, and each next one twice the time of the one before, up to a limit.
const PATIENCE: Duration = Duration::from_millis(300);
const LONGEST: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Where requests come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// A POST with an `Idempotency-Key`.
    Orders,
    /// A signed webhook.
    Payments,
}

impl Door {
    pub(super) const ALL: [Self; 2] = [Self::Orders, Self::Payments];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Payments => "payments",
        }
    }
}

/// One copy of a request.
#[derive(Clone)]
pub(super) struct Customer {
    pub(super) http: Client,
    pub(super) port: u16,
    pub(super) door: Door,
    pub(super) number: u32,
    /// All tries of all customers of this door.
    pub(super) sent: Arc<AtomicU64>,
}

impl Customer {
    /// Tries until it is answered. Both services are sent the same.
    pub(super) async fn ask(&self) -> Result<(), Failed> {
        let mut patience = PATIENCE;
        loop {
            self.sent.fetch_add(1, Relaxed);
            match self.request()?.timeout(patience).send().await.map(|answer| answer.status()) {
                Ok(status) if status.is_success() => return Ok(()),
                // The first one is being handled; or the service has failed, dies, is dead, or is silent.
                Ok(StatusCode::CONFLICT) | Err(_) => {}
                Ok(status) if status.is_server_error() => {}
                Ok(status) => {
                    return Err(format!("{:?} {} is answered {status}", self.door, self.number).into());
                }
            }
            patience = (patience * 2).min(LONGEST);
            SystemClock.sleep(PAUSE).await;
        }
    }

    fn request(&self) -> Result<RequestBuilder, Failed> {
        let Self { http, port, door, number, .. } = self;
        let body = serde_json::to_string(&Asked { number: *number })?;
        let request = http.post(format!("http://127.0.0.1:{port}/{}", door.name()));
        let request = request.header("content-type", "application/json");
        Ok(match door {
            Door::Orders => request.header("idempotency-key", format!("order-{number}")).body(body),
            Door::Payments => signed(request, &format!("evt_{number}"), &body),
        })
    }
}
