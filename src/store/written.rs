//! The writes of a change, row by row: the one place that names everything a change may bring.

use super::{
    Admission, Aggregate, Change, Contact, Document, DroppedContact, Evidence, OutboxEvent, Published,
    PublishedValue, Question, Retired, RetiredRun, Run, Schedule, SharedEffect, Signal, Step, WorkerChange,
};
use crate::id::Tenant;
use crate::ledger::{Look, Record};
use crate::payload::{DigestKey, Payload};

/// One write of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Written<'c> {
    Worker(&'c WorkerChange),
    Admission(&'c Admission),
    Schedule(&'c Schedule),
    Document(&'c Document),
    Published(&'c PublishedValue),
    Erased(&'c Tenant),
    Event(&'c OutboxEvent),
    Mark(&'c Aggregate),
    Forgotten(&'c Published),
    Retired(&'c Retired),
    RetiredRun(&'c RetiredRun),
    Payload(&'c Tenant, &'c Payload),
    Key(&'c Tenant, &'c DigestKey),
    Run(&'c Run),
    Record(&'c Record),
    Look(&'c Look),
    Contact(&'c Contact),
    DroppedContact(&'c DroppedContact),
    Step(&'c Step),
    /// The checkpoints of a run's turns up to this one are deleted.
    Prune(&'c Run, u32),
    SharedEffect(&'c SharedEffect),
    Question(&'c Question),
    Signal(&'c Signal),
    Received(&'c Signal),
    Evidence(&'c Evidence),
}

impl Change {
    /// All writes, in the order in which they are judged: the first one that is refused decides why a change is
    /// refused.
    pub(crate) fn written(&self) -> impl Iterator<Item = Written<'_>> {
        // The pattern has no `..`, so that a field that is added later cannot be left out here.
        let Self {
            fence: _,
            lane: _,
            record,
            look,
            steps,
            used,
            run,
            prune,
            escalations,
            signal,
            received,
            contacts,
            dropped_contacts,
            evidence,
            contract: _,
            taken_over: _,
            payloads,
            worker,
            admission,
            schedule,
            documents,
            published,
            events,
            aggregates,
            retired,
            retired_runs,
            beside: _,
            erased,
            forgotten,
            tenant_key,
        } = self;
        let workers = worker.iter().map(Written::Worker);
        let workers = workers.chain(admission.iter().map(|row| Written::Admission(row)));
        let guards = schedule.iter().map(|row| Written::Schedule(row));
        let guards = guards.chain(documents.iter().map(Written::Document));
        let guards = guards.chain(published.iter().map(|row| Written::Published(row)));
        let outbox = events.iter().map(Written::Event).chain(aggregates.iter().map(Written::Mark));
        let over = forgotten.iter().map(Written::Forgotten).chain(retired.iter().map(Written::Retired));
        let over = over.chain(retired_runs.iter().map(Written::RetiredRun));
        let apart = payloads.iter().map(|(tenant, payload)| Written::Payload(tenant, payload));
        let apart = apart.chain(tenant_key.iter().map(|(tenant, key)| Written::Key(tenant, key)));
        let calls =
            run.iter().map(|row| Written::Run(row)).chain(record.iter().map(|row| Written::Record(row)));
        let calls = calls.chain(look.iter().map(|row| Written::Look(row)));
        let calls = calls.chain(contacts.iter().map(Written::Contact));
        let calls = calls.chain(dropped_contacts.iter().map(Written::DroppedContact));
        let steps = steps.iter().map(Written::Step);
        let steps = steps.chain(run.iter().zip(*prune).map(|(run, last)| Written::Prune(run, last)));
        let told = used
            .iter()
            .map(|row| Written::SharedEffect(row))
            .chain(escalations.iter().map(Written::Question));
        let told = told.chain(signal.iter().map(|row| Written::Signal(row)));
        let told = told.chain(received.iter().map(|row| Written::Received(row)));
        workers
            .chain(guards)
            .chain(erased.iter().map(Written::Erased))
            .chain(outbox)
            .chain(over)
            .chain(apart)
            .chain(calls)
            .chain(steps)
            .chain(told)
            .chain(evidence.iter().map(|row| Written::Evidence(row)))
    }

    /// True if the change writes rows that only a worker may write: all but enrolment, evidence and the rows that
    /// those two need.
    pub(crate) fn needs_fence(&self) -> bool {
        use Written::{DroppedContact, Evidence, Key, Payload, Prune, Worker};
        let is_free = |row| {
            matches!(row, Prune(..) | DroppedContact(_) | Evidence(_) | Payload(..) | Key(..) | Worker(_))
        };
        !self.written().all(is_free)
    }

    /// True if only a judge can decide about the change: it changes the right to write, or rows that are found by
    /// their content.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn must_be_judged(&self) -> bool {
        use Written::{Admission, Erased, Forgotten, Retired, RetiredRun, Worker};
        let is_judged = |row| {
            matches!(row, Worker(_) | Admission(_) | Forgotten(_) | Retired(_) | RetiredRun(_) | Erased(_))
        };
        self.compared().is_some() || self.written().any(is_judged) || !self.copied().is_empty()
    }
}

#[cfg(any(feature = "postgres", feature = "conformance"))]
impl<'c> Written<'c> {
    /// The tenant that owns the row; `None` for a worker or a queue.
    pub(super) const fn tenant(self) -> Option<&'c Tenant> {
        match self {
            Self::Record(row) => Some(&row.tenant),
            Self::Look(row) => Some(&row.tenant),
            Self::Contact(row) => Some(&row.tenant),
            Self::DroppedContact(row) => Some(&row.tenant),
            Self::Run(row) => Some(&row.tenant),
            Self::Step(row) => Some(&row.tenant),
            Self::SharedEffect(row) => Some(&row.tenant),
            Self::Question(row) => Some(&row.tenant),
            Self::Signal(row) | Self::Received(row) => Some(&row.tenant),
            Self::Schedule(row) => Some(&row.tenant),
            Self::Document(row) => Some(&row.tenant),
            Self::Published(row) => Some(&row.tenant),
            Self::Event(row) => Some(&row.tenant),
            Self::Mark(row) => Some(&row.tenant),
            Self::Evidence(row) => Some(&row.tenant),
            Self::Retired(row) => Some(&row.tenant),
            Self::RetiredRun(row) => Some(&row.run.tenant),
            Self::Forgotten(row) => Some(&row.tenant),
            Self::Payload(tenant, _) | Self::Key(tenant, _) | Self::Erased(tenant) => Some(tenant),
            Self::Prune(..) | Self::Worker(_) | Self::Admission(_) => None,
        }
    }
}
