//! Tool calls from a workflow: the executor's, with the run as their owner.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::approval::{Lack, Requester, note_requests};
use super::begun::{self, Begun, polled_again};
use super::check::undecided;
use super::ctx::Ctx;
use super::failure::{Failure, FailureCode, misuse};
use super::identity::{Identity, Kind};
use super::label::Label;
use super::live::{self, Live, Open};
use super::oversized;
use super::past_call::{Past, past};
use super::unregistered::Unregistered;
use crate::exec::{
    Answer, Answered, Asker, ExecError, Expect, Operation, Outcome, Requested, Wait, carry_out, note_use,
};
use crate::ledger::{Approval, Diff, ErrorKind, Key, OperationKey, Owner, Record, escaped};
use crate::payload::Stored;
use crate::store::{Labels, QuestionKind};
use crate::tool::{NeedsApproval, Prepared, Tool, effect, given_or_stable};

/// The call has no approval (yet).
#[derive(Debug)]
pub struct Without;
/// The call has an approval.
#[derive(Debug)]
pub struct With;

/// A tool call to be awaited. Nothing happens before.
#[must_use = "a call does nothing until it is awaited"]
pub struct ToolCall<T: Tool, A = Without> {
    ctx: Ctx,
    /// Taken when it is first polled.
    input: Option<T::Input>,
    running: Option<Begun<T::Output>>,
    id: Option<String>,
    key: Option<Key>,
    terms: Option<Box<Terms>>,
    _approved: PhantomData<fn() -> A>,
}

/// The terms of a call that most calls do not have: an approval, labels and a proposer. In a box, because the future of every call would have to
/// carry the room for them, twice, and would not stay below the 1,032 bytes up to which glibc allocates from its thread's own cache.
#[derive(Default)]
pub(super) struct Terms {
    pub(super) approval: Option<Approval>,
    pub(super) labels: Labels,
    /// The name of the agent whose model proposes the call: its input is not the code's.
    pub(super) agent: Option<String>,
}

impl Ctx {
    /// Calls a registered tool: once, whatever dies in between.
    ///
    /// # Crash
    /// A call whose result is recorded is answered from its record. One that had started is reconciled: the
    /// outside world is asked before anything is sent again. Where nobody can tell, the run waits for a decision.
    pub fn call<T: Tool>(&self, input: T::Input) -> ToolCall<T> {
        ToolCall {
            ctx: self.clone(),
            input: Some(input),
            running: None,
            id: None,
            key: None,
            terms: None,
            _approved: PhantomData,
        }
    }
}

impl<T: Tool, A> ToolCall<T, A> {
    /// Which call of this tool it is: needed for tools without a key of which several are open at once. A call with an
    /// id is never the same as a call without one.
    #[allow(clippy::needless_pass_by_value, reason = "`.id(7)` and `.id(&name)` both read well")]
    pub fn id(mut self, id: impl ToString) -> Self {
        self.id = Some(id.to_string());
        self
    }

    /// Replaces the tool's own key: for a [`revision`](Key::revision), say.
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Adds a label, by which the call's record is listed and [erased](crate::flow::TenantClient::erase_labelled): a customer, a case, a
    /// subject. The limits are those of a [run's labels](crate::flow::StartRun::label). A call that was asked for before keeps the
    /// labels that it has.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.terms.get_or_insert_default().labels.add(name, value);
        self
    }

    /// Gives the wait for the call up after this long, durably: `None` if it has no result by then. The call is not cut off: what was
    /// sent is followed to its end, as for a call that loses a [select](Ctx::select).
    pub fn timeout(self, limit: Duration) -> BoxFuture<'static, Result<Option<T::Output>, Failure>>
    where
        Self: Future<Output = Result<T::Output, Failure>> + Send + 'static,
    {
        let (ctx, label) = (self.ctx.clone(), Label::of(T::NAME, self.id.clone()));
        Box::pin(async move { ctx.in_time(label, limit, self).await })
    }

    fn begin(&mut self) -> Begun<T::Output> {
        let (ctx, input, id) = (self.ctx.clone(), self.input.take(), self.id.take());
        let (key, terms) = (self.key.take(), self.terms.take());
        Box::pin(async move {
            let asked = ready::<T>(&ctx, input).and_then(|tool| Asked::by_code(tool, key, id, terms));
            let answer = call(&ctx, ctx.unless_mendable(asked).await?).await?;
            ctx.decoded(T::NAME, &Stored::Inline(answer.response)).await
        })
    }
}

