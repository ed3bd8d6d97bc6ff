//! Undoing what a run did that did not end well, on an embedded engine: what is undone, in which order, and what is said about
//! the rest (SAGA-1 to SAGA-6; HAZARDS H).

use std::sync::Arc;

use counterfoil::exec::Compensated;
use counterfoil::flow::{EffectOutcome, EngineBuilder, FailureCode, RunError};
use counterfoil::guard::approval::OpenReview;
use counterfoil::ledger::{
    Compensation, Divergence, EffectClass, ErrorKind, LookupResult, OperationKey, State, Undone,
};
use counterfoil::store::{QuestionKind, Resolution, RunState};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key, Tenant};
use serde_json::json;

use crate::flow;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

/// How a booking is undone.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) policy: Compensation,
    /// It fails for good, for this one.
    pub(crate) fails: Option<&'static str>,
    /// So much is left of it.
    pub(crate) rest: Option<&'static str>,
}

impl Way {
    pub(crate) fn by(policy: Compensation) -> Self {
        Self { policy, fails: None, rest: None }
    }
}

/// Books something by name, and unbooks it.
pub(crate) struct Book(pub(crate) Arc<World>, pub(crate) Way);

impl Tool for Book {
    const NAME: &'static str = "book";
    type Effect = effect::Undoable<effect::Payment>;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;

    fn key(&self, what: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(what))
    }

    fn divergence(&self) -> Divergence {
        Divergence::Compensate
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<u32>, ToolError> {
        if what == "sold out" {
            return Err(ToolError::new(ErrorKind::Validation, "sold out"));
        }
        self.0.pass(what).await;
        let number = self.0.happen("book", call.key(), what);
        Ok(Done::new(number).external_ref(format!("b{number}")))
    }
}

impl Compensate for Book {
    fn policy(&self) -> Compensation {
        self.1.policy.clone()
    }

    async fn compensate(
        &self,
        call: &Call,
        forward: &OriginalCall<String, u32>,
    ) -> Result<Done<Undone>, ToolError> {
        let what = forward.input().cloned().unwrap_or_default();
        assert_ne!(forward.key(), call.key(), "the way back has a key of its own");
        if self.1.fails == Some(what.as_str()) {
            return Err(ToolError::new(ErrorKind::Validation, "no way back"));
        }
        self.0.pass(&format!("back {what}")).await;
        let number = forward.output().copied();
        let effect = forward.external_ref().unwrap_or("-");
        self.0.happen("unbook", call.key(), &format!("{what} {} {effect}", number.unwrap_or_default()));
        Ok(self.1.rest.map_or(Undone::whole(), Undone::part).detail(number).into())
    }

    async fn find_compensation(
        &self,
        _: &Call,
        _: &OriginalCall<String, u32>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::Unknown)
    }
}

/// Posts a letter, and nobody can tell whether it was.
struct Letter(Arc<World>);

impl Tool for Letter {
    const NAME: &'static str = "letter";
    type Effect = effect::Undoable<effect::InternalMutation>;
    type Contract = contract::Blind;
    type Input = ();
    type Output = ();

    fn key(&self, (): &()) -> Option<Key> {
        Some(Key::of(Self::NAME).target("letter"))
    }

    async fn call(&self, _: &Call, (): &()) -> Result<Done<()>, ToolError> {
        self.0.count("posted");
        Err(ToolError::new(ErrorKind::Disconnected, "no answer"))
    }
}

impl Compensate for Letter {
    async fn compensate(&self, call: &Call, _: &OriginalCall<(), ()>) -> Result<Done<Undone>, ToolError> {
        self.0.happen("unbook", call.key(), "letter");
        Ok(Undone::whole().into())
    }

    async fn find_compensation(
        &self,
        _: &Call,
        _: &OriginalCall<(), ()>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::Unknown)
    }
}

/// Hires a car at a provider that knows no keys, and gives it back as often as it is asked to.
struct Hire(Arc<World>);

impl Tool for Hire {
    const NAME: &'static str = "hire";
    type Effect = effect::Undoable<effect::Payment>;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = String;

    fn key(&self, what: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(what))
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<String>, ToolError> {
        self.0.happen("hire", call.key(), what);
        Ok(Done::new(what.clone()).external_ref(what))
    }
}

impl Reconcile for Hire {
    async fn reconcile(&self, _: &Call, what: &String) -> Result<LookupResult<String>, ToolError> {
        let hired = self.0.effects("hire").contains(what);
        let found = || LookupResult::Committed { output: what.clone(), external_ref: Some(what.clone()) };
        Ok(if hired { found() } else { LookupResult::NotFound })
    }
}

impl Compensate for Hire {
    async fn compensate(
        &self,
        call: &Call,
        forward: &OriginalCall<String, String>,
    ) -> Result<Done<Undone>, ToolError> {
        self.0.happen("unbook", call.key(), forward.external_ref().unwrap_or_default());
        Ok(Undone::whole().detail("by the engine").into())
    }

