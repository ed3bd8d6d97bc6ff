//! The example workflows as `counterfoil simulate` knows them.

#[path = "five_calls.rs"]
mod five_calls;
#[path = "prove.rs"]
mod prove;

use counterfoil::sim::Suite;

/// All of them, by the names of their files.
pub(crate) fn suite() -> Suite {
    Suite::new().with("prove", prove::simulation).with("five_calls", five_calls::simulation)
}
