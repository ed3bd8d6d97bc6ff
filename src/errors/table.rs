//! The table of all public errors with their codes.

use super::ErrorCode;
#[cfg(feature = "agent-http")]
use crate::agent::EndpointError;
use crate::exec::inbox::InboxError;
use crate::exec::outbox::AddError;
use crate::exec::{CallError, EraseError, ExecError, Outcome, RequestError, ResponseTooLarge, StartError};
use crate::flow::{FailureCode, RunError};
use crate::guard::approval::{ApprovalRefused, AskRefused};
use crate::guard::entries::EntryError;
#[cfg(feature = "memory")]
use crate::guard::memory::MemoryError;
use crate::id::IdError;
use crate::ledger::{ApprovalError, ContractError, KeyError, VoteRefused};
use crate::payload::PayloadError;
#[cfg(all(feature = "_messages", any(feature = "sqlite", feature = "postgres")))]
use crate::rim::door::ReactionError;
#[cfg(feature = "fence")]
use crate::rim::fence::{FenceError, FenceOnceError};
#[cfg(feature = "guard-service")]
use crate::rim::guard_service::GuardError;
#[cfg(feature = "http")]
use crate::rim::http::{ConfigError, KeyHeaderError, LedgerTransactionError};
#[cfg(all(feature = "mcp", feature = "sqlite"))]
use crate::rim::mcp::{McpError, McpToolError};
#[cfg(feature = "nonce")]
use crate::rim::nonce::{NonceError, NonceFormError};
#[cfg(feature = "policy")]
use crate::rim::policy::PolicyError;
#[cfg(all(feature = "_queue", any(feature = "sqlite", feature = "postgres")))]
use crate::rim::queue::QueueError;
#[cfg(all(feature = "sink-sql", any(feature = "sqlite", feature = "postgres")))]
use crate::rim::sql_sink::SqlSinkError;
#[cfg(feature = "tool-file")]
use crate::rim::tool_file::ToolFileError;
#[cfg(all(feature = "webhook", any(feature = "sqlite", feature = "postgres")))]
use crate::rim::webhook::{SecretError, SignatureError, WebhookConfigError};
#[cfg(feature = "sim")]
use crate::sim::SuiteError;
use crate::store::chain::{AnchorError, ChainKeyError};
#[cfg(feature = "encryption")]
use crate::store::encryption::KeyringError;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
use crate::store::transfer::MoveError;
use crate::store::{OpenError, StoreError, TransactionError};
#[cfg(feature = "tool-command")]
use crate::tool::command_tool::CommandToolError;
#[cfg(feature = "tool-http")]
use crate::tool::http_tool::HttpToolError;
use crate::tool::{RegisterError, ToolError, UnstableKey};
#[cfg(feature = "otel")]
use crate::trace::OtlpError;
use crate::trace::TraceContextError;

