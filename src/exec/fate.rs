//! The result of reconciling a call.

use std::time::Duration;

use super::attempt::Permit;
use super::core::Core;
use super::operation::Operation;
use super::outcome::Outcome;
use crate::id::QuestionId;
use crate::ledger::resolve::Looked;
use crate::ledger::{Basis, Record};
use crate::store::Ticket;

/// The result of reconciling a call.
pub(super) enum Fate {
    /// The call happened. The seal is on its way to the disk.
    Committed(Outcome, Ticket),
    /// The call certainly did not happen; that is durable.
    Failed(Box<Record>),
    /// The call may be sent (again).
    Send(Permit),
    /// The record has changed meanwhile: decide again.
    Changed,
    /// Nobody can tell; the question is durable.
    Parked(QuestionId),
    /// The provider has accepted the call and finishes it by itself; the row as which the call waits is durable.
    Pending(QuestionId),
    /// The provider is not to be called for this time. Nothing is sent, and nothing forgotten.
    Later(Duration),
    /// The caller is gone, and the call would have to be sent again. It is left as it is for the next caller, with the
    /// result of the last lookup.
    Left(Box<Record>, Looked),
}

impl Fate {
    /// Logs and counts how the reconciliation has ended. What is committed then is not durable yet.
    pub(super) fn note(&self, core: &Core, op: &Operation) {
        let (result, basis, external_ref) = match self {
            Self::Committed(Outcome::Done(answer), _) => {
                ("committed", Some(answer.basis), answer.external_ref.as_deref())
            }
            Self::Committed(..) => ("committed", None, None),
            Self::Failed(record) => ("failed", Some(record.basis), record.external_ref.as_deref()),
            Self::Send(permit) => ("sent again", Some(permit.record.basis), None),
            Self::Parked(_) => ("question asked", None, None),
            Self::Pending(_) => ("accepted by its provider", None, None),
            // It has been settled elsewhere, or is taken up later: there is another event about its end.
            Self::Changed | Self::Later(_) | Self::Left(..) => {
                log_call!(debug, op, "reconciliation left to the next request");
                return;
            }
        };
        let basis = basis.map(Basis::name);
        log_call!(info, op, result, basis, external_ref, "call reconciled");
        count!(core.meter, RECONCILED of &op.tenant, op.name(), result, basis.unwrap_or("none"));
    }
}
