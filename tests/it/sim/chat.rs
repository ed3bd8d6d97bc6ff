//! The long-running chat, crashed everywhere: in each turn, between turns, and where it goes on as new.

#[path = "../../../workflows/chat.rs"]
#[allow(dead_code, reason = "its program is not what is simulated")]
mod example;

use crate::sim::quick;

// FLOW-4, SIM-2: six messages are two lives of the run.
#[test]
fn every_message_is_answered_once_wherever_the_chat_is_crashed() {
    let report = quick(example::simulated::simulation()).explore();
    report.assert_ok();
    assert!(report.schedules() > 100, "only {} schedules", report.schedules());
}
