//! The clients of a gateway: who is told of what the servers report.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ProgressNotification, ProgressNotificationParam, ProgressToken, ServerNotification, ServerRequest,
};
use rmcp::service::{Peer, RoleServer};

use crate::tool::Call;

/// A client that waits for the answer to a request.
#[derive(Clone)]
pub(super) struct Waiter {
    /// The name of the client, as the configuration or its token has it.
    pub(super) name: Arc<str>,
    pub(super) client: Peer<RoleServer>,
    /// The token under which the client has asked for the progress.
    pub(super) token: Option<ProgressToken>,
}

/// The clients that are connected, and the calls whose progress they hear.
#[derive(Default)]
pub(super) struct Clients {
    connected: Mutex<Vec<(Arc<str>, Peer<RoleServer>)>>,
    /// The clients that wait for recorded calls, by the keys of their operations: the call itself knows no client, and several may wait for it.
    waiting: Mutex<Waiting>,
    /// The requests in flight, by server and the token that the server was given.
    in_flight: Mutex<HashMap<(String, ProgressToken), Heard>>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    by_operation: HashMap<String, Vec<(u64, Waiter)>>,
}

/// The listeners to the progress of a request.
#[derive(Clone, Default)]
pub(super) struct Heard {
    pub(super) waiter: Option<Waiter>,
    /// The attempt whose timeout begins anew with each sign of progress. The clients that wait for its operation hear of it.
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

impl Waiting {
    fn add(&mut self, key: String, waiter: Waiter) -> u64 {
        self.next += 1;
        self.by_operation.entry(key).or_default().push((self.next, waiter));
        self.next
    }

    fn remove(&mut self, key: &str, number: u64) {
        if let Some(waiters) = self.by_operation.get_mut(key) {
            waiters.retain(|(other, _)| *other != number);
            if waiters.is_empty() {
                self.by_operation.remove(key);
            }
        }
    }

    fn of(&self, key: &str) -> Vec<Waiter> {
        let waiters = self.by_operation.get(key).into_iter().flatten();
        waiters.map(|(_, waiter)| waiter.clone()).collect()
    }
}

impl Clients {
    pub(super) fn connect(&self, name: &Arc<str>, client: &Peer<RoleServer>) {
        let mut connected = lock(&self.connected);
        connected.retain(|(_, known)| !known.is_transport_closed());
        connected.push((name.clone(), client.clone()));
    }

    /// The client that came last.
    pub(super) fn latest(&self) -> Option<Peer<RoleServer>> {
        let connected = lock(&self.connected);
        let live = connected.iter().rev().find(|(_, client)| !client.is_transport_closed());
        live.map(|(_, client)| client.clone())
    }

    /// Tells every client. One that does not listen is passed over.
    pub(super) async fn tell(&self, notification: ServerNotification) {
        let connected = lock(&self.connected).clone();
        for (_, client) in connected {
            drop(client.send_notification(notification.clone()).await); // it may have left
        }
    }

    /// Lets a client hear the progress of an operation for as long as the result is kept.
    pub(super) fn wait(self: &Arc<Self>, key: String, waiter: Waiter) -> Until<impl FnMut() + use<>> {
        let number = lock(&self.waiting).add(key.clone(), waiter);
        let clients = self.clone();
        Until(move || lock(&clients.waiting).remove(&key, number))
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
        let Some(heard) = lock(&self.in_flight).get(&key).cloned() else { return };
        if let Some(call) = &heard.call {
            call.alive();
        }
        for Waiter { client, token, .. } in self.waiters(heard) {
            let Some(token) = token else { continue };
            progress.progress_token = token;
            let notification = ServerNotification::from(ProgressNotification::new(progress.clone()));
            drop(client.send_notification(notification).await); // it may have left
        }
    }

    /// The clients that wait for the answer to a request.
    fn waiters(&self, Heard { waiter, call }: Heard) -> Vec<Waiter> {
        let mut waiters = Vec::from_iter(waiter);
        if let Some(call) = call {
            waiters.extend(lock(&self.waiting).of(call.operation_key().as_str()));
        }
        waiters
    }

    /// The client that a question of a server is for: the one whose request the server has in hand, and between requests the one
    /// that came last. Nothing says whose request it is where several clients have one: then nobody is asked, because the answer
    /// could be somebody else's.
    fn asked_by(&self, server: &str) -> Option<Peer<RoleServer>> {
        let in_flight = lock(&self.in_flight);
        let in_hand: Vec<_> = in_flight
            .iter()
            .filter(|((name, _), _)| name == server)
            .map(|(_, heard)| heard.clone())
            .collect();
        drop(in_flight);
        let mut clients: Vec<_> = in_hand
            .into_iter()
            .flat_map(|heard| self.waiters(heard))
            .map(|waiter| (waiter.name, waiter.client))
            .collect();
        if clients.is_empty() {
            clients.clone_from(&*lock(&self.connected));
        }
        clients.retain(|(_, client)| !client.is_transport_closed());
        let (name, client) = clients.last()?;
        clients.iter().all(|(other, _)| other == name).then(|| client.clone())
    }

    /// Passes a server's question on.
    pub(super) async fn ask(
        &self,
        server: &str,
        request: ServerRequest,
    ) -> Result<rmcp::model::ClientResult, rmcp::ErrorData> {
        let nobody = || rmcp::ErrorData::internal_error("there is no client, or not one alone, to ask", None);
        let client = self.asked_by(server).ok_or_else(nobody)?;
        client.send_request(request).await.map_err(|error| match error {
            rmcp::ServiceError::McpError(error) => error,
            error => rmcp::ErrorData::internal_error(error.to_string(), None),
        })
    }
}