    async fn find_compensation(
        &self,
        _: &Call,
        forward: &OriginalCall<String, String>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        self.0.count("looked");
        if forward.external_ref() == Some("unseen") && self.0.counted("shown") == 0 {
            return Err(ToolError::new(ErrorKind::Server, "no answer"));
        }
        let back = self.0.effects("unbook").iter().any(|back| Some(back.as_str()) == forward.external_ref());
        let output = Undone::whole().detail("by hand");
        Ok(if back { LookupResult::Committed { output, external_ref: None } } else { LookupResult::NotFound })
    }
}

/// Books all of them, one after the other.
async fn trip(ctx: Ctx, stops: Vec<String>) -> Result<u32, Failure> {
    for stop in &stops {
        ctx.call::<Book>(stop.clone()).await?;
    }
    Ok(0)
}

fn stops(of: &[&str]) -> Vec<String> {
    of.iter().map(|stop| (*stop).to_owned()).collect()
}

fn engine(world: &Arc<World>, way: Way) -> EngineBuilder {
    let tap = world.tap.clone();
    let engine = Engine::sqlite(world.path()).wrap_store(move |store| tap.around(store));
    engine.tool(Book(world.clone(), way)).tool(Letter(world.clone()))
}

fn start(world: &Arc<World>, way: Way) -> Process {
    Process::start(world, engine(world, way).workflow("trip", 1, trip))
}

fn failure(error: RunError) -> Failure {
    match error {
        RunError::Failed { failure, .. } => failure,
        other => panic!("the run should have failed, and: {other}"),
    }
}

/// What a failed run says of its effects.
fn told(failure: &Failure) -> Vec<(&str, &EffectOutcome)> {
    failure.effects.iter().map(|effect| (effect.key.as_str(), &effect.became)).collect()
}

fn stands(why: &str) -> EffectOutcome {
    EffectOutcome::Stands { why: why.to_owned() }
}

async fn record(process: &Process, key: &str) -> State {
    let key: OperationKey = Key::of("book").target(key).render().unwrap();
    process.engine().executor().record(&Tenant::new("acme").unwrap(), &key).await.unwrap().unwrap().0.state
}

// SAGA-1, H10, H11: the last first, each under a key of its own, told what its call was; and nothing is left to ask.
#[test]
fn what_a_failed_run_did_is_undone_the_last_first() {
    let world = World::new();
    let process = start(&world, Way::by(Compensation::Automatic));
    process.on(async {
        let run = process.acme().run(trip, stops(&["train", "hotel", "sold out"])).key("r").await;
        let failure = failure(run.unwrap_err());
        assert_eq!(failure.code, FailureCode::ToolFailed, "{failure}");
        assert_eq!(
            told(&failure),
            [("book:hotel", &EffectOutcome::Undone), ("book:train", &EffectOutcome::Undone)]
        );
        assert_eq!(world.effects("unbook"), ["hotel 2 b2", "train 1 b1"]);
        assert!(matches!(record(&process, "train").await, State::Compensated { whole: true, .. }));
        assert!(process.acme().questions().await.unwrap().is_empty());
    });
}

/// Books all that is said of it, beside a child that books two; and hears of its end before the last.
async fn tour(ctx: Ctx, last: Vec<String>) -> Result<u32, Failure> {
    ctx.call::<Book>("train".to_owned()).await?;
    let child = ctx.child(trip, stops(&["hotel", "theatre"])).start().await?;
    ctx.call::<Book>("boat".to_owned()).await?;
    child.result().await?;
    trip(ctx, last).await
}

const TOUR: [&str; 5] = ["book:taxi", "book:theatre", "book:hotel", "book:boat", "book:train"];

fn agency(builder: EngineBuilder, world: &Arc<World>) -> Process {
    Process::start(world, builder.workflow("trip", 1, trip).workflow("tour", 1, tour))
}

#[test]
fn what_a_child_did_is_undone_where_its_end_was_received() {
    let schema = Schema::new();
    let world = World::new();
    let postgres = Engine::postgres_with(crate::server::url(), schema.options())
        .tool(Book(world.clone(), Way::by(Compensation::Automatic)));
    for builder in [engine(&world, Way::by(Compensation::Automatic)), postgres] {
        let process = agency(builder, &world);
        process.on(async {
            let run = process.acme().run(tour, stops(&["taxi", "sold out"])).key("r").start().await.unwrap();
            let failure = failure(run.result().await.unwrap_err());
            let undone: Vec<_> = TOUR.map(|key| (key, &EffectOutcome::Undone)).into();
            assert_eq!(told(&failure), undone);
            assert!(process.acme().questions().await.unwrap().is_empty());
        });
        process.shut_down();
    }
    assert_eq!(world.effects("unbook").len(), 2 * TOUR.len());
}

