//! Another path after a crash: found before anything new goes out, asked about, and no effect forgotten
//! (DESIGN 4.1, invariant 7; FLOW-3, KEY-4, L01).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use counterfoil::flow::{FailureCode, RunError, WorkflowFn};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::{Approval, ApprovalSubject, Ctx, Engine, Failure, Key, RunId};
use futures_util::future::join;

use crate::flow;
use crate::flow::lives::{died_at, life, stand};
use crate::flow::tools::{Bill, Pay, Post, Tell, post};
use crate::flow::world::{Process, World};

async fn pay(ctx: &Ctx, reference: &str) -> Result<u32, Failure> {
    ctx.call::<Pay>(Bill::new(reference, 100)).await
}

async fn tell(ctx: &Ctx, what: &str) -> Result<u32, Failure> {
    let approval = Approval::of("bob", &ApprovalSubject::of("notice", what))?;
    ctx.call::<Tell>(what.to_owned()).id(what).approved_by(&approval).await
}

/// The life after the crash, when its run has stopped with a question.
fn blocked<W: WorkflowFn<(), u32>>(world: &Arc<World>, run: RunId, code: W) -> Process {
    let process = life(world, code);
    process.on(process.state(run, "blocked"));
    process
}

/// The keys that the questions about effects without an owner name.
async fn orphans(process: &Process) -> Vec<String> {
    let questions = process.questions(QuestionKind::Orphaned).await;
    let mut keys: Vec<_> =
        questions.iter().map(|asked| asked.question.split(' ').next().unwrap().to_owned()).collect();
    keys.sort();
    keys
}

fn paid(reference: &str) -> String {
    Key::of("pay").target("ann").operation(reference).render().unwrap().as_str().to_owned()
}

// KEY-4: the classic mistake is found before the second effect, and both keys are named.
#[test]
fn a_key_drawn_anew_is_reported_before_the_second_effect_goes_out() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let number = pay(&ctx, "random").await?;
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(number)
    });
    let run = died_at(&world, "stand", code.clone());
    assert_eq!((world.effects("pay").len(), world.counted("keys drawn")), (1, 1), "one life, one draw");

    let process = blocked(&world, run, code);
    assert_eq!(world.effects("pay"), ["random 100"], "the second one did not go out");
    assert_eq!(world.counted("pay called"), 1);
    let asked = process.on(process.question(QuestionKind::Diverged));
    for key in [paid("draw 1"), paid("draw 2")] {
        assert!(asked.question.contains(&key), "{key} is not named: {}", asked.question);
    }
    assert!(asked.question.contains("unstable key"), "{}", asked.question);

    // The answer to go on lets the first effect answer the request: the mistake in the key is still there.
    process.on(async {
        process.acme().answer(asked.id, Resolution::Resume, "bob").await.unwrap();
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 1);
    });
    assert_eq!(world.effects("pay").len(), 1);
    process.shut_down();
}

