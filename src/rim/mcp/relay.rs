//! A client whose gateway is another process: what goes to and fro between them, and what the next gateway is told when this one has
//! died. No I/O.

use serde_json::{Value, json};

use crate::clock::Timestamp;

/// The field of a call's `_meta` with the time at which the client made it first, in microseconds. Only an earlier time than that of its
/// arrival counts: it makes a call the same as an earlier one, and never another one.
pub(super) const MADE_AT: &str = "counterfoil/madeAt";

/// The session of a client, as it outlives a gateway.
#[derive(Default)]
pub(super) struct Relay {
    /// The lines by which the client has begun the session.
    begun: Vec<String>,
    /// The request that began the session, if a gateway has been told it again: the client has its answer.
    begun_again: Option<Value>,
    /// The requests without an answer.
    in_flight: Vec<InFlight>,
    /// How many gateways have died.
    died: u32,
}

/// A request without an answer.
struct InFlight {
    id: Value,
    line: String,
    /// The time at which the client made it.
    made: Timestamp,
}

impl InFlight {
    /// The line as the next gateway is told it. Finding that gateway may have taken longer than the window of the call.
    fn again(&self) -> String {
        let Ok(mut message) = serde_json::from_str::<Value>(&self.line) else { return self.line.clone() };
        if message["method"] != "tools/call" || !message["params"].is_object() {
            return self.line.clone();
        }
        let meta = &mut message["params"]["_meta"];
        if meta.is_null() {
            *meta = json!({}); // some clients write absent fields as null
        }
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(MADE_AT.to_owned(), self.made.0.into());
        }
        message.to_string()
    }
}

impl Relay {
    /// A line of the client at this time, as it goes to the gateway. `None`: it does not.
    pub(super) fn client_says(&mut self, line: String, made: Timestamp) -> Option<String> {
        let Ok(mut message) = serde_json::from_str::<Value>(&line) else { return Some(line) };
        let id = message.get("id").cloned();
        match (message["method"].as_str(), id) {
            (Some("initialize"), Some(id)) => {
                self.begun = vec![line.clone()];
                self.in_flight.push(InFlight { id, line: line.clone(), made });
            }
            (Some("notifications/initialized"), None) => self.begun.push(line.clone()),
            (Some("notifications/cancelled"), None) => {
                self.in_flight.retain(|request| request.id != message["params"]["requestId"]);
            }
            (Some(_), Some(id)) => self.in_flight.push(InFlight { id, line: line.clone(), made }),
            (None, Some(id)) => {
                message["id"] = self.of_gateway(&id)?;
                return Some(message.to_string());
            }
            _ => {}
        }
        Some(line)
    }

    /// A line of the gateway, as it goes to the client. `None`: it does not.
    pub(super) fn gateway_says(&mut self, line: String) -> Option<String> {
        let Ok(mut message) = serde_json::from_str::<Value>(&line) else { return Some(line) };
        let id = message.get("id").cloned();
        match (message["method"].as_str(), id) {
            (None, Some(id)) => {
                if self.begun_again.as_ref() == Some(&id) {
                    self.begun_again = None;
                    return None;
                }
                self.in_flight.retain(|request| request.id != id);
            }
            (Some(_), Some(id)) => {
                message["id"] = self.to_client(&id);
                return Some(message.to_string());
            }
            (Some("notifications/cancelled"), None) => {
                message["params"]["requestId"] = self.to_client(&message["params"]["requestId"]);
                return Some(message.to_string());
            }
            _ => {}
        }
        Some(line)
    }

    /// The lines that the next gateway is told first, after one has died: the session's beginning, and the requests without an answer.
    /// A call that writes may be made again: the gateway meets the same operation.
    pub(super) fn again(&mut self) -> Vec<String> {
        self.died += 1;
        let first = self.begun.first().and_then(|line| serde_json::from_str::<Value>(line).ok());
        let first = first.map(|message| message["id"].clone());
        let unanswered = |id: &Value| self.in_flight.iter().any(|request| request.id == *id);
        self.begun_again = first.clone().filter(|id| !unanswered(id));
        let rest = self.in_flight.iter().filter(|request| Some(&request.id) != first.as_ref());
        self.begun.iter().cloned().chain(rest.map(InFlight::again)).collect()
    }

