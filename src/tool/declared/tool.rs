//! A declared tool as a dynamic tool: its call, its lookup, and the key of its fields.

use std::future::Future;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::template::{Text, Values};
#[cfg(any(feature = "tool-http", feature = "tool-command"))]
use crate::ledger::ContractClass;
use crate::ledger::{Contract, EffectClass, Key, LookupResult};
use crate::tool::{Call, Done, DynamicTool, ToolError};

/// A declared tool.
pub(crate) trait DeclaredTool: Clone + Send + Sync + 'static {
    /// Sends a call, once.
    fn send_value(
        self,
        call: Call,
        input: Value,
    ) -> impl Future<Output = Result<Done<Value>, ToolError>> + Send + 'static;

    /// Looks for the effect of a call.
    fn find_value(
        self,
        call: Call,
        input: Value,
    ) -> impl Future<Output = Result<LookupResult<Value>, ToolError>> + Send + 'static;

    /// The fields of the input that make the key: names or JSON pointers.
    fn key_fields(&self) -> &[String];

    /// The blind spots of the lookup. `None` without a lookup.
    fn blind_spots(&self) -> Option<&'static [&'static str]>;
}

/// True if the contract relies on a provider that recognises the key. The natural key of an object is in its name instead.
#[cfg(any(feature = "tool-http", feature = "tool-command"))]
pub(crate) const fn relies_on_key(contract: &Contract) -> bool {
    matches!(contract.class, ContractClass::ReplaysKey | ContractClass::RejectsKey)
}

/// The tool under this name. The declared lookup is added to the contract.
pub(crate) fn dynamic<T: DeclaredTool>(
    tool: &T,
    name: String,
    effect: EffectClass,
    mut contract: Contract,
) -> DynamicTool {
    let blind_spots = tool.blind_spots();
    if let Some(blind_spots) = blind_spots
        && contract.blind_spots.is_empty()
    {
        contract.blind_spots = blind_spots;
    }
    let sends = tool.clone();
    let mut dynamic = DynamicTool::new(name.clone(), effect, contract)
        .call(move |call, input| sends.clone().send_value(call, input));
    if !tool.key_fields().is_empty() {
        let keyed = tool.clone();
        dynamic = dynamic.key(move |input| Some(key(&name, keyed.key_fields(), input)));
    }
    if blind_spots.is_some() {
        let finds = tool.clone();
        dynamic = dynamic.reconcile(move |call, input| finds.clone().find_value(call, input));
    }
    dynamic
}

/// The key of an input. An input without one of the key fields has an empty key, which is refused.
fn key(name: &str, fields: &[String], input: &Value) -> Key {
    let values = Values { input, token: "" };
    let text = |field: &String| Text::parse(&format!("{{{field}}}")).ok()?.fill(values).ok();
    match fields.iter().map(text).collect::<Option<Vec<_>>>().as_deref() {
        Some([only]) => Key::of(name).target(only),
        Some(several) => {
            let fields = fields.iter().map(String::as_str).zip(several.iter().map(String::as_str));
            Key::derived(name, fields)
        }
        None => Key::derived(name, []),
    }
}

/// The result with its output as the type of a written tool.
pub(crate) fn read_output<O: DeserializeOwned>(done: Done<Value>) -> Result<Done<O>, ToolError> {
    let Done { output, external_ref, cost } = done;
    let misread = |error| ToolError::unknown(format!("the output is of an unknown form: {error}"));
    Ok(Done { output: serde_json::from_value(output).map_err(misread)?, external_ref, cost })
}