#[test]
fn what_a_child_did_and_nobody_can_undo_is_asked_about() {
    let world = World::new();
    let process = agency(engine(&world, Way::by(Compensation::Never { remedy: "call them".into() })), &world);
    process.on(async {
        let run = process.acme().run(tour, stops(&["taxi", "sold out"])).key("r").start().await.unwrap();
        let failure = failure(run.result().await.unwrap_err());
        let stands = stands("call them");
        let all: Vec<_> = TOUR.map(|key| (key, &stands)).into();
        assert_eq!(told(&failure), all);
        let open = process.questions(QuestionKind::Orphaned).await;
        assert_eq!(open.len(), TOUR.len());
        assert!(open.iter().all(|question| question.run == Some(run.id())), "{open:#?}");
        assert!(open.iter().any(|question| question.question.contains("is a child of")), "{open:#?}");
    });
}

// A retry begins a child anew that was undone with it: its result would be that of something that is not there.
#[test]
fn a_child_that_was_undone_is_begun_anew_by_a_retry() {
    let world = World::new();
    let process = agency(engine(&world, Way::by(Compensation::Automatic)), &world);
    process.on(async {
        let run = process.acme().run(tour, stops(&["taxi", "sold out"])).key("r").start().await.unwrap();
        assert_eq!(failure(run.result().await.unwrap_err()).code, FailureCode::ToolFailed);
        let train = Key::of("book").target("train").render().unwrap();
        let boat = Key::of("book").target("boat").render().unwrap();
        run.retry("ann", "once more").reissue(&train).reissue(&boat).await.unwrap();
        let failure = failure(run.result().await.unwrap_err());
        assert_eq!(failure.code, FailureCode::ChildFailed, "{failure}");
        assert!(failure.message.contains("was done and undone"), "{failure}");
    });
}

/// Rides somewhere, and back; a ride has no key.
struct Ride(Arc<World>);

impl Tool for Ride {
    const NAME: &'static str = "ride";
    type Effect = effect::Undoable<effect::InternalMutation>;
    type Contract = contract::ReplaysKey;
    type Input = ();
    type Output = ();

    async fn call(&self, call: &Call, (): &()) -> Result<Done<()>, ToolError> {
        self.0.happen("ride", call.key(), "there");
        Ok(Done::new(()))
    }
}

impl Compensate for Ride {
    async fn compensate(&self, call: &Call, _: &OriginalCall<(), ()>) -> Result<Done<Undone>, ToolError> {
        self.0.happen("ride", call.key(), "back");
        Ok(Undone::whole().into())
    }

    async fn find_compensation(
        &self,
        _: &Call,
        _: &OriginalCall<(), ()>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::Unknown)
    }
}

// What was undone is not there any more: a child that is begun again does it again, as often as it was undone.
#[test]
fn what_a_child_did_without_a_key_and_was_undone_is_done_again_with_it() {
    async fn rides(ctx: Ctx, (): ()) -> Result<(), Failure> {
        ctx.call::<Ride>(()).await
    }
    async fn visits(ctx: Ctx, (): ()) -> Result<(), Failure> {
        ctx.child(rides, ()).await?;
        Err(Failure::new("nobody is at home"))
    }
    let world = World::new();
    let builder = engine(&world, Way::by(Compensation::Automatic)).tool(Ride(world.clone()));
    let builder = builder.workflow("rides", 1, rides).workflow("visits", 1, visits);
    let process = Process::start(&world, builder);
    process.on(async {
        let run = process.acme().run(visits, ()).key("r").start().await.unwrap();
        for time in 1..=3 {
            let failure = failure(run.result().await.unwrap_err());
            assert_eq!(failure.message, "nobody is at home");
            assert_eq!(world.effects("ride"), ["there", "back"].repeat(time));
            run.retry("ann", "perhaps now").await.unwrap();
        }
    });
    process.shut_down();
}

#[test]
fn a_child_that_stands_alone_is_listed_and_not_undone() {
    async fn sends_off(ctx: Ctx, (): ()) -> Result<u32, Failure> {
        ctx.child(trip, stops(&["hotel"])).detach().await?;
        Err(Failure::new("no more"))
    }
    let world = World::new();
    let builder = engine(&world, Way::by(Compensation::Automatic));
    let process =
        Process::start(&world, builder.workflow("trip", 1, trip).workflow("sends off", 1, sends_off));
    process.on(async {
        let failure = failure(process.acme().run(sends_off, ()).await.unwrap_err());
        let [alone] = failure.detached[..] else { panic!("{failure:?}") };
        process.acme().handle::<u32>(alone).result().await.unwrap();
        assert_eq!((world.effects("book").len(), world.effects("unbook").len()), (1, 0));
    });
}

