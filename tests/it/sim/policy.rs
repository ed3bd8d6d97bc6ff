//! A tool's policy in the simulator: wherever a process dies, a call goes out under a recorded verdict, and the verdict stands
//! although each restart deploys another policy.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use counterfoil::flow::FailureCode;
use counterfoil::ledger::{Contract, ContractClass, EffectClass};
use counterfoil::sim::{CrashPoint, End, Offer, Service, Simulation};
use counterfoil::tool::DynamicTool;
use counterfoil::tool::approval::Verdict;
use counterfoil::{Ctx, Failure, Key};
use serde_json::json;

use crate::sim::quick;

/// Sends a receipt by the policy of this build: the first one allows it, and each later one refuses it.
fn receipt(mail: Service, build: u32) -> DynamicTool {
    let looking = mail.clone();
    DynamicTool::new("receipt", EffectClass::Notification, Contract::new(ContractClass::Lookup))
        .key(|input| Some(Key::of("receipt").target(input.as_str()?)))
        .policy("transactional-mail", build, move |_| match build {
            1 => Verdict::Allow,
            _ => Verdict::refuse("no mail today"),
        })
        .call(move |call, input| {
            let mail = mail.clone();
            async move { mail.create(&call, input.as_str().unwrap_or_default()).await }
        })
        .reconcile(move |call, input| {
            let mail = looking.clone();
            async move { mail.find(&call, input.as_str().unwrap_or_default()).await }
        })
}

async fn sends(ctx: Ctx, to: String) -> Result<String, Failure> {
    match ctx.call_named("receipt", json!(to)).await {
        Ok(_) => Ok("sent".to_owned()),
        Err(failure) if failure.code == FailureCode::PolicyRefused => Ok("refused".to_owned()),
        Err(failure) => Err(failure),
    }
}

pub(super) fn simulation() -> Simulation {
    Simulation::of(sends, "eve".to_owned()).engine(|engine, world| {
        engine.dynamic_tool(receipt(world.service("mail", Offer::Lookup), world.life()))
    })
}

/// A receipt rests on the verdict of the first build, and a refusal on that of a later one.
fn rests_on_its_verdict(end: &End<'_>) -> Result<(), String> {
    let result = end.results()[0].clone();
    let is = |word: &str| result.as_ref().is_some_and(|result| result == word);
    let versions: Vec<_> = end.records().into_iter().filter_map(|record| record.approval?.policy).collect();
    if versions.iter().any(|policy| policy.version != 1) {
        return Err(format!("a call rests on a policy that refuses it: {versions:?}"));
    }
    if let Some(asked) =
        end.asked().iter().find(|asked| asked.question.contains("approval is no longer valid"))
    {
        return Err(format!("the recorded verdict did not stand: {}", asked.question));
    }
    // A process that was paused may send once more, which a question then says; and a provider may lose an effect.
    match end.count("mail", "eve") {
        0 if is("sent") && end.questions().is_empty() => Err("it was not sent".to_owned()),
        1.. if is("refused") || versions.is_empty() => Err(format!("{result:?}, and it was sent")),
        _ => Ok(()),
    }
}

#[test]
fn no_call_goes_out_without_a_recorded_verdict_and_the_verdict_stands() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let noted = seen.clone();
    let report = quick(simulation())
        .check("rests on its verdict", rests_on_its_verdict)
        .check("what came of it", move |end| {
            let result = end.results()[0].clone();
            let result = result.and_then(|result| result.as_str().map(ToOwned::to_owned));
            let was_refused_later = end.rows().iter().any(|run| run.fence.0 > 1);
            noted.lock().unwrap().extend(result.map(|result| (was_refused_later, result)));
            Ok(())
        })
        .explore();
    assert!(report.failures().is_empty(), "{report}\n{}", report.failures()[0].timeline);
    for point in [CrashPoint::BeforeCall, CrashPoint::AfterCall] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}");
    }
    let seen = seen.lock().unwrap();
    for (was_refused_later, result) in [(false, "sent"), (true, "sent"), (true, "refused")] {
        assert!(seen.contains(&(was_refused_later, result.to_owned())), "{result} is missing: {seen:?}");
    }
}
