//! Commands to a run: cancel and pause. Each is a signal of the engine's own, with an idempotency key, an author and a
//! reason. It is durable before it has any effect, and is kept as long as the run's row.

mod overdue;
mod word;

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

pub use self::word::Command;
pub(super) use self::word::{TOLD, Verb, is_command};
use super::ctx::Ctx;
use super::error::RunError;
use super::failure::{Failure, FailureCode};
use super::handle::RunHandle;
use super::inbox::Wanted;
use super::inner::Inner;
use super::label::Label;
use super::live::Live;
use super::signal::{NewSignal, OWN, Sent};
use crate::exec::{Answers as _, ExecError, Said, to_the_end};
use crate::id::{IdError, QuestionId, RunId, Tenant, checked};
use crate::ledger::Key;
use crate::payload::Payload;
use crate::store::{CANCEL, QuestionKind, Resolution, Run, RunState, Store as _, StoreError};

/// The default time in which a cancelled run that listens may end by itself.
const GRACE: Duration = Duration::from_secs(30);
/// The number of children that are read at once.
const PAGE: u32 = 256;

impl Ctx {
    /// Resolves when somebody cancels the run: a chance to tidy up and end, before the run is ended by force. Wait for it
    /// in a [`select`](Self::select) beside the work. A run that does not wait for it is ended as soon as it is cancelled.
    ///
    /// ```
    /// # use counterfoil::{Ctx, Failure};
    /// # use futures_util::future::Either;
    /// # async fn work(_: &Ctx) -> Result<u32, Failure> { Ok(7) }
    /// async fn careful(ctx: Ctx, _: ()) -> Result<u32, Failure> {
    ///     match ctx.select("work", work(&ctx), ctx.cancelled()).await? {
    ///         Either::Left(done) => done,
    ///         Either::Right(command) => Err(Failure::new(format!("given up: {}", command?.reason))),
    ///     }
    /// }
    /// ```
    ///
    /// # Crash
    /// A run that was told of its cancellation is told again on resume. The grace goes on, also if the run has gone on to
    /// another turn of a loop or to another input.
    pub async fn cancelled(&self) -> Result<Command, Failure> {
        self.live.await_end();
        let name = Verb::Cancel.signal();
        let wanted = Wanted { name: name.clone(), id: None };
        let body = self.receive(Label::from(name), wanted, None).await?;
        let command: Command = self.decoded("command", &body).await?;
        self.live.cancelled(command.until, body);
        Ok(command)
    }
}

/// A command that is to be given. Nothing happens until it is awaited; then it is durable.
///
/// # Errors
/// [`RunError::Over`] if the run has ended.
#[must_use = "a command is not given until it is awaited"]
pub struct GiveCommand {
    inner: Arc<Inner>,
    tenant: Tenant,
    run: RunId,
    verb: Verb,
    by: String,
    reason: String,
    key: Option<String>,
    grace: Duration,
}

impl<O> RunHandle<O> {
    /// Cancels the run. A run that waits for [`Ctx::cancelled`] is told, and ended by force after the
    /// [grace](GiveCommand::grace); any other run is ended where it is. The run ends as failed, with
    /// [`FailureCode::Cancelled`](super::FailureCode::Cancelled). Its effects are undone where their tools say how, the
    /// others become open questions, and its children are cancelled, too.
    ///
    /// # Crash
    /// The command is durable when this returns, and is carried out whichever process dies.
    pub fn cancel(&self, by: impl Into<String>, reason: impl Into<String>) -> GiveCommand {
        self.command(Verb::Cancel, by.into(), reason.into())
    }

    /// Pauses the run where it is durable: it does nothing more, not even when its timer is due, until somebody lets it
    /// [go on](Self::resume). The pause is listed as an open question.
    pub fn pause(&self, by: impl Into<String>, reason: impl Into<String>) -> GiveCommand {
        self.command(Verb::Pause, by.into(), reason.into())
    }

    fn command(&self, verb: Verb, by: String, reason: String) -> GiveCommand {
        let (inner, tenant, run) = (self.inner.clone(), self.tenant.clone(), self.id);
        GiveCommand { inner, tenant, run, verb, by, reason, key: None, grace: GRACE }
    }
}