// KEY, SAGA-1: a retry does not do again what was undone, unless somebody says so; then it is done, and undone, under a key of its
// own.
#[test]
fn a_retried_run_is_told_what_was_undone() {
    let world = World::new();
    let process = start(&world, Way::by(Compensation::Automatic));
    process.on(async {
        let run = process.acme().run(trip, stops(&["train", "sold out"])).key("r").start().await.unwrap();
        assert_eq!(failure(run.result().await.unwrap_err()).code, FailureCode::ToolFailed);
        run.retry("ann", "once more").await.unwrap();
        assert_eq!(failure(run.result().await.unwrap_err()).code, FailureCode::Compensated);
        assert_eq!((world.effects("book").len(), world.effects("unbook").len()), (1, 1));
        let train = Key::of("book").target("train").render().unwrap();
        run.retry("ann", "book it again").reissue(&train).await.unwrap();
        let again = failure(run.result().await.unwrap_err());
        assert_eq!(again.code, FailureCode::ToolFailed, "{again}");
        assert_eq!(world.effects("book").len(), 2);
        assert_eq!(world.effects("unbook"), ["train 1 b1", "train 2 b2"]);
        assert!(process.acme().questions().await.unwrap().is_empty());
    });
}

// SAGA-2: never means that a person is told what to do.
#[test]
fn what_must_never_be_undone_is_asked_about_with_its_remedy() {
    let world = World::new();
    let process = start(&world, Way::by(Compensation::Never { remedy: "call the hotel".to_owned() }));
    process.on(async {
        let failure = failure(process.acme().run(trip, stops(&["hotel", "sold out"])).await.unwrap_err());
        assert_eq!(told(&failure), [("book:hotel", &stands("call the hotel"))]);
        let question = process.question(QuestionKind::Orphaned).await;
        assert!(question.question.contains("call the hotel"), "{}", question.question);
        assert!(world.effects("unbook").is_empty());
        // They did: the record says so.
        let done = Resolution::Undone(json!("by telephone"));
        process.acme().answer(question.id, done, "ann").await.unwrap();
        assert!(matches!(record(&process, "hotel").await, State::Compensated { whole: true, .. }));
    });
}

// Invariants 7 and 8: what is left of a record does not say how to undo its effect. A run that is begun again and fails passes
// over none.
#[test]
fn an_effect_whose_record_is_gone_is_asked_about() {
    async fn risky(ctx: Ctx, (): ()) -> Result<u32, Failure> {
        let _booked_or_gone = ctx.call::<Book>("train".to_owned()).await;
        Err(Failure::new("no way on"))
    }
    let world = World::new();
    let never = Way::by(Compensation::Never { remedy: "call them".to_owned() });
    let process = Process::start(&world, engine(&world, never).workflow("risky", 1, risky));
    process.on(async {
        let (acme, tenant) = (process.acme(), Tenant::new("acme").unwrap());
        let run = acme.run(risky, ()).start().await.unwrap();
        assert_eq!(told(&failure(run.result().await.unwrap_err())), [("book:train", &stands("call them"))]);
        let kept = process.question(QuestionKind::Orphaned).await;
        acme.answer(kept.id, Resolution::Keep, "ann").await.unwrap();
        let train = Key::of("book").target("train").render().unwrap();
        process.engine().executor().erase(&tenant, &train).await.unwrap();

        run.retry("ann", "once more").await.unwrap();
        let why = "its record's time was over: what is left no longer says how to undo it";
        assert_eq!(told(&failure(run.result().await.unwrap_err())), [("book:train", &stands(why))]);
        let asked = process.question(QuestionKind::Orphaned).await;
        assert!(asked.question.contains(why) && asked.run == Some(run.id()), "{asked:?}");
        acme.answer(asked.id, Resolution::Undone(json!("by telephone")), "ann").await.unwrap();
        assert!(acme.questions().await.unwrap().is_empty());
        assert!(matches!(record(&process, "train").await, State::Gone { .. }));
        assert_eq!(world.effects("book").len(), 1);
    });
}

// SAGA-2: after approval. The run waits as a row, also through a crash, is asked once, and each answer is its own effect's.
#[test]
fn what_is_undone_after_approval_waits_for_it() {
    let world = World::new();
    let run = {
        let process = start(&world, Way::by(Compensation::Approved));
        let run = process.on(async {
            let run = process.acme().run(trip, stops(&["train", "hotel", "sold out"])).key("r").start().await;
            let run = run.unwrap().id();
            process.state(run, "waiting").await;
            assert_eq!(process.questions(QuestionKind::Compensation).await.len(), 2);
            run
        });
        process.crash();
        run
    };
    let process = start(&world, Way::by(Compensation::Approved));
    process.on(async {
        let open = process.questions(QuestionKind::Compensation).await;
        assert_eq!(open.len(), 2, "asked once each: {open:#?}");
        for question in open {
            let keeps = question.question.contains("book:train");
            let answer = if keeps { Resolution::Keep } else { Resolution::Undo };
            process.acme().answer(question.id, answer, "ann").await.unwrap();
        }
        let failure = failure(process.acme().handle::<u32>(run).result().await.unwrap_err());
        assert_eq!(
            told(&failure),
            [("book:hotel", &EffectOutcome::Undone), ("book:train", &stands("ann decided to leave it"))]
        );
        assert_eq!(
            process.acme().questions().await.unwrap(),
            [],
            "what was decided is not asked about again"
        );
        assert_eq!(world.effects("unbook"), ["hotel 2 b2"]);
    });
}

