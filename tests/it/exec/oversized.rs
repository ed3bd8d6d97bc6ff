//! A response over the limit: its effect is recorded with digest, size and the provider's id, and never repeated; every caller is told so;
//! under a higher limit the tool's lookup brings it (R-REC-5, F15).

use std::sync::Arc;

use counterfoil::exec::ResponseTooLarge;
use counterfoil::ledger::{Contract, ContractClass, EffectClass, ErrorKind, LookupOffer, Record, State};
use counterfoil::payload::{Limits, Stored};
use counterfoil::tool::{Done, ToolError};
use counterfoil::{Executor, Key, Outcome, Payload};
use serde_json::{Value, json};

use crate::on_both_stores;
use crate::place::Place;
use crate::world::{Keys, Look, Reply, World, acme, brief, request};

const TOOL: &str = "print";

fn small() -> Limits {
    Limits { inline_bytes: 100, max_bytes: 1000 }
}

fn roomy() -> Limits {
    Limits { inline_bytes: 100, max_bytes: 1 << 20 }
}

async fn executor(place: &Place, world: &Arc<World>, contract: Contract, limits: Limits) -> Executor {
    let tool = world.tool(TOOL, EffectClass::InternalMutation, contract);
    place.executor().limits(limits).dynamic_tool(tool.retry(brief())).open().await.unwrap()
}

fn looked_up() -> Contract {
    Contract::new(ContractClass::ReplaysKey).lookup(LookupOffer::Strong)
}

async fn print(executor: &Executor, input: Value) -> Outcome {
    let request = counterfoil::ToolRequest::new(acme(), TOOL, input).key(key());
    executor.execute(request).await.unwrap()
}

fn key() -> Key {
    Key::of(TOOL).target("c1")
}

fn too_large(outcome: &Outcome) -> &ResponseTooLarge {
    let Outcome::ResponseTooLarge(response) = outcome else { panic!("{outcome:?}") };
    response
}

async fn record(executor: &Executor) -> Record {
    executor.record(&acme(), &key().render().unwrap()).await.unwrap().unwrap().0
}

fn long() -> Value {
    json!("y".repeat(2000))
}

on_both_stores! {
    async fn it_is_recorded_and_told_to_every_caller(place) {
        let world = World::new(Keys::Honours);
        let executor = executor(&place, &world, looked_up(), small()).await;
        world.replies([Reply::AnswerWith(long())]);
        let first = print(&executor, json!({"case": "c1"})).await;
        let response = too_large(&first);
        let digest = Payload::of(&long()).unwrap().digest();
        let spelled = digest.0.map(|byte| format!("{byte:02x}")).concat();
        assert_eq!((response.bytes, response.limit), (2002, 1000));
        assert_eq!(response.digest, spelled);
        assert_eq!(response.external_ref.as_deref(), Some("effect-1"));
        for words in ["print:c1 happened", "2002 bytes", "(1000 now)", "not sent again", "effect-1", &spelled] {
            assert!(response.to_string().contains(words), "{words}: {response}");
        }
        let second = print(&executor, json!({"case": "c1"})).await;
        assert_eq!(second, first, "whoever asks again is told the same");
        let record = record(&executor).await;
        let State::Committed { response: Stored::Oversized(kept) } = record.state else { panic!("{record:?}") };
        assert_eq!((kept.bytes, kept.digest), (2002, digest));
        assert_eq!((world.requests(), world.count()), (1, 1));
        assert_eq!(world.lookups().len(), 0, "under this limit a lookup is of no use");
    }

    async fn under_a_higher_limit_the_lookup_brings_it_once(place) {
        let world = World::new(Keys::Honours);
        let body = json!({"case": "c1", "text": "z".repeat(960)});
        let first = executor(&place, &world, looked_up(), small()).await;
        too_large(&print(&first, body.clone()).await);
        first.shutdown(std::time::Duration::ZERO).await;
        let second = executor(&place, &world, looked_up(), roomy()).await;
        world.looks([Look::Unknown]);
        too_large(&print(&second, body.clone()).await);
        for _ in 0..2 {
            let outcome = print(&second, body.clone()).await;
            let answer = outcome.answer().unwrap_or_else(|| panic!("{outcome:?}"));
            assert_eq!(answer.response.value().unwrap(), json!({"id": "effect-1", "body": body}));
            assert!(!answer.first);
            assert_eq!(answer.external_ref.as_deref(), Some("effect-1"));
        }
        assert_eq!(world.lookups().len(), 2, "one that could not tell, and one that brought it");
        second.shutdown(std::time::Duration::ZERO).await;
        let third = executor(&place, &world, looked_up(), small()).await;
        assert!(print(&third, body).await.answer().is_some(), "what is recorded is read under any limit");
        assert_eq!((world.requests(), world.count()), (1, 1));
    }

    async fn without_a_lookup_it_stays_as_it_is(place) {
        let world = World::new(Keys::Honours);
        let contract = || Contract::new(ContractClass::ReplaysKey);
        let first = executor(&place, &world, contract(), small()).await;
        world.replies([Reply::AnswerWith(long())]);
        too_large(&print(&first, json!({"case": "c1"})).await);
        first.shutdown(std::time::Duration::ZERO).await;
        let second = executor(&place, &world, contract(), roomy()).await;
        let told = print(&second, json!({"case": "c1"})).await;
        assert_eq!(too_large(&told).limit, 1 << 20);
        assert_eq!((world.requests(), world.count()), (1, 1));
    }

    async fn a_plain_function_is_run_once(place) {
        let executor = place.executor().limits(small()).open().await.unwrap();
        for _ in 0..2 {
            let outcome = executor
                .execute_once(&acme(), key(), "welcome", || async { Ok(long()) })
                .await
                .unwrap();
            assert_eq!(too_large(&outcome).bytes, 2002);
        }
        let fails = || async { Err::<u8, _>(ToolError::new(ErrorKind::Validation, "not run")) };
        too_large(&executor.execute_once(&acme(), key(), "welcome", fails).await.unwrap());
    }

    /// What a lookup after a lost answer brings is measured as an answer is.
    async fn a_lookup_after_a_lost_answer_is_measured_too(place) {
        let world = World::new(Keys::Honours);
        let executor = executor(&place, &world, looked_up(), small()).await;
        world.replies([Reply::EffectThenFail(ErrorKind::Disconnected)]);
        let told = print(&executor, json!({"case": "c1", "text": "z".repeat(960)})).await;
        assert_eq!(too_large(&told).external_ref.as_deref(), Some("effect-1"));
        assert_eq!((world.requests(), world.count()), (1, 1));
    }
}

#[tokio::test]
async fn an_import_over_the_limit_is_refused() {
    let (place, world) = (Place::sqlite(), World::new(Keys::Honours));
    let executor = executor(&place, &world, looked_up(), small()).await;
    executor.import(request(TOOL).key(key()), Done::new(long())).await.unwrap_err();
    let key = key().render().unwrap();
    assert!(executor.record(&acme(), &key).await.unwrap().is_none());
}
