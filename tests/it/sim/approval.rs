//! Approvals in the simulator: wherever a process dies, people are asked once, each vote counts once, and what was approved
//! goes out once; what was not, never.

use std::collections::BTreeSet;
use std::time::Duration;

use counterfoil::flow::FailureCode;
use counterfoil::guard::approval::ApprovalRefused;
use counterfoil::ledger::{LookupResult, ReviewOutcome, VoteRefused};
use counterfoil::sim::{CrashPoint, End, Offer, Service, Simulation, World};
use counterfoil::tool::{Call, Done, NeedsApproval, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Approval, ApprovalSubject, Ctx, Engine, Failure, Key};
use serde_json::Value;

use crate::sim::command::asked;
use crate::sim::quick;

const HOUR: Duration = Duration::from_hours(1);

/// Sends a notice by a simulated service.
struct Notify(Service);

impl Tool for Notify {
    const NAME: &'static str = "notify";
    type Effect = effect::Notification;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = Value;

    fn key(&self, text: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(text))
    }

    async fn call(&self, call: &Call, text: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, text).await
    }
}

impl Reconcile for Notify {
    async fn reconcile(&self, call: &Call, text: &String) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, text).await
    }
}

impl NeedsApproval for Notify {
    fn package(&self, text: &String) -> ApprovalSubject {
        ApprovalSubject::of("notice", text)
    }
}

/// Sends what two people have approved within an hour.
async fn desk(ctx: Ctx, text: String) -> Result<String, Failure> {
    let ask = ctx.approval(ApprovalSubject::of("notice", &text)).reviewers(["ann", "bob", "carl"]).quorum(2);
    match ask.expires_in(HOUR).single_use().await {
        Ok(approval) => {
            ctx.call::<Notify>(text.clone()).approved_by(&approval).await?;
            Ok(format!("approved by {}", approval.by))
        }
        Err(failure) if failure.code == FailureCode::Undecided => Ok("undecided".to_owned()),
        Err(failure) if failure.code == FailureCode::Rejected => Ok("rejected".to_owned()),
        Err(failure) => Err(failure),
    }
}

/// Decides after so long, in each life of the process the same; and says what came of it.
async fn reviewer(
    engine: Engine,
    world: World,
    who: &'static str,
    after: Duration,
    approves: bool,
) -> String {
    world.sleep(after).await;
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    let told = asked(&world, || async {
        let review = tenant.reviews(None).await.ok()?.into_iter().next();
        // Over already, or not asked yet: the second time it is known which.
        let run = tenant.runs(None).await.ok()?.into_iter().next()?;
        let id = review.map_or_else(|| format!("{}/notice/0", run.id), |review| review.id);
        let decide = tenant.decide(id, 1);
        match if approves { decide.approve(who) } else { decide.reject(who, "no") }.await {
            Ok(decided) => Some(match decided.outcome {
                None => format!("{} of {}", decided.approvals, decided.quorum),
                Some(ReviewOutcome::Approved { .. }) => "approved".to_owned(),
                Some(ReviewOutcome::Rejected { .. }) => "rejected".to_owned(),
                Some(other) => format!("{other:?}"),
            }),
            Err(ApprovalRefused::Vote(VoteRefused::Over { .. } | VoteRefused::Expired { .. })) => {
                Some("late".to_owned())
            }
            Err(_) => None,
        }
    });
    told.await.unwrap_or_else(|| "nothing".to_owned())
}

