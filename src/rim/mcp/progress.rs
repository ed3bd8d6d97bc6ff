//! The clients of a gateway: who is told of what the servers report.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientResult, CustomNotification, ElicitRequestParams, ElicitResult, ElicitationAction,
    ProgressNotification, ProgressNotificationParam, ProgressToken, PromptListChangedNotification,
    ServerNotification, ServerRequest, ToolListChangedNotification,
};
use rmcp::service::{Peer, RoleServer};
use rmcp::{ErrorData, ServiceError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::question;
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
    /// The clients that servers have sent to a URL, by server and the elicitation's id, until the server says that it is complete.
    elicited: Mutex<HashMap<(String, String), Peer<RoleServer>>>,
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
    /// True when the server has asked a question meanwhile, perhaps for this request.
    pub(super) has_asked: Arc<AtomicBool>,
    /// The longest time without a sign of progress. `None` for an attempt or a lookup, which has a limit of its own.
    pub(super) limit: Option<Duration>,
    /// Notified of each sign of progress.
    pub(super) progress: Arc<Notify>,
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

    /// Tells every client that the lists of tools and prompts have changed. A client that does not read holds up nobody's call.
    pub(super) fn tell_of_changed_lists(self: &Arc<Self>) {
        let clients = self.clone();
        drop(tokio::spawn(async move {
            clients.tell(ServerNotification::from(ToolListChangedNotification::default())).await;
            clients.tell(ServerNotification::from(PromptListChangedNotification::default())).await;
        }));
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
        heard.progress.notify_one();
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
    fn waiters(&self, Heard { waiter, call, .. }: Heard) -> Vec<Waiter> {
        let mut waiters = Vec::from_iter(waiter);
        if let Some(call) = call {
            waiters.extend(lock(&self.waiting).of(call.operation_key().as_str()));
        }
        waiters
    }

    /// The client that a question of a server is for: the one whose request the server has in hand, and between requests the one
    /// that came last. Nothing says whose request it is where several clients have one: then nobody is asked, because the answer
    /// could be somebody else's.
    ///
    /// # Errors
    /// The answer to the server: there is not one client alone, or it has not declared the ability.
    fn asked_by(&self, server: &str, question: &ServerRequest) -> Result<Peer<RoleServer>, ErrorData> {
        let in_flight = lock(&self.in_flight);
        let in_hand: Vec<_> = in_flight
            .iter()
            .filter(|((name, _), _)| name == server)
            .map(|(_, heard)| heard.clone())
            .collect();
        drop(in_flight);
        for heard in &in_hand {
            heard.has_asked.store(true, Ordering::Release);
        }
        let mut clients: Vec<_> = in_hand
            .into_iter()
            .flat_map(|heard| self.waiters(heard))
            .map(|waiter| (waiter.name, waiter.client))
            .collect();
        if clients.is_empty() {
            clients.clone_from(&*lock(&self.connected));
        }
        clients.retain(|(_, client)| !client.is_transport_closed());
        if clients.windows(2).any(|two| two[0].0 != two[1].0) {
            return Err(ErrorData::internal_error("there is not one client alone to ask", None));
        }
        // One client may be connected several times, with other abilities each time.
        let newest_first = clients.iter().rev();
        let checked =
            newest_first.map(|(_, client)| question::check(client, question).map(|()| client.clone()));
        checked.reduce(Result::or).unwrap_or_else(|| Err(question::unable(question)))
    }

    /// Passes a server's question on, until the server cancels it.
    pub(super) async fn ask(
        &self,
        server: &str,
        question: ServerRequest,
        cancelled: &CancellationToken,
    ) -> Result<ClientResult, ErrorData> {
        let client = self.asked_by(server, &question)?;
        let url = url_elicitation(&question).map(|id| (server.to_owned(), id.to_owned()));
        if let Some(key) = &url {
            let mut elicited = lock(&self.elicited);
            elicited.retain(|_, client| !client.is_transport_closed());
            elicited.insert(key.clone(), client.clone());
        }
        let answer = tokio::select! {
            biased;
            () = cancelled.cancelled() => Err(ErrorData::internal_error("the question was cancelled", None)),
            answer = question::ask(&client, question) => answer.map_err(|error| match error {
                ServiceError::McpError(error) => error,
                error => ErrorData::internal_error(error.to_string(), None),
            }),
        };
        let is_accepted = matches!(
            &answer,
            Ok(ClientResult::ElicitResult(ElicitResult { action: ElicitationAction::Accept, .. }))
        );
        if let Some(key) = url.filter(|_| !is_accepted) {
            lock(&self.elicited).remove(&key);
        }
        answer
    }

    /// Passes on that an elicitation at a URL is complete: to the client that was sent there. Where it is not known, because the
    /// server has named the URL in an answer, every client is told: one that does not know the id ignores it.
    pub(super) async fn elicitation_complete(&self, server: &str, notification: CustomNotification) {
        let id = notification.params.as_ref().and_then(|params| params["elicitationId"].as_str());
        let client = id.and_then(|id| lock(&self.elicited).remove(&(server.to_owned(), id.to_owned())));
        let notification = ServerNotification::from(notification);
        match client {
            Some(client) => drop(client.send_notification(notification).await), // it may have left
            None => self.tell(notification).await,
        }
    }
}

/// The id of an elicitation at a URL, if the question is one.
fn url_elicitation(question: &ServerRequest) -> Option<&str> {
    let ServerRequest::ElicitRequest(request) = question else { return None };
    match &request.params {
        ElicitRequestParams::UrlElicitationParams { elicitation_id, .. } => Some(elicitation_id),
        _ => None,
    }
}
