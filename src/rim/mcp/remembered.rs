//! What the clients have set at a server. A server that is started anew has forgotten it, and is told it again.
#![allow(deprecated, reason = "logging and subscriptions are passed on for as long as clients use them")]

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ClientRequest, LoggingLevel, SetLevelRequest, SetLevelRequestParams, SubscribeRequest,
    SubscribeRequestParams,
};

/// The settings of a server.
#[derive(Default)]
pub(super) struct Remembered(Mutex<Settings>);

#[derive(Default)]
struct Settings {
    level: Option<LoggingLevel>,
    /// The resources whose changes clients want to hear of.
    subscriptions: BTreeSet<String>,
}

impl Remembered {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the least severe level of the log messages that the server sends.
    pub(super) fn set_level(&self, level: LoggingLevel) {
        self.settings().level = Some(level);
    }

    /// Keeps a subscription that the server has taken.
    pub(super) fn subscribe(&self, uri: String) {
        self.settings().subscriptions.insert(uri);
    }

    /// Drops a subscription that the server has ended.
    pub(super) fn unsubscribe(&self, uri: &str) {
        self.settings().subscriptions.remove(uri);
    }

    pub(super) fn is_subscribed(&self, uri: &str) -> bool {
        self.settings().subscriptions.contains(uri)
    }

    /// The requests that tell a server all of it. `logs`: the server takes a level.
    pub(super) fn requests(&self, logs: bool) -> Vec<ClientRequest> {
        let settings = self.settings();
        let level = settings.level.filter(|_| logs).map(|level| {
            ClientRequest::SetLevelRequest(SetLevelRequest::new(SetLevelRequestParams::new(level)))
        });
        let subscriptions = settings.subscriptions.iter().map(|uri| {
            ClientRequest::SubscribeRequest(SubscribeRequest::new(SubscribeRequestParams::new(uri)))
        });
        level.into_iter().chain(subscriptions).collect()
    }
}
