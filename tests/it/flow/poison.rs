//! A signal that the run cannot read is set aside as a question, and the run waits on: signals come from webhooks and people.

use std::sync::Arc;

use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::{Ctx, Failure, RunId};
use serde_json::{Value, json};

use crate::flow::answers::Place;
use crate::flow::world::{Process, World};

async fn add(ctx: Ctx, (): ()) -> Result<u32, Failure> {
    Ok(ctx.signal::<u32>("count").await? + ctx.signal::<u32>("count").await?)
}

async fn say(process: &Process, run: RunId, name: &str, what: Value) {
    process.acme().handle::<u32>(run).signal(name, what).await.unwrap();
}

/// A run that waits, and has been told `seven` where it wants a number.
async fn poisoned(process: &Process) -> RunId {
    let run = process.acme().run(add, ()).start().await.unwrap().id();
    say(process, run, "count", json!("seven")).await;
    process.until(async |acme| !acme.questions().await.unwrap().is_empty()).await;
    run
}

fn life(place: &Place, world: &Arc<World>) -> Process {
    place.life(world, add)
}

#[test]
fn a_signal_that_does_not_fit_is_set_aside_and_the_run_waits_on() {
    for place in Place::both() {
        let world = World::new();
        let process = life(&place, &world);
        process.on(async {
            let run = poisoned(&process).await;
            let asked = process.question(QuestionKind::Unread).await;
            assert_eq!(asked.run, Some(run));
            assert!(asked.question.contains("the signal \"count\""), "{asked:?}");
            assert!(asked.question.contains("it does not fit `u32`"), "{asked:?}");
            say(&process, run, "count", json!(1)).await;
            say(&process, run, "count", json!(2)).await;
            assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 3);
            // Nobody can be handed it any more.
            let again = process.acme().answer(asked.id, Resolution::Again, "ann").await.unwrap_err();
            assert!(again.to_string().contains("its run has ended"), "{again}");
            process.acme().answer(asked.id, Resolution::Skip, "ann").await.unwrap();
            assert_eq!(process.acme().questions().await.unwrap(), []);
        });
        process.shut_down();
    }
}

#[test]
fn a_run_is_handed_what_the_answer_says_instead() {
    for place in Place::both() {
        let world = World::new();
        let process = life(&place, &world);
        let run = process.on(poisoned(&process));
        process.shut_down();
        let process = life(&place, &world);
        process.on(async {
            let asked = process.question(QuestionKind::Unread).await;
            process.acme().answer(asked.id, Resolution::Deliver(json!(7)), "ann").await.unwrap();
            say(&process, run, "count", json!(1)).await;
            assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 8);
            assert_eq!(process.acme().questions().await.unwrap(), []);
        });
        process.shut_down();
    }
}

// A deploy that changes the type can be mended by the next one.
#[test]
fn a_build_that_can_read_it_is_handed_it_once_more() {
    async fn spelled(ctx: Ctx, (): ()) -> Result<u32, Failure> {
        let words = (ctx.signal::<String>("count").await?, ctx.signal::<String>("count").await?);
        Ok(u32::try_from(words.0.len() + words.1.len()).unwrap_or_default())
    }
    for place in Place::both() {
        let world = World::new();
        let process = life(&place, &world);
        let run = process.on(poisoned(&process));
        process.shut_down();
        let process = place.life(&world, spelled);
        process.on(async {
            let asked = process.question(QuestionKind::Unread).await;
            process.acme().answer(asked.id, Resolution::Again, "ann").await.unwrap();
            say(&process, run, "count", json!("one")).await;
            assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 8);
        });
        process.shut_down();
    }
}

// A typo in the name is not heard of again, but it can be seen.
#[test]
fn what_nobody_received_is_seen_with_its_run() {
    for place in Place::both() {
        let world = World::new();
        let process = life(&place, &world);
        process.on(async {
            let run = process.acme().run(add, ()).start().await.unwrap().id();
            say(&process, run, "cuont", json!(1)).await;
            say(&process, run, "count", json!(1)).await;
            say(&process, run, "count", json!(2)).await;
            let handle = process.acme().handle::<u32>(run);
            assert_eq!(handle.result().await.unwrap(), 3);
            let left = handle.unreceived().await.unwrap();
            assert_eq!(left.iter().map(|signal| &*signal.name).collect::<Vec<_>>(), ["cuont"]);
        });
        process.shut_down();
    }
}
