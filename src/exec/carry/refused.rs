//! The refusal of a call by its tool's policy. It is recorded, and nothing is sent.

use super::{Answered, Carrier, Step};
use crate::exec::attempt::unsent;
use crate::exec::outcome::{ExecError, Outcome};
use crate::exec::seal::give_up;
use crate::ledger::{Record, State};

impl Carrier {
    /// The step in place of an attempt that the tool's policy refuses. Every other error is given back, and so is the
    /// refusal of a call of unknown outcome, of which nobody may record that it did not happen.
    pub(super) async fn refused(&self, found: Option<&Record>, error: ExecError) -> Result<Step, ExecError> {
        let (core, op) = (&self.core, &self.op);
        let Some(failure) = error.refused_by_policy() else { return Err(error) };
        let is_as_it_was = match found {
            None => unsent(core, op, failure.clone(), None).await?,
            Some(record) if matches!(record.state, State::Failed { .. }) => {
                give_up(core, op, record, failure.clone()).await?.is_some()
            }
            Some(_) => return Err(error),
        };
        log_call!(info, op, reason = failure.message, "call refused by policy, nothing sent");
        count!(core.meter, CALLS_WITHHELD of &op.tenant, op.name(), "policy");
        Ok(if is_as_it_was { Step::Answered(Answered::of(Outcome::Failed(failure))) } else { Step::Changed })
    }
}
