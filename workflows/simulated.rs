//! The example workflows as `counterfoil simulate` knows them.

#[cfg(feature = "examples")]
#[path = "case_agent.rs"]
#[allow(dead_code, reason = "its program is not simulated")]
mod case_agent;
#[cfg(feature = "examples")]
#[path = "case_notice.rs"]
#[allow(dead_code, reason = "its program and its HTTP client are not simulated")]
mod case_notice;
#[path = "draft_archive.rs"]
mod draft_archive;
#[path = "five_calls.rs"]
mod five_calls;
#[path = "order_saga.rs"]
mod order_saga;
#[path = "prove.rs"]
mod prove;
#[cfg(feature = "examples")]
#[path = "research_agent.rs"]
#[allow(dead_code, reason = "its program is not simulated")]
mod research_agent;

use counterfoil::sim::Suite;

/// All of them, by the names of their files.
pub(crate) fn suite() -> Suite {
    let suite = Suite::new().with("prove", prove::simulation).with("five_calls", five_calls::simulation);
    let suite = suite.with("order_saga", order_saga::simulation);
    let suite = suite.with("draft_archive", draft_archive::simulation);
    #[cfg(feature = "examples")]
    let suite = suite
        .with("case_agent", case_agent::simulated::simulation)
        .with("research_agent", research_agent::simulation)
        .with("case_desk", case_notice::desk::simulated::simulation);
    #[cfg(feature = "examples")]
    let suite = case_notice::classes::Class::ALL.into_iter().fold(suite, |suite, class| {
        let name = format!("case_notice/{}", class.name());
        suite.with(&name, move || case_notice::simulated::simulation(class))
    });
    suite
}
