//! Does the simulator bite? Each mutant is an engine with one protection taken away, at the seam where it would
//! show: the simulator must find a schedule that breaks a rule, for every one of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::flow::WorkflowFn;
use counterfoil::ledger::{Basis, ErrorKind, OperationKey, Record, RecordedFailure, State};
use counterfoil::payload::{Payload, Stored};
use counterfoil::sim::{CrashPoint, Failing, Happened, Offer, Rule, Service, SimClock, Simulation, truthful};
use counterfoil::store::{
    Change, History, Question, QuestionKind, Refusal, Run, RunState, Store, StoreError, StoreFuture, Turns,
    Verdict, WorkerChange,
};
use counterfoil::tool::{Tool, effect};
use counterfoil::{Boot, Clock};
use counterfoil::{Ctx, Failure, Fence, RecordId, RunId, Tenant, Timestamp};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::flow::outlives::spawning;
use crate::sim::draft::{NaiveDraft, drafting};
use crate::sim::permit::{Gated, forgetful};
use crate::sim::policy;
use crate::sim::{Blind, Looks, Naive, Replays, simulation, twice};

/// What is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// Intents are acknowledged and not written.
    NoIntent,
    /// Intents are acknowledged before they are durable.
    EarlyIntent,
    /// Results of calls are acknowledged and not written.
    NoSeal,
    /// The end of a run is acknowledged and not written.
    NoRunEnd,
    /// The end of a run is acknowledged before it is durable.
    EarlyRunEnd,
    /// Questions are not written.
    NoQuestions,
    /// A question is not written on its record.
    NoLink,
    /// A question is written after its record, in a transaction of its own.
    LateQuestions,
    /// Late answers are kept, and nothing follows from them.
    NoLateQuestion,
    /// That a fenced worker's call was accepted is forgotten.
    NoAcceptance,
    /// Confirming lookups are never due.
    NoConfirming,
    /// That an attempt was sent in doubt is not remembered.
    NoDoubt,
    /// That a lookup saw two is not told.
    NoDuplicated,
    /// The history of attempts is not written.
    NoHistory,
    /// A restart takes no run over.
    NoTakeover,
    /// A restart takes no run over that was answered.
    NoAnswered,
    /// A restart takes no call over whose run has ended.
    NoCallsLeft,
    /// The end of a run forgets the calls that are still open.
    NoUnsettled,
    /// Runs whose time has come are not woken.
    NoTimers,
    /// What a failed run leaves behind is not told.
    NoOrphans,
    /// That an answer rests on the provider's word alone is not told.
    NoDeclaration,
    /// The verdict of a policy is not written with its call.
    NoVerdict,
    /// A dead attempt is recorded as one that did not happen.
    AmbiguousFails,
    /// A dead attempt is recorded as one that happened.
    AmbiguousHappens,
    /// A question about an unknown outcome is written as one that nobody waits for.
    OtherKind,
    /// A call is recorded as done when it is begun, and is never sent.
    NoCall,
    /// Nobody is fenced, and rows may have changed meanwhile.
    NoFence,
    /// A commit that failed is taken for one that did not.
    ErrorsIgnored,
    /// A change that was refused is taken for one that was not.
    RefusalsIgnored,
    /// Records are found by their key alone, whoever the tenant is.
    OneTenantForAll,
    /// What is read back is not what was recorded.
    OtherResult,
}

use Mutation as M;

#[derive(Debug)]
struct Mutant {
    store: Arc<dyn Store>,
    mutation: Mutation,
    /// The newest worker, for zombies that pretend to be it.
    newest: Arc<Mutex<Option<Fence>>>,
}

