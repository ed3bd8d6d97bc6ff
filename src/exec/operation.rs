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
    Approval, Decision, Facts, OperationKey, Owner, Record, Request, RequestHash, Scopes, State, decide,
};
use crate::payload::{Payload, Stored};
use crate::store::{Change, Contact, Labels, OrderingKey};
use crate::tool::{Prepared, ToolSpec};
use crate::trace::TraceContext;

/// The longest wait of a call inside a workflow's task. For a longer wait the run is parked and holds no memory.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(5);

/// One logical tool call: its tool, key, request and owner.
pub(crate) struct Operation {
    pub(crate) tenant: Tenant,
    pub(crate) tool: Arc<dyn Prepared>,
    pub(crate) key: OperationKey,
    pub(crate) request: Payload,
    pub(crate) hash: RequestHash,
    pub(crate) owner: Owner,
    pub(crate) approval: Option<Approval>,
    /// True if the call has asked for this approval itself, because the tool or its policy wants one.
    pub(super) asked: bool,
    pub(crate) lane: Option<OrderingKey>,
    /// The labels of the record, if this operation writes it first.
    labels: Labels,
    /// The budget of the operation's run, if it has one.
    pub(super) purse: Option<Arc<Purse>>,
    /// The instant at which the operation's run is cancelled. Nothing is sent from then on.
    pub(super) deadline: Option<Timestamp>,
    /// Set when the activation of the operation's run has ended.
    over: Option<Arc<AtomicBool>>,
    /// True if the key is the operation's place in one run, so that no other caller requests it.
    unshared: bool,
    /// The span of the run. `None` for a call outside of runs.
    trace: Option<Arc<TraceContext>>,
    /// True if the operation was rebuilt from its record, because its caller is gone.
    pub(super) rebuilt: bool,
    /// The reason why a rebuilt operation has no usable tool. Only evidence or a person can settle it.
    pub(super) gone: Option<Gone>,
    /// The right to carry the operation out, while it is being carried out. The seal takes it along to the disk.
    slot: Mutex<Option<Slot>>,
    /// The attempt that has ended, until a write takes it along.
    contact: Mutex<Option<Box<Contact>>>,
}

/// The reason why an operation cannot be rebuilt, so that its tool cannot be asked anything.
#[derive(Clone, Debug)]
pub(super) enum Gone {
    /// No tool of this name is registered. The tool may have been a plain function, which no restart brings back.
    Unregistered,
    /// The tool does not take the stored request as its input.
    Unreadable(String),
}

impl Gone {
    /// The text of the question for a person.
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

/// A tenant's request to a tool in its recorded form, and the hash of the fields that its key is bound to.
pub(crate) struct Requested {
    tenant: Tenant,
    tool: Arc<dyn Prepared>,
    request: Payload,
    hash: RequestHash,
}

impl Requested {
    /// The request of a tool with its input. Nothing is recorded or sent.
    ///
    /// # Errors
    /// [`ExecError`] if the input cannot be serialised, is too large, or lacks a field that the key is bound to.
    pub(crate) async fn of(core: &Core, tenant: &Tenant, tool: Arc<dyn Prepared>) -> Result<Self, ExecError> {
        let request = Self::written(core, tenant, &*tool).await?;
        let ToolSpec { name, bound, .. } = tool.spec();
        let hash = RequestHash::bound(name.as_str(), &request, bound);
        let hash = hash.map_err(|source| RequestError::UnboundField { tool: name.to_string(), source })?;
        Ok(Self { tenant: tenant.clone(), tool, request, hash })
    }

    /// The request of a record in a new canonical form. It is bound as it was when it was recorded.
    pub(super) async fn recorded(
        core: &Core,
        record: &Record,
        tool: Arc<dyn Prepared>,
    ) -> Result<Self, ExecError> {
        let request = Self::written(core, &record.tenant, &*tool).await?;
        Ok(Self { tenant: record.tenant.clone(), tool, request, hash: record.request_hash })
    }

