//! The whole desk around a notice: it is drafted as an artifact, approved by two people, sent once, told to others as an event,
//! and remembered. Until the time for an objection is over the case may be withdrawn; then a correction goes out, once.
//!
//! ```text
//! cargo run --release --features full --bin counterfoil -- simulate case_desk
//! ```

use std::time::Duration;

use counterfoil::ledger::{ApprovalSubject, Contract, LookupResult, RetryPolicy, Undone};
use counterfoil::tool::contract::Contract as _;
use counterfoil::tool::{
    Call, Compensate, Done, NeedsApproval, OriginalCall, Reconcile, Tool, ToolError, contract, effect,
};
use counterfoil::{Ctx, Failure, Key};

use super::client::Provider;
use super::{Case, Notice, Receipt, SendNotice, draft, package};

/// Who may decide; two of them must.
pub const REVIEWERS: [&str; 3] = ["ann", "bob", "carl"];
const DAY: Duration = Duration::from_hours(24);
/// So long the reviewers have.
pub const TO_DECIDE: Duration = Duration::from_hours(3 * 24);
/// So long a case may be withdrawn after its notice.
pub const TO_OBJECT: Duration = Duration::from_hours(14 * 24);

/// A case from its draft to the end of the time for objections. Each line happens once, wherever the process dies; the waits are
/// rows.
pub async fn case_desk(ctx: Ctx, case: Case) -> Result<Receipt, Failure> {
    carried_out(ctx, case, TO_OBJECT).await
}

/// The same with another time for objections.
pub async fn carried_out(ctx: Ctx, case: Case, to_object: Duration) -> Result<Receipt, Failure> {
    let notice = ctx.step("draft", &case, draft).await?;
    let drafted = ctx.artifact("notice", &case.id).source(format!("case {}", case.id)).put(&notice).await?;

    let approval = ctx
        .approval(package(&notice)) // bound to this content and recipient: another draft needs another one
        .reviewers(REVIEWERS)
        .quorum(2)
        .expires_in(TO_DECIDE)
        .valid_for(DAY)
        .single_use()
        .await?;
    let receipt = ctx.call::<SendDecision>(notice).approved_by(&approval).await?;

    let file = format!("case/{}", case.id);
    ctx.emit(&file, "notice_sent", &receipt).await?;
    let said = format!("Was told about case {} (version {} of the notice)", case.id, drafted.version);
    ctx.memory(&case.recipient).remember("contact", said).source(&receipt.id).await?;

    match ctx.timeout("objection", to_object, ctx.signal::<String>("withdrawn")).await? {
        Err(_elapsed) => Ok(receipt),
        Ok(reason) => {
            let reason = reason?;
            ctx.emit(&file, "withdrawn", &reason).await?;
            Err(Failure::new(format!("withdrawn: {reason}"))) // what went out is corrected
        }
    }
}

/// Sends the decision on a case, and takes it back by a correction.
pub struct SendDecision {
    pub provider: Provider,
}

impl SendDecision {
    /// Which notice is corrected is always known: it holds no secret, and is short.
    fn correction(forward: &OriginalCall<Notice, Receipt>) -> Notice {
        let (case, recipient) = match forward.input() {
            Some(notice) => (notice.case.as_str(), notice.recipient.clone()),
            None => (forward.key(), String::new()),
        };
        let which = forward.external_ref().unwrap_or("without a number");
        let text = format!("Dear {recipient}, our notice {which} about this case is withdrawn.");
        Notice { case: format!("{case} withdrawn {which}"), recipient, text }
    }
}

impl Tool for SendDecision {
    const NAME: &'static str = SendNotice::NAME;
    type Effect = effect::Undoable<effect::Notification>;
    /// It takes no key, and can be asked for our reference.
    type Contract = contract::Lookup;
    type Input = Notice;
    type Output = Receipt;

    fn key(&self, notice: &Notice) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&notice.case).operation("decision"))
    }

    fn contract(&self) -> Contract {
        Self::Contract::declaration().settle(self.provider.settle)
    }

    fn retry(&self) -> RetryPolicy {
        self.provider.retry()
    }

    async fn call(&self, call: &Call, notice: &Notice) -> Result<Done<Receipt>, ToolError> {
        self.provider.create(call, notice, None).await
    }
}

impl NeedsApproval for SendDecision {
    fn package(&self, notice: &Notice) -> ApprovalSubject {
        package(notice)
    }
}

impl Reconcile for SendDecision {
    async fn reconcile(&self, call: &Call, notice: &Notice) -> Result<LookupResult<Receipt>, ToolError> {
        self.provider.find(call, notice).await
    }
}

impl Compensate for SendDecision {
    async fn compensate(
        &self,
        call: &Call,
        forward: &OriginalCall<Notice, Receipt>,
    ) -> Result<Done<Undone>, ToolError> {
        let done = self.provider.create(call, &Self::correction(forward), None).await?;
        Ok(done.map(|output| Undone::whole().detail(output.id)))
    }

    async fn find_compensation(
        &self,
        call: &Call,
        forward: &OriginalCall<Notice, Receipt>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        let found = self.provider.find(call, &Self::correction(forward)).await?;
        found.try_map(|receipt| Ok(Undone::whole().detail(receipt.id)))
    }
}

