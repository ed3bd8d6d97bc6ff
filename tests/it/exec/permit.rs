//! Until when an attempt may send: what the tool is told, and when the attempt is cut off.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::ledger::{Contract, ContractClass, EffectClass};
use counterfoil::tool::{Call, Done, DynamicTool};
use counterfoil::{Approval, ApprovalSubject, Executor, Key, Outcome, ToolRequest};
use counterfoil::{Clock as _, Timestamp};
use serde_json::{Value, json};

use crate::world::{Keys, Reply, TestClock, World, acme, brief, executor};

const SOON: Duration = Duration::from_secs(5);

/// What a tool was told: until when, and how long that is.
type Told = Arc<Mutex<Vec<(Option<Timestamp>, Option<Duration>)>>>;

async fn asking(dir: &tempfile::TempDir, clock: &TestClock, contract: Contract) -> (Executor, Told) {
    let told = Told::default();
    let (called, looked) = (told.clone(), told.clone());
    let ask = |told: &Told, call: &Call| told.lock().unwrap().push((call.use_until(), call.time_left()));
    let tool = DynamicTool::new("notify", EffectClass::Notification, contract)
        .retry(brief())
        .key(|input| Some(Key::of("notify").target(input["case"].as_str()?)))
        .package(|input| ApprovalSubject::of("notice", input))
        .call(move |call: Call, input| {
            ask(&called, &call);
            async move { Ok(Done::new(input)) }
        })
        .reconcile(move |call: Call, _| {
            ask(&looked, &call);
            async move { Ok(counterfoil::ledger::LookupResult::Unknown) }
        });
    let executor = executor(dir, clock).dynamic_tool(tool).open().await.unwrap();
    (executor, told)
}

fn notice() -> Value {
    json!({"case": "c1"})
}

fn request() -> ToolRequest {
    ToolRequest::new(acme(), "notify", notice())
}

fn approval() -> Approval {
    Approval::of("ann", &ApprovalSubject::of("notice", &notice())).unwrap()
}

#[tokio::test]
async fn a_tool_is_told_until_when_it_may_send() {
    let (minute, second) = (Duration::from_mins(1), Duration::from_secs(1));
    let by_lookup = Contract::new(ContractClass::Lookup);
    let by_key = Contract::new(ContractClass::RejectsKey).key_window(second * 4);
    let cases = [
        (by_lookup.clone(), minute, second * 10), // an attempt of these tools lasts ten seconds
        (by_lookup, SOON, SOON),
        (by_key, minute, Duration::from_millis(3600)), // a tenth of the window is kept back
    ];
    for (contract, approved_for, expected) in cases {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        let (executor, told) = asking(&dir, &clock, contract).await;
        let approval = approval().expires_at(clock.now().after(approved_for));
        let outcome = executor.execute(request().approved_by(&approval)).await.unwrap();
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        let expected = (Some(clock.now().after(expected)), Some(expected));
        assert_eq!(*told.lock().unwrap(), [expected]);
    }
}

#[tokio::test]
async fn an_attempt_is_cut_off_when_its_approval_expires() {
    let (dir, clock, world) =
        (tempfile::tempdir().unwrap(), TestClock::breathing(), World::new(Keys::Ignores));
    let blind = Contract::new(ContractClass::Blind).allow_blind_notices();
    let tool = world.tool("notify", EffectClass::Notification, blind);
    let tool = tool.retry(brief()).package(|input| ApprovalSubject::of("notice", input));
    let executor = executor(&dir, &clock).dynamic_tool(tool).open().await.unwrap();
    world.replies([Reply::EffectThenHang]);
    let approval = approval().expires_at(clock.now().after(SOON));
    let call = tokio::spawn({
        let executor = executor.clone();
        async move { executor.execute(request().approved_by(&approval)).await }
    });
    world.requested(1).await;
    clock.slept(SOON).await;
    clock.advance(SOON);
    let outcome = call.await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "it may have happened: {outcome:?}");
    assert_eq!(world.count(), 1);
}