    /// The operation that makes the request under this key.
    pub(crate) fn under(self, key: OperationKey, asker: Asker) -> Operation {
        let Self { tenant, tool, request, hash } = self;
        let Asker { owner, approval, labels, lane, purse, deadline, over, unshared, trace } = asker;
        Operation {
            tenant,
            tool,
            key,
            request,
            hash,
            owner,
            approval,
            asked: false,
            lane,
            labels,
            purse,
            deadline,
            over,
            unshared,
            trace,
            rebuilt: false,
            gone: None,
            slot: Mutex::default(),
            contact: Mutex::default(),
        }
    }

    async fn written(core: &Core, tenant: &Tenant, tool: &dyn Prepared) -> Result<Payload, ExecError> {
        let request: Result<_, ExecError> = core.canonical(tenant, |key| tool.request(key)).await;
        Ok(request?.within(&core.limits)?)
    }
}

/// The caller of an operation, and the terms of its request.
#[derive(Default)]
pub(crate) struct Asker {
    pub(crate) owner: Owner,
    pub(crate) approval: Option<Approval>,
    /// The labels of the record, if this request writes it first; [checked](Labels::check).
    pub(crate) labels: Labels,
    pub(crate) lane: Option<OrderingKey>,
    /// The budget of the run, if it has one.
    pub(crate) purse: Option<Arc<Purse>>,
    /// The instant at which the run is cancelled, unless it is cancelled already.
    pub(crate) deadline: Option<Timestamp>,
    /// Set when the activation of the run has ended. Nothing is begun for it from then on.
    pub(crate) over: Option<Arc<AtomicBool>>,
    /// True if the key is the call's place in the run.
    pub(crate) unshared: bool,
    /// The span of the run. `None` for a call outside of runs.
    pub(crate) trace: Option<Arc<TraceContext>>,
}

impl Operation {
    /// The span within which the operation's attempts and lookups are: that of its run, or one that stands for the operation itself.
    pub(super) fn trace(&self) -> TraceContext {
        let own = || TraceContext::of_operation(self.tenant.as_str(), self.key.as_str());
        self.trace.as_deref().copied().unwrap_or_else(own)
    }

    /// The span of the run, for the call that the tool gets.
    pub(super) fn run_trace(&self) -> Option<Arc<TraceContext>> {
        self.trace.clone()
    }

    /// The name of the tool.
    pub(super) fn name(&self) -> &str {
        self.tool.spec().name.as_str()
    }

    /// The same operation with this approval, which the call has asked for.
    pub(crate) fn approved(&self, approval: Approval) -> Self {
        Self {
            tenant: self.tenant.clone(),
            tool: self.tool.clone(),
            key: self.key.clone(),
            request: self.request.clone(),
            hash: self.hash,
            owner: self.owner.clone(),
            approval: Some(approval),
            asked: true,
            lane: self.lane,
            labels: self.labels.clone(),
            purse: self.purse.clone(),
            deadline: self.deadline,
            over: self.over.clone(),
            unshared: self.unshared,
            trace: self.trace.clone(),
            rebuilt: self.rebuilt,
            gone: self.gone.clone(),
            slot: Mutex::default(),
            contact: Mutex::default(),
        }
    }

    /// The operation as far as its record tells, and no more.
    pub(super) fn rebuilt(record: &Record, tool: Arc<dyn Prepared>) -> Self {
        Self {
            tenant: record.tenant.clone(),
            tool,
            key: record.key.clone(),
            request: Payload::stored("null"),
            hash: record.request_hash,
            owner: record.owner.clone(),
            approval: None,
            asked: false,
            lane: None,
            labels: Labels::default(),
            purse: None,
            deadline: None,
            over: None,
            unshared: false,
            trace: None,
            rebuilt: true,
            gone: None,
            slot: Mutex::default(),
            contact: Mutex::default(),
        }
    }

    /// True if the operation may be sent before anything is recorded: a crash leaves nothing to be found out, and the
    /// next caller repeats it. Not with a budget, which counts attempts by their records: a crash must not give one
    /// back.
    pub(super) fn may_go_unrecorded(&self, core: &Core) -> bool {
        let spec = self.tool.spec();
        spec.effect.may_repeat(spec.contract.class)
            && spec.compensation.is_none() // an effect that may have happened has to be undone
            && !self.is_counted()
            && self.approval.is_none()
            && spec.approval.is_none() // a verdict has to be recorded
            && core.is_small(&self.request)
    }

