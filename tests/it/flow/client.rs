//! A client beside engines: what it writes is taken up, what they do is seen, on both stores.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{
    ClientBuilder, FailureCode, RunError, RunState, Sent, TenantClient, Workflow, WorkflowFn,
};
use counterfoil::ledger::{Compensation, Queue};
use counterfoil::store::postgres::Options;
use counterfoil::store::{OpenError, QuestionKind, Resolution, StoreError};
use counterfoil::{ApprovalSubject, Client, Engine, Failure, RunId};
use serde_json::json;

use super::answers::Place;
use crate::flow;
use crate::flow::compensation::{Book, Way};
use crate::flow::lives::NAME;
use crate::flow::tools::Ring;
use crate::flow::wait::{Memory, settle};
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

impl Place {
    pub(super) fn client(&self, world: &World) -> ClientBuilder {
        match self {
            Self::File => Client::sqlite(world.path()),
            Self::Schema(schema) => Client::postgres_with(crate::server::url(), schema.options()),
        }
    }

    /// A client's view of the tenant, on the process's runtime.
    fn acme(&self, world: &World, process: &Process) -> TenantClient {
        process.on(self.client(world).open()).unwrap().tenant("acme").unwrap()
    }
}

/// Resolves when a run is in this state, as the client sees it.
async fn until_state(acme: &TenantClient, run: RunId, state: &str) {
    while acme.handle::<()>(run).status().await.unwrap().state.name() != state {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_run_that_a_client_starts_is_carried_out_and_its_result_comes_back() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, input: u32| ctx.step("twice", &input, |input| input * 2).await);
        let process = Process::start(&world, place.engine(&world).workflow("twice", 3, code));
        let acme = place.acme(&world, &process);
        process.on(async {
            let run = acme.run_named("twice", 21).key("k").start().await.unwrap();
            assert_eq!(run.result().await.unwrap(), json!(42));
            assert_eq!(run.status().await.unwrap().version, 3, "the newest that the worker knows");
            assert_eq!(acme.handle::<u32>(run.id()).result().await.unwrap(), 42, "in a type of its own");
            let again = acme.run_named("twice", json!(21)).key("k").start().await.unwrap();
            assert_eq!(again.id(), run.id());
            let other = acme.run_named("twice", 22).key("k").await.unwrap_err();
            assert!(matches!(other, RunError::Conflict { .. }), "{other}");
            assert_eq!(acme.run_of_named("twice", "k").result().await.unwrap(), json!(42));
            assert_eq!(acme.run_named("twice", 4).await.unwrap(), json!(8), "and without a key");
        });
        process.shut_down();
    }
}

// Where no engine works, nothing is lost: the row waits for one.
#[test]
fn a_run_that_nobody_can_take_up_yet_begins_with_the_next_engine() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |_ctx, input: u32| Ok(input + 1));
        Process::start(&world, place.engine(&world)).shut_down();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let run = runtime.block_on(async {
            let client = place.client(&world).open().await.unwrap();
            let run = client.tenant("acme").unwrap().run_named("next", 1).start().await.unwrap().id();
            client.shutdown(Duration::ZERO).await;
            run
        });
        let process = Process::start(&world, place.engine(&world).workflow("next", 1, code));
        assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 2);
        process.shut_down();
    }
}

#[test]
fn a_signal_of_a_client_reaches_a_run_that_waits_and_one_that_is_under_way() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| {
            let first: u32 = ctx.signal("first").await?;
            world.pass("between").await;
            let second: u32 = ctx.signal("second").await?;
            Ok(first + second)
        });
        world.hold("between");
        let process = Process::start(&world, place.engine(&world).workflow(NAME, 1, code));
        let acme = place.acme(&world, &process);
        process.on(async {
            let run = acme.run_named(NAME, ()).key("o1").start().await.unwrap();
            until_state(&acme, run.id(), "waiting").await;
            let order = acme.run_of_named(NAME, "o1");
            assert_eq!(order.signal("first", 40).id("evt").await.unwrap(), Sent::New);
            world.reached("between").await;
            assert_eq!(order.signal("first", 40).id("evt").await.unwrap(), Sent::Before);
            assert_eq!(order.signal("second", 2).await.unwrap(), Sent::New);
            world.release("between");
            assert_eq!(run.result().await.unwrap(), json!(42));
        });
        process.shut_down();
    }
}

