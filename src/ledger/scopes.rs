//! What a provider scopes a call's key and its lookup to.

use serde::{Deserialize, Serialize};

/// The account, the device or the room that a provider scopes a call's key and its lookup to. Under another one its key is *no key*,
/// and a lookup that shows nothing proves nothing.
///
/// They are names, and no credentials: they stand in the record in clear.
///
/// ```
/// use counterfoil::ledger::Scopes;
/// let account = Scopes::of("acct_17");
/// // A chat server tells keys apart by the device that sends, and shows a room to all its members.
/// let chat = Scopes::key("device-7").lookup("!room:example.org");
/// # assert_ne!(account, chat);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scopes {
    /// What the key is scoped to.
    pub key: String,
    /// What the lookup is scoped to.
    pub lookup: String,
}

impl Scopes {
    /// One for both.
    pub fn of(scope: impl Into<String>) -> Self {
        let key = scope.into();
        Self { lookup: key.clone(), key }
    }

    /// What the key is scoped to; the lookup as well, unless [it is said](Self::lookup).
    pub fn key(scope: impl Into<String>) -> Self {
        Self::of(scope)
    }

    /// Sets what the lookup is scoped to.
    #[must_use]
    pub fn lookup(mut self, scope: impl Into<String>) -> Self {
        self.lookup = scope.into();
        self
    }
}