impl Mutant {
    /// The change as the mutant writes it; nothing if it only says that it did.
    fn mutated(&self, mut change: Change) -> Option<Change> {
        match self.mutation {
            M::NoIntent if is_intent(&change) => return None,
            M::NoSeal if is_seal(&change) => return None,
            M::NoRunEnd if is_run_end(&change) => return None,
            M::NoLateQuestion => change.contract = None,
            M::NoAcceptance if is_acceptance(&change) => return None,
            M::NoConfirming if change.record.is_some() => change.look = None,
            M::NoQuestions => change.escalations.clear(),
            M::NoDuplicated => change.escalations.retain(|q| q.kind != QuestionKind::Duplicated),
            M::OtherKind => {
                let ambiguous = |q: &&mut Question| q.kind == QuestionKind::Ambiguous;
                change.escalations.iter_mut().filter(ambiguous).for_each(|q| q.kind = QuestionKind::Orphaned);
            }
            M::NoHistory => change.contacts.clear(),
            M::NoOrphans => change.escalations.retain(|q| q.kind != QuestionKind::Orphaned),
            M::NoFence => {
                let mut newest = self.newest.lock().unwrap();
                match change.worker {
                    Some(WorkerChange::FenceOthers { .. }) => *newest = None,
                    _ => *newest = newest.or(change.fence), // the first who writes after it
                }
                change.fence = change.fence.and(*newest);
            }
            _ => {}
        }
        if let Some(run) = change.run.as_mut().filter(|_| self.mutation == M::NoUnsettled) {
            run.unsettled = false;
        }
        if let Some(record) = &mut change.record {
            self.mutate(record);
        }
        Some(change)
    }

    fn mutate(&self, record: &mut Record) {
        match self.mutation {
            M::AmbiguousFails if record.state == State::Started && record.revision > 1 => {
                let (kind, message, detail) = (ErrorKind::Unknown, "dead".to_owned(), Value::Null);
                record.state = State::Failed { failure: RecordedFailure { kind, message, detail } };
                record.in_doubt = false;
            }
            M::AmbiguousHappens if record.state == State::Started && record.revision > 1 => happened(record),
            M::NoCall if record.state == State::Started => happened(record),
            M::NoLink => record.escalation = None,
            M::NoDoubt => record.in_doubt = false,
            M::NoVerdict => record.approval = None,
            M::NoDeclaration if record.basis == Basis::Declaration => record.basis = Basis::Answer,
            _ => {}
        }
    }

    /// Whatever the rows have become meanwhile, the change fits on top of them.
    async fn on_top(&self, change: &mut Change) {
        if let Some(record) = change.record.as_mut().filter(|record| record.revision > 1)
            && let Ok(Some(stored)) = self.store.record_at(&record.tenant, record.id).await
        {
            (record.revision, record.fence) = (stored.revision + 1, stored.fence);
        }
        if let Some(run) = change.run.as_mut().filter(|run| run.revision > 1)
            && let Ok(Some(stored)) = self.store.run_find(&run.tenant, run.id).await
        {
            (run.revision, run.fence) = (stored.revision + 1, stored.fence);
        }
    }

    fn read_back(&self, response: &mut Stored) {
        if self.mutation == M::OtherResult {
            *response = Stored::Inline(Payload::of(&json!({ "id": "another" })).unwrap());
        }
    }

    async fn write(&self, changes: &[Change]) -> Result<Vec<Verdict>, StoreError> {
        let mut mutated: Vec<_> = changes.iter().map(|change| self.mutated(change.clone())).collect();
        let mut late = Vec::new();
        for change in mutated.iter_mut().flatten() {
            match self.mutation {
                M::NoFence => self.on_top(change).await,
                M::LateQuestions if change.record.is_some() && !change.escalations.is_empty() => {
                    let escalations = std::mem::take(&mut change.escalations);
                    late.push(Change { fence: change.fence, escalations, ..Change::default() });
                }
                _ => {}
            }
        }
        let kept: Vec<_> = mutated.iter().flatten().cloned().collect();
        let mut verdicts = self.store.commit(&kept).await?.into_iter();
        if !late.is_empty() {
            let _ = self.store.commit(&late).await?;
        }
        let answer = |change: &Option<Change>| match change {
            Some(_) => verdicts.next().unwrap_or(Verdict::Admitted),
            None => Verdict::Admitted,
        };
        let mut verdicts: Vec<_> = mutated.iter().map(answer).collect();
        if self.mutation == M::NoCall {
            // The engine takes its own intent for the call of an earlier caller, and reads the result.
            for (change, verdict) in changes.iter().zip(&mut verdicts) {
                if is_intent(change) && verdict.is_admitted() {
                    *verdict = Verdict::Refused(Refusal::Exists);
                }
            }
        }
        Ok(verdicts)
    }
}

