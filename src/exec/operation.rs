//! One logical tool call, ready to be carried out: key, canonical request, hash, owner.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::core::Core;
use super::inflight::Slot;
use super::outcome::{ExecError, failed};
use super::request_error::RequestError;
use super::throttle::Purse;
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::ledger::{
    Approval, ApprovalError, Decision, Facts, OperationKey, Owner, Record, Request, RequestHash, Scopes,
    State, decide,
};
use crate::payload::{Payload, Stored};
use crate::store::OrderingKey;
use crate::tool::{Prepared, ToolSpec};

/// In a workflow, a wait longer than this is the run's and not the call's: it holds no memory.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(5);

/// One logical tool call.
pub(crate) struct Operation {
    pub(crate) tenant: Tenant,
    pub(crate) tool: Arc<dyn Prepared>,
    pub(crate) key: OperationKey,
    pub(crate) request: Payload,
    pub(crate) hash: RequestHash,
    pub(crate) owner: Owner,
    pub(crate) approval: Option<Approval>,
    pub(crate) lane: Option<OrderingKey>,
    /// The budget of its run, if it has one.
    pub(super) purse: Option<Arc<Purse>>,
    /// When its run is cancelled: nothing is sent for it from then on.
    pub(super) deadline: Option<Timestamp>,
    /// Set when the activation of its run has ended.
    over: Option<Arc<AtomicBool>>,
    /// Its key is its place in one run: nobody else asks for it.
    unshared: bool,
    /// Put together again from what is stored, because its caller is gone.
    pub(super) rebuilt: bool,
    /// Rebuilt, and its tool could not be: only evidence or a person can settle it.
    pub(super) gone: Option<Gone>,
    /// The right to carry it out, while it is being carried out. The seal takes it along to the disk.
    slot: Mutex<Option<Slot>>,
}

/// Why an operation cannot be put together again: its tool cannot be asked anything.
#[derive(Clone, Debug)]
pub(super) enum Gone {
    /// No tool of its name is registered. It may have been a plain function, which no restart brings back.
    Unregistered,
    /// The tool does not take the stored request as its input.
    Unreadable(String),
}

impl Gone {
    /// The question as a person reads it.
    pub(super) fn question(&self, tool: &str) -> String {
        match self {
            Self::Unregistered => format!(
                "The call may have happened, and nothing can be looked up: no tool named {tool:?} is registered. \
                 Register it and start again, or answer by hand (also if it was a plain function). Did it happen?"
            ),
            Self::Unreadable(reason) => format!(
                "The call may have happened, and nothing can be looked up: the tool {tool:?} does not take its stored \
                 request ({reason}). Mend that and start again, or answer by hand. Did it happen?"
            ),
        }
    }
}

/// A request as it is recorded, and the hash of what its key is bound to.
pub(crate) struct Requested {
    request: Payload,
    hash: RequestHash,
}

impl Requested {
    /// The request of a tool with its input.
    ///
    /// # Errors
    /// The input cannot be written down, is too large, or lacks a field to which the key is bound.
    pub(crate) async fn of(core: &Core, tenant: &Tenant, tool: &dyn Prepared) -> Result<Self, ExecError> {
        let request = Self::written(core, tenant, tool).await?;
        let ToolSpec { name, bound, .. } = tool.spec();
        let hash = RequestHash::bound(name.as_str(), &request, bound);
        let hash = hash.map_err(|source| RequestError::UnboundField { tool: name.to_string(), source })?;
        Ok(Self { request, hash })
    }

    /// The request of a record, written once more. It is bound as it was when it was recorded.
    pub(super) async fn recorded(
        core: &Core,
        record: &Record,
        tool: &dyn Prepared,
    ) -> Result<Self, ExecError> {
        let request = Self::written(core, &record.tenant, tool).await?;
        Ok(Self { request, hash: record.request_hash })
    }

    async fn written(core: &Core, tenant: &Tenant, tool: &dyn Prepared) -> Result<Payload, ExecError> {
        let request: Result<_, ExecError> = core.canonical(tenant, |key| tool.request(key)).await;
        Ok(request?.within(&core.limits)?)
    }
}