/// A registered tool with its input.
fn ready<T: Tool>(ctx: &Ctx, input: Option<T::Input>) -> Result<Arc<dyn Prepared>, Failure> {
    let input = input.ok_or_else(|| polled_again("a call"))?;
    let tool = ctx.live.core.registry.typed::<T>(input);
    Ok(tool.ok_or_else(|| Unregistered::Tool(T::NAME.to_owned()))?)
}

impl<T: NeedsApproval> ToolCall<T, Without> {
    /// Adds the decision that the effect needs. It is compared with what is about to be sent, directly before
    /// each dispatch.
    pub fn approved_by(self, approval: &Approval) -> ToolCall<T, With> {
        let Self { ctx, input, running, id, key, mut terms, .. } = self;
        terms.get_or_insert_default().approval = Some(approval.clone());
        ToolCall { ctx, input, running, id, key, terms, _approved: PhantomData }
    }
}

/// The call may go out: its effect needs no approval, or it has one.
pub trait MayGoOut<T: Tool> {}

impl<T: Tool> MayGoOut<T> for Without where T::Effect: effect::Unapproved {}

impl<T: NeedsApproval> MayGoOut<T> for With {}

// Nothing of it is pinned but the boxed future, which moves freely.
impl<T: Tool, A> Unpin for ToolCall<T, A> {}

/// A future, and not only what turns into one, with one bound for both states: else the compiler would say that a
/// call without its approval is no future and should not be awaited, and not what is missing.
impl<T: Tool, A: MayGoOut<T>> Future for ToolCall<T, A> {
    type Output = Result<T::Output, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let running = self.running.take().unwrap_or_else(|| self.begin());
        begun::poll(running, &mut self.running, cx)
    }
}

/// A call that the run's code asks for.
pub(super) struct Asked {
    pub(super) tool: Arc<dyn Prepared>,
    /// The identity of the call. A call without a key is identified by its place in the run.
    pub(super) key: Option<Key>,
    pub(super) id: Option<String>,
    pub(super) terms: Option<Box<Terms>>,
}

impl Asked {
    /// A call that the run's code makes, under the given key or the tool's own, with labels that fit.
    pub(super) fn by_code(
        tool: Arc<dyn Prepared>,
        key: Option<Key>,
        id: Option<String>,
        terms: Option<Box<Terms>>,
    ) -> Result<Self, Failure> {
        if let Some(terms) = &terms {
            terms.labels.check()?;
        }
        let key = given_or_stable(key, &*tool).map_err(|error| misuse(error.to_string()))?;
        Ok(Self { tool, key, id, terms })
    }
}

/// One call of the run: from its record, or carried out.
pub(super) async fn call(ctx: &Ctx, Asked { tool, key, id, terms }: Asked) -> Result<Answer, Failure> {
    let live = &ctx.live;
    let name = tool.spec().name.clone();
    let unshared = key.is_none();
    let agent = terms.as_ref().and_then(|terms| terms.agent.as_deref());
    let proposed = agent.is_some();
    let (open, key) = ctx.unless_mendable(identify(ctx, name.as_str(), key, id, agent)).await?;
    let op = match Requested::of(&live.core, &live.tenant, tool).await {
        Ok(request) => {
            let asker = Asker { unshared, ..asker(live, ctx.turn, &open, terms) };
            let mut op = request.under(key, asker);
            let recorded = live.with_replay(|replay| replay.stable_key(&op.key, name.as_str(), op.hash));
            op.key = recorded.unwrap_or(op.key);
            Arc::new(op)
        }
        Err(error) => return Err(live.told(open, error).await),
    };
    // Boxed because only a resumed run has a past: every call would have to carry the room for it.
    let past = if live.has_history() {
        note_requests(ctx, &op, &open);
        Box::pin(past(live, &open, &op)).await?
    } else {
        Past::None
    };
    let expect = match past {
        Past::None => Expect::New,
        Past::Unsettled => match &live.check {
            Some(check) => return Ok(Box::pin(undecided(live, check, open, &op)).await), // boxed for the same reason
            None => Expect::Anything,
        },
        Past::Over(result) => {
            open.close();
            return result;
        }
    };
    Box::pin(carried_out(ctx, Ready { open, op, proposed }, expect)).await
}

/// The run's workflow may call this tool: it has named it, or has named none. Otherwise the guarantee report would promise more
/// than is kept.
fn may_call(ctx: &Ctx, tool: &str) -> Result<(), Failure> {
    let named = ctx.live.with_run(|run| {
        let workflow = ctx.engine.workflows.find(run.workflow.as_str(), run.version);
        workflow.is_none_or(|workflow| workflow.may_call(tool))
    });
    if named {
        return Ok(());
    }
    Err(misuse(format!(
        "the tool {tool:?} is not among those that this workflow was registered to call: add `.calls_named({tool:?})` to its `Workflow`"
    )))
}

