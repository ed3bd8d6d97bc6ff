//! Drafts on both real stores (SAGA-1, EXE-1): one of unknown outcome is looked up and not made again, and one of a run that fails
//! is archived, although the process dies in between.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{EffectOutcome, EngineBuilder, RunError};
use counterfoil::ledger::{self, ContractClass, LookupResult, Undone};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key};

use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

/// Makes a draft at a provider that takes no key, and archives it.
struct Draft(Arc<World>);

impl Draft {
    fn find(&self, did: &str, key: &str) -> LookupResult<u32> {
        let found =
            self.0.see(|seen| seen.effects.iter().position(|(by, used, _)| *by == did && used == key));
        found.map_or(LookupResult::NotFound, |n| LookupResult::Committed {
            output: u32::try_from(n).unwrap(),
            external_ref: Some(format!("d{n}")),
        })
    }
}

impl Tool for Draft {
    const NAME: &'static str = "draft";
    type Effect = effect::Undoable<effect::Draft>;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = u32;

    fn contract(&self) -> ledger::Contract {
        ledger::Contract::new(ContractClass::Lookup).settle(Duration::ZERO).ends_with_sender()
    }

    fn key(&self, case: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(case))
    }

    async fn call(&self, call: &Call, case: &String) -> Result<Done<u32>, ToolError> {
        let number = self.0.happen("draft", call.key(), case);
        self.0.pass("drafted").await;
        Ok(Done::new(number))
    }
}

impl Reconcile for Draft {
    async fn reconcile(&self, call: &Call, _: &String) -> Result<LookupResult<u32>, ToolError> {
        self.0.count("looked up");
        Ok(self.find("draft", call.key()))
    }
}

impl Compensate for Draft {
    async fn compensate(
        &self,
        call: &Call,
        draft: &OriginalCall<String, u32>,
    ) -> Result<Done<Undone>, ToolError> {
        self.0.happen("archive", call.key(), draft.input().unwrap());
        self.0.pass("archived").await;
        Ok(Undone::whole().into())
    }

    async fn find_compensation(
        &self,
        call: &Call,
        _: &OriginalCall<String, u32>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        self.find("archive", call.key()).try_map(|_| Ok(Undone::whole()))
    }
}

async fn answer(ctx: Ctx, case: String) -> Result<u32, Failure> {
    let draft = ctx.call::<Draft>(case.clone()).await?;
    if case == "known" { Err(Failure::new("it was answered before")) } else { Ok(draft) }
}

/// On which store.
enum Place {
    File,
    Server(Schema),
}

impl Place {
    fn life(&self, world: &Arc<World>) -> Process {
        let engine: EngineBuilder = match self {
            Self::File => Engine::sqlite(world.path()),
            Self::Server(schema) => Engine::postgres_with(crate::server::url(), schema.options()),
        };
        let engine = world.equip(engine, &world.tap).lease(Duration::from_secs(1)).tool(Draft(world.clone()));
        Process::start(world, engine.workflow("answer", 1, answer))
    }
}

#[test]
fn a_draft_in_doubt_is_looked_up_and_that_of_a_failed_run_is_archived() {
    for shared in [false, true] {
        for (case, point) in [("new", "drafted"), ("known", "drafted"), ("known", "archived")] {
            let world = World::new();
            let place = if shared { Place::Server(Schema::new()) } else { Place::File };
            world.hold(point);
            let process = place.life(&world);
            let start = |process: &Process| process.acme().run(answer, case.to_owned()).key("one").start();
            process.on(async {
                start(&process).await.unwrap();
                world.reached(point).await;
            });
            process.crash(); // the provider has done it, and nobody knows
            world.release(point);
            let process = place.life(&world);
            let result = process.on(async { start(&process).await.unwrap().result().await });
            assert_eq!(world.effects("draft"), [case], "{point}: one draft");
            assert_eq!(world.counted("looked up"), u32::from(point == "drafted"), "{case}, {point}");
            if case == "new" {
                assert_eq!((result.unwrap(), world.effects("archive").len()), (0, 0));
            } else {
                let Err(RunError::Failed { failure, .. }) = result else { panic!("{result:?}") };
                assert_eq!(failure.effects[0].became, EffectOutcome::Undone);
                assert_eq!(world.effects("archive"), ["known"], "{point}: archived once");
            }
            process.shut_down();
        }
    }
}
