//! A request to a server that has no answer yet.

use rmcp::model::{CancelledNotification, CancelledNotificationParam, ClientNotification, RequestId};
use rmcp::service::{Peer, RoleClient};
use tokio::runtime::Handle;

/// A request without an answer. Where it is dropped before the answer has come, the request is withdrawn: the server is told that nobody
/// waits for the answer, and a request that is still queued is not sent.
///
/// # Crash
/// An attempt ends by being dropped. Without the withdrawal its request could leave later, when the next attempt or a person has
/// decided already, and the effect would be made twice.
pub(super) struct Open {
    server: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Open {
    /// The request with this id.
    pub(super) fn of(server: &Peer<RoleClient>, id: &RequestId) -> Self {
        Self { server: server.clone(), id: Some(id.clone()) }
    }

    pub(super) fn answered(&mut self) {
        self.id = None;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Without a runtime the gateway has ended, and nothing is sent any more.
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        let server = self.server.clone();
        drop(runtime.spawn(async move {
            let params = CancelledNotificationParam::new(Some(id), None);
            let over = ClientNotification::from(CancelledNotification::new(params));
            drop(server.send_notification(over).await); // the server may have ended meanwhile
        }));
    }
}