// SAGA-2: a run that was retried and fails again asks once more. It obeys the answer to the new question, also after a crash.
#[test]
fn what_is_undone_after_a_retry_waits_for_an_approval_of_its_own() {
    for crashes in [false, true] {
        let world = World::new();
        let mut process = start(&world, Way::by(Compensation::Approved));
        let run = process.on(async {
            let acme = process.acme();
            let run = acme.run(trip, stops(&["hotel", "sold out"])).key("r").start().await.unwrap();
            process.state(run.id(), "waiting").await;
            let first = process.question(QuestionKind::Compensation).await;
            acme.answer(first.id, Resolution::Keep, "ann").await.unwrap();
            let kept = failure(run.result().await.unwrap_err());
            assert_eq!(told(&kept), [("book:hotel", &stands("ann decided to leave it"))]);
            run.retry("ann", "once more").await.unwrap();
            process.state(run.id(), "waiting").await;
            run.id()
        });
        if crashes {
            process.crash();
            process = start(&world, Way::by(Compensation::Approved));
        }
        process.on(async {
            let acme = process.acme();
            let second = process.question(QuestionKind::Compensation).await;
            acme.answer(second.id, Resolution::Undo, "ann").await.unwrap();
            let undone = failure(acme.handle::<u32>(run).result().await.unwrap_err());
            assert_eq!(told(&undone), [("book:hotel", &EffectOutcome::Undone)], "crash: {crashes}");
            assert_eq!(world.effects("unbook"), ["hotel 1 b1"]);
            assert_eq!(acme.questions().await.unwrap(), []);
        });
    }
}

// The process dies between the answer and the wake-up of the run, which has another open question.
#[test]
fn an_answer_is_carried_out_by_the_next_process_while_another_question_is_open() {
    let world = World::new();
    let process = start(&world, Way::by(Compensation::Approved));
    process.on(async {
        let run = process.acme().run(trip, stops(&["train", "hotel", "sold out"])).key("r").start().await;
        process.state(run.unwrap().id(), "waiting").await;
        let open = process.questions(QuestionKind::Compensation).await;
        world.tap.cut(|change| change.run.as_ref().is_some_and(|run| run.state == RunState::Active));
        tokio::select! {
            biased;
            _ = process.acme().answer(open[0].id, Resolution::Undo, "ann") => panic!("the wake-up is cut off"),
            () = world.tap.until(|tap| tap.held > 0) => {}
        }
    });
    process.crash();
    world.tap.mend();
    let process = start(&world, Way::by(Compensation::Approved));
    process.on(async {
        while world.effects("unbook").is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            process.questions(QuestionKind::Compensation).await.len(),
            1,
            "the other question is open"
        );
    });
    assert_eq!(world.effects("unbook").len(), 1);
}

// SAGA-2: by reviewers, of whom enough must be in favour. A single person answers the question no more than a stranger does.
#[test]
fn what_is_undone_after_a_review_takes_a_quorum() {
    let policy = Compensation::reviewed(["ann", "bob", "carl"], 2);
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        let life = || {
            let builder = if shared {
                let postgres = Engine::postgres_with(crate::server::url(), schema.options());
                let book = Book(world.clone(), Way::by(policy.clone()));
                let tap = world.tap.clone();
                let postgres = postgres.wrap_store(move |store| tap.around(store));
                postgres.lease(std::time::Duration::from_secs(1)).tool(book)
            } else {
                engine(&world, Way::by(policy.clone()))
            };
            Process::start(&world, builder.workflow("trip", 1, trip))
        };
        let process = life();
        let run = process.on(async {
            let run = process.acme().run(trip, stops(&["train", "hotel", "sold out"])).key("r").start().await;
            let run = run.unwrap().id();
            process.until(async |acme| acme.reviews(None).await.unwrap().len() == 2).await;
            process.state(run, "waiting").await;
            run
        });
        process.crash();
        let process = life();
        process.on(async {
            let acme = process.acme();
            let questions = process.questions(QuestionKind::Compensation).await;
            let alone = acme.answer(questions[0].id, Resolution::Undo, "ann").await.unwrap_err();
            assert!(alone.to_string().contains("its reviewers decide about it"), "{alone}");
            let reviews = acme.reviews(None).await.unwrap();
            let about = |what: &str| {
                let of = |open: &&OpenReview| open.review.content["key"] == format!("book:{what}");
                reviews.iter().find(of).unwrap()
            };
            assert_eq!(about("train").review.what, "undoing of book");
            let decide = |what: &str| acme.decide(&about(what).id, about(what).version);
            assert_eq!(decide("hotel").approve("ann").await.unwrap().outcome, None, "one of two");
            assert_eq!(decide("hotel").approve("ann").await.unwrap().approvals, 1, "twice is once");
            assert!(decide("hotel").approve("zoe").await.is_err(), "a stranger");
            assert!(world.effects("unbook").is_empty());
            decide("hotel").approve("carl").await.unwrap();
            decide("train").reject("bob", "they like trains").await.unwrap();
            let failure = failure(acme.handle::<u32>(run).result().await.unwrap_err());
            let stays = stands("bob decided to leave it");
            assert_eq!(told(&failure), [("book:hotel", &EffectOutcome::Undone), ("book:train", &stays)]);
            assert_eq!(acme.questions().await.unwrap(), [], "what was decided is not asked about again");
            assert_eq!(world.effects("unbook"), ["hotel 2 b2"]);
            assert!(acme.reviews(None).await.unwrap().is_empty());
        });
        process.shut_down();
    }
}

