//! Retry and fork that undo what stands (FLOW-9, DESIGN 4.11): per effect it stands, is undone, is issued once more, or both.

use std::sync::Arc;

use counterfoil::flow::{FailureCode, RunError, WorkflowFn};
use counterfoil::ledger::{Compensation, OperationKey};
use counterfoil::store::QuestionKind;
use counterfoil::{Engine, Failure, Key};

use crate::flow;
use crate::flow::compensation::{Book, Way};
use crate::flow::lives::NAME;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

fn booked(what: &str) -> OperationKey {
    Key::of("book").target(what).render().unwrap()
}

/// A process on either store. What it books is undone without asking, unless it is the hotel.
fn life(world: &Arc<World>, schema: Option<&Schema>, code: &(impl WorkflowFn<(), u32> + Clone)) -> Process {
    let engine = match schema {
        None => Engine::sqlite(world.path()),
        Some(schema) => Engine::postgres_with(crate::server::url(), schema.options()),
    };
    let way = Way { fails: Some("hotel"), ..Way::by(Compensation::Automatic) };
    let engine = world.equip(engine, &world.tap).tool(Book(world.clone(), way));
    Process::start(world, engine.workflow(NAME, 1, code.clone()))
}

// A run that is blocked has undone nothing: who lets it go on again says what becomes of each effect.
#[test]
fn a_retry_undoes_what_it_is_told_to_and_does_it_again_only_if_told_so() {
    for schema in [None, Some(Schema::new())] {
        let world = World::new();
        let code = flow!(world, |ctx, _n: ()| {
            let train = ctx.call::<Book>("train".to_owned()).await;
            assert!(world.count("lives") > 1, "a bug");
            match train {
                Err(undone) if undone.code == FailureCode::Compensated => Ok(0),
                train => train,
            }
        });
        let process = life(&world, schema.as_ref(), &code);
        process.on(async {
            let run = process.acme().run(code.clone(), ()).start().await.unwrap();
            process.state(run.id(), "blocked").await;
            let retry = || run.retry("ann", "not by train").from_step("book").key("1");
            let unknown = retry().compensate(&booked("bus")).await;
            assert!(matches!(unknown, Err(RunError::NoSuchEffect { .. })), "{unknown:?}");
            retry().compensate(&booked("train")).await.unwrap();
            assert_eq!(run.result().await.unwrap(), 0, "it was undone, and is not done again");
            assert_eq!((world.effects("book").len(), world.effects("unbook").len()), (1, 1));
            retry().compensate(&booked("train")).await.unwrap(); // the same command again
            assert_eq!(world.effects("unbook"), ["train 1 b1"]);

            // A fork of what has ended does it again, beside what is undone.
            let again = run.fork("ann", "by train after all").from_step("book");
            let fork = again.compensate(&booked("train")).reissue(&booked("train")).await.unwrap();
            assert_eq!(fork.result().await.unwrap(), 2);
            assert_eq!((world.effects("book").len(), world.effects("unbook").len()), (2, 1));
            assert!(process.questions(QuestionKind::Orphaned).await.is_empty());
        });
        process.shut_down();
    }
}

// What cannot be undone keeps the run from being begun again, and the run is left as it is.
#[test]
fn a_run_is_not_begun_again_over_what_could_not_be_undone() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let hotel = ctx.call::<Book>("hotel".to_owned()).await?;
        assert!(world.count("lives") > 1, "a bug");
        Ok::<_, Failure>(hotel)
    });
    let process = life(&world, None, &code);
    process.on(async {
        let run = process.acme().run(code.clone(), ()).start().await.unwrap();
        process.state(run.id(), "blocked").await;
        let error = run.retry("ann", "not there").compensate(&booked("hotel")).await.unwrap_err();
        assert!(matches!(error, RunError::NotCompensated { .. }), "{error:?}");
        assert!(error.to_string().contains("no way back"), "{error}");
        assert_eq!(run.status().await.unwrap().state.name(), "blocked");
        run.retry("ann", "then there").await.unwrap();
        assert_eq!(run.result().await.unwrap(), 1, "it stands");
    });
    process.shut_down();
}
