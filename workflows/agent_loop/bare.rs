//! An agent loop as it was before: each call of the model is carried out, and its result goes back.

use std::error::Error;

use serde_json::Value;

use super::model::{Model, tool_message, tools_array};
use super::office::Office;

/// Answers the whole conversation.
pub(crate) async fn agent(office: &Office, model: &Model) -> Result<Vec<Value>, Box<dyn Error>> {
    let tools = tools_array(Office::tools());
    let mut conversation = Vec::new();
    loop {
        let calls = model.next(&tools, &conversation).await;
        if calls.is_empty() {
            return Ok(conversation);
        }
        for call in calls {
            let result = office.act(&call.name, &call.id, &call.input).await;
            let text = result.map_or_else(|error| error, |output| output.to_string());
            conversation.push(tool_message(&call.id, &text));
        }
    }
}
