//! Marks as checkpoints of a run: writing and reading.

use super::mark::Mark;
use crate::exec::{Core, ExecError};
use crate::id::{RunId, Tenant};
use crate::payload::{Payload, PayloadError};
use crate::store::{History, Step, StepKind, StoreError};

/// Builds the checkpoint of a mark, for a run of this tenant with this base. A large value is returned beside it.
pub(in crate::flow) fn checkpoint(
    core: &Core,
    (tenant, run, base): (&Tenant, RunId, u32),
    id: &str,
    mark: &Mark,
) -> Result<(Step, Option<Payload>), PayloadError> {
    let (value, large) = core.storable(Payload::of(mark)?);
    let step = Step {
        tenant: tenant.clone(),
        run,
        turn: base,
        kind: StepKind::Again,
        name: "again".into(),
        id: id.to_owned(),
        input_hash: None,
        value: Some(value),
        at: core.now(),
    };
    Ok((step, large))
}

/// Reads the marks from the history of a run, in the order of their times.
pub(in crate::flow) async fn marks(
    core: &Core,
    tenant: &Tenant,
    history: &History,
) -> Result<Vec<Mark>, ExecError> {
    let mut steps: Vec<_> = history.steps.iter().filter(|step| step.kind == StepKind::Again).collect();
    steps.sort_by_key(|step| step.at);
    let mut marks = Vec::new();
    for stored in steps.into_iter().filter_map(|step| step.value.as_ref()) {
        let mark = core.load(tenant, stored).await?.decode();
        let damaged = |error| StoreError::Corrupt { row: "step (again)".into(), detail: format!("{error}") };
        let failed = |source| ExecError::Store { key: tenant.to_string(), source };
        marks.push(mark.map_err(|error| failed(damaged(error)))?);
    }
    Ok(marks)
}