    /// The id of a gateway's question, as the client sees it: two gateways may number their questions alike, and an answer to
    /// the first one's must not count as one to the second's.
    fn to_client(&self, id: &Value) -> Value {
        format!("{}/{id}", self.died).into()
    }

    /// The gateway's own id of a question, from the one that the client saw. `None` if the gateway has died.
    fn of_gateway(&self, id: &Value) -> Option<Value> {
        let (died, id) = id.as_str()?.split_once('/')?;
        (died == self.died.to_string()).then(|| serde_json::from_str(id).ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: u32, method: &str) -> String {
        json!({ "jsonrpc": "2.0", "id": id, "method": method }).to_string()
    }

    fn answer(id: &Value) -> String {
        json!({ "jsonrpc": "2.0", "id": id, "result": {} }).to_string()
    }

    const NOW: Timestamp = Timestamp(5);

    /// The call with this id, as it is made again.
    fn call_again(id: u32) -> String {
        let params = json!({ "_meta": { MADE_AT: 5 } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
    }

    fn call(id: u32) -> String {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {} }).to_string()
    }

    const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

    #[test]
    fn the_next_gateway_is_told_the_beginning_and_what_has_no_answer() {
        let mut relay = Relay::default();
        relay.client_says(request(1, "initialize"), NOW);
        relay.gateway_says(answer(&json!(1))).unwrap();
        for line in [INITIALIZED.to_owned(), request(2, "tools/list"), call(3)] {
            assert_eq!(relay.client_says(line.clone(), NOW), Some(line));
        }
        relay.gateway_says(answer(&json!(2))).unwrap();
        let again = vec![request(1, "initialize"), INITIALIZED.to_owned(), call_again(3)];
        assert_eq!(relay.again(), again);
        assert_eq!(relay.gateway_says(answer(&json!(1))), None, "the client has this answer");
        assert!(relay.gateway_says(answer(&json!(3))).is_some());
        assert_eq!(relay.again(), again[..2]);
    }

    #[test]
    fn a_beginning_without_an_answer_is_answered_by_the_next_gateway() {
        let mut relay = Relay::default();
        relay.client_says(request(1, "initialize"), NOW);
        assert_eq!(relay.again(), [request(1, "initialize")]);
        assert!(relay.gateway_says(answer(&json!(1))).is_some());
    }

    #[test]
    fn a_cancelled_request_is_not_made_again() {
        let mut relay = Relay::default();
        relay.client_says(request(7, "tools/call"), NOW);
        let cancelled =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
        assert!(relay.client_says(cancelled.to_string(), NOW).is_some());
        assert!(relay.again().is_empty());
    }

    #[test]
    fn an_answer_to_a_dead_gateways_question_is_no_answer_to_the_next_ones() {
        let mut relay = Relay::default();
        let asked = |relay: &mut Relay| {
            let question = relay.gateway_says(request(0, "elicitation/create")).unwrap();
            serde_json::from_str::<Value>(&question).unwrap()["id"].clone()
        };
        let first = asked(&mut relay);
        assert_eq!(relay.client_says(answer(&first), NOW), Some(answer(&json!(0))));
        relay.again();
        let second = asked(&mut relay);
        assert_ne!(first, second);
        assert_eq!(relay.client_says(answer(&first), NOW), None);
        assert_eq!(relay.client_says(answer(&second), NOW), Some(answer(&json!(0))));
    }

    #[test]
    fn what_is_no_message_goes_to_the_gateway_which_says_so() {
        let mut relay = Relay::default();
        assert_eq!(relay.client_says("{ not json".to_owned(), NOW).as_deref(), Some("{ not json"));
    }
}
