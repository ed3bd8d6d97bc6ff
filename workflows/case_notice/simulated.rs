//! The workflow in a simulated world: crashed at every point, every pair of points, and under every fault, in front of
//! every kind of provider.

use std::time::Duration;

use counterfoil::ledger::{ErrorKind, LookupResult};
use counterfoil::sim::{End, Offer, Service, Simulation};
use counterfoil::tool::{Call, Done, ToolError};
use serde_json::Value;

use super::classes::{
    Class, SendBlind, SendLookup, SendNaturalKey, SendRejectsKey, SendReplaysKey, case_notice_by, with_tool,
};
use super::client::{Place, Provider};
use super::{Case, Notice, Receipt, SendNotice, case_notice};

/// The provider's name in the world.
pub const DESK: &str = "notices";
/// The careful one, for a provider far away.
const SETTLE: Duration = Duration::from_mins(1);

/// All that is checked in front of a provider of this class.
pub fn simulation(class: Class) -> Simulation {
    let simulation = with_tool!(class, |workflow, tool| {
        Simulation::of(workflow, case()).engine(move |engine, world| {
            let desk = Simulated(world.service(DESK, class.offer()));
            engine.tool(tool(Provider::new(Place::Simulated(desk), SETTLE)))
        })
    });
    // A provider that ignores keys sends as many as it is asked for. That the record says so is checked by itself.
    let one = move |end: &End<'_>| match class {
        Class::IgnoresKey => Ok(()),
        _ => end.exactly_once_if_succeeded(DESK, &case().id),
    };
    simulation.check("one notice", one).check("closed once", closed_once)
}

/// The case that it is about.
pub fn case() -> Case {
    Case {
        id: "case-1".to_owned(),
        recipient: "ann".to_owned(),
        finding: "your permit is granted".to_owned(),
    }
}

fn closed_once(end: &End<'_>) -> Result<(), String> {
    if !end.succeeded() {
        return Ok(()); // its primary key sees to it that it is not closed twice
    }
    let closed: i64 = end.tables(|db| {
        Box::pin(async { sqlx::query_scalar("SELECT count(*) FROM closed_case").fetch_one(db).await })
    })?;
    if closed == 1 { Ok(()) } else { Err(format!("closed {closed} times")) }
}

impl Class {
    /// What the simulated provider offers: what the real one does.
    pub const fn offer(self) -> Offer {
        match self {
            Self::ReplaysKeyWithLookup => Offer::ReplaysKeyAndLookup,
            Self::ReplaysKey => Offer::ReplaysKey,
            Self::RejectsKey => Offer::RejectsKey,
            Self::NaturalKey => Offer::NaturalKey,
            Self::Lookup => Offer::Lookup,
            Self::Blind => Offer::Blind,
            Self::IgnoresKey => Offer::IgnoresKey,
        }
    }
}

/// A provider in the simulated world. It knows a notice by its case.
#[derive(Clone, Debug)]
pub struct Simulated(pub Service);

impl Simulated {
    pub async fn create(&self, call: &Call, notice: &Notice) -> Result<Done<Receipt>, ToolError> {
        Ok(self.0.create(call, &notice.case).await?.map(|output| receipt(&output)))
    }

    pub async fn create_as(&self, call: &Call, notice: &Notice) -> Result<Done<Receipt>, ToolError> {
        match self.create(call, notice).await {
            Err(taken) if taken.kind == ErrorKind::Duplicate => match self.find(call, notice).await? {
                LookupResult::Committed { output, external_ref } => Ok(Done::found(output, external_ref)),
                _ => Err(taken),
            },
            done => done,
        }
    }

    pub async fn find(&self, call: &Call, notice: &Notice) -> Result<LookupResult<Receipt>, ToolError> {
        self.0.find(call, &notice.case).await?.try_map(|found| Ok(receipt(&found)))
    }
}

fn receipt(answer: &Value) -> Receipt {
    Receipt { id: answer["id"].as_str().unwrap_or_default().to_owned() }
}