fn is_intent(change: &Change) -> bool {
    change.record.as_ref().is_some_and(|record| record.state == State::Started && record.revision == 1)
}

/// Records that the call has happened, with a response that no provider gave.
fn happened(record: &mut Record) {
    let response = Stored::Inline(Payload::of(&json!({ "id": "nobody's" })).unwrap());
    record.state = State::Committed { response };
    (record.in_doubt, record.sealed_at) = (false, Some(record.updated_at));
}

fn is_acceptance(change: &Change) -> bool {
    let said =
        |response: &Stored| matches!(response, Stored::Inline(said) if said.as_str().contains("$accepted"));
    change.evidence.as_ref().is_some_and(|late| said(&late.response))
}

fn is_seal(change: &Change) -> bool {
    change.record.as_ref().is_some_and(|record| matches!(record.state, State::Committed { .. }))
}

fn is_run_end(change: &Change) -> bool {
    change.run.as_ref().is_some_and(|run| run.state.is_final())
}

fn nothing<'a, T: Send + 'a>() -> StoreFuture<'a, Vec<T>> {
    Box::pin(async { Ok(Vec::new()) })
}

impl Store for Mutant {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let admitted = vec![Verdict::Admitted; changes.len()];
            let early = match self.mutation {
                M::EarlyIntent => changes.iter().any(is_intent),
                M::EarlyRunEnd => changes.iter().any(is_run_end),
                _ => false,
            };
            if early {
                let (store, changes) = (self.store.clone(), changes.to_vec());
                tokio::spawn(async move { store.commit(&changes).await });
                return Ok(admitted);
            }
            let written = self.write(changes).await;
            match self.mutation {
                M::ErrorsIgnored if written.is_err() => Ok(admitted),
                M::RefusalsIgnored if written.is_ok() => Ok(admitted),
                _ => written,
            }
        })
    }

    fn record_find<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a OperationKey,
    ) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            let first = Tenant::new("simulated").unwrap();
            let tenant = if self.mutation == M::OneTenantForAll { &first } else { tenant };
            let mut found = self.store.record_find(tenant, key).await?;
            if let Some(Record { state: State::Committed { response }, .. }) = &mut found {
                self.read_back(response);
            }
            Ok(found)
        })
    }

    fn run_history<'a>(&'a self, tenant: &'a Tenant, id: RunId, turns: Turns) -> StoreFuture<'a, History> {
        Box::pin(async move {
            let mut history = self.store.run_history(tenant, id, turns).await?;
            history
                .calls
                .iter_mut()
                .filter_map(|call| call.response.as_mut())
                .for_each(|r| self.read_back(r));
            Ok(history)
        })
    }

    fn record_orphans(&self, after: RecordId, limit: u32) -> StoreFuture<'_, Vec<Record>> {
        match self.mutation {
            M::NoCallsLeft => nothing(),
            _ => self.store.record_orphans(after, limit),
        }
    }

    fn run_orphans(&self, after: RunId, limit: u32) -> StoreFuture<'_, Vec<Run>> {
        match self.mutation {
            M::NoTakeover => nothing(),
            _ => self.store.run_orphans(after, limit),
        }
    }

    fn run_answered(&self, after: RunId, limit: u32) -> StoreFuture<'_, Vec<Run>> {
        match self.mutation {
            M::NoAnswered => nothing(),
            _ => self.store.run_answered(after, limit),
        }
    }

    fn run_due<'a>(
        &'a self,
        until: Timestamp,
        after: Option<&'a Run>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<Run>> {
        match self.mutation {
            M::NoTimers => nothing(),
            // An answer makes its run due, too.
            M::NoAnswered => Box::pin(async move {
                let mut runs = self.store.run_due(until, after, limit).await?;
                runs.retain(|run| !matches!(run.state, RunState::Waiting { on, .. } if on.answer));
                Ok(runs)
            }),
            _ => self.store.run_due(until, after, limit),
        }
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}

