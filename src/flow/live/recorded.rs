//! The records that an earlier life left of an open future, and the errors that the run's code is given in place of a
//! result.

use futures_util::future::BoxFuture;

use super::Live;
use super::open::Open;
use super::state::Wait;
use super::stop::Stop;
use crate::exec::ExecError;
use crate::flow::failure::{Failure, Meaning, meaning};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::store::PastStep;

impl Live {
    /// The checkpoint of an open future. If the future was dropped in an earlier life, this pends for ever.
    ///
    /// # Errors
    /// The error that the run's code was given in place of a result.
    pub(in crate::flow) async fn recorded(&self, open: &Open) -> Result<Option<PastStep>, Failure> {
        let (step, abandoned, failed) = {
            let mut state = self.state();
            state.replay.ask(&open.identity);
            let replay = &state.replay;
            let step = replay.step(&open.identity).cloned();
            let failed = step.is_none() && replay.failure(&open.identity).is_some();
            (step, replay.is_abandoned(&open.identity), failed)
        };
        if abandoned {
            let _waiting = open.wait(Wait::default());
            std::future::pending::<()>().await;
        }
        if failed && let Some(failure) = self.shown_before(open).await {
            return Err(failure);
        }
        Ok(step)
    }

    /// The error that the run's code was given in an earlier life. For a call the error is the checkpoint itself.
    ///
    /// Boxed because it is rare: every operation would need the room for it.
    fn shown_before<'a>(&'a self, open: &'a Open) -> BoxFuture<'a, Option<Failure>> {
        Box::pin(async move {
            let past = self.with_replay(|replay| replay.failure(&open.identity)?.value.clone())?;
            let failure = match self.core.load(&self.tenant, &past).await {
                Ok(failure) => Failure::recorded(&failure),
                Err(error) => self.failure(error).await,
            };
            open.settled();
            Some(failure)
        })
    }

    /// Gives an error to the run's code. The error is recorded first, so that every resume gives the same one, whatever
    /// has changed meanwhile.
    pub(in crate::flow) fn shown(&self, open: Open, failure: Failure) -> BoxFuture<'_, Failure> {
        // Boxed because errors are rare.
        Box::pin(async move {
            if self.check.is_none()
                && let Some(before) = self.shown_before(&open).await
            {
                return before;
            }
            let failure = self.unless_mendable(failure).await;
            if self.check.is_some() || failure.code.is_mendable() {
                return open.failed(failure);
            }
            let payload = failure.payload();
            let shown = payload.decode().unwrap_or(failure); // as a resume reads it
            self.checkpoint(&open.identity.failed(), None, payload).await;
            open.failed(shown)
        })
    }

    /// Gives an error of the executor to the run's code. An error that ends this activation is not given to the code.
    pub(in crate::flow) fn told(&self, open: Open, error: ExecError) -> BoxFuture<'_, Failure> {
        Box::pin(async move {
            match meaning(error) {
                Meaning::Failure(failure) => self.shown(open, failure).await,
                Meaning::Stop(error) => {
                    open.close();
                    self.stop(Stop::Failed(error)).await
                }
            }
        })
    }

    /// Turns an error of the executor into a failure for the workflow, or ends this activation.
    ///
    /// Boxed because it is rare and used everywhere: every call would need the room for it.
    pub(in crate::flow) fn failure(&self, error: ExecError) -> BoxFuture<'_, Failure> {
        Box::pin(async move {
            match meaning(error) {
                Meaning::Failure(failure) => self.unless_mendable(failure).await,
                Meaning::Stop(error) => self.stop(Stop::Failed(error)).await,
            }
        })
    }

    /// A value in its recorded form, with its secrets as keyed digests.
    pub(in crate::flow) async fn canonical(
        &self,
        write: impl Fn(Option<&DigestKey>) -> Result<(Payload, bool), PayloadError>,
    ) -> Result<Payload, Failure> {
        match self.core.canonical(&self.tenant, write).await {
            Ok(payload) => Ok(payload),
            Err(error) => Err(self.failure(error).await),
        }
    }

    /// The subject of an open future, in its recorded form and within the limits. A subject that was recorded before is
    /// not measured: the limits may have been other ones then.
    pub(in crate::flow) async fn fitting(
        &self,
        open: Open,
        recorded: bool,
        write: impl Fn(Option<&DigestKey>) -> Result<(Payload, bool), PayloadError>,
    ) -> Result<(Open, Payload), Failure> {
        let limits = &self.core.limits;
        let fits = |payload: Payload| if recorded { Ok(payload) } else { Ok(payload.within(limits)?) };
        match self.core.canonical(&self.tenant, write).await.and_then(fits) {
            Ok(payload) => Ok((open, payload)),
            Err(error) => Err(self.told(open, error).await),
        }
    }
}
