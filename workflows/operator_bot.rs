//! An operator's bot: it lists the open questions, answers those that a rule covers, leaves the others to people, and reports
//! what it did.
//!
//! ```text
//! cargo run --example operator_bot
//! ```

#![allow(missing_docs, reason = "an example")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use counterfoil::exec::QuestionView;
use counterfoil::flow::{RunError, RunState, TenantClient};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Ctx, Engine, Failure, Key, QuestionId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const BOT: &str = "taxi-bot";
/// More than this a bot does not decide.
const LIMIT: u64 = 5_000;

/// A taxi company that offers no key and no lookup to programs. Its portal for people shows what was ordered.
#[derive(Clone, Default)]
pub(crate) struct Portal(Arc<Mutex<BTreeMap<String, u64>>>);

impl Portal {
    fn order(&self, reference: &str, cents: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(reference.to_owned(), cents);
    }

    fn shows(&self, reference: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(reference)
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct Ride {
    guest: String,
    cents: u64,
    /// What becomes of the first request.
    arrives: bool,
}

/// Orders a taxi, and loses the answer of the first request.
struct OrderTaxi(Portal);

impl Tool for OrderTaxi {
    const NAME: &'static str = "order_taxi";
    type Effect = effect::InternalMutation;
    type Contract = contract::Blind;
    type Input = Ride;
    type Output = Value;

    fn key(&self, ride: &Ride) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&ride.guest))
    }

    async fn call(&self, call: &Call, ride: &Ride) -> Result<Done<Value>, ToolError> {
        if call.attempt() > 1 || ride.arrives {
            self.0.order(call.key(), ride.cents);
        }
        match call.attempt() {
            1 => Err(ToolError::unknown("the connection broke")),
            _ => Ok(Done::new(json!({ "ordered as": call.key() }))),
        }
    }
}

async fn ride(ctx: Ctx, ride: Ride) -> Result<Value, Failure> {
    ctx.call::<OrderTaxi>(ride).await
}

/// What the bot did in a round.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) answered: Vec<(QuestionId, &'static str, String)>,
    pub(crate) left: Vec<QuestionView>,
}

/// The rule: the answer to a question with its reason, or nothing if a person has to decide.
fn rule(question: &QuestionView, portal: &Portal) -> Option<(Resolution, String)> {
    let call = question.call.as_ref().filter(|call| call.tool == OrderTaxi::NAME)?;
    if question.kind != QuestionKind::Ambiguous || call.request.as_ref()?["cents"].as_u64()? > LIMIT {
        return None;
    }
    let reference = &call.wire_key;
    Some(if portal.shows(reference) {
        let found = json!({ "ordered as": reference });
        (Resolution::Happened(found), format!("the portal shows {reference}"))
    } else {
        (Resolution::DidNotHappen, format!("the portal does not show {reference}"))
    })
}

/// Answers what the rule covers.
pub(crate) async fn round(tenant: &TenantClient, portal: &Portal) -> Result<Report, RunError> {
    let mut report = Report::default();
    for open in tenant.questions().await? {
        let Some(question) = tenant.question(open.id).await? else { continue };
        match rule(&question, portal) {
            Some((answer, why)) => {
                let name = answer.name();
                tenant.answer(open.id, answer, BOT).because(&why).await?;
                report.answered.push((open.id, name, why));
            }
            None => report.left.push(question),
        }
    }
    Ok(report)
}

/// Three rides whose answers are lost: one that arrived, one that did not, and one that is too dear for the bot.
pub(crate) async fn show() -> Result<(Report, Vec<Value>, Vec<String>), Box<dyn Error>> {
    let portal = Portal::default();
    let engine =
        Engine::in_memory().workflow("ride", 1, ride).tool(OrderTaxi(portal.clone())).start().await?;
    let tenant = engine.default_tenant();
    let mut rides = Vec::new();
    for (guest, cents, arrives) in [("ann", 1_200, true), ("bob", 1_500, false), ("eve", 90_000, true)] {
        let asked = Ride { guest: guest.to_owned(), cents, arrives };
        let run = tenant.run(ride, asked).key(guest).start().await?;
        while run.status().await?.state == RunState::Active {
            SystemClock.sleep(Duration::from_millis(5)).await;
        }
        rides.push(run);
    }
    let report = round(&tenant, &portal).await?;
    let results = vec![rides[0].result().await?, rides[1].result().await?];
    let answered = tenant.answered_questions().await?;
    let logged = answered.iter().filter_map(|question| question.answer.as_ref());
    let logged = logged.map(|answer| {
        let because = answer.because.as_deref().unwrap_or("no reason");
        format!("{} by {}: {because}", answer.resolution.name(), answer.by)
    });
    let logged = logged.collect();
    engine.shutdown(Duration::from_secs(5)).await;
    Ok((report, results, logged))
}

#[allow(dead_code, reason = "the tests include this file, too")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (report, _, logged) = show().await?;
    for line in logged {
        println!("{line}");
    }
    for question in report.left {
        print!("left to people: {question}");
    }
    Ok(())
}