/// A boot clock that runs a hundred times too fast: no settle time is waited for.
#[derive(Debug)]
struct Hurried(SimClock);

impl Clock for Hurried {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn boot(&self) -> Boot {
        Boot(self.0.boot().0 * 100)
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(by / 100)
    }
}

/// A wall clock that stands still: no key, approval or time ever runs out, neither at the decision nor at the send.
#[derive(Debug)]
struct Standing(SimClock);

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp(1_767_225_600_000_000)
    }

    fn boot(&self) -> Boot {
        self.0.boot()
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(by)
    }
}

/// An engine with the mutation under the workflow of two calls.
fn mutant<T>(mutation: Mutation, offer: Offer, tool: fn(Service) -> T) -> Simulation
where
    T: Tool<Input = String, Output = Value, Effect = effect::InternalMutation>,
{
    mutated(mutation, simulation(offer, tool))
}

fn mutated(mutation: Mutation, simulation: Simulation) -> Simulation {
    let newest = Arc::<Mutex<_>>::default();
    simulation.engine(move |engine, world| {
        if world.clock().boot() == Boot(Duration::ZERO) {
            *newest.lock().unwrap() = None; // another simulation
        }
        let newest = newest.clone();
        engine.wrap_store(move |store| Arc::new(Mutant { store, mutation, newest }))
    })
}

/// It waits for longer than anybody keeps it in memory.
async fn waits(ctx: Ctx, hours: u64) -> Result<(), Failure> {
    ctx.sleep(Duration::from_hours(hours)).await?;
    Ok(())
}

/// It returns what the provider has said at first.
async fn first(ctx: Ctx, case: String) -> Result<Value, Failure> {
    let first = ctx.call::<Looks>(case.clone()).await?;
    ctx.call::<Looks>(format!("{case}/2")).await?;
    Ok(first)
}

/// It does not wait for what it has asked for.
async fn hurries(ctx: Ctx, case: String) -> Result<(), Failure> {
    let call = ctx.call::<Looks>(case);
    ctx.select("in time?", call, ctx.sleep(Duration::from_millis(5))).await?;
    Ok(())
}

fn of_one<W, O>(workflow: W) -> Simulation
where
    W: WorkflowFn<String, O> + Clone,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    Simulation::of(workflow, "case".to_owned())
        .engine(|engine, world| engine.tool(Looks(world.service("desk", Offer::Lookup))))
        .check("the caller gets the provider's id", |end| match end.results()[0].as_ref() {
            Some(result) if result["id"] == "another" => Err(result.to_string()),
            _ => Ok(()),
        })
}

