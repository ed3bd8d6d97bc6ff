//! The same loop, guarded: no call happens twice, whatever the model repeats and wherever the process dies.

use std::error::Error;

use counterfoil::ledger::{Contract, ContractClass, EffectClass};
use counterfoil::tool::{Done, DynamicTool, ToolError};
use counterfoil::{Executor, Key, Tenant, ToolRequest};
use serde_json::Value;

use super::model::{Model, tool_message, tools_array};
use super::office::Office;

/// A tool of the office: found again by its reference, and done once for each case.
pub(crate) fn guarded(name: &'static str, effect: EffectClass, office: &Office) -> DynamicTool {
    let (acting, asking) = (office.clone(), office.clone());
    DynamicTool::new(name, effect, Contract::new(ContractClass::Lookup))
        .key(move |input| Some(Key::of(name).target(input["case"].as_str()?)))
        .call(move |call, input| {
            let office = acting.clone();
            async move { Ok(Done::new(office.act(name, call.key(), &input).await.map_err(ToolError::unknown)?)) }
        })
        .reconcile(move |call, _| {
            let office = asking.clone();
            async move { Ok(office.find(name, call.key()).await.map_err(ToolError::unknown)?.into()) }
        })
}

/// Answers the whole conversation.
pub(crate) async fn agent(executor: &Executor, model: &Model) -> Result<Vec<Value>, Box<dyn Error>> {
    let tools = tools_array(Office::tools());
    let mut conversation = Vec::new();
    loop {
        let calls = model.next(&tools, &conversation).await;
        if calls.is_empty() {
            return Ok(conversation);
        }
        for call in calls {
            let request = ToolRequest::new(Tenant::default(), &call.name, call.input);
            let text = executor.execute(request).await?.for_model().text;
            conversation.push(tool_message(&call.id, &text));
        }
    }
}
