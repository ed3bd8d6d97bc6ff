//! Divergence: recorded effects that the resumed path does not ask for are found before the next new effect goes out,
//! and none is forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::failure::{Failure, FailureCode};
use super::family;
use super::identity::{Identity, Kind};
use super::live::{Live, Stop};
use super::oversized;
use super::run::End;
use super::unstable_key;
use crate::exec::{Compensated, Core, ExecError, due_for, escalation_of_orphan, look_only, undo};
use crate::id::{QuestionId, RecordId, RunId};
use crate::ledger::{Divergence, Due, FinalState, Record, State};
use crate::payload::{Payload, Stored};
use crate::store::{
    PastCall, Question, QuestionKind, Run, RunState, Signal, Step, StepKind, Store as _, StoreError,
};

/// The name of the checkpoint which says that something is kept although the code does not ask for it.
pub(super) const KEPT: &str = "kept";

/// The moment at which the records are compared with what the code asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// The replay is quiescent.
    Replayed,
    /// A turn of this number ended.
    TurnOver(u32),
    /// The run is to go on as new.
    Continued,
    /// The run ended well.
    Succeeded,
}

impl When {
    /// The name used in messages.
    const fn name(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::TurnOver(_) => "turn over",
            Self::Continued => "continued",
            Self::Succeeded => "succeeded",
        }
    }

    /// The turn whose records alone are compared. `None` for all turns.
    const fn turn(self) -> Option<u32> {
        match self {
            Self::TurnOver(turn) => Some(turn),
            _ => None,
        }
    }
}

/// Looks for recorded effects that the code did not ask for. Returns the stop that blocks the run, unless their tools'
/// policies adopt or undo all of them.
pub(super) async fn unasked(live: &Arc<Live>, when: When) -> Result<Option<Stop>, ExecError> {
    let block = |question, record: &Record, detail| {
        let record = Some(record.id);
        Some(Stop::Block { kind: QuestionKind::Diverged, question, record, kept: Vec::new(), detail })
    };
    for past in unasked_calls(live, when) {
        let Some(record) = settled(live, past.record).await? else { continue };
        if let Some(unstable) = unstable_key::question(live, &past) {
            return Ok(block(unstable, &record, unstable_key::detail()));
        }
        match policy(live, &record) {
            Divergence::Adopt => {
                log_record!(
                    info,
                    record,
                    when = when.name(),
                    "effect adopted: resumed run does not ask for it"
                );
            }
            Divergence::Compensate if undone(live, &record).await? => {}
            Divergence::Compensate | Divergence::Escalate => {
                return Ok(block(diverged(live, &record), &record, Value::Null));
            }
        }
    }
    let deeds = unasked_deeds(live, when);
    if deeds.is_empty() {
        return Ok(None);
    }
    let question = format!(
        "{}: {} before, and the code {}. Nothing new was sent. Keep it and go on, or abandon the run?",
        live.id,
        told(live, &deeds),
        instead(live, "that")
    );
    let kept = deeds.iter().map(Identity::kept_id).collect();
    let kind = QuestionKind::Diverged;
    Ok(Some(Stop::Block { kind, question, record: None, kept, detail: Value::Null }))
}

/// Undoes an effect that the resumed path does not ask for, if that needs nobody's word. Returns true if it is undone.
async fn undone(live: &Live, record: &Record) -> Result<bool, ExecError> {
    let core = &live.core;
    let family = &[live.id];
    if due_for(core, record, family, false).await? != Due::Undo {
        return Ok(false);
    }
    Ok(matches!(undo(core, record, family).await?, Compensated::Undone(undone) if undone.is_whole()))
}

/// The text about children, signals and events that a person reads.
fn told(live: &Live, deeds: &[Identity]) -> String {
    let tell = |deed: &Identity| match deed.kind {
        Kind::Child => {
            let begun = live.with_replay(|replay| replay.step(deed).and_then(|step| step.value.clone()));
            let child = begun.as_ref().and_then(Stored::inline).map(Payload::as_str).unwrap_or_default();
            format!("{deed} was begun ({})", child.trim_matches('"'))
        }
        Kind::Emitted => format!("{deed} was emitted"),
        _ => format!("{deed} was sent"),
    };
    deeds.iter().map(tell).collect::<Vec<_>>().join(", ")
}

/// Questions about the effects of a run that ended well, or of a turn of it, that the code did not ask for again.
pub(super) async fn left_unasked(live: &Arc<Live>, when: When) -> Result<Vec<Question>, ExecError> {
    let why = "its run ended without asking for it again";
    let deeds = unasked_deeds(live, when);
    let mut questions: Vec<_> = deeds
        .into_iter()
        .map(|deed| {
            let question =
                format!("{}: {}, and {why}. Keep it, or undo it by hand?", live.id, told(live, &[deed]));
            about(live, QuestionKind::Orphaned, question, None)
        })
        .collect();
    for past in unasked_calls(live, when) {
        if let Some(record) = Box::pin(settled(live, past.record)).await? {
            questions.push(escalation_of_orphan(&live.core, &record, why));
        }
    }
    Ok(questions)
}

