//! The clients of a gateway: who is told of what the servers report.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ProgressNotification, ProgressNotificationParam, ProgressToken, ServerNotification, ServerRequest,
};
use rmcp::service::{Peer, RoleServer};

use crate::tool::Call;

/// A client that has asked for the progress of its call.
#[derive(Clone)]
pub(super) struct Listener {
    pub(super) client: Peer<RoleServer>,
    pub(super) token: ProgressToken,
}

/// The clients that are connected, and the calls whose progress they hear.
#[derive(Default)]
pub(super) struct Clients {
    connected: Mutex<Vec<Peer<RoleServer>>>,
    /// The listeners of recorded calls, by the keys of their operations: the call itself knows no client.
    waiting: Mutex<HashMap<String, Listener>>,
    /// The requests in flight, by server and the token that the server was given.
    in_flight: Mutex<HashMap<(String, ProgressToken), Heard>>,
}

/// The listeners to the progress of a request.
#[derive(Clone, Default)]
pub(super) struct Heard {
    pub(super) listener: Option<Listener>,
    /// The attempt whose timeout begins anew with each sign of progress.
    pub(super) call: Option<Call>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what it was given for when it is dropped, because a caller may give up.
pub(super) struct Until<F: FnMut()>(F);

impl<F: FnMut()> Drop for Until<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Clients {
    pub(super) fn connect(&self, client: &Peer<RoleServer>) {
        let mut connected = lock(&self.connected);
        connected.retain(|known| !known.is_transport_closed());
        connected.push(client.clone());
    }

    /// The client that came last: the one that a server's question goes to.
    pub(super) fn latest(&self) -> Option<Peer<RoleServer>> {
        lock(&self.connected).iter().rev().find(|client| !client.is_transport_closed()).cloned()
    }

    /// Tells every client. One that does not listen is passed over.
    pub(super) async fn tell(&self, notification: ServerNotification) {
        let connected = lock(&self.connected).clone();
        for client in connected {
            drop(client.send_notification(notification.clone()).await); // it may have left
        }
    }

    /// Lets a client hear the progress of an operation for as long as the result is kept.
    pub(super) fn wait(
        self: &Arc<Self>,
        key: String,
        listener: Option<Listener>,
    ) -> Until<impl FnMut() + use<>> {
        if let Some(listener) = listener {
            lock(&self.waiting).insert(key.clone(), listener);
        }
        let clients = self.clone();
        Until(move || drop(lock(&clients.waiting).remove(&key)))
    }

    pub(super) fn waiting(&self, key: &str) -> Option<Listener> {
        lock(&self.waiting).get(key).cloned()
    }

    /// Passes the progress of a request on for as long as the result is kept.
    pub(super) fn hear(
        self: &Arc<Self>,
        server: &str,
        token: ProgressToken,
        heard: Heard,
    ) -> Until<impl FnMut() + use<>> {
        let key = (server.to_owned(), token);
        lock(&self.in_flight).insert(key.clone(), heard);
        let clients = self.clone();
        Until(move || drop(lock(&clients.in_flight).remove(&key)))
    }

    pub(super) async fn progress(&self, server: &str, mut progress: ProgressNotificationParam) {
        let key = (server.to_owned(), progress.progress_token.clone());
        let Some(Heard { listener, call }) = lock(&self.in_flight).get(&key).cloned() else { return };
        if let Some(call) = call {
            call.alive();
        }
        if let Some(Listener { client, token }) = listener {
            progress.progress_token = token;
            let notification = ServerNotification::from(ProgressNotification::new(progress));
            drop(client.send_notification(notification).await); // it may have left
        }
    }

    /// Passes a server's question on to the client that came last.
    pub(super) async fn ask(
        &self,
        request: ServerRequest,
    ) -> Result<rmcp::model::ClientResult, rmcp::ErrorData> {
        let nobody = || rmcp::ErrorData::internal_error("no client is connected to the gateway", None);
        let client = self.latest().ok_or_else(nobody)?;
        client.send_request(request).await.map_err(|error| match error {
            rmcp::ServiceError::McpError(error) => error,
            error => rmcp::ErrorData::internal_error(error.to_string(), None),
        })
    }
}
