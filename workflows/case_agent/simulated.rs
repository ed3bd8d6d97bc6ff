//! The agent in a simulated world: crashed wherever its process can die, its model behind a wire that loses requests
//! and answers.

use counterfoil::Clock as _;
use counterfoil::agent::{Model, Prompt, Reply};
use counterfoil::sim::{End, Offer, Request, Simulation, World};
use counterfoil::tool::{Call, Done, ToolError};

use super::books::{Books, reference};
use super::{COMPLAINT, case_agent, equipped, script};

/// The provider's name in the world.
const DESK: &str = "books";
/// What the script writes, each of it more than once.
const WRITTEN: [(&str, &str); 3] =
    [("note", "taken up"), ("note", "a parcel is missing"), ("refund", "C-17")];

/// The scripted model, far away. Asked again, it says the same in another order and under other ids: a reply that was
/// acted on must be the one that is seen on resume.
struct FarAway(World);

impl Model for FarAway {
    async fn complete(&self, call: &Call, prompt: &Prompt) -> Result<Reply, ToolError> {
        let mut reply = script::reply(prompt);
        let asked_at = self.0.clock().boot().0;
        let others = usize::try_from(call.attempt()).unwrap_or_default() % reply.calls.len().max(1);
        reply.calls.rotate_left(others);
        for (i, proposal) in reply.calls.iter_mut().enumerate() {
            proposal.id = format!("{}-{i}", asked_at.as_millis());
        }
        let answer = move |request: &Request| {
            request.happen("model", "asked");
            Ok(Done::new(reply.clone()))
        };
        Ok(self.0.send(call, answer).await?.output)
    }
}

/// All that is checked.
pub fn simulation() -> Simulation {
    Simulation::of(case_agent, COMPLAINT.to_owned())
        .engine(|engine, world| {
            let books = Books::Simulated(world.service(DESK, Offer::ReplaysKeyAndLookup));
            equipped(engine, &books).model("clerk", FarAway(world.clone()))
        })
        .check("each thing once", each_thing_once)
        .check("the model is asked five times", asked_five_times)
}

/// Strictly: a provider that honours keys leaves no excuse. Less is no loss: what was refused is told to the model.
fn each_thing_once(end: &End<'_>) -> Result<(), String> {
    for (kind, what) in WRITTEN {
        let written = end.count(DESK, &reference(kind, what));
        if written > 1 {
            return Err(format!("{kind} {what:?} was written {written} times"));
        }
    }
    let written = end.effects().iter().filter(|effect| effect.system == DESK).count();
    if written <= WRITTEN.len() {
        Ok(())
    } else {
        Err(format!("{written} things were written, some unasked"))
    }
}

fn asked_five_times(end: &End<'_>) -> Result<(), String> {
    let calls = end.calls();
    let asked = calls.iter().filter(|call| call.tool == "model/clerk").count();
    let expected = if end.succeeded() { 5..=5 } else { 0..=5 };
    if expected.contains(&asked) { Ok(()) } else { Err(format!("{asked} model calls are recorded")) }
}
