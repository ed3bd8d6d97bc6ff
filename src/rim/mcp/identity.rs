//! The identity of an operation: what makes two calls one.

use serde_json::Value;

use super::policy::ToolPolicy;
use crate::clock::Timestamp;
use crate::exec::{ExecError, Executor};
use crate::id::Tenant;
use crate::ledger::{Key, Record, Scope, State};
use crate::payload::Payload;

/// The rule that made two calls one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The key of the request.
    Request,
    /// The arguments that the policy names.
    Arguments,
    /// The same call from the same client within the window.
    Window,
}

/// A call, as its identity is made of it.
pub(super) struct Called<'c> {
    pub(super) client: &'c str,
    /// The server's own name of the tool.
    pub(super) tool: &'c str,
    /// The arguments as they are recorded: a key that is made of a secret would be open to guesses.
    pub(super) arguments: &'c Value,
    /// `idempotencyKey` of the request.
    pub(super) key: Option<&'c str>,
    pub(super) again: u32,
}

/// The key of the operation, and the rule that it was made by.
///
/// # Errors
/// A text for the caller.
pub(super) fn identity(policy: &ToolPolicy, called: &Called<'_>) -> Result<(Key, Rule), String> {
    let operation = &policy.operation;
    if let Some(key) = called.key {
        let key = Key::given(operation, key).scope(Scope::User(called.client.to_owned()));
        return Ok((key.revision(called.again).hashed(), Rule::Request));
    }
    let arguments = called.arguments;
    if !policy.key.is_empty() {
        let mut fields = Vec::new();
        for pointer in &policy.key {
            let value = arguments.pointer(pointer).filter(|value| !value.is_null());
            let value = value
                .ok_or_else(|| format!("the argument `{pointer}` names the operation, and is missing"))?;
            fields.push((pointer.as_str(), canonical(value)?));
        }
        let fields = fields.iter().map(|(pointer, value)| (*pointer, value.as_str()));
        return Ok((Key::derived(operation, fields).revision(called.again), Rule::Arguments));
    }
    let (arguments, again) = (canonical(arguments)?, called.again.to_string());
    let fields = [
        ("client", called.client),
        ("tool", called.tool),
        ("arguments", arguments.as_str()),
        ("again", &again),
    ];
    Ok((Key::derived(operation, fields), Rule::Window))
}

fn canonical(value: &Value) -> Result<Payload, String> {
    Payload::of(value).map_err(|error| format!("the arguments cannot be recorded: {error}"))
}

/// The key under which a call goes that is known by the window rule, and was made at this time: that of the newest operation of the same
/// call, or the next one if that operation was settled longer before than the window. The keys are revisions of one key, without a gap.
///
/// # Crash
/// Two callers who begin the next operation at the same moment do it under the same key, and are one.
pub(super) async fn within_window(
    executor: &Executor,
    (tenant, key): (&Tenant, Key),
    (window, made): (std::time::Duration, Timestamp),
) -> Result<Key, ExecError> {
    let at = async |revision| {
        let rendered = key.clone().revision(revision).render()?;
        Ok::<_, ExecError>(executor.core().find(tenant, &rendered).await?.map(|record| *record))
    };
    // The newest revision with a record is at or after `low`, and before `high`.
    let Some(mut newest) = at(0).await? else { return Ok(key) };
    let (mut low, mut high) = (0, 1);
    while let Some(record) = at(high).await? {
        (low, newest) = (high, record);
        high = high.saturating_mul(2);
    }
    while low + 1 < high {
        let middle = low.midpoint(high);
        match at(middle).await? {
            Some(record) => (low, newest) = (middle, record),
            None => high = middle,
        }
    }
    let next = if is_over(&newest, window, made) { low + 1 } else { low };
    Ok(key.revision(next))
}

/// True if the operation was settled longer before the call than the window, and nobody is asked about it.
fn is_over(record: &Record, window: std::time::Duration, made: Timestamp) -> bool {
    let settled = match record.state {
        State::Started | State::Failed { .. } => return false,
        State::Committed { .. }
        | State::Compensated { .. }
        | State::Abandoned { .. }
        | State::Gone { .. } => record.sealed_at.unwrap_or(record.updated_at),
    };
    record.escalation.is_none() && settled.after(window) <= made
}
