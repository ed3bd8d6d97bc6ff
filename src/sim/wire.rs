//! The network between tools and providers. A request travels, arrives whether its sender is alive or not, and
//! suffers the fault that the schedule has for it; its answer travels back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::schedule::{Fault, PAUSE};
use super::timeline::Happened;
use super::world::World;
use crate::clock::Clock as _;
use crate::id::Tenant;
use crate::ledger::{ErrorKind, LookupResult, OperationKey};
use crate::tool::{Call, Done, ToolError};

/// The latency of a request, and of its answer.
pub(super) const WAY: Duration = Duration::from_millis(10);
/// The delay of a late request: longer than a caller waits, shorter than the settle time.
const LATE: Duration = Duration::from_secs(40);
/// The delay of a request that arrives after the settle time.
const TOO_LATE: Duration = Duration::from_secs(100);
/// The delay of the second copy that a proxy sends.
const COPY: Duration = Duration::from_secs(1);

impl Fault {
    /// The delay of a request with this fault; `None` if the request arrives in time, or never.
    pub(super) fn dawdles(self) -> Option<Duration> {
        match self {
            Self::Late => Some(LATE),
            Self::TooLate => Some(TOO_LATE),
            Self::Landing(seconds) => Some(Duration::from_secs(seconds.into())),
            _ => None,
        }
    }
}

/// A request that has arrived at the model of a provider.
#[derive(Debug)]
pub struct Request {
    world: World,
    tenant: Tenant,
    operation: OperationKey,
    key: String,
}

impl Request {
    fn of(world: &World, call: &Call) -> Self {
        Self {
            world: world.clone(),
            tenant: call.tenant().clone(),
            operation: call.operation_key().clone(),
            key: call.key().to_owned(),
        }
    }

    /// The key that the request carries.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The tenant that owns the request.
    pub const fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    pub(super) const fn operation(&self) -> &OperationKey {
        &self.operation
    }

    /// Makes the effect of the request, about `reference`. Returns the provider's id for the effect.
    pub fn happen(&self, system: &str, reference: &str) -> String {
        self.world.happened(self, system, "", reference)
    }

    /// The id of the effect that an earlier request with this key had: for providers that accept keys.
    pub fn happened(&self, system: &str) -> Option<String> {
        let known = self.world.effects().into_iter().find(|effect| {
            (effect.system.as_str(), &effect.tenant, &effect.operation)
                == (system, &self.tenant, &self.operation)
        });
        known.map(|effect| effect.id)
    }
}

/// The answer of a provider.
type Answer<T> = Result<Done<T>, ToolError>;

