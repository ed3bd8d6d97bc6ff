//! The way to a provider and back. A request travels, arrives whether its sender lives or not, and suffers the fault
//! that the schedule has for it; its answer travels back.

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

/// How long a request takes to arrive, and its answer to come back.
pub(super) const WAY: Duration = Duration::from_millis(10);
/// A request that dawdles: longer than any patience, shorter than the settle time.
const LATE: Duration = Duration::from_secs(40);
/// A request that dawdles beyond the settle time.
const TOO_LATE: Duration = Duration::from_secs(100);
/// A proxy sends a second copy this much later.
const COPY: Duration = Duration::from_secs(1);

impl Fault {
    /// How long a request with this fault takes to arrive; none if it arrives in time, or never.
    pub(super) fn dawdles(self) -> Option<Duration> {
        match self {
            Self::Late => Some(LATE),
            Self::TooLate => Some(TOO_LATE),
            Self::Landing(seconds) => Some(Duration::from_secs(seconds.into())),
            _ => None,
        }
    }
}

/// A request that has arrived: what a model of a provider goes by.
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

    /// The key that came with it.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whose it is.
    pub const fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    pub(super) const fn operation(&self) -> &OperationKey {
        &self.operation
    }

    /// It has its effect, about `reference`. Returns the provider's id for it.
    pub fn happen(&self, system: &str, reference: &str) -> String {
        self.world.happened(self, system, "", reference)
    }

    /// The id of the effect that a request with this key has had before: what a provider goes by that takes keys.
    pub fn happened(&self, system: &str) -> Option<String> {
        let known = self.world.effects().into_iter().find(|effect| {
            (effect.system.as_str(), &effect.tenant, &effect.operation)
                == (system, &self.tenant, &self.operation)
        });
        known.map(|effect| effect.id)
    }
}

/// What a provider answers.
type Answer<T> = Result<Done<T>, ToolError>;

impl World {
    /// Sends a request to a provider of your own. `provider` says what it does when the request has arrived, which
    /// may be long after its sender has given up or died; the schedule may lose it, delay it, and lose its answer.
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

    /// The same, to a provider that tells copies of a request apart by its key: a proxy may send it two of them. To
    /// one that does not, that is never tried, for nobody on this side could prevent a duplicate or find it out.
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
            // The time counts from when its sender was taken for dead.
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
            // Whoever sent it has lost the connection long before it arrives.
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

    /// Arrives later, and is carried out then.
    fn deliver<T: Send + 'static>(
        &self,
        way: Duration,
        provider: Arc<dyn Fn() -> Answer<T> + Send + Sync>,
    ) -> oneshot::Receiver<Answer<T>> {
        let (answer, answered) = oneshot::channel();
        self.clock().later(way, move || drop(answer.send(provider())));
        answered
    }

    /// Looks up what happened about `reference` at a provider of your own, with the provider's id as its output.
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

    /// What a lookup says that has shown these effects.
    pub(super) fn finding(&self, call: &Call, ids: Vec<String>) -> LookupResult<String> {
        self.note(Happened::LookedUp { operation: call.operation_key().clone(), found: ids.len() });
        match ids.as_slice() {
            [] => LookupResult::NotFound,
            [id] => LookupResult::Committed { output: id.clone(), external_ref: Some(id.clone()) },
            _ => LookupResult::duplicated(ids.into_iter().map(|id| (id.clone(), id))),
        }
    }
}

/// What the sender is told of a request of which nothing comes.
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