/// Gives each error its `code()`. Of an error there are first the variants with a code of their own, then those that hold
/// another error and have its code, and last those whose code has to be looked for.
macro_rules! coded {
    ($($(#[$when:meta])* $error:ident $(<$any:ident>)? {
        $($(#[$has:meta])* $($variant:ident)|+ => $code:ident,)*
        $(; $($wrapper:ident),+ $(; $($pattern:pat => $inner:expr),+)?)?
    })+) => {$(
        $(#[$when])*
        impl $(<$any>)? $error $(<$any>)? {
            /// The code of the error, which has a page in `docs/errors`.
            pub fn code(&self) -> ErrorCode {
                match self {
                    $($(#[$has])* $(Self::$variant { .. })|+ => ErrorCode::$code,)*
                    $($(Self::$wrapper(error) => error.code(),)+ $($($pattern => $inner,)+)?)?
                }
            }
        }
    )+};
}

coded! {
    RunError {
        Blocked => OpenQuestion,
        Conflict | Duplicate | CommandConflict | SignalConflict => Conflict,
        UnknownQueue | Unregistered | NoCode => Unregistered,
        #[cfg(feature = "schedule")]
        Schedule => Declaration,
        #[cfg(feature = "schedule")]
        NoSchedule => NotFound,
        NoQueue | Over | NotRetryable | EffectRests | NotCompensated | ChildRunning | NotPaused => Invalid,
        Unknown | UnknownKey | NoSuchStep | NoSuchEffect => NotFound,
        Refused => WriteRefused,
        Expired => Gone,
        Closed => Closed,
        ; Payload, Store, Id, Exec
        ; Self::Failed { failure, .. } => failure.code.code()
    }

    ExecError {
        Refused | Late | Recorded => WriteRefused,
        Incomplete => Completion,
        Closed | Unwritten => Closed,
        Panicked => Panicked,
        Unanswerable => Answer,
        ; Request, Register, Payload
        ; Self::Unread { source, .. } => source.code(), Self::Store { source, .. } => source.code()
    }

    RequestError {
        UnknownTool => Unregistered,
        NoKey => Key,
        Input | UnboundField => Input,
        ; Key, Label, UnstableKey, Payload, Approval
    }

    KeyError {
        Empty | Control | TooLong | WireTooShort => Key,
    }

    IdError {
        Empty | TooLong | Control | Reserved | Malformed => Name,
    }

    StartError {
        Queue | Messages | Workflow => Declaration,
        ; Store, Register, Name
    }

    RegisterError {
        Twice | BoundFields | TooFewReviewers | OtherClass | OtherThrottle | NotATools | NothingToUndo
            | NoCompensation | NoFieldToRedact | NoCall | NoPackage => Declaration,
        ; Name
        ; Self::Contract { source, .. } => source.code()
    }

    #[cfg(feature = "otel")]
    OtlpError {
        Endpoint | NoRuntime => Configuration,
    }

    #[cfg(feature = "tool-http")]
    HttpToolError {
        Template | Header | KeyNotSent | Client => Declaration,
    }

    #[cfg(feature = "tool-command")]
    CommandToolError {
        Template | Program | Variable | KeyNotSent => Declaration,
    }

    ContractError {
        SealedWithEffect | Unreconcilable | BlindNotice | NotIdempotent | NoLookup | SettleBelowTimeout
            | KeyTooShort | RetentionBelowHorizon | RetentionBelowKeyWindow | WindowBelowHorizon => Contract,
    }

    PayloadError {
        NotJson | InexactInteger | DuplicateField | TooDeep | TooLarge => Payload,
        Mismatch => Mismatch,
        Encrypted => Encryption,
    }

    ApprovalError {
        Missing | PersonNeeded | NoPackage | OtherContent | Expired | Superseded | NotEntitled | Used | Unreadable => Approval,
        RefusedByPolicy => PolicyRefused,
    }

    StoreError {
        Full => DiskFull,
        Busy | Io | Unreachable => DatabaseAway,
        Corrupt => Damaged,
        Panicked => StorePanicked,
        NoKey | WrongKey => Encryption,
        Closed => Closed,
        ; Open
    }

    OpenError {
        Owned | OwnedHere => DatabaseOwned,
        Replaced => DatabaseReplaced,
        HardLinked | NetworkFilesystem | WeakDurability | AsynchronousStandby | TransactionPooling
            | UnsafeLibrary => DatabaseUnsafe,
        NoFile | Foreign | ReadOnly | Strange | Unusable => DatabaseRefused,
        FromTheFuture => DatabaseTooNew,
        GivenUp | Filling => DatabaseMoved,
        Unreachable => DatabaseAway,
        Encrypted | InTheClear | WrongKey => Encryption,
        Chained | WrongChainSecret => Chain,
    }

    #[cfg(feature = "encryption")]
    KeyringError {
        Id | Line | Tenant | FirstKey | Empty | File => Configuration,
    }

    ChainKeyError {
        File | Digits => Configuration,
    }

    AnchorError {
        File | Form => Configuration,
    }

    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    MoveError {
        NoSource => DatabaseRefused,
        AlreadyMoved | NotEmpty | AnotherMove | Differs | Doubtful => DatabaseMoved,
        ; Store, Open
    }

    TransactionError<E> {
        Closure | Refused | TooSlow | EndedInside | Spoilt => Transaction,
        ; Store
    }

    EraseError {
        StillNeeded | RunStillNeeded | UnderWay | Ledger => Invalid,
        ; Failed
    }

    InboxError<E> {
        Failed => Transaction,
        NoDatabase => Invalid,
        ; Transaction, Name, Payload, Store, Exec
    }

    AddError {
        Conflict => Conflict,
        ; Name, Payload, Store
    }

    EntryError {
        Conflict => Conflict,
        Unit | Overflow => Invalid,
        Broken => Damaged,
        ; Name, Unread, Exec
    }

    #[cfg(feature = "memory")]
    MemoryError {
        Conflict => Conflict,
        Empty | TooLong => Payload,
        Unknown => NotFound,
        ; Id, Payload, Exec
    }

    VoteRefused {
        StaleVersion | Over | Expired | NotEntitled | OwnRequest | Changed => Vote,
    }

    ApprovalRefused {
        Unknown => NotFound,
        MovedOn | OfARun | RuleElsewhere => Vote,
        ; Vote, Id, Key, Payload, Run, Exec, Store
    }

    AskRefused {
        Conflict | Superseded => Conflict,
        Undecidable => Declaration,
        ; Id, Payload, Exec, Store
    }

    #[cfg(feature = "fence")]
    FenceError {
        Address | Away | Late | Denied | ReadOnly | Full | TooLarge | Damaged | Refused => Fence,
        ; Ledger
    }

    #[cfg(feature = "fence")]
    FenceOnceError<E> {
        Failed => ToolFailed,
        Unreadable => Mismatch,
        ; Fence
    }

    #[cfg(all(feature = "webhook", any(feature = "sqlite", feature = "postgres")))]
    SignatureError {
        Missing | Malformed | Mismatch | TooOld | TooNew => Signature,
    }

    #[cfg(all(feature = "webhook", any(feature = "sqlite", feature = "postgres")))]
    SecretError {
        NotBase64 | TooShort => Configuration,
    }

    #[cfg(all(feature = "webhook", any(feature = "sqlite", feature = "postgres")))]
    WebhookConfigError {
        NoSecret | WindowTooShort => Configuration,
        #[cfg(feature = "policy")]
        NoVariable => Configuration,
        ; Name
        ; Self::Secret { error, .. } => error.code()
    }

    #[cfg(feature = "http")]
    ConfigError {
        Header | Pointer | TooLong | NoStatusUrl | Status | ApprovalRequired | Unsafe => Configuration,
    }

    #[cfg(feature = "policy")]
    PolicyError {
        Malformed | Unsafe | NoSuchSource => Configuration,
    }

    #[cfg(feature = "tool-file")]
    ToolFileError {
        Findings => Configuration,
    }

    #[cfg(all(feature = "mcp", feature = "sqlite"))]
    McpToolError {
        Template | Name | Lookup | Header => Declaration,
    }

    #[cfg(all(feature = "mcp", feature = "sqlite"))]
    McpError {
        Config | Keys | Server | Joined | Socket => Configuration,
        Client => Invalid,
        ; Start
    }

    #[cfg(feature = "http")]
    KeyHeaderError {
        Several | Empty | TooLong | NotPrintable | Unquotable => Key,
    }

    #[cfg(feature = "http")]
    LedgerTransactionError<E> {
        Failed => Transaction,
        Over => Invalid,
    }

    #[cfg(all(feature = "_queue", any(feature = "sqlite", feature = "postgres")))]
    QueueError {
        Broker => Broker,
        Limits => Configuration,
        ; Name
    }

    #[cfg(all(feature = "_messages", any(feature = "sqlite", feature = "postgres")))]
    ReactionError {
        Unsettled => Pending,
        ; Inbox, Run, Exec
    }

    #[cfg(all(feature = "sink-sql", any(feature = "sqlite", feature = "postgres")))]
    SqlSinkError {
        Name | Twice | Missing => Configuration,
    }

    #[cfg(feature = "agent-http")]
    EndpointError {
        Url | Client => Configuration,
    }

    #[cfg(feature = "guard-service")]
    GuardError {
        Permit => NotFound,
        Transactional => Contract,
        ; Key, Ask, Payload, Store, Exec
    }

    #[cfg(feature = "nonce")]
    NonceError {
        Failed => ToolFailed,
        Unknown => OpenQuestion,
        Settled => Abandoned,
        ; TooLarge, Payload, Exec
    }

    #[cfg(feature = "nonce")]
    NonceFormError {
        Empty | TooLong | Control => Key,
    }

    #[cfg(feature = "sim")]
    SuiteError {
        Unknown | Refused | Replay => Configuration,
        #[cfg(feature = "html")]
        Page => Configuration,
    }
}

/// Gives errors of one kind their `code()`.
macro_rules! always {
    ($($error:ident => $code:ident,)+) => {$(
        impl $error {
            /// The code of the error, which has a page in `docs/errors`.
            pub const fn code(&self) -> ErrorCode {
                ErrorCode::$code
            }
        }
    )+};
}

always! {
    ResponseTooLarge => ResponseTooLarge,
    ToolError => ToolFailed,
    TraceContextError => Input,
    UnstableKey => Key,
}

impl CallError {
    /// The code of the error, which has a page in `docs/errors`.
    pub fn code(&self) -> ErrorCode {
        let outcome = match self {
            Self::Exec(error) => return error.code(),
            Self::NotDone(outcome) => &**outcome,
        };
        match outcome {
            Outcome::ResponseTooLarge(_) => ErrorCode::ResponseTooLarge,
            Outcome::Failed(_) => ErrorCode::ToolFailed,
            Outcome::Conflict(_) => ErrorCode::Conflict,
            Outcome::NeedsDecision { .. } => ErrorCode::OpenQuestion,
            Outcome::Compensated { .. } => ErrorCode::Compensated,
            Outcome::Abandoned { .. } => ErrorCode::Abandoned,
            Outcome::Expired { .. } => ErrorCode::Gone,
            Outcome::Refused(error) => error.code(),
            Outcome::Done(_) | Outcome::Deferred { .. } | Outcome::InProgress | Outcome::Pending { .. } => {
                ErrorCode::Pending
            }
        }
    }
}

impl FailureCode {
    /// The code as errors print it, with a page in `docs/errors`. Its name is that of the stored failure.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Workflow => ErrorCode::Workflow,
            Self::ToolFailed => ErrorCode::ToolFailed,
            Self::Conflict => ErrorCode::Conflict,
            Self::Abandoned => ErrorCode::Abandoned,
            Self::Compensated => ErrorCode::Compensated,
            Self::Gone => ErrorCode::Gone,
            Self::Approval => ErrorCode::Approval,
            Self::PolicyRefused => ErrorCode::PolicyRefused,
            Self::Rejected => ErrorCode::Rejected,
            Self::Undecided => ErrorCode::Undecided,
            Self::Invalid => ErrorCode::Invalid,
            Self::Misuse => ErrorCode::Misuse,
            Self::Unregistered => ErrorCode::Unregistered,
            Self::Transaction => ErrorCode::Transaction,
            Self::ResponseTooLarge => ErrorCode::ResponseTooLarge,
            Self::ChildFailed => ErrorCode::ChildFailed,
            Self::Cancelled => ErrorCode::Cancelled,
            Self::BudgetExceeded => ErrorCode::BudgetExceeded,
            Self::TurnsUsedUp => ErrorCode::TurnsUsedUp,
        }
    }
}