/// Waits for a signal that never comes, until it is wanted.
fn waits_until_wanted(world: &Arc<World>) -> impl WorkflowFn<(), u32> + Clone {
    flow!(world, |ctx, _input: ()| {
        if world.counted("wanted") == 0 {
            ctx.signal::<u32>("never").await?;
        }
        Ok(7_u32)
    })
}

#[test]
fn a_client_pauses_and_resumes() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| ctx.signal::<u32>("go").await);
        let process = place.life(&world, code);
        let acme = place.acme(&world, &process);
        process.on(async {
            let run = acme.run_named(NAME, ()).start().await.unwrap();
            until_state(&acme, run.id(), "waiting").await;
            run.pause("ann", "wait a moment").await.unwrap();
            until_state(&acme, run.id(), "blocked").await;
            assert_eq!(acme.questions().await.unwrap()[0].kind, QuestionKind::Paused);
            run.signal("go", 7).await.unwrap();
            run.resume("ann", "go on").await.unwrap();
            assert_eq!(run.result().await.unwrap(), json!(7));
        });
        process.shut_down();
    }
}

#[test]
fn a_client_cancels_retries_and_forks() {
    for place in Place::both() {
        let world = World::new();
        let process = place.life(&world, waits_until_wanted(&world));
        let acme = place.acme(&world, &process);
        process.on(async {
            let run = acme.run_named(NAME, ()).start().await.unwrap();
            until_state(&acme, run.id(), "waiting").await;
            run.cancel("ann", "not wanted").await.unwrap();
            let RunError::Failed { failure, .. } = run.result().await.unwrap_err() else { panic!() };
            assert_eq!(failure.code, FailureCode::Cancelled);
            world.count("wanted");
            run.retry("ann", "wanted after all").await.unwrap();
            assert_eq!(run.result().await.unwrap(), json!(7));
            let fork = run.fork("ann", "look once more").await.unwrap();
            assert_eq!(fork.result().await.unwrap(), json!(7));
        });
        process.shut_down();
    }
}

// The cancel comes from another process, between the queued row of a child and its commit.
#[test]
fn a_child_that_is_just_being_begun_is_cancelled_with_its_parent() {
    for place in Place::both() {
        let world = World::new();
        let child = flow!(world, |ctx, _input: ()| ctx.signal::<u32>("never").await);
        let parent = {
            let (world, child) = (world.clone(), child.clone());
            move |ctx: counterfoil::Ctx, _input: ()| {
                let (world, child) = (world.clone(), child.clone());
                async move {
                    let _memory = Memory(world);
                    ctx.child(child, ()).await
                }
            }
        };
        let engine = place.engine(&world).workflow(NAME, 1, parent).workflow("child", 1, child);
        let process = Process::start(&world, engine);
        let acme = place.acme(&world, &process);
        world.tap.hold(|change| change.run.as_ref().is_some_and(|run| run.parent.is_some()));
        process.on(async {
            let run = acme.run_named(NAME, ()).start().await.unwrap();
            world.tap.until(|tap| tap.held == 1).await;
            run.cancel("ann", "not wanted").await.unwrap();
            world.counts("forgotten", 1).await; // the code of the run is gone, and its cancellation is under way
            for _ in 0..20 {
                settle().await;
            }
            world.tap.release();
            let RunError::Failed { failure, .. } = run.result().await.unwrap_err() else { panic!() };
            assert_eq!(failure.code, FailureCode::Cancelled);
            let runs = acme.runs(None).await.unwrap();
            let child = runs.iter().find(|other| other.parent == Some(run.id())).unwrap().id;
            let child = acme.handle::<u32>(child).result().await.unwrap_err();
            let RunError::Failed { failure, .. } = child else { panic!("{child}") };
            assert_eq!(failure.message, "ann cancelled the run: not wanted");
        });
        process.shut_down();
    }
}

