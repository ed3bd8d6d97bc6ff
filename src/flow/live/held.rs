//! New effects that a replay holds back: they go out when every live branch waits, and not before.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use super::Live;
use super::open::Open;
use super::state::{HeldCall, Rest, Wait};
use crate::flow::check::Check;
use crate::flow::identity::Identity;
use crate::store::WaitsOn;

impl Live {
    /// Waits until new effects may go out. `call` describes the held call, so that an unstable key can be named.
    pub(in crate::flow) async fn released(&self, open: &Open, call: Option<HeldCall>) {
        if let Some(check) = &self.check {
            check.is_new(&open.identity);
            self.state().held_calls.extend(call);
            let _waiting = open.rest();
            return std::future::pending().await;
        }
        if !self.state().replaying {
            return;
        }
        self.state().held_calls.extend(call);
        self.is_new(&open.identity);
        let _waiting = open.rest();
        poll_fn(|cx| {
            let mut state = self.state();
            if state.replaying {
                state.held.push(cx.waker().clone());
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }

    /// Notes that a check has come to something that the run has not recorded, and that the engine would record before
    /// it goes on. Returns only if the check goes on as well.
    pub(in crate::flow) async fn unrecorded(&self, check: &Check, identity: &Identity) {
        if !check.goes_on(identity) {
            let _waiting = self.resting();
            std::future::pending::<()>().await;
        }
    }

    /// Ends the replay, and lets the effects go out that were held back.
    pub(in crate::flow) fn release(&self) {
        let held = {
            let mut state = self.state();
            state.replaying = false;
            state.held_calls.clear();
            state.anew.clear();
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(Waker::wake);
    }

    /// True if the run replays or is only checked. The waker is woken when the replay is over.
    pub(in crate::flow) fn replays(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        if state.replaying {
            state.held.push(waker.clone());
        }
        state.replaying || self.check.is_some()
    }

    pub(in crate::flow) fn is_replaying(&self) -> bool {
        self.state().replaying
    }

    /// True if the run replays and is still reading something that it has recorded.
    pub(in crate::flow) fn is_reading_back(&self) -> bool {
        let state = self.state();
        state.replaying && state.busy > 0
    }

    /// Notes that the code has come to something that the run has not recorded, and that hides what comes behind it.
    pub(in crate::flow) fn is_new(&self, identity: &Identity) {
        let mut state = self.state();
        if state.replaying {
            state.anew.push(identity.clone());
        }
    }

    /// The new things that the code has come to while the run replays.
    pub(in crate::flow) fn anew(&self) -> Vec<Identity> {
        self.state().anew.clone()
    }

    pub(in crate::flow) fn held_calls(&self) -> Vec<HeldCall> {
        self.state().held_calls.clone()
    }

    /// The waits of the open futures, in the order in which they began. `None` if one of the futures does not wait.
    pub(in crate::flow) fn waits(&self) -> Option<Vec<Wait>> {
        let state = self.state();
        let mut waits: Vec<_> = state.waits.iter().collect();
        waits.sort_by_key(|(number, _)| **number);
        let all = waits.len() + state.behind == state.open;
        all.then(|| waits.into_iter().map(|(_, wait)| wait.clone()).collect())
    }

    /// The state of the body. Asked when the body is pending and did not wake itself.
    pub(in crate::flow) fn rest(&self) -> Rest {
        let state = self.state();
        if state.open == 0 || state.busy > 0 {
            Rest::Working
        } else if state.replaying {
            Rest::Quiescent
        } else if !state.waits.is_empty() && state.waits.len() + state.behind == state.open {
            let until = state.waits.values().filter_map(|wait| wait.until).min();
            let on = WaitsOn {
                answer: state.waits.values().any(|wait| wait.answer),
                signal: state.waits.values().any(|wait| wait.signal.is_some()),
            };
            Rest::Waiting { until, on }
        } else {
            Rest::Working
        }
    }
}
