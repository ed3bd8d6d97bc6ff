//! The operation of a record, rebuilt from the stored request, because its caller is gone.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::core::Core;
use super::operation::{Asker, Gone, Operation, Requested};
use super::outcome::{ExecError, failed};
use crate::ledger::{Contract, ContractClass, Divergence, ErrorKind, Record, Retention, RetryPolicy};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::store::{Store as _, StoreError};
use crate::tool::{Call, Done, Prepared, ToolError, ToolSpec};
use crate::trace::TraceContext;

/// The operation of a record, with its tool.
///
/// # Errors
/// [`ExecError`] if the store failed. A cause that will not go away by itself gives [`Gone`].
pub(super) async fn recorded(
    core: &Arc<Core>,
    record: &Record,
) -> Result<Result<Operation, Gone>, ExecError> {
    let Some(tool) = core.registry.known(record.operation.as_str()) else {
        return Ok(Err(Gone::Unregistered));
    };
    let rebuilt = async {
        let request = core.load(&record.tenant, &record.request).await?;
        let declared = core.declaration(record).await.map_err(|source| failed(&record.key, source))?;
        let prepared = core.registry.stored(&*tool, &request, declared.input_version)?;
        let trace = trace_of(core, record).await?;
        let asker = Asker { owner: record.owner.clone(), trace, ..Asker::default() };
        let request = Requested::recorded(core, record, prepared).await?;
        Ok::<_, ExecError>(request.under(record.key.clone(), asker))
    };
    match rebuilt.await {
        Ok(mut op) => {
            op.rebuilt = true;
            Ok(Ok(op))
        }
        Err(ExecError::Store { source, .. }) if !matches!(source, StoreError::Corrupt { .. }) => {
            Err(failed(&record.key, source))
        }
        Err(closed @ ExecError::Unwritten { .. }) => Err(closed),
        Err(unreadable) => Ok(Err(Gone::Unreadable(unreadable.to_string()))),
    }
}

/// The span of the record's run, if it has one.
pub(super) async fn trace_of(core: &Core, record: &Record) -> Result<Option<Arc<TraceContext>>, ExecError> {
    let Some(run) = record.owner.run else { return Ok(None) };
    let run = core.group.run_find(&record.tenant, run).await.map_err(|source| failed(&record.key, source))?;
    Ok(run.map(|run| Arc::new(run.trace())))
}

/// The operation of a record without its tool. It can be settled by evidence, and a person can be asked about it.
pub(super) fn without_tool(record: &Record, gone: Gone) -> Operation {
    let blind = Contract::new(ContractClass::Blind);
    let spec = ToolSpec::of(record.operation.clone(), record.class, blind, RetryPolicy::default());
    let spec = ToolSpec { retention: Retention::default(), divergence: Divergence::Escalate, ..spec };
    let mut op = Operation::rebuilt(record, Arc::new(Absent(spec)));
    op.gone = Some(gone);
    op
}

/// A stand-in for a tool that is not registered.
struct Absent(ToolSpec);

impl Prepared for Absent {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn request(&self, _: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        Ok((Payload::stored("null"), false))
    }

    fn call<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async { Err(ToolError::new(ErrorKind::Validation, "its tool is not here")) })
    }
}