/// Who asks, and how.
#[derive(Default)]
pub(crate) struct Asker {
    pub(crate) owner: Owner,
    pub(crate) approval: Option<Approval>,
    pub(crate) lane: Option<OrderingKey>,
    /// The budget of the run, if it has one.
    pub(crate) purse: Option<Arc<Purse>>,
    /// When the run is cancelled, unless it is already.
    pub(crate) deadline: Option<Timestamp>,
    /// Set when the activation of the run has ended: nothing is begun for it from then on.
    pub(crate) over: Option<Arc<AtomicBool>>,
    /// The key is the call's place in the run.
    pub(crate) unshared: bool,
}

impl Operation {
    /// Checks the payload. Nothing is recorded or sent.
    pub(crate) async fn prepare(
        core: &Core,
        tenant: &Tenant,
        tool: Arc<dyn Prepared>,
        key: OperationKey,
        asker: Asker,
    ) -> Result<Self, ExecError> {
        let request = Requested::of(core, tenant, &*tool).await?;
        Ok(Self::of(tenant, tool, key, request, asker))
    }

    /// The operation of a checked request.
    pub(crate) fn of(
        tenant: &Tenant,
        tool: Arc<dyn Prepared>,
        key: OperationKey,
        Requested { request, hash }: Requested,
        asker: Asker,
    ) -> Self {
        let Asker { owner, approval, lane, purse, deadline, over, unshared } = asker;
        let (tenant, slot) = (tenant.clone(), Mutex::default());
        let (rebuilt, gone) = (false, None);
        Self {
            tenant,
            tool,
            key,
            request,
            hash,
            owner,
            approval,
            lane,
            purse,
            deadline,
            over,
            unshared,
            rebuilt,
            gone,
            slot,
        }
    }

    /// The same with this approval.
    pub(crate) fn approved(&self, approval: Approval) -> Self {
        Self {
            tenant: self.tenant.clone(),
            tool: self.tool.clone(),
            key: self.key.clone(),
            request: self.request.clone(),
            hash: self.hash,
            owner: self.owner.clone(),
            approval: Some(approval),
            lane: self.lane,
            purse: self.purse.clone(),
            deadline: self.deadline,
            over: self.over.clone(),
            unshared: self.unshared,
            rebuilt: self.rebuilt,
            gone: self.gone.clone(),
            slot: Mutex::default(),
        }
    }

    /// What a record says of it, and no more.
    pub(super) fn rebuilt(record: &Record, tool: Arc<dyn Prepared>) -> Self {
        Self {
            tenant: record.tenant.clone(),
            tool,
            key: record.key.clone(),
            request: Payload::stored("null"),
            hash: record.request_hash,
            owner: record.owner.clone(),
            approval: None,
            lane: None,
            purse: None,
            deadline: None,
            over: None,
            unshared: false,
            rebuilt: true,
            gone: None,
            slot: Mutex::default(),
        }
    }

    /// It may be sent before anything is recorded of it: a crash leaves nothing to be found out, and whoever asks again repeats it. A
    /// budget counts attempts by their records, and a crash must not give one back.
    pub(super) fn may_go_unrecorded(&self, core: &Core) -> bool {
        let spec = self.tool.spec();
        spec.effect.may_repeat(spec.contract.class)
            && spec.compensation.is_none() // what may have happened is to be undone
            && !self.is_counted()
            && self.approval.is_none()
            && core.is_small(&self.request)
    }

    /// Another caller may ask for it as well.
    pub(super) const fn is_shared(&self) -> bool {
        !self.unshared
    }