/// Every mutant, and the rule that it breaks.
fn mutants() -> Vec<(String, Simulation, Rule)> {
    let looks = |mutation| mutant(mutation, Offer::Lookup, Looks);
    let blind = |mutation| mutant(mutation, Offer::Blind, Blind);
    let accepting =
        |mutation| mutant(mutation, Offer::Lookup, |desk| Looks(desk.finishes_after(Duration::from_mins(5))));
    let at_the_store = [
        (M::NoIntent, looks(M::NoIntent), Rule::IntentBeforeEffect),
        (M::EarlyIntent, looks(M::EarlyIntent), Rule::IntentBeforeEffect),
        (M::ErrorsIgnored, looks(M::ErrorsIgnored), Rule::IntentBeforeEffect),
        (M::EarlyRunEnd, looks(M::EarlyRunEnd), Rule::NothingPromisedEarly),
        (
            M::OtherResult,
            mutated(M::OtherResult, of_one(first)),
            Rule::Own("the caller gets the provider's id".to_owned()),
        ),
        (M::LateQuestions, blind(M::LateQuestions), Rule::OneTransaction),
        (M::NoFence, looks(M::NoFence), Rule::ZombieChangesNothing),
        (M::RefusalsIgnored, looks(M::RefusalsIgnored), Rule::IntentBeforeEffect),
        (M::NoOrphans, looks(M::NoOrphans), Rule::NoEffectForgotten),
        (M::NoSeal, looks(M::NoSeal), Rule::NothingDropped),
        (M::NoRunEnd, looks(M::NoRunEnd), Rule::NothingDropped),
        (M::NoTakeover, looks(M::NoTakeover), Rule::NothingDropped),
        (M::NoQuestions, blind(M::NoQuestions), Rule::NothingDropped),
        (M::NoLink, blind(M::NoLink), Rule::NothingDropped),
        (M::NoAnswered, blind(M::NoAnswered).operator(truthful), Rule::NothingDropped),
        (M::NoCallsLeft, mutated(M::NoCallsLeft, of_one(hurries)), Rule::NothingDropped),
        (M::NoUnsettled, mutated(M::NoUnsettled, spawning()), Rule::NothingDropped),
        (M::NoTimers, mutated(M::NoTimers, Simulation::of(waits, 3)), Rule::NothingDropped),
        (
            M::OneTenantForAll,
            looks(M::OneTenantForAll).with_run("other", "simulated", twice::<Looks>, "case".to_owned()),
            Rule::TenantsApart,
        ),
        (M::NoLateQuestion, looks(M::NoLateQuestion), Rule::EvidenceIgnored),
        (M::NoLateQuestion, mutated(M::NoLateQuestion, spawning()), Rule::NothingDropped),
        (M::NoAcceptance, accepting(M::NoAcceptance), Rule::SilentDuplicate),
        (M::NoLateQuestion, accepting(M::NoLateQuestion), Rule::EvidenceIgnored),
        (M::NoConfirming, accepting(M::NoConfirming), Rule::NothingDropped),
        (M::NoConfirming, looks(M::NoConfirming), Rule::SilentDuplicate),
        (M::NoDoubt, looks(M::NoDoubt), Rule::SilentDuplicate),
        (M::NoDuplicated, looks(M::NoDuplicated), Rule::SilentDuplicate),
        (M::NoHistory, looks(M::NoHistory), Rule::HistoryWhole),
        (M::NoDeclaration, mutant(M::NoDeclaration, Offer::IgnoresKey, Replays), Rule::SilentDuplicate),
        (M::NoVerdict, mutated(M::NoVerdict, policy::simulation()), Rule::ApprovalRecorded),
        (M::AmbiguousFails, blind(M::AmbiguousFails), Rule::WrongFailure),
        (M::NoCall, looks(M::NoCall), Rule::SilentLoss),
    ];
    let hurried =
        simulation(Offer::Lookup, Looks).engine(|engine, world| engine.clock(Hurried(world.clock().clone())));
    let mut mutants: Vec<_> = at_the_store
        .into_iter()
        .map(|(mutation, simulation, rule)| (format!("{mutation:?}"), simulation, rule))
        .collect();
    mutants.push(("NoSettleTime".to_owned(), hurried, Rule::NoBlindRepeat));
    let never_late = forgetful(Offer::ReplaysKey, Gated)
        .engine(|engine, world| engine.clock(Standing(world.clock().clone())));
    mutants.push(("NoPermitAtSend".to_owned(), never_late, Rule::NoBlindRepeat));
    mutants.push(("BlindRetry".to_owned(), simulation(Offer::Blind, Naive), Rule::SilentDuplicate));
    mutants.push(("BlindDraft".to_owned(), drafting(Offer::Blind, NaiveDraft), Rule::SilentDuplicate));
    mutants
}

