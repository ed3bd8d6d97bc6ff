//! The codes of errors. Each code has a page in `docs/errors`, and each error prints its code in square brackets.

mod table;

use std::fmt;

/// Declares the codes, each with its name and a summary.
macro_rules! codes {
    ($($(#[doc = $summary:literal])+ $code:ident = $name:literal,)+) => {
        /// The stable code of an error: the kind of what happened, and of what has to be done.
        ///
        /// Each error of this crate prints its code at the end, as in `there is no run-7 of this tenant [not_found]`. The page
        /// `docs/errors/not_found.md` says when the error occurs, what is durable then, and what to do. A failure of a run has the
        /// code of its [`FailureCode`](crate::flow::FailureCode), under the same name as in the ledger. Codes are never renamed.
        ///
        /// ```
        /// use counterfoil::{ErrorCode, Key};
        /// let error = counterfoil::Tenant::new("").unwrap_err();
        /// assert_eq!(error.code(), ErrorCode::Name);
        /// assert!(error.to_string().ends_with("[name]"));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[doc = $summary])+ #[cfg_attr(doctest, doc = include_str!(concat!("../../docs/errors/", $name, ".md")))] $code,)+
        }

        impl ErrorCode {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$code),+];

            /// The name of the code, which is also the name of its page.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$code => $name),+ }
            }
        }
    };
}

codes! {
    /// A person left an effect of unknown outcome as it is.
    Abandoned = "abandoned",
    /// An answer does not fit its question.
    Answer = "answer",
    /// An effect has no approval that counts.
    Approval = "approval",
    /// A message broker did not do what it was asked for.
    Broker = "broker",
    /// A budget of the run is used up.
    BudgetExceeded = "budget_exceeded",
    /// A run was cancelled, or its deadline has passed.
    Cancelled = "cancelled",
    /// The chain of evidence of a ledger needs a secret that the process does not have.
    Chain = "chain",
    /// A child of the run has failed.
    ChildFailed = "child_failed",
    /// The engine or executor is shutting down.
    Closed = "closed",
    /// An effect was done and undone.
    Compensated = "compensated",
    /// A completion belongs to no call.
    Completion = "completion",
    /// The configuration of a door, a sink or a suite is unusable.
    Configuration = "configuration",
    /// The same key or id was used before with another content.
    Conflict = "conflict",
    /// The contract of a tool is unsafe for its effect.
    Contract = "contract",
    /// A row holds what no version of the engine writes.
    Damaged = "damaged",
    /// The database cannot be reached, read or written at the moment.
    DatabaseAway = "database_away",
    /// The database was moved, or is being filled by a move.
    DatabaseMoved = "database_moved",
    /// Another engine has the database open.
    DatabaseOwned = "database_owned",
    /// The database cannot be used as a ledger.
    DatabaseRefused = "database_refused",
    /// The database file was removed or replaced while the engine ran.
    DatabaseReplaced = "database_replaced",
    /// The database was written by a newer version.
    DatabaseTooNew = "database_too_new",
    /// The database could lose or hide what is committed.
    DatabaseUnsafe = "database_unsafe",
    /// A tool, a workflow, a queue or a schedule cannot be registered as it is declared.
    Declaration = "declaration",
    /// The disk is full.
    DiskFull = "disk_full",
    /// A value or a ledger needs a key for encryption that the process does not have.
    Encryption = "encryption",
    /// A fence gave no answer, or refused.
    Fence = "fence",
    /// A record is too old: its content is no longer kept.
    Gone = "gone",
    /// The input does not fit the tool.
    Input = "input",
    /// The request does not fit the present state.
    Invalid = "invalid",
    /// A key is missing, malformed or unstable.
    Key = "key",
    /// Recorded JSON does not fit the Rust type that reads it.
    Mismatch = "mismatch",
    /// The code asks for what cannot be recorded or resumed.
    Misuse = "misuse",
    /// A name or an id is malformed.
    Name = "name",
    /// A run, a step, an effect or another row does not exist.
    NotFound = "not_found",
    /// A question is open, and a person has to answer it.
    OpenQuestion = "open_question",
    /// Code that was handed to the engine panicked.
    Panicked = "panicked",
    /// A value has no JSON form that can be recorded.
    Payload = "payload",
    /// The call is under way or is tried again by itself.
    Pending = "pending",
    /// A tool's own policy refused the call.
    PolicyRefused = "policy_refused",
    /// A person rejected a request for approval.
    Rejected = "rejected",
    /// A call happened, and its response is over the limit.
    ResponseTooLarge = "response_too_large",
    /// A webhook delivery is not signed as it has to be.
    Signature = "signature",
    /// The code of the store panicked.
    StorePanicked = "store_panicked",
    /// A tool failed for certain, and its attempts are used up.
    ToolFailed = "tool_failed",
    /// A transaction was rolled back.
    Transaction = "transaction",
    /// An agent has used up its turns.
    TurnsUsedUp = "turns_used_up",
    /// Nobody decided about a request for approval in time.
    Undecided = "undecided",
    /// A tool, a workflow or a queue is not registered.
    Unregistered = "unregistered",
    /// A vote about an approval was not counted.
    Vote = "vote",
    /// The workflow's own code returned a failure.
    Workflow = "workflow",
    /// Another worker or another write was first.
    WriteRefused = "write_refused",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