/// The run as the one that asks.
fn asker(live: &Live, turn: u32, open: &Open, terms: Option<Box<Terms>>) -> Asker {
    let owner =
        Owner { run: Some(live.id), turn, step: Some(open.identity.id.as_str().into()), call_id: None };
    let over = Some(live.over.clone());
    let Terms { approval, labels, agent: _ } = terms.map(|terms| *terms).unwrap_or_default();
    let (purse, deadline) = (live.purse(), live.deadline());
    let (lane, trace) = (Some(live.lane), Some(live.trace.clone()));
    Asker { owner, approval, labels, lane, purse, deadline, over, trace, ..Asker::default() }
}

/// A tool with a key is identified by it: two equal calls are one effect. Without one, two calls are two.
fn identify(
    ctx: &Ctx,
    tool: &str,
    key: Option<Key>,
    id: Option<String>,
    agent: Option<&str>,
) -> Result<(Open, OperationKey), Failure> {
    may_call(ctx, tool)?;
    if let Some(key) = key {
        let key = revised(ctx, key)?;
        // A loop may call under one key again after a failure was shown to it: each showing is one of its own.
        let id = Identity::under_key(key.as_str(), agent);
        let nth = ctx.live.nth_call(ctx.turn, &id);
        let id = Identity::of_call(id, nth);
        return Ok((ctx.live.open(ctx.turn, Kind::Call, tool, Some(id))?, key));
    }
    // Escaped, because identities of calls with a key are such keys: no id is one of them.
    let open = ctx.live.open(ctx.turn, Kind::Call, tool, id.as_deref().map(escaped))?;
    let (run, turn) = (ctx.live.named_after(), ctx.turn);
    let key = match id {
        Some(id) => Key::in_run(tool, run, turn, id),
        None => Key::nth_in_run(tool, run, turn, open.identity.nth()),
    };
    match revised(ctx, key) {
        Ok(key) => Ok((open, key)),
        Err(failure) => Err(open.failed(failure)),
    }
}

/// A key, in the revision that somebody asked for when the run was begun again.
fn revised(ctx: &Ctx, key: Key) -> Result<OperationKey, Failure> {
    let rendered = key.render()?;
    match ctx.live.with_replay(|replay| replay.again.revision(rendered.as_str())) {
        Some(revision) => Ok(key.revision(revision).render()?),
        None => Ok(rendered),
    }
}

/// A resume in this turn reads the record as one of the run's own. What another run or another turn has asked for first is
/// noted as used, or the resume would take its call for a new one.
fn is_read_back(live: &Live, open: &Open, record: &Record) -> bool {
    let owner = &record.owner;
    owner.run == Some(live.id) && (owner.turn == open.identity.turn || owner.turn == live.base)
}

/// The run conflicts with itself if the record has another input. A model that proposes another input under a key of the run's is
/// told so, unless the record is that of this very call: then the code has changed.
fn is_own(live: &Live, open: &Open, record: &Record, proposed: bool) -> bool {
    let is_this_call = || record.owner.step.as_deref() == Some(open.identity.id.as_str());
    record.owner.run == Some(live.id) && (!proposed || is_this_call())
}

/// A call of the run that has a key and a request, and no result.
struct Ready {
    open: Open,
    op: Arc<Operation>,
    /// True if a model has proposed the call.
    proposed: bool,
}

