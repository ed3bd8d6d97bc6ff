//! SCALE-3: a transaction that the database rolls back, because it cannot be put in an order with others or for a deadlock, is made
//! again: nothing is lost by that, and nothing is sent twice.

use counterfoil::Outcome;
use counterfoil::exec::ExecutorBuilder;
use counterfoil::ledger::{Contract, ContractClass, EffectClass};
use serde_json::json;

use super::{Schema, run, url};
use crate::world::{Keys, Process, World, request};

#[tokio::test]
async fn what_the_database_rolls_back_is_done_again_and_sent_once() {
    for code in ["40001", "40P01"] {
        let schema = Schema::new();
        drop(schema.open().await);
        let mut other = schema.plain().await;
        // Two of five writes of a record are rolled back. A sequence does not go back with them.
        let rolls_back = format!(
            "CREATE SEQUENCE written; \
             CREATE FUNCTION roll_back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 IF nextval('written') % 5 < 2 THEN RAISE EXCEPTION 'as told' USING ERRCODE = '{code}'; END IF; \
                 RETURN NEW; \
             END $$; \
             CREATE TRIGGER roll_back BEFORE INSERT OR UPDATE ON record FOR EACH ROW EXECUTE FUNCTION roll_back()"
        );
        run(&mut other, rolls_back).await;
        let world = World::new(Keys::Ignores);
        let tool = world.tool("pay", EffectClass::Payment, Contract::new(ContractClass::ReplaysKey));
        let builder = ExecutorBuilder::postgres_with(url(), schema.options()).dynamic_tool(tool);
        let process = Process::start(builder).await.unwrap();
        for case in ["c1", "c2", "c3"] {
            let mut call = request("pay");
            call.input = json!({ "case": case });
            let outcome = process.execute(call.clone()).await.unwrap().unwrap();
            assert!(matches!(&outcome, Outcome::Done(answer) if answer.first), "{code} {case}: {outcome:?}");
            let again = process.execute(call).await.unwrap().unwrap();
            assert!(matches!(&again, Outcome::Done(answer) if !answer.first), "{code} {case}: {again:?}");
        }
        assert_eq!((world.count(), world.requests()), (3, 3), "{code}");
    }
}
