//! A tool is told since when a request of its operation may have left, so that a list that cannot be searched can be bounded.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::ledger::{Contract, ContractClass, EffectClass, ErrorKind, Key, LookupResult};
use counterfoil::tool::{Call, Done, DynamicTool, ToolError};
use counterfoil::{Timestamp, ToolRequest};
use serde_json::json;

use crate::on_both_stores;
use crate::place::Place;
use crate::world::{Chance, acme, brief};

/// What each call and each lookup was told, with how many attempts had been made.
type Told = Arc<Mutex<Vec<(&'static str, u32, Option<Timestamp>)>>>;

/// Its first call breaks off, its second one succeeds; lookups show nothing.
fn tool(told: &Told, contract: Contract) -> DynamicTool {
    let (calls, lookups) = (told.clone(), told.clone());
    DynamicTool::new("book", EffectClass::InternalMutation, contract)
        .retry(brief())
        .key(|_| Some(Key::of("book").target("c1")))
        .call(move |call: Call, _| {
            calls.lock().unwrap().push(("call", call.attempt(), call.first_sent()));
            let broken = ToolError::new(ErrorKind::Disconnected, "broken off");
            let result = if call.attempt() == 1 { Err(broken) } else { Ok(Done::new(json!("booked"))) };
            async { result }
        })
        .reconcile(move |call: Call, _| {
            lookups.lock().unwrap().push(("lookup", call.attempt(), call.first_sent()));
            async { Ok(LookupResult::NotFound) }
        })
}

/// A miss is believed at once.
fn at_once() -> Contract {
    Contract::new(ContractClass::Lookup).settle(Duration::ZERO).ends_with_sender()
}

async fn told(place: &Place, contract: Contract) -> Vec<(&'static str, u32, Option<Timestamp>)> {
    let told = Told::default();
    let executor = place.executor().entropy(Chance::least()).dynamic_tool(tool(&told, contract));
    let executor = executor.open().await.unwrap();
    let outcome = executor.execute(ToolRequest::new(acme(), "book", json!({}))).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    let key = Key::of("book").target("c1").render().unwrap();
    let (record, _) = executor.record(&acme(), &key).await.unwrap().unwrap();
    executor.shutdown(Duration::ZERO).await;
    let mut told = told.lock().unwrap().clone();
    // Where it is known, it is the beginning of the first attempt.
    for (_, _, at) in &mut told {
        assert!(at.is_none_or(|at| at == record.created_at), "{at:?}, {record:?}");
        *at = at.map(|_| Timestamp(0));
    }
    told
}

on_both_stores! {
    async fn it_is_the_same_in_every_attempt_and_lookup(place) {
        let known = Some(Timestamp(0));
        let told = told(&place, at_once()).await;
        assert_eq!(told.first(), Some(&("call", 1, known)), "{told:?}");
        assert!(told.contains(&("lookup", 1, known)) && told.contains(&("call", 2, known)), "{told:?}");
        assert!(told.iter().all(|(.., at)| at.is_some()), "{told:?}");
    }

    async fn before_anything_is_sent_it_is_not_known(place) {
        let told = told(&place, at_once().look_first()).await;
        assert_eq!(told.first(), Some(&("lookup", 0, None)), "{told:?}");
    }
}
