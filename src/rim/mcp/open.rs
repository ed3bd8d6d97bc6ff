//! A request to a server that has no answer yet, and the server that may hang on it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientNotification, ClientRequest, PingRequest,
    RequestId,
};
use rmcp::service::{Peer, RoleClient, RunningServiceCancellationToken};
use tokio::runtime::Handle;

use super::config::ServerConfig;
use crate::clock::{Clock as _, SystemClock};

/// The requests to a server that have no answer yet, and the signs of life that the server has given.
#[derive(Default)]
pub(super) struct Requests {
    state: Mutex<Numbers>,
    /// The number of messages that have come from the server, as far as they come by here.
    signs: AtomicU64,
}

#[derive(Default)]
struct Numbers {
    next: u64,
    open: BTreeSet<u64>,
}

impl Requests {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a message has come from the server.
    pub(super) fn note_sign(&self) {
        self.signs.fetch_add(1, Ordering::Relaxed);
    }

    fn signs(&self) -> u64 {
        self.signs.load(Ordering::Relaxed)
    }

    fn next(&self) -> u64 {
        self.numbers().next
    }

    /// True if a request with a smaller number is open.
    fn has_open_before(&self, number: u64) -> bool {
        self.numbers().open.first().is_some_and(|first| *first < number)
    }

    /// Notes an open request.
    fn begin(self: &Arc<Self>) -> Begun {
        let mut numbers = self.numbers();
        let number = numbers.next;
        numbers.next += 1;
        numbers.open.insert(number);
        Begun { requests: self.clone(), number }
    }
}

/// An open request, until this is dropped.
struct Begun {
    requests: Arc<Requests>,
    number: u64,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.requests.numbers().open.remove(&self.number);
    }
}

/// A server that is ready.
pub(super) struct Ready {
    pub(super) config: Arc<ServerConfig>,
    pub(super) peer: Peer<RoleClient>,
    /// Ends the server: the next request starts it anew.
    pub(super) end: RunningServiceCancellationToken,
    pub(super) requests: Arc<Requests>,
}

impl Ready {
    /// Withdraws a request, and ends the server if it gives no sign of life after that. A server that hangs would stand for good: its
    /// process lives, and its pipe or its connection is open.
    ///
    /// A server that handles one message at a time may be in the middle of an earlier request, whose effect would be cut off. So it is
    /// not ended while a request from before this check is open: that one is answered, or is given up. Later requests do not count, or
    /// a server that hangs would live for as long as somebody calls it.
    pub(super) async fn check(self, withdrawn: Option<RequestId>) {
        let Self { config, peer, end, requests } = self;
        let (number, signs) = (requests.next(), requests.signs());
        let answered = async {
            if let Some(id) = withdrawn {
                let params = CancelledNotificationParam::new(Some(id), None);
                let over = ClientNotification::from(CancelledNotification::new(params));
                drop(peer.send_notification(over).await); // the server may have ended meanwhile
            }
            let ping = ClientRequest::PingRequest(PingRequest::default());
            drop(peer.send_request(ping).await); // an error is a sign of life, too
        };
        let hangs = async {
            loop {
                SystemClock.sleep(config.ready_within).await;
                if requests.signs() != signs {
                    return false;
                }
                if !requests.has_open_before(number) {
                    return true;
                }
            }
        };
        let hangs = tokio::select! {
            biased;
            () = answered => false,
            hangs = hangs => hangs,
        };
        if hangs {
            tracing::warn!(server = %config.name, "MCP server without a sign of life ended");
            end.cancel();
        }
    }
}

/// A request without an answer. Where it is dropped before the answer has come, the request is withdrawn: the server is told that nobody
/// waits for the answer, and a request that is still queued is not sent. A server that hangs is ended.
///
/// # Crash
/// An attempt ends by being dropped. Without the withdrawal its request could leave later, when the next attempt or a person has
/// decided already, and the effect would be made twice.
pub(super) struct Open(Option<(Ready, RequestId, Begun)>);

impl Open {
    /// The request with this id to a server.
    pub(super) fn of(server: Ready, id: RequestId) -> Self {
        let begun = server.requests.begin();
        Self(Some((server, id, begun)))
    }

    /// Notes that the request has its answer. Returns the server.
    pub(super) fn answered(&mut self) -> Option<Ready> {
        let (server, ..) = self.0.take()?;
        server.requests.note_sign();
        Some(server)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Without a runtime the gateway has ended, and nothing is sent any more.
        let (Some((server, id, begun)), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        drop(begun); // before the check, for which this request is over
        drop(runtime.spawn(server.check(Some(id))));
    }
}