impl GiveCommand {
    /// The idempotency key of the command: the same command under the same key is not a second one. A key that begins
    /// with `~` is refused.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The time in which a run that listens may end by itself, before it is ended by force. Default: 30 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
}

impl IntoFuture for GiveCommand {
    type Output = Result<Sent, RunError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { inner, tenant, run, verb, by, reason, key, grace } = self;
            let id = inner.command_id(key)?;
            let until = (verb == Verb::Cancel).then(|| inner.core.now().after(grace));
            let command = Command { by, reason, until };
            let tracker = inner.core.tracker.clone();
            to_the_end(&tracker, async move { inner.command(Order { tenant, run, verb, id, command }).await })
                .await
        })
    }
}

/// A command that is given to one run.
struct Order {
    tenant: Tenant,
    run: RunId,
    verb: Verb,
    /// The idempotency key of the command.
    id: String,
    command: Command,
}

impl Inner {
    /// The id of a command: its author's key, or a unique one.
    pub(super) fn command_id(&self, key: Option<String>) -> Result<String, IdError> {
        let Some(key) = key else { return Ok(self.unique()) };
        checked("command's key", &key, Key::MAX_BYTES)?;
        // Under a key of the engine's, such as that of a parent which cancels its child, another command could be lost.
        if key.starts_with(OWN) {
            return Err(IdError::Reserved { what: "command's key" });
        }
        Ok(key)
    }

    async fn command(self: &Arc<Self>, order: Order) -> Result<Sent, RunError> {
        let Order { tenant, run, verb, id, command } = order;
        let (name, body) = (verb.signal(), Payload::of(&command)?);
        let new = NewSignal { tenant: tenant.clone(), run, name: name.clone(), id: id.clone(), body };
        let sent = match self.send(new).await {
            // A command that is given again a moment later has another limit, and is the same command.
            Err(conflict @ RunError::SignalConflict { .. }) => {
                let first = self.core.group.signal_find(&tenant, run, &name, &id).await?;
                let first = match &first {
                    Some(first) => Command::of(&self.core.load(&tenant, &first.body).await?)?,
                    None => return Err(conflict),
                };
                if (&first.by, &first.reason) != (&command.by, &command.reason) {
                    return Err(conflict);
                }
                Sent::Before
            }
            sent => sent?,
        };
        if verb == Verb::Cancel {
            self.cancel_blocked(&tenant, run, command).await?;
        }
        Ok(sent)
    }

    /// Ends a run that is blocked because it was cancelled. A blocked run has no task that could hear of the command.
    async fn cancel_blocked(
        self: &Arc<Self>,
        tenant: &Tenant,
        run: RunId,
        command: Command,
    ) -> Result<(), ExecError> {
        let row = self.core.group.run_find(tenant, run).await;
        let row = row.map_err(|source| ExecError::Store { key: run.to_string(), source })?;
        if row.is_some_and(|row| matches!(row.state, RunState::Blocked { .. }))
            && let Some(question) = self.asked_about(tenant, run, QuestionKind::blocks_its_run).await?
        {
            self.cancel_children(tenant, run, &command).await?;
            let said = Said { because: Some(command.reason), ..Said::new(Resolution::Abandon, command.by) };
            match self.clone().resolve(tenant.clone(), question, said).await {
                // Another answer was first. If the run goes on with it, the run hears the command.
                Err(ExecError::Unanswerable { .. }) => {}
                answered => answered?,
            }
        }
        Ok(())
    }

    /// Obeys a command to cancel a run that was blocked just now. Closes a race: a command that came while the run was
    /// being blocked found it not blocked yet, and its code is gone.
    pub(super) async fn obey_blocked(self: &Arc<Self>, tenant: &Tenant, run: RunId) -> Result<(), ExecError> {
        let failed = |source| ExecError::Store { key: run.to_string(), source };
        let pending = self.core.group.signal_pending(&[(tenant.clone(), run)]).await.map_err(failed)?;
        let Some(signal) = pending.into_iter().find(|signal| signal.name == CANCEL) else { return Ok(()) };
        let body = self.core.load(tenant, &signal.body).await?;
        let command = Command::of(&body).unwrap_or_else(|_| Command::unreadable());
        self.cancel_blocked(tenant, run, command).await
    }

