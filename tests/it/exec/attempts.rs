//! What one attempt may do: say that it goes on, and get a new credential.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::ledger::{Contract, ContractClass, EffectClass, ErrorKind, RetryPolicy};
use counterfoil::store::{Change, Evidence, Store, StoreError, StoreFuture, Verdict};
use counterfoil::tool::{Done, DynamicTool, ToolError};
use counterfoil::{Outcome, RecordId, Tenant};
use serde_json::json;
use tokio::sync::Notify;

use crate::world::{Process, TestClock, acme, brief, executor, request, soon};

const EIGHT: Duration = Duration::from_secs(8);

fn tool(name: &str) -> DynamicTool {
    DynamicTool::new(name, EffectClass::InternalMutation, Contract::new(ContractClass::Blind))
        .key(|input| Some(counterfoil::Key::of("attempt").target(input["case"].as_str()?)))
        .retry(brief())
}

// R-EXE-8: nobody could find out what became of it, so nothing is cut off unless the tool says so.
#[tokio::test]
async fn a_call_at_a_blind_provider_has_no_timeout_unless_it_is_said() {
    for says_so in [false, true] {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        let (begun, answered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, answers) = (begun.clone(), answered.clone());
        let slow =
            DynamicTool::new("slow", EffectClass::InternalMutation, Contract::new(ContractClass::Blind))
                .key(|input| Some(counterfoil::Key::of("attempt").target(input["case"].as_str()?)))
                .call(move |_, _| {
                    let (begins, answers) = (begins.clone(), answers.clone());
                    async move {
                        begins.notify_one();
                        answers.notified().await;
                        Ok(Done::new(json!("done")))
                    }
                });
        let slow = if says_so { slow.retry(RetryPolicy::default()) } else { slow };
        let process = Process::start(executor(&dir, &clock).dynamic_tool(slow)).await.unwrap();
        let call = process.execute(request("slow"));
        begun.notified().await;
        let time_passes = async {
            let mut minutes = 0..300;
            while if says_so { !call.is_finished() } else { minutes.next().is_some() } {
                clock.advance(Duration::from_mins(1));
                tokio::task::yield_now().await;
            }
            Ok::<_, ()>(())
        };
        soon("it is not cut off".to_owned(), time_passes).await;
        answered.notify_one();
        let outcome = call.await.unwrap().unwrap();
        let is_as_said = match &outcome {
            Outcome::Done(answer) => !says_so && answer.response.as_str() == "\"done\"",
            outcome => says_so && matches!(outcome, Outcome::NeedsDecision { .. }),
        };
        assert!(is_as_said, "says so: {says_so}: {outcome:?}");
    }
}

// R-EXE-5, R-EXE-8: an attempt is cut off ten seconds after its last sign of life.
#[tokio::test]
async fn a_long_call_is_not_cut_off_while_it_says_that_it_goes_on() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let (chunk, said) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (arrives, told) = (chunk.clone(), said.clone());
    let download = tool("download").call(move |call, _| {
        let (chunk, said) = (arrives.clone(), told.clone());
        async move {
            for _ in 0..4 {
                said.notify_one();
                chunk.notified().await;
                call.alive();
            }
            said.notify_one();
            chunk.notified().await; // and then nothing more comes
            Ok(Done::new(json!(null)))
        }
    });
    let process = Process::start(executor(&dir, &clock).dynamic_tool(download)).await.unwrap();
    let call = process.execute(request("download"));
    for _ in 0..4 {
        said.notified().await;
        clock.advance(EIGHT);
        chunk.notify_one();
    }
    said.notified().await;
    assert!(!call.is_finished(), "32 seconds, and 10 are allowed");
    let cut_off = async {
        while !call.is_finished() {
            clock.advance(EIGHT);
            tokio::task::yield_now().await;
        }
        Ok::<_, ()>(())
    };
    soon("it is not cut off".to_owned(), cut_off).await;
    let outcome = call.await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
}