// The smallest schedule that exposes each, by the rule that it breaks.
#[test]
fn every_mutant_is_found_out() {
    let mutants = mutants();
    assert!(mutants.len() >= 25, "only {}", mutants.len());
    let mut survivors = Vec::new();
    for (name, simulation, rule) in mutants {
        let exposes = |failing: &&Failing| failing.violations.iter().any(|v| v.rule == rule);
        let report = simulation.explore_while(|report| {
            report.schedules() < 4000 && report.failures().iter().all(|f| !exposes(&f))
        });
        match report.failures().iter().find(exposes) {
            Some(found) => println!("{name:<16} {:<40} {rule}", found.schedule.to_string()),
            None => survivors.push(format!("{name} survives, or breaks another rule: {report}")),
        }
    }
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

// Invariant 8: the queue tries a write for 310 ms. What could not be adopted or asked in that time is tried again by this
// process, and is not left to the next one.
#[test]
fn a_store_that_is_away_leaves_no_dropped_call_to_the_next_process() {
    let mut away = 0;
    for (point, commit) in (1..=25).flat_map(|point| (1..=16).map(move |commit| (point, commit))) {
        let schedule = format!("crash@1.{point} store-down+1@{commit}");
        let replay = of_one(hurries).replay(&schedule.parse().unwrap());
        assert_eq!(replay.violations, [], "{schedule}\n{}", replay.timeline());
        away += usize::from(replay.timeline().contains("the store fails, nothing is written"));
    }
    assert!(away > 50, "the store was away in {away} schedules only");
}

// The end of the run is written without an answer, and the call that it dropped cannot be sealed.
#[test]
fn a_run_whose_end_was_written_without_an_answer_leaves_no_dropped_call_behind() {
    for commit in 1..=16 {
        let schedule = format!("store-answer-lost@{commit} store-down+1@{}", commit + 1);
        let replay = of_one(hurries).replay(&schedule.parse().unwrap());
        assert_eq!(replay.violations, [], "{schedule}\n{}", replay.timeline());
    }
}

// A call that was never sent is lost if it is recorded as done: no provider got a request that would say so.
#[test]
fn a_call_that_no_provider_got_is_lost_if_it_is_recorded_as_done() {
    let clean = simulation(Offer::Blind, Blind).replay(&"".parse().unwrap());
    let mut crossed = clean.events.iter().filter(|event| matches!(event.what, Happened::Crossed(_)));
    let point = Happened::Crossed(CrashPoint::BeforeCall);
    let place = crossed.position(|event| event.what == point).unwrap() + 1;
    let schedule = format!("crash@1.{place}").parse().unwrap();
    let replay = mutant(M::AmbiguousHappens, Offer::Blind, Blind).replay(&schedule);
    let first = replay.events.iter().find(|event| matches!(event.what, Happened::Sent { .. }));
    assert!(first.is_none_or(|event| event.life > 1), "it died before it was sent: {}", replay.timeline());
    let is_lost = replay
        .violations
        .iter()
        .any(|violation| violation.rule == Rule::SilentLoss && violation.what.contains("case/1"));
    assert!(is_lost, "{:?}\n{}", replay.violations, replay.timeline());
}

fn broken(simulation: &Simulation, schedule: &str) -> Vec<Rule> {
    let replay = simulation.replay(&schedule.parse().unwrap());
    replay.violations.into_iter().map(|violation| violation.rule).collect()
}

// The effect happens twice, and then its run fails: the question whether it is kept says nothing of the second one.
#[test]
fn the_question_of_a_failed_run_marks_no_duplicate() {
    let schedule = "too-late@1 refused@3";
    assert_eq!(broken(&simulation(Offer::Lookup, Looks), schedule), []);
    let found = broken(&mutant(M::NoConfirming, Offer::Lookup, Looks), schedule);
    assert!(found.contains(&Rule::SilentDuplicate), "{found:?}");
}

// A run that waits for an answer goes on with no answer to a question of another kind.
#[test]
fn a_question_of_another_kind_keeps_no_run_waiting() {
    let schedule = "answer-lost@1";
    assert_eq!(broken(&simulation(Offer::Blind, Blind), schedule), []);
    let found = broken(&mutant(M::OtherKind, Offer::Blind, Blind), schedule);
    assert!(found.contains(&Rule::NothingDropped), "{found:?}");
}