    /// The activation that asked for it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.over.as_ref().is_some_and(|over| over.load(Ordering::Acquire))
    }

    /// Its run is to be cancelled: nothing is sent for it any more, and it waits for that.
    pub(super) fn is_past_deadline(&self, now: Timestamp) -> bool {
        self.deadline.is_some_and(|at| at <= now)
    }

    /// How long it waits by itself: in a workflow a long wait is the run's.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.lane.map(|_| LONG_WAIT)
    }

    /// Takes the right to carry it out; it is given back when the guard goes, or when what took it is durable.
    pub(super) fn occupy(&self, slot: Slot) -> Occupied<'_> {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(slot);
        Occupied(self)
    }

    pub(super) fn take_slot(&self) -> Option<Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What this request means in the light of the record. Whoever asks holds the operation's slot, so no
    /// attempt of it is alive in this process; and this process owns the store.
    pub(crate) async fn decide(&self, core: &Core, record: Option<&Record>) -> Result<Decision, ExecError> {
        let stored_rehashed = match record {
            // Boxed because it is rare: every call would have to carry the room for it.
            Some(record) if record.request_hash != self.hash => Box::pin(self.rehashed(core, record)).await?,
            _ => None,
        };
        let request = Request { hash: self.hash, stored_rehashed };
        // Whoever asks has this process's slot: an attempt that is alive is another worker's.
        let attempt_alive = match record {
            Some(record) if record.state == State::Started => {
                core.is_anothers(record.fence).await.map_err(|source| failed(&self.key, source))?
            }
            _ => false,
        };
        Ok(decide(record, &request, &Facts { attempt_alive }))
    }

    /// The hash that the record's request has by what its tool declares now, if that is something else than when it was recorded.
    async fn rehashed(&self, core: &Core, record: &Record) -> Result<Option<RequestHash>, ExecError> {
        let declared = core.declaration(record).await.map_err(|source| failed(&self.key, source))?;
        let ToolSpec { name, bound, input_version, .. } = self.tool.spec();
        if let State::Gone { .. } = record.state {
            // Its request is gone: this one is hashed by the rule of that time.
            let Ok(then) = RequestHash::bound(name.as_str(), &self.request, &declared.bound) else {
                return Ok(None);
            };
            let key = core.tenant_key(&self.tenant).await?;
            return Ok((record.request_hash == then.keyed(&key)).then_some(self.hash));
        }
        let is_of_this_version = declared.input_version == *input_version;
        if is_of_this_version && declared.bound == *bound {
            return Ok(None);
        }
        let stored = core.load(&self.tenant, &record.request).await?;
        let now = if is_of_this_version {
            Some(stored)
        } else {
            self.tool.rewrite(&stored, declared.input_version)
        };
        Ok(now.and_then(|request| RequestHash::bound(name.as_str(), &request, bound).ok()))
    }

    /// Its tool would get what its caller gave: what was rebuilt has digests in place of secrets, or lacks what only a caller has, and
    /// must not be sent.
    pub(super) fn is_whole(&self) -> bool {
        !self.rebuilt || !(self.tool.needs_caller() || self.request.holds_secret())
    }

    /// The effect may go out now: it needs no approval, or has one for exactly this content.
    pub(crate) fn check_approval(&self, now: Timestamp) -> Result<(), ApprovalError> {
        let spec = self.tool.spec();
        let class = spec.effect.name();
        match (&self.approval, self.tool.package()) {
            (Some(approval), Some(package)) => approval.check(&package, now),
            (None, _) if spec.review.is_some() => Err(ApprovalError::Missing { class }),
            (Some(_), None) if spec.review.is_some() => {
                Err(ApprovalError::NoPackage { tool: spec.name.to_string(), class })
            }
            _ => Ok(()),
        }
    }

    /// The approval under which it goes out, if what it does is compared with one.
    pub(super) fn approved_by(&self) -> Option<Box<Approval>> {
        let approval = self.approval.as_ref()?;
        self.tool.package().map(|_| Box::new(approval.clone()))
    }

    /// What the provider scopes its key and its lookup to, if the tool says so for each call.
    pub(super) fn scopes(&self) -> Option<Box<Scopes>> {
        self.tool.scopes(&self.tenant).map(Box::new)
    }

    /// The request as a row holds it, and the payload row it needs if it is large.
    pub(crate) fn stored_request(&self, core: &Core) -> (Stored, Option<Payload>) {
        core.storable(self.request.clone())
    }
}

/// An operation that is being carried out.
pub(super) struct Occupied<'a>(&'a Operation);

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        drop(self.0.take_slot());
    }
}
