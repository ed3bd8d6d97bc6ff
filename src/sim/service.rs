//! Simulated external systems: one for each contract class.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::wire::{Request, WAY};
use super::world::{Effect, World};
use crate::clock::Clock as _;
use crate::id::Tenant;
use crate::ledger::LookupResult;
use crate::tool::{Call, Done, ToolError};

/// The capabilities of a simulated provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// A key; a duplicate gets the stored result. No lookup.
    ReplaysKey,
    /// A key; a duplicate gets the stored result. A lookup.
    ReplaysKeyAndLookup,
    /// A key; a duplicate is refused without the result. A lookup.
    RejectsKey,
    /// Conditional create under an id that the caller chose. A lookup by that id.
    NaturalKey,
    /// No key; a lookup by the caller's reference.
    Lookup,
    /// No key and no lookup.
    Blind,
    /// A key that the provider claims to replay, and ignores.
    IgnoresKey,
}

impl Offer {
    /// All variants of the enum.
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

/// The memory of a provider.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The answer under each key of an account, and the time of its effect.
    answers: BTreeMap<(Arc<str>, Tenant, String), (Value, Duration)>,
}

/// A simulated provider, as the code of a tool sees it. Clones are the same provider.
///
/// ```
/// # use counterfoil::sim::{Offer, Service, World};
/// use std::time::Duration;
///
/// fn slow_to_show(world: &World) -> Service {
///     world.service("desk", Offer::Lookup).shows_after(Duration::from_secs(3)).pages(100)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Service {
    world: World,
    name: Arc<str>,
    offer: Offer,
    account: Arc<str>,
    forgets_after: Duration,
    shows_after: Duration,
    finishes_after: Duration,
    page: usize,
    state: Arc<Mutex<State>>,
}

/// A page of the effects in an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The effects of the page, the oldest first.
    pub effects: Vec<Effect>,
    /// The number of the next page, if there is one.
    pub next: Option<usize>,
}

impl Service {
    pub(super) fn new(world: World, name: &str, offer: Offer, state: Arc<Mutex<State>>) -> Self {
        Self {
            world,
            name: name.into(),
            offer,
            account: "".into(),
            forgets_after: Duration::MAX,
            shows_after: Duration::ZERO,
            finishes_after: Duration::ZERO,
            page: usize::MAX,
            state,
        }
    }

    /// The provider as another of its accounts sees it: keys and lookups are separate for each account and, within an
    /// account, for each tenant.
    #[must_use]
    pub fn account(self, name: &str) -> Self {
        Self { account: name.into(), ..self }
    }

    /// Sets the key window: the provider forgets a key this long after its effect. Default: never.
    #[must_use]
    pub fn forgets_after(self, window: Duration) -> Self {
        Self { forgets_after: window, ..self }
    }

    /// Sets the lag of lookups: they show an effect only this long after it happened. Default: none.
    #[must_use]
    pub fn shows_after(self, lag: Duration) -> Self {
        Self { shows_after: lag, ..self }
    }

    /// Makes the provider asynchronous: it accepts a request, and finishes it this long afterwards. Until then,
    /// callers and lookups learn that the call is [pending](ToolError::accepted).
    #[must_use]
    pub fn finishes_after(self, work: Duration) -> Self {
        Self { finishes_after: work, ..self }
    }

    /// Sets the page size of lookups, in effects; at least one.
    #[must_use]
    pub fn pages(self, effects: usize) -> Self {
        Self { page: effects.max(1), ..self }
    }

    /// Requests an effect about `reference`. The answer holds the provider's id: `{"id": "mail-1"}`.
    pub async fn create(&self, call: &Call, reference: &str) -> Result<Done<Value>, ToolError> {
        let (service, reference) = (self.clone(), reference.to_owned());
        let carry_out = move |request: &Request| service.carry_out(request, &reference);
        let done = self.world.carry(call, self.offer.tells_copies(), carry_out).await?;
        match self.unfinished(done.external_ref.as_deref()) {
            None => Ok(done),
            Some(left) => Err(ToolError::accepted(done.external_ref).retry_after(left)),
        }
    }

    /// The time until the provider finishes an effect; `None` if it is finished.
    fn unfinished(&self, id: Option<&str>) -> Option<Duration> {
        let effects = self.world.effects();
        let effect = effects.iter().find(|effect| Some(effect.id.as_str()) == id)?;
        let done_at = effect.at.saturating_add(self.finishes_after);
        Some(done_at.saturating_sub(self.world.clock().elapsed())).filter(|left| !left.is_zero())
    }

    fn carry_out(&self, request: &Request, reference: &str) -> Result<Done<Value>, ToolError> {
        let now = self.world.clock().elapsed();
        let place = (self.account.clone(), request.tenant().clone(), request.key().to_owned());
        let known = self.state().answers.get(&place).cloned();
        match (self.offer, known.filter(|(_, at)| now.saturating_sub(*at) < self.forgets_after)) {
            (Offer::ReplaysKey | Offer::ReplaysKeyAndLookup, Some((answer, _))) => return Ok(done(&answer)),
            (Offer::RejectsKey | Offer::NaturalKey, Some(_)) => {
                return Err(ToolError::http(409, "key in use"));
            }
            _ => {}
        }
        let id = self.world.happened(request, &self.name, &self.account, reference);
        let answer = json!({ "id": id });
        self.state().answers.insert(place, (answer.clone(), now));
        Ok(done(&answer))
    }

    /// Looks up the outcome of a request about `reference`, over all pages.
    pub async fn find(&self, call: &Call, reference: &str) -> Result<LookupResult<Value>, ToolError> {
        if !self.offer.can_look_up() {
            return Ok(LookupResult::Unknown);
        }
        let (mut ids, mut next) = (Vec::new(), Some(0));
        while let Some(page) = next {
            let page = self.list(call, page).await?;
            ids.extend(page.effects.into_iter().filter(|e| e.reference == reference).map(|e| e.id));
            next = page.next;
        }
        match self.world.finding(call, ids) {
            LookupResult::Committed { external_ref, .. }
                if let Some(look_again) = self.unfinished(external_ref.as_deref()) =>
            {
                Ok(LookupResult::Pending { external_ref, look_again })
            }
            found => found.try_map(|id| Ok(json!({ "id": id }))),
        }
    }

    /// One page of all effects in the account; the first page is 0.
    pub async fn list(&self, call: &Call, page: usize) -> Result<Page, ToolError> {
        self.world.clock().sleep(WAY).await;
        self.world.is_looked_up()?;
        if !self.offer.can_look_up() {
            return Err(ToolError::http(404, "it has no lookup"));
        }
        let now = self.world.clock().elapsed();
        let mut effects = self.world.effects();
        effects.retain(|effect| {
            (effect.system.as_str(), effect.account.as_str()) == (&*self.name, &*self.account)
                && effect.tenant == *call.tenant()
                && effect.at.saturating_add(self.shows_after) <= now
        });
        let mut effects = effects.split_off(effects.len().min(page.saturating_mul(self.page)));
        let rest = effects.split_off(effects.len().min(self.page));
        Ok(Page { effects, next: (!rest.is_empty()).then_some(page + 1) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn done(answer: &Value) -> Done<Value> {
    let id = answer["id"].as_str().unwrap_or_default();
    Done::new(answer.clone()).external_ref(id)
}