/// Refused while its token is old; a new one is got, or not.
async fn refused(refreshes: bool, expires_again: bool) -> (Outcome, u32, u32) {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let (sent, token) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (calls, used, new) = (sent.clone(), token.clone(), token.clone());
    let charge = tool("charge")
        .call(move |_, _| {
            calls.fetch_add(1, Ordering::SeqCst);
            let valid = used.load(Ordering::SeqCst) > 0 && !expires_again;
            let result = if valid {
                Ok(Done::new(json!("done")))
            } else {
                Err(ToolError::new(ErrorKind::Unauthorized, "token expired"))
            };
            Box::pin(async move { result })
        })
        .refresh(move || {
            new.fetch_add(u32::from(refreshes), Ordering::SeqCst);
            Box::pin(async move {
                if refreshes {
                    Ok(())
                } else {
                    Err(ToolError::new(ErrorKind::Unreachable, "no token server"))
                }
            })
        });
    let process = Process::start(executor(&dir, &clock).dynamic_tool(charge)).await.unwrap();
    let outcome = process.execute(request("charge")).await.unwrap().unwrap();
    assert_eq!(process.executor().questions(&acme()).await.unwrap(), []);
    (outcome, sent.load(Ordering::SeqCst), token.load(Ordering::SeqCst))
}

// R-EXE-2: one refresh, then the call is made once more.
#[tokio::test]
async fn a_credential_is_refreshed_once() {
    let (outcome, sent, refreshed) = refused(true, false).await;
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    assert_eq!((sent, refreshed), (2, 1));

    let (outcome, sent, refreshed) = refused(true, true).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!((failure.kind, sent, refreshed), (ErrorKind::Unauthorized, 2, 1), "refused again");

    let (outcome, sent, _) = refused(false, false).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert_eq!(sent, 2);
}

// A panic of the renewal is no panic of the engine: the call is made once more, and has failed.
#[tokio::test]
async fn a_refresh_that_panics_is_one_that_failed() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let charge = tool("charge")
        .call(|_, _| async { Err(ToolError::new(ErrorKind::Unauthorized, "token expired")) })
        .refresh(|| async { panic!("as told") });
    let process = Process::start(executor(&dir, &clock).dynamic_tool(charge)).await.unwrap();
    let Outcome::Failed(failure) = process.execute(request("charge")).await.unwrap().unwrap() else {
        panic!()
    };
    assert_eq!(failure.kind, ErrorKind::Unauthorized);
    assert_eq!(process.executor().questions(&acme()).await.unwrap(), []);
}

/// A store that cannot read late answers the first time.
#[derive(Debug)]
struct Unreadable(Arc<dyn Store>, Arc<AtomicBool>);

impl Store for Unreadable {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        self.0.commit(changes)
    }

    fn record_evidence<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> StoreFuture<'a, Vec<Evidence>> {
        if self.1.swap(true, Ordering::SeqCst) {
            return self.0.record_evidence(tenant, id);
        }
        Box::pin(async { Err(StoreError::Io { detail: "as told".into() }) })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}

// A second attempt reads whether the first one was answered late, before it records that the call has failed.
#[tokio::test]
async fn a_certain_failure_is_recorded_although_late_answers_cannot_be_read_at_first() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let charge =
        tool("charge").call(|_, _| async { Err(ToolError::new(ErrorKind::Validation, "no such account")) });
    let asked = Arc::new(AtomicBool::new(false));
    let reads = asked.clone();
    let builder = executor(&dir, &clock).dynamic_tool(charge);
    let builder = builder.wrap_store(move |store| Arc::new(Unreadable(store, reads)));
    let process = Process::start(builder).await.unwrap();
    for _attempt in 0..2 {
        let outcome = process.execute(request("charge")).await.unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    }
    assert!(asked.load(Ordering::SeqCst), "the second attempt has read them");
}