// The person's answer comes through the client; the run's process reads it, and decodes it.
#[test]
fn an_answer_of_a_client_counts_once_a_worker_has_read_it() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| ctx.call::<Ring>("door".into()).await);
        let run = place.rang(&world, code.clone());
        let process = place.life(&world, code);
        let acme = place.acme(&world, &process);
        process.on(async {
            while acme.questions().await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            until_state(&acme, run, "waiting").await;
            let question = acme.questions().await.unwrap().remove(0);
            acme.answer(question.id, Resolution::Happened(json!("seven")), "ann").await.unwrap();
            let misfit = async || {
                let asked = acme.questions().await.unwrap().remove(0);
                asked.waiting.is_some_and(|answer| answer.misfit.is_some())
            };
            while !misfit().await {
                tokio::task::yield_now().await;
            }
            acme.answer(question.id, Resolution::Happened(json!(7)), "ann").await.unwrap();
            assert_eq!(acme.handle::<u32>(run).result().await.unwrap(), 7);
        });
        assert_eq!(world.effects("ring").len(), 1);
        process.shut_down();
    }
}

// The client finds the run not blocked yet, and the code of the run is gone already.
#[test]
fn a_run_that_is_just_being_blocked_can_be_cancelled() {
    for place in Place::both() {
        let world = World::new();
        let process = place.life(&world, waits_until_wanted(&world));
        let acme = place.acme(&world, &process);
        process.on(async {
            let run = acme.run_named(NAME, ()).start().await.unwrap();
            until_state(&acme, run.id(), "waiting").await;
            world.tap.hold(|change| {
                let run = change.run.as_ref();
                run.is_some_and(|run| matches!(run.state, counterfoil::store::RunState::Blocked { .. }))
            });
            run.pause("ann", "lunch").await.unwrap();
            world.tap.until(|tap| tap.held == 1).await;
            run.cancel("bob", "never mind").await.unwrap();
            world.tap.release();
            is_cancelled(&acme, run.id()).await;
        });
        process.shut_down();
    }
}

#[test]
fn a_run_that_was_paused_and_cancelled_while_nobody_worked_is_cancelled() {
    for place in Place::both() {
        let world = World::new();
        let process = place.life(&world, waits_until_wanted(&world));
        let run = process.on(async {
            let run = process.acme().run_named(NAME, ()).start().await.unwrap().id();
            process.state(run, "waiting").await;
            run
        });
        process.shut_down();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = place.client(&world).open().await.unwrap();
            let handle = client.tenant("acme").unwrap().handle::<u32>(run);
            handle.pause("ann", "lunch").await.unwrap();
            handle.cancel("bob", "never mind").await.unwrap();
            client.shutdown(Duration::ZERO).await;
        });
        let process = place.life(&world, waits_until_wanted(&world));
        process.on(is_cancelled(&process.acme(), run));
        process.shut_down();
    }
}

// Once the code has received the cancellation, only the pause is left.
#[test]
fn a_run_that_was_told_of_its_cancellation_is_not_paused() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| {
            ctx.cancelled().await?;
            ctx.step("tidy up", &(), |()| world.count("tidied")).await
        });
        let process = place.life(&world, code.clone());
        let run = process.on(async {
            let run = process.acme().run_named(NAME, ()).start().await.unwrap().id();
            process.state(run, "waiting").await;
            run
        });
        process.shut_down();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = place.client(&world).open().await.unwrap();
            let handle = client.tenant("acme").unwrap().handle::<u32>(run);
            handle.pause("ann", "lunch").await.unwrap();
            handle.cancel("bob", "never mind").await.unwrap();
            client.shutdown(Duration::ZERO).await;
        });
        let process = place.life(&world, code);
        process.on(async {
            assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 1);
        });
        process.shut_down();
    }
}

/// Resolves when the run has ended because Bob has cancelled it.
async fn is_cancelled(acme: &TenantClient, run: RunId) {
    until_state(acme, run, "failed").await;
    let state = acme.handle::<u32>(run).status().await.unwrap().state;
    let RunState::Failed { failure } = state else { panic!("{state:?}") };
    assert_eq!(failure.code, FailureCode::Cancelled);
    assert_eq!(failure.message, "bob cancelled the run: never mind");
}

