//! A declared tool as a dynamic tool: its call, its lookup, and the key of its fields.

use std::future::Future;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::template::{Json, Text, Values};
#[cfg(any(feature = "tool-http", feature = "tool-command"))]
use crate::ledger::ContractClass;
use crate::ledger::{Contract, EffectClass, Key, LookupResult};
use crate::tool::lookup::Expected;
use crate::tool::{Call, Done, DynamicTool, ToolError};

/// The declaration of a tool, as it was checked.
pub(crate) trait Declaration: Send + Sync + 'static {
    /// What did not take place if the input cannot be read: `not sent`, `not started`.
    const NOT_SENT: &'static str;

    /// Sends a call, once.
    fn send(&self, call: &Call, input: &Value)
    -> impl Future<Output = Result<Done<Value>, ToolError>> + Send;

    /// Looks for the effect of a call.
    fn find<O: DeserializeOwned + Send>(
        &self,
        call: &Call,
        input: &Value,
    ) -> impl Future<Output = Result<LookupResult<O>, ToolError>> + Send;

    /// The fields of the input that make the key: names or JSON pointers.
    fn key_fields(&self) -> &[String];

    /// The blind spots of the lookup. `None` without a lookup.
    fn blind_spots(&self) -> Option<&'static [&'static str]>;
}

/// Sends a call, once, with the input and the output as the types of a written tool.
pub(crate) fn send<D, I, O>(
    declared: &Arc<D>,
    call: &Call,
    input: &I,
) -> impl Future<Output = Result<Done<O>, ToolError>> + Send + use<D, I, O>
where
    D: Declaration,
    I: Serialize + ?Sized,
    O: DeserializeOwned,
{
    let (declared, call, input) = (declared.clone(), call.clone(), serde_json::to_value(input));
    async move {
        let input = input.map_err(|error| ToolError::refused(format!("{}: {error}", D::NOT_SENT)))?;
        read_output(declared.send(&call, &input).await?)
    }
}

/// Looks for the effect of a call, with the input and the output as the types of a written tool.
pub(crate) fn find<D, I, O>(
    declared: &Arc<D>,
    call: &Call,
    input: &I,
) -> impl Future<Output = Result<LookupResult<O>, ToolError>> + Send + use<D, I, O>
where
    D: Declaration,
    I: Serialize + ?Sized,
    O: DeserializeOwned + Send,
{
    let (declared, call, input) = (declared.clone(), call.clone(), serde_json::to_value(input));
    async move {
        let input = input.map_err(|error| ToolError::unknown(format!("not looked up: {error}")))?;
        declared.find(&call, &input).await
    }
}

/// The fields by which a lookup recognises the effect, with the values of this call.
pub(crate) fn expected(fields: &[(String, Json)], values: Values<'_>) -> Result<Expected, ToolError> {
    fields.iter().try_fold(Expected::new(), |expected, (pointer, value)| {
        let value = value.fill(values).map_err(|error| ToolError::unknown(error.message))?;
        Ok(expected.field(pointer, value))
    })
}

/// True if the contract relies on a provider that recognises the key. The natural key of an object is in its name instead.
#[cfg(any(feature = "tool-http", feature = "tool-command"))]
pub(crate) const fn relies_on_key(contract: &Contract) -> bool {
    matches!(contract.class, ContractClass::ReplaysKey | ContractClass::RejectsKey)
}

/// The tool under this name. The declared lookup is added to the contract.
pub(crate) fn dynamic<D: Declaration>(
    declared: &Arc<D>,
    name: String,
    effect: EffectClass,
    mut contract: Contract,
) -> DynamicTool {
    let blind_spots = declared.blind_spots();
    if let Some(blind_spots) = blind_spots
        && contract.blind_spots.is_empty()
    {
        contract.blind_spots = blind_spots;
    }
    let sends = declared.clone();
    let mut dynamic = DynamicTool::new(name.clone(), effect, contract).call(move |call, input| {
        let sends = sends.clone();
        async move { sends.send(&call, &input).await }
    });
    if !declared.key_fields().is_empty() {
        let keyed = declared.clone();
        dynamic = dynamic.key(move |input| Some(key(&name, keyed.key_fields(), input)));
    }
    if blind_spots.is_some() {
        let finds = declared.clone();
        dynamic = dynamic.reconcile(move |call, input| {
            let finds = finds.clone();
            async move { finds.find(&call, &input).await }
        });
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
fn read_output<O: DeserializeOwned>(done: Done<Value>) -> Result<Done<O>, ToolError> {
    let Done { output, external_ref, cost } = done;
    let misread = |error| ToolError::unknown(format!("the output is of an unknown form: {error}"));
    Ok(Done { output: serde_json::from_value(output).map_err(misread)?, external_ref, cost })
}
