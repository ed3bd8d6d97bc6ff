//! External systems that behave as told: one for each downstream class, with every way in which a request can go
//! wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::schedule::Fault;
use super::timeline::Happened;
use super::world::World;
use crate::clock::Clock as _;
use crate::id::Tenant;
use crate::ledger::{ErrorKind, Finding, OperationKey};
use crate::tool::{Call, Done, ToolError};

/// How long a request takes to arrive, and its answer to come back.
const WAY: Duration = Duration::from_millis(10);
/// A request that dawdles: longer than any patience, shorter than the settle time.
const LATE: Duration = Duration::from_secs(40);
/// A request that dawdles beyond the settle time.
const TOO_LATE: Duration = Duration::from_secs(100);
/// A proxy sends a second copy this much later.
const COPY: Duration = Duration::from_secs(1);

/// What a simulated provider offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// A key; a duplicate gets the stored result. No lookup.
    ReplaysKey,
    /// The same, and a lookup.
    ReplaysKeyAndLookup,
    /// A key; a duplicate is refused without the result. A lookup.
    RejectsKey,
    /// Conditional create under an id that the caller chose. A lookup by it.
    NaturalKey,
    /// No key; a lookup by the caller's reference.
    Lookup,
    /// Neither.
    Blind,
    /// It claims to replay keys, and does not.
    IgnoresKey,
}

impl Offer {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ReplaysKey,
        Self::ReplaysKeyAndLookup,
        Self::RejectsKey,
        Self::NaturalKey,
        Self::Lookup,
        Self::Blind,
        Self::IgnoresKey,
    ];

    const fn tells_copies(self) -> bool {
        !matches!(self, Self::Lookup | Self::Blind | Self::IgnoresKey)
    }

    const fn can_look_up(self) -> bool {
        matches!(self, Self::ReplaysKeyAndLookup | Self::RejectsKey | Self::NaturalKey | Self::Lookup)
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// What was answered under each key. Keys are scoped to the tenant's account.
    answers: BTreeMap<(Tenant, String), Value>,
}

/// A simulated provider, as the code of a tool sees it. Clones are the same provider.
#[derive(Clone, Debug)]
pub struct Service {
    world: World,
    name: Arc<str>,
    offer: Offer,
    state: Arc<Mutex<State>>,
}

/// A request on its way: it arrives whether its sender lives or not.
#[derive(Clone)]
struct Request {
    tenant: Tenant,
    operation: OperationKey,
    key: String,
    reference: String,
}

impl Service {
    pub(super) fn new(world: World, name: &str, offer: Offer, state: Arc<Mutex<State>>) -> Self {
        Self { world, name: name.into(), offer, state }
    }

    /// Asks for an effect about `reference`. The answer holds the provider's id: `{"id": "mail-1"}`.
    pub async fn create(&self, call: &Call, reference: &str) -> Result<Done<Value>, ToolError> {
        let request = Request {
            tenant: call.tenant().clone(),
            operation: call.operation_key().clone(),
            key: call.key().to_owned(),
            reference: reference.to_owned(),
        };
        let fault = self.world.next_request(call);
        self.world.note(Happened::Sent {
            operation: request.operation.clone(),
            attempt: call.attempt(),
            fault,
        });
        self.send(request, fault).await
    }

    async fn send(&self, request: Request, fault: Option<Fault>) -> Result<Done<Value>, ToolError> {
        let clock = self.world.clock();
        let refused = |kind, words: &str| Err(ToolError::new(kind, words));
        match fault {
            Some(Fault::Refused) => return refused(ErrorKind::Validation, "HTTP 422"),
            Some(Fault::RateLimited) => {
                let error = ToolError::new(ErrorKind::RateLimited, "HTTP 429");
                return Err(error.retry_after(Duration::from_secs(2)));
            }
            Some(Fault::FailsBefore) => {
                clock.sleep(WAY).await;
                return refused(ErrorKind::Server, "HTTP 500");
            }
            Some(Fault::RequestLost) => {
                clock.sleep(WAY).await;
                return refused(ErrorKind::Disconnected, "connection reset");
            }
            _ => {}
        }
        let way = match fault {
            Some(Fault::Late) => LATE,
            Some(Fault::TooLate) => TOO_LATE,
            _ => WAY,
        };
        let answer = self.deliver(request.clone(), way);
        // Without a key nobody on this side could prevent it or find it out: there it is not tried.
        if fault == Some(Fault::Doubled) && self.offer.tells_copies() {
            drop(self.deliver(request, way + COPY));
        }
        if way > WAY {
            // Whoever sent it has lost the connection long before it arrives.
            clock.sleep(WAY).await;
            return refused(ErrorKind::Disconnected, "connection reset");
        }
        let answer = answer.await.map_err(|_| ToolError::new(ErrorKind::Disconnected, "the world ended"))?;
        match fault {
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::AnswerLost) => refused(ErrorKind::Disconnected, "connection reset"),
            Some(Fault::FailsAfter) => refused(ErrorKind::Server, "HTTP 500"),
            _ => {
                clock.sleep(WAY).await;
                answer
            }
        }
    }

    /// Arrives later, and is carried out then.
    fn deliver(&self, request: Request, way: Duration) -> oneshot::Receiver<Result<Done<Value>, ToolError>> {
        let (answer, answered) = oneshot::channel();
        let service = self.clone();
        self.world.clock().later(way, move || drop(answer.send(service.carry_out(&request))));
        answered
    }

    fn carry_out(&self, request: &Request) -> Result<Done<Value>, ToolError> {
        let place = (request.tenant.clone(), request.key.clone());
        let known = self.state().answers.get(&place).cloned();
        match (self.offer, known) {
            (Offer::ReplaysKey | Offer::ReplaysKeyAndLookup, Some(answer)) => return Ok(done(&answer)),
            (Offer::RejectsKey | Offer::NaturalKey, Some(_)) => {
                return Err(ToolError::new(ErrorKind::Duplicate, "HTTP 409"));
            }
            _ => {}
        }
        let id = self.world.happened(&request.tenant, &request.operation, &self.name, &request.reference);
        let answer = json!({ "id": id });
        self.state().answers.insert(place, answer.clone());
        Ok(done(&answer))
    }

    /// Looks up what became of a request about `reference`.
    pub async fn find(&self, call: &Call, reference: &str) -> Result<Finding<Value>, ToolError> {
        self.world.clock().sleep(WAY).await;
        let mut found = self.world.found(&self.name, reference);
        found.retain(|effect| effect.tenant == *call.tenant());
        let ids: Vec<_> = found.into_iter().map(|effect| effect.id).collect();
        let finding = match ids.as_slice() {
            _ if !self.offer.can_look_up() => Finding::Unknown,
            [] => Finding::NotFound,
            [id] => Finding::Committed { output: json!({ "id": id }), external_ref: Some(id.clone()) },
            [first, ..] => Finding::Duplicated { output: json!({ "id": first }), external_refs: ids.clone() },
        };
        self.world.note(Happened::LookedUp { operation: call.operation_key().clone(), found: ids.len() });
        Ok(finding)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn done(answer: &Value) -> Done<Value> {
    let id = answer["id"].as_str().unwrap_or_default();
    Done::new(answer.clone()).external_ref(id)
}