// The client knows no tool, and so no way to undo anything: the worker undoes it.
#[test]
fn a_blocked_run_that_a_client_ends_is_undone() {
    for abandons in [false, true] {
        for place in Place::both() {
            let world = World::new();
            let code = flow!(world, |ctx, _input: ()| {
                ctx.call::<Book>("hotel".to_owned()).await?;
                assert_eq!(world.counted("mended"), 1, "a bug");
                Ok(0_u32)
            });
            let book = Book(world.clone(), Way::by(Compensation::Automatic));
            let process = Process::start(&world, place.engine(&world).tool(book).workflow(NAME, 1, code));
            let acme = place.acme(&world, &process);
            process.on(async {
                let run = acme.run_named(NAME, ()).start().await.unwrap();
                until_state(&acme, run.id(), "blocked").await;
                if abandons {
                    let question = acme.questions().await.unwrap().remove(0);
                    acme.answer(question.id, Resolution::Abandon, "ann").await.unwrap();
                } else {
                    run.cancel("ann", "not wanted").await.unwrap();
                }
                let RunError::Failed { failure, .. } = run.result().await.unwrap_err() else { panic!() };
                let code = if abandons { FailureCode::Abandoned } else { FailureCode::Cancelled };
                assert_eq!(failure.code, code);
                assert!(acme.questions().await.unwrap().is_empty());
            });
            assert_eq!(world.effects("unbook"), ["hotel 1 b1"]);
            process.shut_down();
        }
    }
}

#[test]
fn an_answer_of_a_client_does_not_wait_for_the_other_answers() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| {
            ctx.call::<Book>("train".to_owned()).await?;
            ctx.call::<Book>("hotel".to_owned()).await?;
            Err::<u32, _>(Failure::new("no money"))
        });
        let book = Book(world.clone(), Way::by(Compensation::Approved));
        let process = Process::start(&world, place.engine(&world).tool(book).workflow(NAME, 1, code));
        let acme = place.acme(&world, &process);
        process.on(async {
            let run = acme.run_named(NAME, ()).start().await.unwrap();
            let open = loop {
                let open = acme.questions().await.unwrap();
                if open.len() == 2 {
                    break open;
                }
                tokio::task::yield_now().await;
            };
            until_state(&acme, run.id(), "waiting").await;
            acme.answer(open[0].id, Resolution::Undo, "ann").await.unwrap();
            while world.effects("unbook").is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(acme.questions().await.unwrap().len(), 1, "the other question is open");
            acme.answer(open[1].id, Resolution::Keep, "ann").await.unwrap();
            assert!(matches!(run.result().await, Err(RunError::Failed { .. })));
        });
        assert_eq!(world.effects("unbook").len(), 1);
        process.shut_down();
    }
}

#[test]
fn a_decision_of_a_client_lets_the_run_go_on() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| {
            let subject = ApprovalSubject::of("notice", "granted");
            let approval = ctx.approval(subject).reviewers(["ann"]).await?;
            Ok(approval.by)
        });
        let process = Process::start(&world, place.engine(&world).workflow(NAME, 1, code));
        let acme = place.acme(&world, &process);
        process.on(async {
            let run = acme.run_named(NAME, ()).start().await.unwrap();
            while acme.reviews(None).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            until_state(&acme, run.id(), "waiting").await;
            let review = acme.reviews(None).await.unwrap().remove(0);
            acme.decide(&review.id, review.version).approve("ann").await.unwrap();
            assert_eq!(run.result().await.unwrap(), json!("ann"));
        });
        process.shut_down();
    }
}