/// Ann and Bob decide after these times; Bob perhaps against it.
fn simulation(ann: Duration, bob: Duration, bob_approves: bool) -> Simulation {
    Simulation::of(desk, "granted".to_owned())
        .engine(|engine, world| engine.tool(Notify(world.service("mail", Offer::Lookup))))
        .with_actor("ann", move |engine, world| reviewer(engine, world, "ann", ann, true))
        .with_actor("bob", move |engine, world| reviewer(engine, world, "bob", bob, bob_approves))
        .check("sent once if approved, and never otherwise", |end| {
            let result = end.results()[0].clone();
            let approved = result
                .as_ref()
                .is_some_and(|said| said == "approved by ann, bob" || said == "approved by bob, ann");
            match (end.count("mail", "granted"), result) {
                (1, Some(_)) if approved => Ok(()),
                (0, Some(said)) if !approved && !said.is_null() => Ok(()),
                (0 | 1, None) => Ok(()), // a provider that refused it, or a person is asked
                (n, _) if n != 1 && !end.questions().is_empty() => Ok(()),
                (n, said) => Err(format!("{said:?}, and it was sent {n} times")),
            }
        })
        .check("nobody is told two things", |end| {
            for who in ["ann", "bob"] {
                let heard: Vec<_> = end.heard(who).into_iter().filter(|said| *said != "nothing").collect();
                if heard.windows(2).any(|pair| pair[0] != pair[1]) {
                    return Err(format!("{who} was told {heard:?}"));
                }
            }
            Ok(())
        })
        .check("who was told that it is approved is right", told_the_truth)
        .seed(ann.as_secs())
}

fn told_the_truth(end: &End<'_>) -> Result<(), String> {
    let said = |word: &str| ["ann", "bob"].iter().any(|who| end.heard(who).contains(&word));
    let result = end.results()[0].clone();
    let result = result.as_ref().and_then(Value::as_str).unwrap_or("nothing");
    if said("approved") && (result == "undecided" || result == "rejected") {
        return Err(format!("approved, and the run says {result}"));
    }
    if said("rejected") && result != "rejected" && result != "nothing" {
        return Err(format!("rejected, and the run says {result}"));
    }
    Ok(())
}

// GUARD-1, SIM-4 (approval twice): in time, in part, against it, and in the very moment in which the time is over.
#[test]
fn an_approval_counts_once_wherever_it_is_crashed() {
    const SECOND: Duration = Duration::from_secs(1);
    for (ann, bob, approves) in
        [(SECOND, 2 * SECOND, true), (SECOND, 2 * HOUR, true), (SECOND, SECOND, false)]
    {
        let report = quick(simulation(ann, bob, approves)).explore();
        assert!(report.failures().is_empty(), "{report}\n{}", report.failures()[0].timeline);
        for point in [CrashPoint::BeforeDocument, CrashPoint::AfterDocument] {
            assert!(report.crashed_at().contains_key(&point), "never died at {point}");
        }
    }
    let report = quick(simulation(HOUR, HOUR, true)).explore();
    assert!(report.failures().is_empty(), "{report}\n{}", report.failures()[0].timeline);
}

/// Sends by an approval that was given to another text, so that the call asks for one itself.
async fn stale(ctx: Ctx, text: String) -> Result<(), Failure> {
    let other = Approval::of("dan", &ApprovalSubject::of("notice", "another text"))?;
    ctx.call::<Notify>(text).approved_by(&other).await.map(drop)
}

/// Approves of whatever is open, as often as it is asked.
async fn approver(engine: Engine, world: World) -> String {
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        for open in tenant.reviews(None).await.unwrap_or_default() {
            seen.insert((open.id.clone(), open.version));
            let _ = tenant.decide(&open.id, open.version).approve("ann").await; // if that fails, it is still open
        }
        world.sleep(Duration::from_secs(20)).await;
    }
    format!("{} requests", seen.len())
}

// EXE-2: the request is made once, the vote counts once, and the notice goes out once, wherever a process dies.
#[test]
fn a_call_that_asks_for_its_approval_goes_out_once_wherever_it_is_crashed() {
    let simulation = Simulation::of(stale, "granted".to_owned())
        .engine(|engine, world| engine.tool(Notify(world.service("mail", Offer::Lookup))))
        .with_actor("ann", approver)
        .check("sent once", |end| end.exactly_once_if_succeeded("mail", "granted"))
        .check("one request", |end| {
            let many =
                end.heard("ann").into_iter().find(|told| !matches!(*told, "0 requests" | "1 requests"));
            many.map_or(Ok(()), |told| Err(told.to_owned()))
        });
    let report = quick(simulation).explore();
    assert!(report.failures().is_empty(), "{report}\n{}", report.failures()[0].timeline);
    for point in [CrashPoint::BeforeDocument, CrashPoint::AfterDocument, CrashPoint::AfterCall] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}");
    }
}
