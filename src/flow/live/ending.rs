//! The end of an activation: stopped from inside or from outside, or in order to park.

use std::task::Wake as _;

use futures_util::future::BoxFuture;

use super::Live;
use super::state::State;
use super::stop::Stop;
use crate::flow::failure::Failure;

impl Live {
    /// Ends this activation from inside: its futures never resolve.
    pub(in crate::flow) async fn stop<T>(&self, stop: Stop) -> T {
        self.request_stop(stop);
        std::future::pending().await
    }

    /// Asks the driver to end this activation.
    pub(in crate::flow) fn request_stop(&self, stop: Stop) {
        {
            let mut state = self.state();
            if !state.ended && state.stop.is_none() {
                state.stop = Some(stop);
            }
        }
        self.waker.wake_by_ref();
    }

    /// Gives a failure to the run's code, unless a new build can mend it: then the run is blocked. If the code handled
    /// such a failure, the run would go where the mended build does not go; if the code returned it, effects would be
    /// undone.
    ///
    /// Boxed because it is rare: every call would need the room for it.
    pub(in crate::flow) fn unless_mendable(&self, failure: Failure) -> BoxFuture<'_, Failure> {
        Box::pin(
            async move { if failure.code.is_mendable() { self.blocked_by(failure).await } else { failure } },
        )
    }

    /// Takes a failure that the run's code has returned, unless the run is blocked with it.
    pub(in crate::flow) fn unless_halting(&self, failure: Failure) -> BoxFuture<'_, Failure> {
        Box::pin(
            async move { if failure.code.blocks_run() { self.blocked_by(failure).await } else { failure } },
        )
    }

    async fn blocked_by(&self, failure: Failure) -> Failure {
        if self.has_ended() {
            return failure;
        }
        self.request_stop(Stop::Unmended(Box::new(failure.clone())));
        if self.state().inside {
            return failure; // a closure that does not return would hold its thread; what it returns is not recorded
        }
        std::future::pending().await
    }

    /// The failure that a new build is to mend, if the run is about to be blocked for it. Nothing that the code did
    /// with the failure is to be recorded.
    pub(in crate::flow) fn unmended(&self) -> Option<Failure> {
        match &self.state().stop {
            Some(Stop::Unmended(failure)) => Some((**failure).clone()),
            _ => None,
        }
    }

    pub(in crate::flow) fn take_stop(&self) -> Option<Stop> {
        self.state().stop.take()
    }

    /// True if a call may outlive the run, because the run's code dropped it or left it to a task of its own.
    pub(in crate::flow) fn has_dropped_call(&self) -> bool {
        self.state().dropped_calls > 0
    }

    /// Ends the activation. From here on a dropped future leaves no mark, the context refuses every use, and no open
    /// call begins anything new. An open call may outlive the run from here on, whether it is dropped later or never.
    pub(in crate::flow) fn end(&self) {
        self.state().end(&self.over);
    }

    pub(in crate::flow) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// Ends the activation in order to park. Returns false if a signal has come that the run waits for. A sender who
    /// delivers a signal from here on is told that it came too late, and wakes the run again.
    pub(in crate::flow) fn end_to_park(&self) -> bool {
        let mut state = self.state();
        let State { waits, inbox, .. } = &*state;
        if waits.values().filter_map(|wait| wait.signal.as_ref()).any(|wanted| inbox.has(wanted)) {
            return false;
        }
        state.end(&self.over);
        true
    }

    /// Ends the activation in order to park. Returns false if the run has more than `heard` signals.
    pub(in crate::flow) fn end_unless_told(&self, heard: usize) -> bool {
        let mut state = self.state();
        if state.inbox.len() > heard {
            return false;
        }
        state.end(&self.over);
        true
    }
}
