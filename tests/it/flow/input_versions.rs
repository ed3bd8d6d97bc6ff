//! A run is resumed by a build whose tool has another form of input, or binds its key to fewer fields: what the run was given stays.

use std::sync::Arc;

use counterfoil::flow::{FailureCode, WorkflowFn};
use counterfoil::ledger::{BoundFields, ErrorKind};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Failure, Key};
use serde::{Deserialize, Serialize};

use crate::flow::lives::NAME;
use crate::flow::world::{Process, World};
use crate::place::Place;
use crate::{flow, on_both_stores};

/// A wish, which has got a note by its second version.
#[derive(Serialize, Deserialize)]
struct Wish<const VERSION: u32> {
    to: String,
    #[serde(default, skip_serializing_if = "is_of_the_first")]
    note: Note<VERSION>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Note<const VERSION: u32>(String);

fn is_of_the_first<const VERSION: u32>(_: &Note<VERSION>) -> bool {
    VERSION == 1
}

fn wish<const VERSION: u32>(to: &str, note: &str) -> Wish<VERSION> {
    Wish { to: to.to_owned(), note: Note(note.to_owned()) }
}

/// Nobody named Bob gets anything. The first version binds its key to the whole wish, the third one to who gets it.
struct Give<const VERSION: u32>(Arc<World>);

impl<const VERSION: u32> Tool for Give<VERSION> {
    const NAME: &'static str = "give";
    const INPUT_VERSION: u32 = if VERSION == 1 { 1 } else { 2 };
    type Effect = effect::Payment;
    type Contract = contract::ReplaysKey;
    type Input = Wish<VERSION>;
    type Output = u32;

    fn key(&self, wish: &Wish<VERSION>) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&wish.to))
    }

    fn bound(&self) -> BoundFields {
        if VERSION == 3 { BoundFields::only(1, ["/to"]) } else { BoundFields::All }
    }

    async fn call(&self, call: &Call, wish: &Wish<VERSION>) -> Result<Done<u32>, ToolError> {
        if wish.to == "bob" {
            return Err(ToolError::new(ErrorKind::Validation, "no present for bob"));
        }
        Ok(Done::new(self.0.happen("give", call.key(), &wish.to)))
    }
}

fn life<const VERSION: u32>(world: &Arc<World>, place: &Place, code: impl WorkflowFn<(), u32>) -> Process {
    let tap = world.tap.clone();
    let engine = place.engine().wrap_store(move |store| tap.around(store));
    Process::start(world, engine.tool(Give::<VERSION>(world.clone())).workflow(NAME, 1, code))
}

macro_rules! gives {
    ($world:ident, $version:literal, $note:literal) => {
        flow!($world, |ctx, _n: ()| {
            let given = ctx.call::<Give<$version>>(wish("ann", $note)).await?;
            let failure = ctx.call::<Give<$version>>(wish("bob", $note)).await.unwrap_err();
            assert_eq!(failure.code, FailureCode::ToolFailed);
            ctx.signal::<()>("go on").await?;
            Ok::<_, Failure>(given)
        })
    };
}

on_both_stores! {
    /// The result of the one call and the failure of the other are what they were.
    fn a_run_goes_on_with_the_next_version_of_its_inputs(place) {
        let world = World::new();
        let first = gives!(world, 1, "");
        let process = life::<1>(&world, &place, first.clone());
        let run = process.on(async { process.acme().run(first, ()).start().await.unwrap().id() });
        process.on(process.state(run, "waiting"));
        process.crash();
        // By the third, notes are bound to nothing.
        let process = life::<2>(&world, &place, gives!(world, 2, ""));
        process.on(async { process.acme().handle::<u32>(run).signal("go in", ()).await.unwrap() });
        process.shut_down();
        let process = life::<3>(&world, &place, gives!(world, 3, "for christmas"));
        process.on(async { process.acme().handle::<u32>(run).signal("go on", ()).await.unwrap() });
        process.on(async {
            assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 1);
            assert_eq!(process.acme().questions().await.unwrap(), []);
        });
        process.shut_down();
        assert_eq!(world.effects("give"), ["ann"]);
    }
}
