//! What a change writes, row by row: the one place that names all that a change may bring.

use super::{
    Aggregate, Change, Document, Escalation, Evidence, OutboxEvent, Published, Retired, Run, Schedule,
    Signal, Step, Use, WorkerChange,
};
use crate::id::Tenant;
use crate::ledger::{Look, Record};

/// One of them.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "no other store asks whose rows they are"))]
pub(crate) enum Written<'c> {
    Record(&'c Record),
    Look(&'c Look),
    Run(&'c Run),
    Step(&'c Step),
    /// The checkpoints of a run's turns go.
    Prune,
    Use(&'c Use),
    Question(&'c Escalation),
    Signal(&'c Signal),
    Received(&'c Signal),
    Schedule(&'c Schedule),
    Document(&'c Document),
    Event(&'c OutboxEvent),
    Mark(&'c Aggregate),
    Evidence(&'c Evidence),
    Payload(&'c Tenant),
    Key(&'c Tenant),
    Worker(&'c WorkerChange),
    Admission,
    Retired(&'c Retired),
    Forgotten(&'c Published),
    Erased(&'c Tenant),
}

impl Change {
    /// All of them.
    pub(crate) fn written(&self) -> impl Iterator<Item = Written<'_>> {
        // Without `..`: what a change may bring one day is not left out here.
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
            evidence,
            contract: _,
            taken_over: _,
            payloads,
            worker,
            admission,
            schedule,
            documents,
            events,
            aggregates,
            retired,
            beside: _,
            erased,
            forgotten,
            tenant_key,
        } = self;
        let of_calls =
            record.iter().map(|row| Written::Record(row)).chain(look.iter().map(|row| Written::Look(row)));
        let of_runs = run.iter().map(|row| Written::Run(row)).chain(steps.iter().map(Written::Step));
        let of_runs = of_runs
            .chain(prune.iter().map(|_| Written::Prune))
            .chain(used.iter().map(|row| Written::Use(row)));
        let signals = signal
            .iter()
            .map(|row| Written::Signal(row))
            .chain(received.iter().map(|row| Written::Received(row)));
        let guards =
            schedule.iter().map(|row| Written::Schedule(row)).chain(documents.iter().map(Written::Document));
        let outbox = events.iter().map(Written::Event).chain(aggregates.iter().map(Written::Mark));
        let known = evidence.iter().map(|row| Written::Evidence(row));
        let known = known.chain(payloads.iter().map(|(tenant, _)| Written::Payload(tenant)));
        let known = known.chain(tenant_key.iter().map(|(tenant, _)| Written::Key(tenant)));
        let workers = worker.iter().map(Written::Worker).chain(admission.iter().map(|_| Written::Admission));
        let over = retired.iter().map(Written::Retired).chain(forgotten.iter().map(Written::Forgotten));
        of_calls
            .chain(of_runs)
            .chain(escalations.iter().map(Written::Question))
            .chain(signals)
            .chain(guards)
            .chain(outbox)
            .chain(known)
            .chain(workers)
            .chain(over)
            .chain(erased.iter().map(Written::Erased))
    }

    /// It writes rows that only a worker may write: all but enrolment, evidence and what those two need.
    pub(crate) fn needs_fence(&self) -> bool {
        self.written().any(Written::needs_fence)
    }

    /// Only a judge can tell what becomes of it: it changes who may write, or rows that are found by what they say.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn must_be_judged(&self) -> bool {
        let is_judged = |row| {
            use Written::{Admission, Erased, Forgotten, Retired, Worker};
            matches!(row, Worker(_) | Admission | Forgotten(_) | Retired(_) | Erased(_))
        };
        self.compared().is_some() || self.written().any(is_judged)
    }
}

impl Written<'_> {
    const fn needs_fence(self) -> bool {
        match self {
            Self::Prune | Self::Evidence(_) | Self::Payload(_) | Self::Key(_) | Self::Worker(_) => false,
            Self::Record(_)
            | Self::Look(_)
            | Self::Run(_)
            | Self::Step(_)
            | Self::Use(_)
            | Self::Question(_)
            | Self::Signal(_)
            | Self::Received(_)
            | Self::Schedule(_)
            | Self::Document(_)
            | Self::Event(_)
            | Self::Mark(_)
            | Self::Admission
            | Self::Retired(_)
            | Self::Forgotten(_)
            | Self::Erased(_) => true,
        }
    }
}

#[cfg(feature = "postgres")]
impl<'c> Written<'c> {
    /// Whose it is; nobody's, of a worker or a queue.
    pub(super) const fn tenant(self) -> Option<&'c Tenant> {
        match self {
            Self::Record(row) => Some(&row.tenant),
            Self::Look(row) => Some(&row.tenant),
            Self::Run(row) => Some(&row.tenant),
            Self::Step(row) => Some(&row.tenant),
            Self::Use(row) => Some(&row.tenant),
            Self::Question(row) => Some(&row.tenant),
            Self::Signal(row) | Self::Received(row) => Some(&row.tenant),
            Self::Schedule(row) => Some(&row.tenant),
            Self::Document(row) => Some(&row.tenant),
            Self::Event(row) => Some(&row.tenant),
            Self::Mark(row) => Some(&row.tenant),
            Self::Evidence(row) => Some(&row.tenant),
            Self::Retired(row) => Some(&row.tenant),
            Self::Forgotten(row) => Some(&row.tenant),
            Self::Payload(tenant) | Self::Key(tenant) | Self::Erased(tenant) => Some(tenant),
            Self::Prune | Self::Worker(_) | Self::Admission => None,
        }
    }
}