/// An effect of a failed run that was not undone although it was to be.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) why: String,
    /// True if a person has decided to keep the effect, so that nobody is asked about it again.
    pub(super) is_decided: bool,
}

impl Standing {
    pub(super) const fn undecided(why: String) -> Self {
        Self { why, is_decided: false }
    }
}

/// Questions about the effects that happened or may have, and that a failed run and its children leave without an owner,
/// except those that a person has decided to keep. The detached children are added to the failure.
///
/// `stands`: the effects that were not undone although they were to be.
pub(super) async fn left_by_failed(
    live: &Arc<Live>,
    failure: &mut Failure,
    stands: &HashMap<RecordId, Standing>,
) -> Result<Vec<Question>, ExecError> {
    live.flushed().await?; // everything that the run has queued must be durable to be listed
    let family = family::of(&live.core, &live.run()).await?;
    let mut questions = Vec::new();
    for effect in &family.effects {
        let stands = stands.get(&effect.id);
        if stands.is_some_and(|stands| stands.is_decided) {
            continue;
        }
        if let Some(record) = standing(live, effect).await? {
            let why = match record.owner.run {
                Some(owner) if owner != live.id && family.runs.contains(&owner) => {
                    format!("its run {owner} is a child of {}, which failed", live.id)
                }
                _ => "its run failed".to_owned(),
            };
            let why = stands.map_or_else(|| why.clone(), |stands| format!("{why}: {}", stands.why));
            // The answer is about the failed run, whichever run made the effect: a retry withdraws the question.
            let question = escalation_of_orphan(&live.core, &record, &why);
            questions.push(Question { run: Some(live.id), ..question });
        }
    }
    failure.detached = family.detached;
    Ok(questions)
}

fn unasked_calls(live: &Live, when: When) -> Vec<PastCall> {
    live.with_replay(|replay| {
        let mut calls = replay.unasked(when.turn());
        calls.retain(|call| when != When::Replayed || !replay.again.is_later(&call.record.to_string()));
        calls.into_iter().cloned().collect()
    })
}

fn unasked_deeds(live: &Live, when: When) -> Vec<Identity> {
    live.with_replay(|replay| {
        let mut deeds = replay.unasked_deeds(when.turn());
        deeds.retain(|deed| when != When::Replayed || !replay.again.is_later(&deed.kept_id()));
        deeds
    })
}

/// The record of an effect that exists in the world, or may exist. `None` if there is nothing to be kept or undone. A
/// started record is looked up first, but not sent again: the code has not asked for it.
pub(super) async fn settled(live: &Arc<Live>, id: RecordId) -> Result<Option<Record>, ExecError> {
    let core = &live.core;
    let find = || async {
        core.group.record_at(&live.tenant, id).await.map_err(|source| store_failed(live, source))
    };
    let mut record = find().await?;
    if let Some(started) = record.as_ref().filter(|record| record.state == State::Started) {
        look_only(core, started).await?;
        record = find().await?;
    }
    Ok(record.filter(|record| {
        record.class.needs_owner() && matches!(record.state, State::Started | State::Committed { .. })
    }))
}

/// The record of an effect that a failed run leaves in the world. What is left of a record whose retention is over counts
/// as well: nobody can undo its effect by it, so a person is asked.
async fn standing(live: &Arc<Live>, effect: &Record) -> Result<Option<Record>, ExecError> {
    match effect.state {
        State::Gone { was: FinalState::Committed, .. } => {
            Ok(effect.class.needs_owner().then(|| effect.clone()))
        }
        _ => settled(live, effect.id).await,
    }
}

fn policy(live: &Live, record: &Record) -> Divergence {
    let registry = &live.core.registry;
    // A tool that is no longer registered has no policy.
    registry.find(record.operation.as_str()).map_or(Divergence::Escalate, |tool| tool.spec().divergence)
}

fn diverged(live: &Live, record: &Record) -> String {
    let state = if record.state == State::Started { "may have happened" } else { "happened" };
    let Record { key, class, .. } = record;
    format!(
        "{}: {key} ({}) {state} before, and the code {}. Nothing new was sent. Keep it and go on, or abandon the run?",
        live.id,
        class.name(),
        instead(live, key.as_str())
    )
}

