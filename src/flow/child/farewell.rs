//! The last signal of a run, to its parent.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::lineage::ENDED;
use crate::exec::Core;
use crate::flow::failure::Failure;
use crate::payload::Payload;
use crate::store::{Run, Signal};

/// The message of a child at its end.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    Succeeded(Box<RawValue>),
    Failed(Failure),
}

/// The signal by which a run that ends tells its parent. `None` if it has no parent.
pub(in crate::flow) fn farewell(
    core: &Core,
    run: &Run,
    result: Result<&Payload, &Failure>,
) -> Option<(Signal, Option<Payload>)> {
    let parent = run.parent?;
    let ended = match result {
        Ok(output) => Ended::Succeeded(RawValue::from_string(output.as_str().to_owned()).ok()?),
        Err(failure) => Ended::Failed(failure.clone()),
    };
    let text = serde_json::to_string(&ended).ok()?;
    let (body, large) = core.storable(Payload::stored(text));
    let signal = Signal {
        tenant: run.tenant.clone(),
        run: parent,
        name: ENDED.into(),
        id: run.id.to_string(),
        place: 0,
        body,
        at: core.now(),
    };
    Some((signal, large))
}