/// Carries a call out, until there is an answer for the run's code.
async fn carried_out(
    ctx: &Ctx,
    Ready { open, op, proposed }: Ready,
    mut expect: Expect,
) -> Result<Answer, Failure> {
    let live = &ctx.live;
    let mut requester = Requester::new(op);
    if live.has_history()
        && let Err(failure) = Box::pin(requester.asked_before(ctx, &open)).await
    {
        return Err(live.shown(open, failure).await);
    }
    loop {
        let op = requester.op.clone();
        // Whatever comes after the first time may find a record.
        let expected = std::mem::replace(&mut expect, Expect::Anything);
        let carried = {
            let _resting = open.rest();
            carry_out(&live.core, op.clone(), expected, Wait::ForOutcome).await
        };
        if let Some(lack) = lacks_approval(live, &carried) {
            // Boxed because it is rare: every call would have to carry the room for it.
            match Box::pin(requester.ask(ctx, &open, lack, expected)).await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(failure) => return Err(live.shown(open, failure).await),
            }
        }
        let Answered { outcome, found, .. } = match carried {
            Ok(answered) => answered, // its ticket needs no waiting: whatever leaves the run comes behind it
            Err(error) => return Err(live.told(open, error).await),
        };
        let is_own = found.as_ref().is_some_and(|record| is_own(live, &open, record, proposed));
        // A conflict uses nothing.
        let elsewhere = found
            .filter(|record| !is_read_back(live, &open, record) && !matches!(outcome, Outcome::Conflict(_)));
        if let Some(record) = &elsewhere {
            Box::pin(note_use(&live.core, &op, record.id)).await;
        }
        let failure = match outcome {
            Outcome::Done(answer) => {
                live.progressed();
                open.close();
                return Ok(answer);
            }
            Outcome::Deferred { until } => {
                let _waiting = open.wait(live::Wait::until(until));
                let left = live.core.now().until(until);
                live.waker.owning(live.core.clock.sleep(left)).await;
                continue;
            }
            // Whoever answers finds the run by its record, or by the note that it uses another's.
            Outcome::NeedsDecision { .. } | Outcome::Pending { .. } => {
                let _waiting = open.wait(live::Wait { answer: true, ..Default::default() });
                return std::future::pending().await; // the answer starts the run over, from its records
            }
            // It was left to a task of its own, and had not begun.
            Outcome::InProgress if live.has_ended() => {
                let message = "the run ended before this call began: nothing was sent";
                return Err(open.failed(misuse(message)));
            }
            Outcome::InProgress => continue,
            // A new build can mend it. Returned by the code, it would undo what this run did under that very key.
            Outcome::Conflict(diff) if is_own && !live.has_ended() => {
                return ctx.block(QuestionKind::Diverged, conflict_with_itself(live, &op, &diff)).await;
            }
            over => failure_of(&op, over),
        };
        return Err(given(live, open, &op, failure).await);
    }
}

/// The failure that the run's code is given, recorded as such unless the run has ended.
async fn given(live: &Live, open: Open, op: &Operation, failure: Failure) -> Failure {
    if !live.has_ended() {
        let given_as = match oversized::record_of(&failure) {
            Some(record) => oversized::given_as(live, &open.identity, record).await,
            None => Ok(open.identity.clone()),
        };
        match given_as {
            Ok(identity) => {
                Box::pin(live.checkpoint(&identity, Some(op.hash), failure.payload())).await;
            }
            Err(error) => return live.told(open, error).await,
        }
    }
    open.close();
    failure
}

/// The sign that the call needs an approval and has none that counts, if there is one.
fn lacks_approval(live: &Live, carried: &Result<Answered, ExecError>) -> Option<Lack> {
    if live.check.is_some() || live.has_ended() {
        return None;
    }
    match carried {
        Ok(Answered { outcome: Outcome::Failed(failure), .. }) => {
            (failure.kind == ErrorKind::ApprovalMissing).then_some(Lack::Withheld)
        }
        Ok(_) => None,
        Err(error) => error.lacking_approval().cloned().map(Lack::Refused),
    }
}

/// The question of a run that asks for an operation of its own with another input.
fn conflict_with_itself(live: &Live, op: &Operation, diff: &Diff) -> String {
    format!(
        "{}: {} is recorded with another input by this run, from which the present one differs by {diff}. Nothing was sent \
         again, and what is recorded stands. If the input's type has another field, raise `INPUT_VERSION`, or use \
         `skip_serializing_if`; otherwise give the same input, or another key. Then go on, or abandon the run?",
        live.id, op.key
    )
}

/// The failure that the run's code gets for an operation without a result.
fn failure_of(op: &Operation, outcome: Outcome) -> Failure {
    match outcome {
        Outcome::ResponseTooLarge(response) => Failure::too_large(&response),
        Outcome::Failed(failure) => Failure::tool(op.tool.spec().name.as_str(), &failure),
        Outcome::Conflict(diff) => Failure::conflict(op.key.as_str(), diff),
        Outcome::Compensated { response, compensation } => Failure::coded(
            FailureCode::Compensated,
            format!("{} was done and undone; to do it again, give the key a revision", op.key),
        )
        .detail(serde_json::json!({"response": response, "compensation": compensation})),
        Outcome::Abandoned { reason } => Failure::coded(
            FailureCode::Abandoned,
            format!("{}: nobody knows whether it happened, and {reason}", op.key),
        ),
        Outcome::Expired { was } => Failure::coded(
            FailureCode::Gone,
            format!(
                "{} is {} since long, and its answer is no longer kept; to do it again, give the key a revision",
                op.key,
                was.name()
            ),
        ),
        Outcome::Refused(error) => misuse(error.to_string()),
        Outcome::Done(_)
        | Outcome::Deferred { .. }
        | Outcome::NeedsDecision { .. }
        | Outcome::Pending { .. }
        | Outcome::InProgress => {
            unreachable!("it came to a result, or is not over")
        }
    }
}
