//! The example workflows as `counterfoil simulate` knows them. These examples are left out:
//!
//! - `agent_loop`: it has no workflow: it makes calls of the executor alone, and each call of a simulated workflow is such a call.
//! - `chat_server`: it has no workflow; its posts are rows of the ledger's own database, without a call to the world.
//! - `demo`: it kills the workflow of `case_notice` in real processes.
//! - `fenced`: it has no workflow, and its fence is a real Redis.
//! - `http_tool`: its workflow makes one call, as that of `prove` does, and its provider is a real server.
//! - `http_writes`: it has no workflow; `tests/it/sim/http.rs` crashes its door.
//! - `http_writes_hyper`: it has no workflow, and has the door of `http_writes`.
//! - `operator_bot`: it answers questions, and its workflow makes one call of which nobody can know.
//! - `orders_service`: its workflow waits for a signal and writes a row, and its doors have a real broker and a real Redis.
//! - `provider`: it is the outside world of the others.
//! - `queue_consumer`: its workflow emits an event and calls no tool, and its broker is a real NATS.
//! - `tenants_service`: it has an HTTP stack; `tests/it/programs.rs` simulates its workflow with two workers.
//! - `upgrade_check`: it runs code against recorded runs, and sends nothing.
//! - `webhooks`: its workflow only waits for a signal; `tests/it/sim/webhook.rs` crashes its door.

#[cfg(feature = "examples")]
#[path = "case_agent.rs"]
#[allow(dead_code, reason = "its program is not simulated")]
mod case_agent;
#[cfg(feature = "examples")]
#[path = "case_notice.rs"]
#[allow(dead_code, reason = "its program and its HTTP client are not simulated")]
mod case_notice;
#[cfg(feature = "examples")]
#[path = "chat.rs"]
#[allow(dead_code, reason = "its program is not simulated")]
mod chat;
#[path = "draft_archive.rs"]
mod draft_archive;
#[path = "five_calls.rs"]
mod five_calls;
#[cfg(feature = "examples")]
#[path = "nightly_ingest.rs"]
#[allow(dead_code, reason = "its program is not simulated")]
mod nightly_ingest;
#[path = "order_saga.rs"]
mod order_saga;
#[path = "order_with_children.rs"]
mod order_with_children;
#[path = "prove.rs"]
mod prove;
#[cfg(feature = "examples")]
#[path = "render_film.rs"]
#[allow(dead_code, reason = "its program is not simulated")]
mod render_film;
#[cfg(feature = "examples")]
#[path = "research_agent.rs"]
#[allow(dead_code, reason = "its program is not simulated")]
mod research_agent;

use counterfoil::sim::Suite;

/// All of them, by the names of their files.
pub(crate) fn suite() -> Suite {
    let suite = Suite::new().with("prove", prove::simulation).with("five_calls", five_calls::simulation);
    let suite = suite.with("order_saga", order_saga::simulation);
    let suite = suite.with("order_with_children", order_with_children::simulation);
    let suite = suite.with("draft_archive", draft_archive::simulation);
    #[cfg(feature = "examples")]
    let suite = suite
        .with("case_agent", case_agent::simulated::simulation)
        .with("research_agent", research_agent::simulation)
        .with("chat", chat::simulated::simulation)
        .with("nightly_ingest", nightly_ingest::simulated::simulation)
        .with("render_film", render_film::simulated::simulation)
        .with("case_desk", case_notice::desk::simulated::simulation);
    #[cfg(feature = "examples")]
    let suite = case_notice::classes::Class::ALL.into_iter().fold(suite, |suite, class| {
        let name = format!("case_notice/{}", class.name());
        suite.with(&name, move || case_notice::simulated::simulation(class))
    });
    suite
}