/// The same in a simulated world, with its people.
#[cfg(feature = "sim")]
pub mod simulated {
    use counterfoil::Engine;
    use counterfoil::flow::{EffectOutcome, RunState, RunStatus};
    use counterfoil::sim::{Effect, End, Offer, Simulation, World, truthful};

    use super::super::client::{Place, Provider};
    use super::super::simulated::{DESK, Simulated};
    use super::{Case, Duration, SendDecision, case_desk};

    const HOUR: Duration = Duration::from_hours(1);

    fn case(id: &str) -> Case {
        Case { id: id.to_owned(), recipient: "dora".to_owned(), finding: "your permit is granted".to_owned() }
    }

    /// Two cases, of which one is withdrawn; Ann clicks twice, Bob changes his mind too late, the citizen says so twice.
    pub fn simulation() -> Simulation {
        Simulation::of(case_desk, case("kept"))
            .with_run(Simulation::TENANT, "withdrawn", case_desk, case("withdrawn"))
            .engine(|engine, world| {
                let desk = Simulated(world.service(DESK, Offer::Lookup));
                let provider = Provider::new(Place::Simulated(desk), Duration::from_mins(1));
                engine.tool(SendDecision { provider }).sink(world.sink())
            })
            .with_actor("ann", |engine, world| decides(engine, world, "ann", HOUR))
            .with_actor("bob", |engine, world| decides(engine, world, "bob", 2 * HOUR))
            .with_actor("dora", withdraws)
            .operator(truthful)
            .check("a notice and, if it is withdrawn, a correction", sent)
            .check("told once of each", told)
            .fails(1)
            .single_crashes()
    }

    /// Approves whatever is to be decided, twice; then rejects it, which comes too late.
    async fn decides(engine: Engine, world: World, who: &'static str, after: Duration) -> String {
        world.sleep(after).await;
        let Ok(tenant) = engine.tenant(Simulation::TENANT) else { return String::new() };
        let mut decided = 0;
        for _ in 0..30 {
            let Ok(reviews) = tenant.reviews(None).await else { continue };
            for review in reviews {
                let decide = || tenant.decide(&review.id, review.version);
                let first = decide().approve(who).await;
                let second = decide().approve(who).await;
                decided += usize::from(first.is_ok() && second.is_ok());
                if decide().reject(who, "on second thoughts").await.is_ok() {
                    return "both ways".to_owned();
                }
            }
            if decided >= 2 {
                break;
            }
            world.sleep(HOUR).await;
        }
        format!("decided {decided}")
    }

    async fn withdraws(engine: Engine, world: World) -> String {
        world.sleep(4 * 24 * HOUR).await;
        let Ok(tenant) = engine.tenant(Simulation::TENANT) else { return String::new() };
        let told = async {
            let run = tenant.run(case_desk, case("withdrawn")).key("withdrawn").start().await?;
            run.signal("withdrawn", "moved away").id("dora-1").await?;
            run.signal("withdrawn", "moved away").id("dora-1").await
        };
        match told.await {
            Ok(_) => "it is withdrawn".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// Of each case one notice stands, or none if it was withdrawn: each other one that went out is corrected, and the run says
    /// so.
    fn sent(end: &End<'_>) -> Result<(), String> {
        for run in end.runs() {
            let Some(Case { id, .. }) = end.input(run.id) else { continue };
            let effects = end.effects();
            let corrected = |e: &&Effect| e.reference.starts_with(&format!("{id} withdrawn"));
            let (sent, corrected) = (end.count(DESK, &id), effects.iter().filter(corrected).count());
            let stand = match (&run.state, undone(&run)) {
                (RunState::Succeeded, _) => Some(1),
                (RunState::Failed { .. }, true) => Some(0),
                (RunState::Failed { .. }, false) if sent == 0 => Some(0),
                _ => None, // asked about, and nothing is said
            };
            // What went out twice, or could not be corrected, somebody was asked about: the engine's own rules see to that.
            if stand.is_some_and(|stand| sent != corrected + stand) && end.asked().is_empty() {
                return Err(format!("{id}: {sent} sent, {corrected} corrected, and {:?}", run.state));
            }
        }
        Ok(())
    }

    fn undone(run: &RunStatus) -> bool {
        let RunState::Failed { failure } = &run.state else { return false };
        !failure.effects.is_empty()
            && failure.effects.iter().all(|effect| effect.became == EffectOutcome::Undone)
    }

    /// Each kind of event of a case under one id, however often it was published.
    fn told(end: &End<'_>) -> Result<(), String> {
        let mut ids: Vec<_> =
            end.published().into_iter().map(|event| (event.aggregate, event.kind, event.id)).collect();
        ids.sort();
        ids.dedup();
        let kinds = ids.len();
        ids.dedup_by_key(|(aggregate, kind, _)| (aggregate.clone(), kind.clone()));
        if kinds == ids.len() { Ok(()) } else { Err(format!("{kinds} events of {} kinds", ids.len())) }
    }
}
