//! A request to a server that has no answer yet, and the server that may hang on it.

use std::sync::Arc;

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientNotification, ClientRequest, PingRequest,
    RequestId,
};
use rmcp::service::{Peer, RoleClient, RunningServiceCancellationToken};
use tokio::runtime::Handle;

use super::config::ServerConfig;
use crate::clock::{Clock as _, SystemClock};

/// A server that is ready.
pub(super) struct Ready {
    pub(super) config: Arc<ServerConfig>,
    pub(super) peer: Peer<RoleClient>,
    /// Ends the server: the next request starts it anew.
    pub(super) end: RunningServiceCancellationToken,
}

impl Ready {
    /// Withdraws a request, and ends the server if it gives no sign of life after that. A server that hangs would stand for good: its
    /// process lives, and its pipe or its connection is open.
    pub(super) async fn check(self, withdrawn: Option<RequestId>) {
        let Self { config, peer, end } = self;
        let answered = async {
            if let Some(id) = withdrawn {
                let params = CancelledNotificationParam::new(Some(id), None);
                let over = ClientNotification::from(CancelledNotification::new(params));
                drop(peer.send_notification(over).await); // the server may have ended meanwhile
            }
            let ping = ClientRequest::PingRequest(PingRequest::default());
            drop(peer.send_request(ping).await); // an error is a sign of life, too
        };
        tokio::select! {
            biased;
            () = answered => {}
            () = SystemClock.sleep(config.ready_within) => {
                tracing::warn!(server = %config.name, "MCP server without a sign of life ended");
                end.cancel();
            }
        }
    }
}

/// A request without an answer. Where it is dropped before the answer has come, the request is withdrawn: the server is told that nobody
/// waits for the answer, and a request that is still queued is not sent. A server that hangs is ended.
///
/// # Crash
/// An attempt ends by being dropped. Without the withdrawal its request could leave later, when the next attempt or a person has
/// decided already, and the effect would be made twice.
pub(super) struct Open(Option<(Ready, RequestId)>);

impl Open {
    /// The request with this id to a server.
    pub(super) const fn of(server: Ready, id: RequestId) -> Self {
        Self(Some((server, id)))
    }

    /// Notes that the request has its answer. Returns the server.
    pub(super) fn answered(&mut self) -> Option<Ready> {
        self.0.take().map(|(server, _)| server)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Without a runtime the gateway has ended, and nothing is sent any more.
        let (Some((server, id)), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        drop(runtime.spawn(server.check(Some(id))));
    }
}