/// Which effect the code asks for: edited between two lives.
#[derive(Clone, Copy)]
enum Ask {
    Pay(&'static str),
    Tell(&'static str),
    Post(&'static str),
}

async fn asks(ctx: &Ctx, what: Ask) -> Result<u32, Failure> {
    match what {
        Ask::Pay(reference) => pay(ctx, reference).await,
        Ask::Tell(text) => tell(ctx, text).await,
        Ask::Post(text) => ctx.call::<Post>(text.to_owned()).id(text).await,
    }
}

fn errand(world: &Arc<World>, what: Ask) -> impl WorkflowFn<(), u32> + Clone + use<> {
    flow!(world, |ctx, _input: ()| {
        let number = asks(&ctx, what).await?;
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(number)
    })
}

fn all_effects(world: &World) -> Vec<String> {
    world.see(|seen| seen.effects.iter().map(|(tool, _, what)| format!("{tool} {what}")).collect())
}

// L01: another tool, or other arguments. Payments and notifications escalate.
#[test]
fn another_path_away_from_a_grave_effect_is_asked_about_before_anything_new_goes_out() {
    let paths = [
        (Ask::Pay("rent"), Ask::Pay("fine"), "stand", "pay rent 100"),
        (Ask::Pay("rent"), Ask::Tell("sorry"), "stand", "pay rent 100"),
        (Ask::Tell("hello"), Ask::Tell("sorry"), "stand", "tell hello"),
        (Ask::Tell("hello"), Ask::Post("note"), "stand", "tell hello"),
        // It had happened, but the engine had not heard of it.
        (Ask::Pay("rent"), Ask::Pay("fine"), "pay after", "pay rent 100"),
        (Ask::Tell("hello"), Ask::Post("note"), "tell after", "tell hello"),
    ];
    for (before, after, point, first) in paths {
        let world = World::new();
        let run = died_at(&world, point, errand(&world, before));
        let process = blocked(&world, run, errand(&world, after));
        assert_eq!(all_effects(&world), [first], "nothing new went out");
        let asked = process.on(process.question(QuestionKind::Diverged));
        assert!(asked.record.is_some() && asked.run == Some(run), "{asked:?}");
        assert!(asked.question.contains("which is new"), "{}", asked.question);
        process.shut_down();
    }
}

// FLOW-3: what the tool's policy adopts does not stop the run, and is listed when it ends.
#[test]
fn an_adopted_effect_lets_the_run_go_on_and_is_listed_at_its_end() {
    let world = World::new();
    let run = died_at(&world, "stand", errand(&world, Ask::Post("draft")));
    let process = life(&world, errand(&world, Ask::Post("final")));
    process.on(async {
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 2);
        assert_eq!(all_effects(&world), ["post draft", "post final"]);
        let listed = process.question(QuestionKind::Orphaned).await;
        assert!(listed.question.contains("draft") && listed.run == Some(run), "{listed:?}");
        assert!(process.questions(QuestionKind::Diverged).await.is_empty());
        process.acme().answer(listed.id, Resolution::Keep, "bob").await.unwrap();
        assert!(process.acme().questions().await.unwrap().is_empty(), "kept, and no longer asked about");
    });
    process.shut_down();
}

// Invariant 8: an answer "go on" ends the run on the new path, and the decision is not asked for again.
#[test]
fn going_on_sends_the_new_effect_and_the_kept_one_is_not_asked_about_again() {
    let world = World::new();
    let run = died_at(&world, "stand", errand(&world, Ask::Pay("rent")));
    let process = blocked(&world, run, errand(&world, Ask::Pay("fine")));
    let asked = process.on(process.question(QuestionKind::Diverged));
    process.on(process.acme().answer(asked.id, Resolution::Resume, "bob")).unwrap();
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 2);
    assert_eq!(all_effects(&world), ["pay rent 100", "pay fine 100"]);
    assert!(process.on(process.acme().questions()).unwrap().is_empty());
    let twice = process.on(process.acme().answer(asked.id, Resolution::Abandon, "eve"));
    assert!(twice.unwrap_err().to_string().contains("has been answered"));
    process.shut_down();
}

#[test]
fn abandoning_fails_the_run_and_lists_what_it_had_done() {
    let world = World::new();
    let run = died_at(&world, "stand", errand(&world, Ask::Pay("rent")));
    let process = blocked(&world, run, errand(&world, Ask::Pay("fine")));
    let asked = process.on(process.question(QuestionKind::Diverged));
    process.on(process.acme().answer(asked.id, Resolution::Abandon, "bob")).unwrap();
    let result = process.on(process.acme().handle::<u32>(run).result());
    let Err(RunError::Failed { failure, .. }) = result else { panic!("{result:?}") };
    assert_eq!(failure.code, FailureCode::Abandoned);
    assert_eq!(all_effects(&world), ["pay rent 100"], "the new one never goes out");
    assert_eq!(process.on(orphans(&process)), [paid("rent")]);
    process.shut_down();
}

// Invariant 7: each committed effect of a failed run, and nothing that failed itself, is an open question.
#[test]
fn a_failed_run_lists_every_effect_that_it_leaves_behind() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        pay(&ctx, "rent").await?;
        pay(&ctx, "fine").await?;
        assert_eq!(post(&ctx, "broke twice").await.unwrap_err().code, FailureCode::ToolFailed);
        Err::<u32, _>(Failure::new("out of ideas"))
    });
    let process = life(&world, code.clone());
    let result = process.on(async { process.acme().run(code, ()).await });
    let Err(RunError::Failed { failure, .. }) = result else { panic!("{result:?}") };
    assert_eq!(failure.message, "out of ideas");
    assert_eq!(process.on(orphans(&process)), [paid("fine"), paid("rent")]);
    process.shut_down();
    let process = Process::start(&world, Engine::sqlite(world.path()));
    assert_eq!(process.on(orphans(&process)).len(), 2, "still listed in another life");
    process.shut_down();
}

/// Gives way, as a branch does that is at work and has more to ask for.
async fn not_at_rest() {
    let mut left = 20;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Two branches, in this order of asking: one that goes on through what it recorded, and a new one.
fn branches(
    world: &Arc<World>,
    second: &'static str,
    new_first: bool,
) -> impl WorkflowFn<(), u32> + Clone + use<> {
    flow!(world, |ctx, _input: ()| {
        let recorded = async {
            pay(&ctx, "rent").await?;
            not_at_rest().await;
            pay(&ctx, second).await
        };
        let new = async { post(&ctx, "new").await };
        let (a, b) = if new_first {
            let (b, a) = join(new, recorded).await;
            (a, b)
        } else {
            join(recorded, new).await
        };
        Ok::<_, Failure>(a? + b?)
    })
}

fn died_with_two_payments(world: &Arc<World>) -> RunId {
    let code = flow!(world, |ctx, _input: ()| {
        let number = pay(&ctx, "rent").await? + pay(&ctx, "fine").await?;
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(number)
    });
    died_at(world, "stand", code)
}

// FLOW-3: a branch that is quicker to ask for something new waits for the one that is still replaying.
#[test]
fn a_new_effect_waits_for_the_branch_that_still_has_records_to_ask_for() {
    for new_first in [true, false] {
        let world = World::new();
        let run = died_with_two_payments(&world);
        let process = life(&world, branches(&world, "fine", new_first));
        let result = process.on(process.acme().handle::<u32>(run).result());
        assert_eq!(result.unwrap(), 3, "new first: {new_first}");
        assert_eq!(all_effects(&world), ["pay rent 100", "pay fine 100", "post new"]);
        assert!(process.on(process.acme().questions()).unwrap().is_empty(), "new first: {new_first}");
        process.shut_down();
    }
}

#[test]
fn a_new_effect_does_not_slip_out_before_another_branch_turns_out_to_have_diverged() {
    for new_first in [true, false] {
        let world = World::new();
        let run = died_with_two_payments(&world);
        let process = blocked(&world, run, branches(&world, "toll", new_first));
        assert_eq!(all_effects(&world), ["pay rent 100", "pay fine 100"], "new first: {new_first}");
        let asked = process.on(process.question(QuestionKind::Diverged));
        assert!(asked.question.contains(&paid("fine")), "{}", asked.question);
        process.shut_down();
    }
}
