//! The scopes in which a provider knows a call's key and shows its effect.

use serde::{Deserialize, Serialize};

/// The account, device or room that a provider scopes a call's key and its lookup to. Under another scope the key is
/// *no key*, and a lookup that shows nothing proves nothing.
///
/// Scopes are names and no credentials: the record holds them in clear text.
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
    /// The scope of the key.
    pub key: String,
    /// The scope of the lookup.
    pub lookup: String,
}

impl Scopes {
    /// One scope for both key and lookup.
    pub fn of(scope: impl Into<String>) -> Self {
        let key = scope.into();
        Self { lookup: key.clone(), key }
    }

    /// The scope of the key. The scope of the lookup is the same, unless [it is set](Self::lookup).
    pub fn key(scope: impl Into<String>) -> Self {
        Self::of(scope)
    }

    /// Sets the scope of the lookup.
    #[must_use]
    pub fn lookup(mut self, scope: impl Into<String>) -> Self {
        self.lookup = scope.into();
        self
    }
}
