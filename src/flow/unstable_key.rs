//! A recorded call whose key is not stable: the resumed code asks for the same request of the same tool under another
//! key. A person is asked. If the run goes on, the recorded call answers the code's call, whatever its key: nothing is
//! sent a second time.

use serde_json::{Value, json};

use super::live::Live;
use crate::store::{PastCall, Run, RunState};

/// The name of the fact in the row of a run that is blocked by the question.
const DETAIL: &str = "unstable_key";

/// The question, if the code holds a call of the same request under another key.
pub(super) fn question(live: &Live, past: &PastCall) -> Option<String> {
    let held = live.held_calls();
    let now = held.iter().find(|held| held.tool == past.operation && held.hash == past.request_hash)?;
    Some(format!(
        "{}: unstable key of {}: it was {} and is {} for the same request. Nothing was sent under the new key. If the run \
         goes on, the recorded call answers this request, and nothing is sent for it. Make the key a function of the \
         input (no random part, no time). Go on, or abandon?",
        live.id, past.operation, past.key, now.key
    ))
}

/// The fact for the row of the blocked run.
pub(super) fn detail() -> Value {
    json!({ DETAIL: true })
}

/// True if the run is blocked by this question.
pub(super) fn blocks(run: &Run) -> bool {
    let RunState::Blocked { failure } = &run.state else { return false };
    failure.value().is_ok_and(|failure| failure["detail"][DETAIL] == json!(true))
}