/// The text about the new things that the code comes to instead of the recorded one. Whether the code asks for the
/// recorded one behind them cannot be seen.
fn instead(live: &Live, done: &str) -> String {
    const SHOWN: usize = 3;
    let anew = live.anew();
    let shown: Vec<_> = anew.iter().take(SHOWN).map(ToString::to_string).collect();
    match anew.len().saturating_sub(SHOWN) {
        _ if anew.is_empty() => "does not ask for it any more".to_owned(),
        0 => format!(
            "comes to {} first, which is new. If it asks for {done} behind that, put the new part behind `ctx.patched`, or give the \
             changed code a version of its own",
            shown.join(" and ")
        ),
        more => format!("comes to {} and {more} more first, which are new", shown.join(", ")),
    }
}

/// The question with which a run is stopped.
pub(super) struct Asked {
    pub(super) kind: QuestionKind,
    pub(super) question: String,
    pub(super) record: Option<RecordId>,
    /// The ids of children, signals and events that the question is about. They are marked as kept with the question,
    /// so that they are not asked about again.
    pub(super) kept: Vec<String>,
    /// The command that stopped the run. It is received together with the stop.
    pub(super) command: Option<Signal>,
    /// Further facts for the row of the run, as JSON.
    pub(super) detail: Value,
}

impl Asked {
    /// A question about nothing but the run itself.
    pub(super) const fn of(kind: QuestionKind, question: String) -> Self {
        Self { kind, question, record: None, kept: Vec::new(), command: None, detail: Value::Null }
    }

    /// The question about a run whose code asks for something that only a new build or another setting can give.
    pub(super) fn unmended(run: RunId, failure: &Failure) -> Self {
        let (kind, then) = match failure.code {
            FailureCode::Unregistered => {
                (QuestionKind::Unregistered, "Register it, and the run goes on by itself; or")
            }
            FailureCode::ResponseTooLarge => (QuestionKind::Quarantined, "Raise the limit and go on, or"),
            _ => (QuestionKind::Quarantined, "Mend the code and go on, or"),
        };
        let question = format!(
            "{run}: {}. What the run did before stands. {then} abandon the run?",
            failure.with_code()
        );
        // The record tells later that the run was blocked with this failure.
        let record = oversized::record_of(failure);
        Self { record, detail: failure.detail.clone(), ..Self::of(kind, question) }
    }
}

/// Blocks the run with an open question about the run alone. The run goes on with the answer.
pub(super) async fn block(live: &Arc<Live>, kind: QuestionKind, question: String) -> End {
    block_on(live, Asked::of(kind, question)).await
}

/// Blocks the run with an open question. The run goes on with the answer.
///
/// # Crash
/// The run's row and the question are one transaction.
pub(super) async fn block_on(live: &Arc<Live>, asked: Asked) -> End {
    live.end();
    let core = &live.core;
    let Asked { kind, question, record, kept, command, detail } = asked;
    let failure = serde_json::json!({"kind": kind, "message": question, "detail": detail});
    let failure = Payload::of(&failure).unwrap_or_else(|_| Payload::stored("{\"message\":\"blocked\"}"));
    let state = RunState::Blocked { failure };
    let run = live.next_run(|run| {
        run.state = state.clone();
        run.give_place_free(); // an open question holds up no other run
    });
    let escalation = about(live, kind, question, record);
    let mut change = core.change(Some(live.lane)).run(run).escalation(escalation);
    change.steps = kept.into_iter().map(|id| kept_mark(live, id)).collect();
    change.received = command.map(Box::new);
    match live.written(core.group.commit_one(change).await) {
        Ok(()) => End::Over(state),
        Err(error) => End::Failed(error),
    }
}

fn about(live: &Live, kind: QuestionKind, question: String, record: Option<RecordId>) -> Question {
    let core = &live.core;
    Question {
        id: QuestionId(core.ids.next()),
        tenant: live.tenant.clone(),
        record,
        run: Some(live.id),
        kind,
        question,
        opened_at: core.now(),
        waiting: None,
        answer: None,
    }
}

fn kept_mark(live: &Live, id: String) -> Step {
    let identity = Identity { turn: live.base, kind: Kind::Step, name: KEPT.into(), id };
    live.step(&identity, StepKind::Kept, None, Stored::Inline(Payload::stored("null")))
}

/// The failed row of a blocked run that was abandoned, and questions about its effects. Both are written with the
/// answer that ends the run.
pub(super) async fn abandoned(
    core: &Arc<Core>,
    run: Run,
    failure: &mut Failure,
) -> Result<(Run, Vec<Question>), ExecError> {
    let live = Live::unread(core, run);
    live.end();
    let left = left_by_failed(&live, failure, &HashMap::new()).await;
    core.group.end_lane(live.lane);
    let run = live.next_run(|run| {
        run.fence = core.fence;
        run.deaths = 0;
        run.state = RunState::Failed { failure: failure.payload() };
    });
    Ok((run, left?))
}

fn store_failed(live: &Live, source: StoreError) -> ExecError {
    ExecError::Store { key: live.id.to_string(), source }
}
