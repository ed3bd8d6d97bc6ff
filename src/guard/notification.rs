//! Notifications: neither a draft nor an approval sends a notice, and a notice is sent once, however often it is
//! approved or requested.
//!
//! A notice is identified by tenant, case, draft, recipient and kind. A second approval of the same notice is not a
//! second notice: the call is answered from the record of the first call, which keeps the approval under which the
//! notice was sent. To send the notice again, give the key a [revision](crate::Key::revision).
//!
//! ```
//! use counterfoil::guard::notification::Identity;
//! use counterfoil::tool::{Call, Done, NeedsApproval, Tool, ToolError, contract, effect};
//! use counterfoil::{Key, ApprovalSubject};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Letter { case: String, draft: String, to: String, text: String }
//!
//! impl Letter {
//!     fn identity(&self) -> Identity {
//!         Identity::about(&self.case, &self.draft).to(&self.to).kind("decision")
//!     }
//! }
//!
//! struct SendLetter;
//!
//! impl Tool for SendLetter {
//!     const NAME: &'static str = "send_letter";
//!     type Effect = effect::Notification;
//!     type Contract = contract::ReplaysKey;
//!     type Input = Letter;
//!     type Output = String;
//!
//!     fn key(&self, letter: &Letter) -> Option<Key> {
//!         Some(letter.identity().key(Self::NAME))
//!     }
//!
//!     async fn call(&self, call: &Call, _: &Letter) -> Result<Done<String>, ToolError> {
//!         // POST /letters, with `Idempotency-Key: call.key()` …
//!         Ok(Done::new("sent".to_owned()).external_ref(call.key()))
//!     }
//! }
//!
//! impl NeedsApproval for SendLetter {
//!     fn package(&self, letter: &Letter) -> ApprovalSubject {
//!         letter.identity().package(&letter.text)
//!     }
//! }
//! # let letter = |to: &str| Letter { case: "17".into(), draft: "1".into(), to: to.into(), text: "Dear Ann".into() };
//! # assert_ne!(SendLetter.key(&letter("ann")), SendLetter.key(&letter("bob")));
//! ```

use serde::Serialize;

use crate::ledger::{ApprovalSubject, Key};

/// The identity of a notice within its tenant: case, draft, recipient and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[must_use]
pub struct Identity {
    case: String,
    draft: String,
    recipient: String,
    kind: String,
}

impl Identity {
    /// A notice about this case, from this draft. Another text is another draft: use its version, or the key of its
    /// [artifact](crate::guard::artifact).
    pub fn about(case: impl Into<String>, draft: impl Into<String>) -> Self {
        Self { case: case.into(), draft: draft.into(), recipient: String::new(), kind: "notice".to_owned() }
    }

    /// Sets the recipient. A notice without one has no key, and its call is refused.
    pub fn to(mut self, recipient: impl Into<String>) -> Self {
        self.recipient = recipient.into();
        self
    }

    /// Sets the kind: a decision, a reminder. Default: `notice`.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// The key under which a tool sends the notice. The key reveals none of its parts.
    pub fn key(&self, tool: &str) -> Key {
        let Self { case, draft, recipient, kind } = self;
        if [case, draft, recipient, kind].into_iter().any(String::is_empty) {
            return Key::derived(tool, []); // an empty key is refused: otherwise all notices without a recipient would be one
        }
        Key::derived(
            tool,
            [("case", case), ("draft", draft), ("recipient", recipient), ("kind", kind)].map(text),
        )
    }

    /// The package that people approve: this notice, for its recipient, with this content.
    pub fn package<T: Serialize + ?Sized>(&self, content: &T) -> ApprovalSubject {
        ApprovalSubject::of(&self.kind, &(&self.case, &self.draft, content)).for_whom(&self.recipient)
    }
}

fn text<'a>((name, value): (&'static str, &'a String)) -> (&'a str, &'a str) {
    (name, value)
}