    /// True if another caller may request the same operation.
    pub(super) const fn is_shared(&self) -> bool {
        !self.unshared
    }

    /// True if the activation that requested the operation has ended.
    pub(super) fn is_over(&self) -> bool {
        self.over.as_ref().is_some_and(|over| over.load(Ordering::Acquire))
    }

    /// True if the operation's run is about to be cancelled. Nothing is sent any more, and the operation waits for
    /// that.
    pub(super) fn is_past_deadline(&self, now: Timestamp) -> bool {
        self.deadline.is_some_and(|at| at <= now)
    }

    /// The longest wait of the operation itself. In a workflow a longer wait parks the run.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.lane.map(|_| LONG_WAIT)
    }

    /// Takes the right to carry the operation out. It is given back when the guard is dropped, or when the seal that
    /// took it is durable.
    pub(super) fn occupy(&self, slot: Slot) -> Occupied<'_> {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(slot);
        Occupied(self)
    }

    pub(super) fn take_slot(&self) -> Option<Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps the attempt that has ended for the write that tells of its end.
    pub(super) fn keep_contact(&self, contact: Contact) {
        *self.contact.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(contact));
    }

    pub(super) fn take_contact(&self) -> Option<Contact> {
        self.contact.lock().unwrap_or_else(PoisonError::into_inner).take().map(|contact| *contact)
    }

    /// Decides about this request in the light of the record. The caller holds the operation's slot, so no attempt is
    /// alive in this process.
    pub(crate) async fn decide(&self, core: &Core, record: Option<&Record>) -> Result<Decision, ExecError> {
        let stored_rehashed = match record {
            // Boxed because this case is rare: every call would reserve its memory.
            Some(record) if record.request_hash != self.hash => Box::pin(self.rehashed(core, record)).await?,
            _ => None,
        };
        let request = Request { hash: self.hash, stored_rehashed };
        // The caller holds this process's slot: an attempt that is alive belongs to another worker.
        let attempt_alive = match record {
            Some(record) if record.state == State::Started => {
                core.is_anothers(record.fence).await.map_err(|source| failed(&self.key, source))?
            }
            _ => false,
        };
        Ok(decide(record, &request, &Facts { attempt_alive }))
    }

    /// The hash of the record's request by the tool's present declaration. `None` if the declaration is still the same.
    async fn rehashed(&self, core: &Core, record: &Record) -> Result<Option<RequestHash>, ExecError> {
        let declared = core.declaration(record).await.map_err(|source| failed(&self.key, source))?;
        let ToolSpec { name, bound, input_version, .. } = self.tool.spec();
        if let State::Gone { .. } = record.state {
            // The recorded request is gone: this request is hashed by the rule of that time.
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

    /// True if the tool would get the caller's own input. A rebuilt request has digests in place of secrets, or lacks
    /// the parts that only a caller has, and must not be sent.
    pub(super) fn is_whole(&self) -> bool {
        !self.rebuilt || !(self.tool.needs_caller() || self.request.holds_secret())
    }

    /// The provider's scopes of the key and of the lookup, if the tool tells them for each call.
    pub(super) fn scopes(&self) -> Option<Box<Scopes>> {
        self.tool.scopes(&self.tenant).map(Box::new)
    }

    /// The change that writes a state of the operation's record, in the lane of its run. The first state brings the labels: those of
    /// the first caller stay.
    pub(super) fn writes(&self, core: &Core, record: impl Into<Box<Record>>) -> Change {
        let mut change = core.change(self.lane).record(record);
        if let Some(first) = change.record.as_deref().filter(|record| record.revision == 1) {
            change.record_labels.extend(self.labels.of_record(first));
        }
        change
    }

    /// The stored form of the request, and a payload row if it is large.
    pub(crate) fn stored_request(&self, core: &Core) -> (Stored, Option<Payload>) {
        core.storable(self.request.clone())
    }
}

/// A guard for an operation that is being carried out.
pub(super) struct Occupied<'a>(&'a Operation);

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        drop(self.0.take_slot());
    }
}