impl World {
    /// Sends a request to a provider of your own. `provider` runs when the request arrives, which may be long after
    /// its sender has given up or died; the schedule may lose the request, delay it, or lose its answer.
    ///
    /// ```
    /// # use counterfoil::{sim::World, tool::{Call, Done, ToolError}};
    /// async fn book(world: &World, call: &Call, invoice: String) -> Result<Done<String>, ToolError> {
    ///     world.send(call, move |request| Ok(Done::new(request.happen("bank", &invoice)))).await
    /// }
    /// ```
    pub async fn send<T: Send + 'static>(
        &self,
        call: &Call,
        provider: impl Fn(&Request) -> Answer<T> + Send + Sync + 'static,
    ) -> Answer<T> {
        self.carry(call, false, provider).await
    }

    /// Sends a request to a provider that detects copies of a request by its key: a proxy may send the request twice.
    /// A provider that detects no copies never gets two, because nobody on this side could prevent or find a
    /// duplicate.
    ///
    /// ```
    /// # use counterfoil::{sim::World, tool::{Call, Done, ToolError}};
    /// async fn book(world: &World, call: &Call, invoice: String) -> Result<Done<String>, ToolError> {
    ///     let book = move |request: &counterfoil::sim::Request| {
    ///         let known = request.happened("bank");
    ///         Ok(Done::new(known.unwrap_or_else(|| request.happen("bank", &invoice))))
    ///     };
    ///     world.send_keyed(call, book).await
    /// }
    /// ```
    pub async fn send_keyed<T: Send + 'static>(
        &self,
        call: &Call,
        provider: impl Fn(&Request) -> Answer<T> + Send + Sync + 'static,
    ) -> Answer<T> {
        self.carry(call, true, provider).await
    }

    pub(super) async fn carry<T: Send + 'static>(
        &self,
        call: &Call,
        tells_copies: bool,
        provider: impl Fn(&Request) -> Answer<T> + Send + Sync + 'static,
    ) -> Answer<T> {
        let fault = self.next_request(call, tells_copies);
        self.note(Happened::Sent { operation: call.operation_key().clone(), attempt: call.attempt(), fault });
        let clock = self.clock();
        if let Some(error) = fault.and_then(undone) {
            clock.sleep(WAY).await;
            return Err(error);
        }
        let way = match fault.and_then(Fault::dawdles) {
            // The delay counts from the time at which the sender was taken for dead.
            Some(late) if fault == Some(Fault::TooLate) && self.is_zombie() => late.saturating_sub(PAUSE),
            late => late.unwrap_or(WAY),
        };
        let request = Request::of(self, call);
        let provider: Arc<dyn Fn() -> Answer<T> + Send + Sync> = Arc::new(move || provider(&request));
        let answer = self.deliver(way, provider.clone());
        if matches!(fault, Some(Fault::Doubled | Fault::Twice)) {
            drop(self.deliver(way + COPY, provider));
        }
        if way > WAY {
            // The connection breaks long before the request arrives.
            clock.sleep(WAY).await;
            return Err(reset());
        }
        let answer = answer.await.map_err(|_| ToolError::new(ErrorKind::Disconnected, "the world ended"))?;
        match fault {
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::AnswerLost) => Err(reset()),
            Some(Fault::FailsAfter) => Err(ToolError::http(500, "simulated")),
            Some(Fault::Forgets) => {
                self.forgets(call);
                clock.sleep(WAY).await;
                answer
            }
            _ => {
                clock.sleep(WAY).await;
                answer
            }
        }
    }

    /// Delivers a request after a delay. The provider runs at that time.
    fn deliver<T: Send + 'static>(
        &self,
        way: Duration,
        provider: Arc<dyn Fn() -> Answer<T> + Send + Sync>,
    ) -> oneshot::Receiver<Answer<T>> {
        let (answer, answered) = oneshot::channel();
        self.clock().arrives(way, move || drop(answer.send(provider())));
        answered
    }

    /// Looks up the effect about `reference` at a provider of your own, with the provider's id as its output.
    pub async fn find(
        &self,
        call: &Call,
        system: &str,
        reference: &str,
    ) -> Result<LookupResult<String>, ToolError> {
        self.clock().sleep(WAY).await;
        self.is_looked_up()?;
        let mut found = self.found(system, reference);
        found.retain(|effect| effect.tenant == *call.tenant());
        Ok(self.finding(call, found.into_iter().map(|effect| effect.id).collect()))
    }

    /// The result of a lookup that has shown these effects.
    pub(super) fn finding(&self, call: &Call, ids: Vec<String>) -> LookupResult<String> {
        self.note(Happened::LookedUp { operation: call.operation_key().clone(), found: ids.len() });
        match ids.as_slice() {
            [] => LookupResult::NotFound,
            [id] => LookupResult::Committed { output: id.clone(), external_ref: Some(id.clone()) },
            _ => LookupResult::duplicated(ids.into_iter().map(|id| (id.clone(), id))),
        }
    }
}

/// The error that the sender gets for a request without an effect.
fn undone(fault: Fault) -> Option<ToolError> {
    Some(match fault {
        Fault::Refused => ToolError::http(422, "simulated"),
        Fault::Unauthorized => ToolError::http(401, "simulated"),
        Fault::RateLimited => ToolError::http(429, "simulated").retry_after(Duration::from_secs(2)),
        Fault::FailsBefore => ToolError::http(500, "simulated"),
        Fault::RequestLost => reset(),
        _ => return None,
    })
}

fn reset() -> ToolError {
    ToolError::new(ErrorKind::Disconnected, "connection reset")
}
