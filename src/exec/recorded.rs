//! The operation of a record, put together again from what is stored, because its caller is gone.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::core::{Core, failed};
use super::operation::{Asker, Operation};
use super::outcome::ExecError;
use crate::ledger::{Contract, ContractClass, Divergence, ErrorKind, Record, Retention, RetryPolicy};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::store::StoreError;
use crate::tool::{Call, Done, Prepared, ToolError, ToolSpec};

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

/// The operation of a record, with its tool.
///
/// # Errors
/// If the store failed. What will not mend itself makes it [`Gone`].
pub(super) async fn recorded(
    core: &Arc<Core>,
    record: &Record,
) -> Result<Result<Operation, Gone>, ExecError> {
    let Some(tool) = core.registry.known(record.operation.as_str()) else {
        return Ok(Err(Gone::Unregistered));
    };
    let rebuilt = async {
        let request = core.load(&record.tenant, &record.request).await?;
        let prepared = core.registry.untyped(&*tool, &request)?;
        let asker = Asker { owner: record.owner.clone(), ..Asker::default() };
        Operation::prepare(core, &record.tenant, prepared, record.key.clone(), asker).await
    };
    match rebuilt.await {
        Ok(mut op) => {
            op.rebuilt = true;
            op.hash = record.request_hash;
            Ok(Ok(op))
        }
        Err(ExecError::Store { source, .. }) if !matches!(source, StoreError::Corrupt { .. }) => {
            Err(failed(&record.key, source))
        }
        Err(unreadable) => Ok(Err(Gone::Unreadable(unreadable.to_string()))),
    }
}

/// The operation of a record without its tool: it can be settled by evidence, and asked about.
pub(super) fn without_tool(record: &Record, gone: Gone) -> Operation {
    let blind = Contract::new(ContractClass::Blind);
    let spec = ToolSpec::of(record.operation.clone(), record.class, blind, RetryPolicy::default());
    let spec = ToolSpec { retention: Retention::default(), divergence: Divergence::Escalate, ..spec };
    let mut op = Operation::rebuilt(record, Arc::new(Absent(spec)));
    op.gone = Some(gone);
    op
}

/// Stands in for a tool that is not here.
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