// SAGA-2: reviewers decide whether something is done. That it was done by hand already is a fact, and anybody may say it.
#[test]
fn an_undoing_by_hand_is_said_by_one_person_while_reviewers_are_asked() {
    let world = World::new();
    let policy = Compensation::reviewed(["ann", "bob", "carl"], 2);
    let process = start(&world, Way::by(policy));
    process.on(async {
        let acme = process.acme();
        let run = acme.run(trip, stops(&["hotel", "sold out"])).key("r").start().await.unwrap();
        process.until(async |acme| acme.reviews(None).await.unwrap().len() == 1).await;
        process.state(run.id(), "waiting").await;
        let asked = process.questions(QuestionKind::Compensation).await;
        let undone = Resolution::Undone(serde_json::json!("cancelled by phone"));
        acme.answer(asked[0].id, undone, "zoe").await.unwrap();
        let failure = failure(run.result().await.unwrap_err());
        assert_eq!(told(&failure), [("book:hotel", &EffectOutcome::Undone)]);
        assert!(world.effects("unbook").is_empty(), "nobody undid it once more");
        assert!(acme.reviews(None).await.unwrap().is_empty());
    });
}

// A review that nobody can decide is refused before anything is sent.
#[test]
fn too_few_reviewers_are_refused_at_registration() {
    for policy in [Compensation::reviewed(["ann"], 2), Compensation::reviewed(["ann"], 0)] {
        let world = World::new();
        let refused = engine(&world, Way::by(policy)).guarantees().unwrap_err().to_string();
        assert!(refused.contains("book") && refused.contains("reviewers"), "{refused}");
    }
}

// SAGA-3: one that cannot be undone is asked about, and does not stop the others.
#[test]
fn a_compensation_that_fails_for_good_is_asked_about_and_stops_no_other() {
    let world = World::new();
    let process = start(&world, Way { fails: Some("hotel"), ..Way::by(Compensation::Automatic) });
    process.on(async {
        let failure =
            failure(process.acme().run(trip, stops(&["train", "hotel", "sold out"])).await.unwrap_err());
        let why = stands("undoing it failed: validation: no way back");
        assert_eq!(told(&failure), [("book:hotel", &why), ("book:train", &EffectOutcome::Undone)]);
        let question = process.question(QuestionKind::Orphaned).await.question;
        assert!(question.contains("book:hotel") && question.contains("no way back"), "{question}");
    });
}

// H09: what was undone in part is recorded as that, and the rest is a question.
#[test]
fn a_partial_compensation_is_recorded_and_the_rest_asked_about() {
    let world = World::new();
    let process =
        start(&world, Way { rest: Some("half of it is paid out"), ..Way::by(Compensation::Automatic) });
    process.on(async {
        let failure = failure(process.acme().run(trip, stops(&["train", "sold out"])).await.unwrap_err());
        let part = EffectOutcome::UndoneInPart { rest: "half of it is paid out".to_owned() };
        assert_eq!(told(&failure), [("book:train", &part)]);
        assert!(matches!(record(&process, "train").await, State::Compensated { whole: false, .. }));
        let question = process.question(QuestionKind::Orphaned).await;
        assert!(question.question.contains("half of it is paid out"), "{}", question.question);
        assert_eq!(world.effects("unbook").len(), 1);
    });
}

// H01, H05: the process dies in the middle of undoing; the next one goes on where it was. What was sent is not sent as another.
#[test]
fn a_crash_in_the_middle_of_undoing_undoes_nothing_twice() {
    let world = World::new();
    world.hold("back train");
    let run = {
        let process = start(&world, Way::by(Compensation::Automatic));
        let run = process.on(async {
            let run = process.acme().run(trip, stops(&["train", "hotel", "sold out"])).key("r").start().await;
            world.reached("back train").await;
            run.unwrap().id()
        });
        process.crash();
        run
    };
    world.release("back train");
    let process = start(&world, Way::by(Compensation::Automatic));
    process.on(async {
        let failure = failure(process.acme().handle::<u32>(run).result().await.unwrap_err());
        assert_eq!(
            told(&failure),
            [("book:hotel", &EffectOutcome::Undone), ("book:train", &EffectOutcome::Undone)]
        );
        assert_eq!(world.effects("unbook"), ["hotel 2 b2", "train 1 b1"]);
        assert_eq!(world.effects("book").len(), 2, "its code is not run again");
    });
}