// The client knows no code: the worker gives the run what its workflow says.
#[test]
fn a_run_of_a_client_has_the_queue_and_the_deadline_of_its_workflow() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: u32| {
            world.pass("inside").await;
            ctx.now().await?;
            Ok(0_u32)
        });
        world.hold("inside");
        let hour = Duration::from_hours(1);
        let queued = Workflow::new("queued", code).queue("narrow").deadline(hour);
        let engine = place.engine(&world).queue(Queue::new("narrow").concurrency(1)).register(queued);
        let process = Process::start(&world, engine);
        let acme = place.acme(&world, &process);
        process.on(async {
            let first = acme.run_named("queued", 1).start().await.unwrap();
            world.reached("inside").await;
            let second = acme.run_named("queued", 2).start().await.unwrap();
            until_state(&acme, second.id(), "queued").await;
            let third = acme.run_named("queued", 3).queue("narrow").priority(9).start().await.unwrap();
            assert_eq!(third.status().await.unwrap().state, RunState::Queued);
            let row = second.status().await.unwrap();
            assert_eq!(row.queue.unwrap().name.as_str(), "narrow");
            assert_eq!(row.deadline.unwrap(), row.started_at.after(hour));
            world.release("inside");
            for run in [first, second, third] {
                assert_eq!(run.result().await.unwrap(), json!(0));
                let row = run.status().await.unwrap();
                assert_eq!((row.version, row.deadline), (1, Some(row.started_at.after(hour))));
            }
        });
        process.shut_down();
    }
}

#[test]
fn an_input_that_the_workflow_cannot_read_is_found_by_the_worker() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |_ctx, input: u32| Ok(input));
        let process = Process::start(&world, place.engine(&world).workflow(NAME, 1, code));
        let acme = place.acme(&world, &process);
        process.on(async {
            let run = acme.run_named(NAME, "seven").start().await.unwrap();
            let blocked = run.result().await.unwrap_err();
            assert!(matches!(blocked, RunError::Blocked { .. }), "{blocked}");
            assert!(acme.questions().await.unwrap()[0].question.contains("u32"));
        });
        process.shut_down();
    }
}

#[test]
fn a_function_says_nothing_to_a_client() {
    let world = World::new();
    let code = flow!(world, |_ctx, input: u32| Ok(input));
    let process = Process::start(&world, Place::File.engine(&world).workflow(NAME, 1, code.clone()));
    let acme = Place::File.acme(&world, &process);
    process.on(async {
        for error in [
            acme.run(code.clone(), 1).await.unwrap_err(),
            acme.run_of(code.clone(), "k").result().await.unwrap_err(),
        ] {
            assert!(matches!(error, RunError::NoCode), "{error}");
        }
    });
    process.shut_down();
}

// An engine that starts on a file voids the writes of all earlier engines: not those of a client.
#[test]
fn a_client_outlives_the_engine() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |_ctx, input: u32| Ok(input));
        let first = Process::start(&world, place.engine(&world).workflow(NAME, 1, code.clone()));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(place.client(&world).open()).unwrap();
        let acme = client.tenant("acme").unwrap();
        first.crash();
        let run = runtime.block_on(acme.run_named(NAME, 1).start()).unwrap();
        let second = Process::start(&world, place.engine(&world).workflow(NAME, 1, code));
        assert_eq!(runtime.block_on(run.result()).unwrap(), json!(1));
        assert_eq!(runtime.block_on(acme.run_named(NAME, 2).into_future()).unwrap(), json!(2));
        second.shut_down();
        runtime.block_on(client.shutdown(Duration::ZERO));
    }
}

// Nothing depends on a hint: a client may die right after its commit.
#[test]
fn what_a_client_writes_is_found_without_a_hint() {
    let world = World::new();
    let schema = Schema::new();
    let silent = || Options { notify: false, ..schema.options() };
    let code = flow!(world, |ctx, _input: ()| ctx.signal::<u32>("go").await);
    let engine = world.equip(Engine::postgres_with(crate::server::url(), silent()), &world.tap);
    let process = Process::start(&world, engine.workflow(NAME, 1, code).lease(Duration::from_secs(1)));
    let client = process.on(Client::postgres_with(crate::server::url(), silent()).open()).unwrap();
    let acme = client.tenant("acme").unwrap();
    process.on(async {
        let run = acme.run_named(NAME, ()).start().await.unwrap();
        until_state(&acme, run.id(), "waiting").await;
        run.signal("go", 5).await.unwrap();
        assert_eq!(run.result().await.unwrap(), json!(5));
    });
    process.shut_down();
}

