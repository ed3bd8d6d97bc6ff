//! The needs of an attempt at the instant of its send, and the end of an attempt that is not sent because a need has
//! lapsed.

use std::time::Duration;

use super::attempt::{Ambiguous, Ended, Permit};
use super::core::Core;
use super::declared::Settling;
use super::operation::Operation;
use super::outcome::{ExecError, refused};
use super::seal::{fail, give_up};
use crate::clock::Boot;
use crate::ledger::{BudgetExceeded, ErrorKind, Need, Needs, Record};
use crate::store::Refusal;
use crate::tool::ToolError;

/// The needs of a permit from now on.
pub(super) fn needs(core: &Core, op: &Operation, permit: &Permit) -> Needs {
    let contract = permit.bound.contract(op);
    let collides = contract.class.collides();
    Needs {
        key: if collides { contract.key_safe_from(permit.key_since) } else { None },
        approval: permit.approval_until(op),
        lease: core.lease_until(),
        operation_time: permit.pass.as_ref().and_then(|passed| passed.deadline),
        run_time: op.purse.as_ref().and_then(|purse| purse.until()),
        deadline: op.deadline,
    }
}

/// Records that the attempt was not sent. An earlier attempt of unknown outcome is left as it was, and is decided
/// again.
pub(super) async fn withheld(
    settling: Settling<'_>,
    record: Box<Record>,
    need: Need,
    unsettled: Option<Boot>,
) -> Result<Ended, ExecError> {
    let Settling { core, op, .. } = settling;
    log_call!(info, op, why = need.words(), "attempt withheld, nothing sent");
    count!(core.meter, CALLS_WITHHELD of &op.tenant, op.name(), "need lapsed");
    let is_over = matches!(need, Need::OperationTime | Need::RunTime);
    if record.in_doubt {
        let cut = unsettled.unwrap_or_else(|| core.clock.boot());
        return Ok(Ended::Ambiguous(Ambiguous { hopeless: is_over, ..Ambiguous::new(record, cut) }));
    }
    let allowed = |limit: Option<Duration>| limit.unwrap_or_default();
    let used_up = match need {
        Need::OperationTime => {
            BudgetExceeded::OperationTime { allowed: allowed(op.tool.spec().quota.timeout) }
        }
        Need::RunTime => {
            BudgetExceeded::RunTime { allowed: allowed(op.purse.as_ref().and_then(|purse| purse.within())) }
        }
        Need::Key | Need::Approval | Need::Lease | Need::Deadline => {
            let approval = need == Need::Approval;
            let kind = if approval { ErrorKind::ApprovalMissing } else { ErrorKind::TimeoutBeforeEffect };
            let error = ToolError::new(kind, format!("nothing was sent: {}", need.words()));
            return fail(settling, &record, error).await;
        }
    };
    let failed = give_up(core, op, &record, used_up.failure()).await?;
    failed.map(Ended::Failed).ok_or_else(|| refused(&op.key, Refusal::Stale))
}