// SAGA-6: an effect that another run rests on is not undone.
#[test]
fn a_shared_effect_is_not_undone_but_asked_about() {
    let world = World::new();
    world.hold("hotel");
    let process = start(&world, Way::by(Compensation::Automatic));
    process.on(async {
        let owner =
            process.acme().run(trip, stops(&["train", "hotel", "sold out"])).key("owner").start().await;
        world.reached("hotel").await;
        // Another run is answered from the owner's train, and ends well.
        process.acme().run(trip, stops(&["train"])).key("other").await.unwrap();
        world.release("hotel");
        let failure = failure(owner.unwrap().result().await.unwrap_err());
        assert_eq!(told(&failure)[0], ("book:hotel", &EffectOutcome::Undone));
        assert!(
            matches!(told(&failure)[1].1, EffectOutcome::Stands { why } if why.contains("shared")),
            "{failure:?}"
        );
        assert_eq!(world.effects("unbook"), ["hotel 2 b2"]);
        assert!(process.question(QuestionKind::Orphaned).await.question.contains("book:train"));
    });
}

// SAGA-1: cancelled, and abandoned after it was blocked: the same as failed.
#[test]
fn a_cancelled_or_abandoned_run_is_undone_too() {
    let world = World::new();
    let waits = flow!(world, |ctx, stop: String| {
        ctx.call::<Book>(stop.clone()).await?;
        assert_ne!(stop, "hotel", "a bug");
        ctx.signal::<()>("go").await
    });
    let process = Process::start(
        &world,
        engine(&world, Way::by(Compensation::Automatic)).workflow("waits", 1, waits.clone()),
    );
    process.on(async {
        let acme = process.acme();
        let run = acme.run(waits.clone(), "train".to_owned()).key("r").start().await.unwrap().id();
        process.state(run, "waiting").await;
        acme.handle::<()>(run).cancel("ann", "withdrawn").await.unwrap();
        let cancelled = failure(acme.handle::<()>(run).result().await.unwrap_err());
        assert_eq!(told(&cancelled), [("book:train", &EffectOutcome::Undone)]);
        assert_eq!(cancelled.code, FailureCode::Cancelled);

        let run = acme.run(waits.clone(), "hotel".to_owned()).key("s").start().await.unwrap().id();
        process.state(run, "blocked").await;
        let question = process.question(QuestionKind::Quarantined).await;
        acme.answer(question.id, Resolution::Abandon, "ann").await.unwrap();
        process.state(run, "failed").await;
        let abandoned = failure(acme.handle::<()>(run).result().await.unwrap_err());
        assert_eq!(told(&abandoned), [("book:hotel", &EffectOutcome::Undone)]);
        assert_eq!(world.effects("unbook").len(), 2);
    });
}

// H02: a person and the engine want the same undone: one effect. H07: it stays undone, and is not done again by the same key.
#[test]
fn whoever_wants_it_undone_it_is_undone_once() {
    let world = World::new();
    let process = start(&world, Way::by(Compensation::Automatic));
    process.on(async {
        let (acme, executor) = (Tenant::new("acme").unwrap(), process.engine().executor());
        process.acme().run(trip, stops(&["train"])).key("r").await.unwrap();
        let key = Key::of("book").target("train").render().unwrap();
        for _ in 0..2 {
            let undone = executor.compensate(&acme, &key).await.unwrap();
            assert_eq!(undone, Compensated::Undone(Undone::whole().detail(1)));
        }
        assert_eq!(world.effects("unbook"), ["train 1 b1"]);
        let again = failure(process.acme().run(trip, stops(&["train"])).key("s").await.unwrap_err());
        assert_eq!(again.code, FailureCode::Compensated, "{again}");
        let undo = executor.record(&acme, &Key::of("undo book").target("book:train").render().unwrap()).await;
        let undo = undo.unwrap().unwrap().0;
        assert_eq!(undo.class, EffectClass::Compensation);
        assert!(matches!(executor.compensate(&acme, &undo.key).await.unwrap(), Compensated::Nothing));
        assert_eq!(world.effects("book").len(), 1);
    });
}

// SAGA-5, H03: nobody knows whether one of them happened. It is neither undone nor forgotten: the others are undone, the run
// waits for the answer, and goes by it.
#[test]
fn a_call_of_unknown_outcome_is_settled_before_it_is_undone() {
    for (happened, effects) in [(true, vec!["train 1 b1", "letter"]), (false, vec!["train 1 b1"])] {
        let world = World::new();
        let both = flow!(world, |ctx, _input: u32| {
            ctx.call::<Book>("train".to_owned()).await?;
            let letter = ctx.call::<Letter>(());
            let sold_out = async {
                world.counts("posted", 1).await;
                ctx.call::<Book>("sold out".to_owned()).await
            };
            futures_util::future::try_join(letter, sold_out).await.map(|_| 0_u32)
        });
        let engine = engine(&world, Way::by(Compensation::Automatic));
        let process = Process::start(&world, engine.workflow("both", 1, both.clone()));
        process.on(async {
            let acme = process.acme();
            let run = acme.run(both.clone(), 0).key("r").start().await.unwrap().id();
            process.state(run, "waiting").await;
            process.until(async |_| world.effects("unbook") == ["train 1 b1"]).await;
            let question = process.question(QuestionKind::Ambiguous).await;
            let answer = if happened { Resolution::Happened(json!(null)) } else { Resolution::DidNotHappen };
            acme.answer(question.id, answer, "ann").await.unwrap();
            let failed = failure(acme.handle::<u32>(run).result().await.unwrap_err());
            assert_eq!(world.effects("unbook"), effects, "{happened}: {failed:?}");
            assert_eq!(
                failed.effects.iter().filter(|e| e.became == EffectOutcome::Undone).count(),
                effects.len()
            );
        });
    }
}