    /// The first open question about a run whose kind is accepted by `kind`.
    pub(super) async fn asked_about(
        &self,
        tenant: &Tenant,
        run: RunId,
        kind: impl Fn(QuestionKind) -> bool,
    ) -> Result<Option<QuestionId>, ExecError> {
        let open = self.core.group.escalation_about(tenant, run).await;
        let open = open.map_err(|source| ExecError::Store { key: run.to_string(), source })?;
        Ok(open.into_iter().find(|asked| kind(asked.kind)).map(|asked| asked.id))
    }

    /// Cancels a child of a run that has failed: no run waits for the child any more.
    pub(super) async fn end_child(
        self: &Arc<Self>,
        parent: &Live,
        child: RunId,
        failure: &Failure,
    ) -> Result<(), ExecError> {
        let (by, reason) = (parent.id.to_string(), format!("its parent failed: {failure}"));
        let until = Some(self.core.now().after(GRACE));
        self.cancel_child((&parent.tenant, parent.id), child, Command { by, reason, until }).await
    }

    /// Cancels a child. An error of the store is returned: a child that was not told would not end, and its parent
    /// would wait for it for ever. A damaged row of the child does not mend itself, and is only logged.
    async fn cancel_child(
        self: &Arc<Self>,
        (tenant, parent): (&Tenant, RunId),
        child: RunId,
        command: Command,
    ) -> Result<(), ExecError> {
        let passes = |source: &StoreError| !matches!(source, StoreError::Corrupt { .. });
        // The id is made of the parent, so that after a crash it is the same command.
        let id = format!("~{parent}");
        let order = Order { tenant: tenant.clone(), run: child, verb: Verb::Cancel, id, command };
        // Boxed because it is rare, and because a child cancels its own children in turn.
        let told = Box::pin(self.command(order)).await;
        match told {
            // An error if the child was cancelled before, for another reason, or has ended meanwhile.
            Ok(_)
            | Err(RunError::SignalConflict { .. } | RunError::Over { .. } | RunError::Expired { .. }) => {
                Ok(())
            }
            Err(RunError::Store(source)) if passes(&source) => {
                Err(ExecError::Store { key: child.to_string(), source })
            }
            Err(RunError::Exec(ExecError::Store { key, source })) if passes(&source) => {
                Err(ExecError::Store { key, source })
            }
            Err(error) => {
                tracing::warn!(%tenant, run = %child, %error, "child run not cancelled");
                Ok(())
            }
        }
    }

    /// Cancels the children that a run has begun and that are to end with it.
    pub(super) async fn cancel_children(
        self: &Arc<Self>,
        tenant: &Tenant,
        parent: RunId,
        command: &Command,
    ) -> Result<(), ExecError> {
        let failed = |source| ExecError::Store { key: parent.to_string(), source };
        let mut after = RunId(i64::MIN);
        loop {
            let page = self.core.group.run_children(tenant, parent, after, PAGE).await;
            let children = page.map_err(failed)?;
            let Some(last) = children.last() else { return Ok(()) };
            after = last.id;
            for child in children.iter().filter(|child| !child.state.is_final()) {
                self.cancel_child((tenant, parent), child.id, command.clone()).await?;
            }
        }
    }

    /// The failure of a blocked run that is abandoned: as cancelled, if a command says so that the run was not told of
    /// yet.
    pub(super) async fn ended_by(&self, run: &Run, by: &str) -> Result<Failure, ExecError> {
        let failed = |source| ExecError::Store { key: run.id.to_string(), source };
        let said = self.core.group.signal_pending(&[(run.tenant.clone(), run.id)]).await.map_err(failed)?;
        match said.iter().find(|signal| signal.name == CANCEL) {
            Some(signal) => {
                let body = self.core.load(&run.tenant, &signal.body).await?;
                Ok(Command::of(&body).unwrap_or_else(|_| Command::unreadable()).failure())
            }
            None => Ok(Failure::coded(FailureCode::Abandoned, format!("{by} abandoned the run"))),
        }
    }
}
