//! Memory in the simulator: wherever a process dies, each source is counted once, and what was forgotten stays so.

use counterfoil::guard::memory::Outcome;
use counterfoil::sim::{CrashPoint, Simulation};
use counterfoil::{Ctx, Failure};

/// Learns the same from two sources, and something that it has forgotten at the end.
async fn clerk(ctx: Ctx, caller: String) -> Result<String, Failure> {
    let customer = ctx.memory(caller);
    let tea = customer.remember("fact", "Likes tea.").source("the call").confidence(0.5).await?;
    let slip = customer.remember("fact", "likes coffee").source("the call").await?;
    let again = customer.remember("fact", "LIKES TEA").source("the mail").confidence(0.5).await?;
    customer.forget(slip.memory, "clerk", "misheard").await?;
    let known = customer.recall("fact").await?;
    let merged = again.outcome == Outcome::Merged { similarity: None } && again.memory == tea.memory;
    let known: Vec<_> =
        known.memories.iter().map(|m| format!("{} {} {}", m.content, m.sources, m.confidence)).collect();
    Ok(format!("{merged}: {}", known.join(", ")))
}

// GUARD-3, I10: of three writes and a tombstone none is lost and none is made twice.
#[test]
fn each_source_is_counted_once_wherever_it_is_crashed() {
    let report = Simulation::of(clerk, "customer 7".to_owned())
        .check("what is known was said twice", |end| {
            for run in end.rows() {
                let state = format!("{:?}", run.state);
                if run.state.name() == "succeeded" && !state.contains("true: Likes tea. 2 0.75") {
                    return Err(state);
                }
            }
            Ok(())
        })
        .random(100)
        .explore();
    report.assert_ok();
    let missed = report.never_crossed();
    for point in [CrashPoint::BeforeDocument, CrashPoint::AfterDocument] {
        assert!(!missed.contains(&point), "{} was not tried", point.name());
    }
}