// DESIGN 4.1: another path after a resume; the tool says that what it does not ask for is undone.
#[test]
fn what_a_resumed_run_no_longer_asks_for_is_undone_if_its_tool_says_so() {
    let world = World::new();
    let other = flow!(world, |ctx, _input: u32| {
        let first = if world.counted("changed its mind") == 0 { "train" } else { "bus" };
        ctx.call::<Book>(first.to_owned()).await?;
        ctx.signal::<()>("go").await?;
        Ok::<u32, Failure>(0)
    });
    let engine = || engine(&world, Way::by(Compensation::Automatic)).workflow("other", 1, other.clone());
    let process = Process::start(&world, engine());
    let run = process.on(async {
        let run = process.acme().run(other.clone(), 0).key("r").start().await.unwrap().id();
        process.state(run, "waiting").await;
        run
    });
    process.crash();
    world.count("changed its mind");
    let process = Process::start(&world, engine());
    process.on(async {
        let handle = process.acme().handle::<u32>(run);
        handle.signal("go", ()).await.unwrap();
        assert_eq!(handle.result().await.unwrap(), 0);
        assert_eq!(world.effects("unbook"), ["train 1 b1"]);
        assert_eq!(world.effects("book"), ["train", "bus"]);
        assert!(process.acme().questions().await.unwrap().is_empty());
    });
}

/// Hires a car and fails; before that, somebody may give the car back by hand.
fn hires(
    world: &Arc<World>,
) -> impl Fn(Ctx, (String, bool)) -> futures_util::future::BoxFuture<'static, Result<u32, Failure>>
+ Clone
+ Send
+ Sync
+ 'static {
    let world = world.clone();
    move |ctx, (car, by_hand)| {
        let world = world.clone();
        Box::pin(async move {
            ctx.call::<Hire>(car.clone()).await?;
            if by_hand {
                ctx.step("by hand", &car, |car| world.happen("unbook", "by hand", car)).await?;
            }
            Err(Failure::new("no journey"))
        })
    }
}

// L8: where a second undoing would not collide, what somebody else has undone counts as undone.
#[test]
fn what_was_undone_by_hand_is_not_undone_again() {
    for (by_hand, detail) in [(true, "by hand"), (false, "by the engine")] {
        let world = World::new();
        let builder = engine(&world, Way::by(Compensation::Automatic)).tool(Hire(world.clone()));
        let process = Process::start(&world, builder.workflow("hires", 1, hires(&world)));
        process.on(async {
            let failure =
                failure(process.acme().run(hires(&world), ("car".to_owned(), by_hand)).await.unwrap_err());
            assert_eq!(told(&failure), [("hire:car", &EffectOutcome::Undone)]);
            assert_eq!(world.effects("unbook"), ["car"], "{detail}");
            let key = Key::of("hire").target("car").render().unwrap();
            let executor = process.engine().executor();
            let undone = executor.compensate(&Tenant::new("acme").unwrap(), &key).await.unwrap();
            assert_eq!(undone, Compensated::Undone(Undone::whole().detail(detail)));
            assert!(process.acme().questions().await.unwrap().is_empty());
        });
    }
}

#[test]
fn while_nobody_can_tell_whether_it_is_undone_nothing_is_sent() {
    for shown in [true, false] {
        let world = World::new();
        let builder = engine(&world, Way::by(Compensation::Automatic)).tool(Hire(world.clone()));
        let process = Process::start(&world, builder.workflow("hires", 1, hires(&world)));
        process.on(async {
            let acme = process.acme();
            let run = acme.run(hires(&world), ("unseen".to_owned(), true)).start().await.unwrap().id();
            process.state(run, "waiting").await;
            let question = process.question(QuestionKind::Ambiguous).await;
            assert_eq!(world.effects("unbook"), ["unseen"], "what was done by hand");
            if shown {
                world.count("shown");
                acme.answer(question.id, Resolution::LookNow, "ann").await.unwrap();
            } else {
                let reason = "they have lost it".to_owned();
                acme.answer(question.id, Resolution::SendWithoutLooking { reason }, "ann").await.unwrap();
            }
            let failed = failure(acme.handle::<u32>(run).result().await.unwrap_err());
            assert_eq!(told(&failed), [("hire:unseen", &EffectOutcome::Undone)]);
            assert_eq!(world.effects("unbook").len(), if shown { 1 } else { 2 });
            assert!(acme.questions().await.unwrap().is_empty());
        });
    }
}