#[tokio::test]
async fn a_client_needs_a_file_that_an_engine_has_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.db");
    let refused = Client::sqlite(&path).open().await.unwrap_err().to_string();
    assert!(refused.contains("none.db") && refused.contains("start the engine first"), "{refused}");
    assert!(!path.exists());
    std::fs::write(&path, "").unwrap();
    let refused = Client::sqlite(&path).open().await.unwrap_err().to_string();
    assert!(refused.contains("start an engine of this version on it first"), "{refused}");
}

async fn order(ctx: counterfoil::Ctx, cents: u32) -> Result<u32, counterfoil::Failure> {
    let paid: u32 = ctx.signal("paid").await?;
    Ok(cents - paid)
}

/// The engine of the test below, in a process of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of `a_client_works_beside_an_engine_in_another_process`, which runs it in a process of its own"]
async fn the_engines_process() {
    let Ok(path) = std::env::var(DATABASE) else { return };
    let engine = Engine::sqlite(path).workflow("order", 1, order).start().await.unwrap();
    println!("\nit has the database");
    // Until it is killed.
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await.unwrap().unwrap();
    drop(engine);
}

const DATABASE: &str = "COUNTERFOIL_TEST_CLIENT_DATABASE";

async fn engine_at(path: &std::path::Path) -> tokio::process::Child {
    use tokio::io::AsyncBufReadExt as _;
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "flow::client::the_engines_process", "--ignored", "--nocapture"])
        .env(DATABASE, path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = tokio::io::BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next_line().await.unwrap().unwrap().contains("it has the database") {}
    child
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "a watchdog for a test that hangs, not a synchronisation")]
async fn a_client_works_beside_an_engine_in_another_process() {
    let worked = tokio::time::timeout(Duration::from_secs(60), beside_another_process());
    worked.await.expect("what the client waits for does not happen");
}

async fn beside_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agents.db");
    let mut engine = engine_at(&path).await;
    let client = Client::sqlite(&path).open().await.unwrap();
    let acme = client.default_tenant();
    let order = |n: u32| acme.run_of_named("order", format!("o{n}"));
    for n in 0..20 {
        acme.run_named("order", 100).key(format!("o{n}")).start().await.unwrap();
    }
    // Some of the runs wait as rows by now, some are under way, some have not begun.
    for n in 0..10 {
        order(n).signal("paid", n).id(format!("e{n}")).await.unwrap();
    }
    for n in 0..10 {
        assert_eq!(order(n).result().await.unwrap(), json!(100 - n));
    }
    engine.kill().await.unwrap();
    for n in 10..20 {
        order(n).signal("paid", n).await.unwrap(); // nobody is there to hear of it
    }
    let mut engine = engine_at(&path).await;
    for n in 10..20 {
        assert_eq!(order(n).result().await.unwrap(), json!(100 - n));
    }
    engine.kill().await.unwrap();
    client.shutdown(Duration::ZERO).await;
}

// A file whose rows were moved is given up: a client that was there before writes nothing that would be lost.
#[tokio::test]
async fn a_client_of_a_file_that_was_moved_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agents.db");
    Engine::sqlite(&path).start().await.unwrap().shutdown(Duration::ZERO).await;
    let client = Client::sqlite(&path).open().await.unwrap();
    let schema = Schema::new();
    counterfoil::store::transfer::move_all(&path, &crate::server::url(), schema.options(), |_| {})
        .await
        .unwrap();
    let refused = client.default_tenant().run_named("any", ()).await.unwrap_err();
    assert!(matches!(refused, RunError::Refused { .. }), "{refused}");
    let refused = Client::sqlite(&path).open().await.unwrap_err();
    let given_up = counterfoil::exec::StartError::Store(StoreError::Open(OpenError::GivenUp {
        path: path.canonicalize().unwrap().display().to_string(),
    }));
    assert_eq!(refused.to_string(), given_up.to_string());
}
