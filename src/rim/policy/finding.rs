//! What is wrong with a policy: by a stable code, with the place, the reason and what to write instead.

use std::fmt;

use serde::Serialize;

use super::place::Place;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It is unsafe, or cannot be read: the check fails.
    Error,
    /// It is safe and may not be what was meant: the check passes.
    Warning,
}

impl Severity {
    /// As it is written in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $code:literal $severity:ident,)*) => {
        /// A rule that a policy, or an application's guarantee report, may break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum PolicyRule {
            $($(#[$doc])* $rule,)*
        }

        impl PolicyRule {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$rule),*];

            /// The code: it stays the same over versions.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$rule => $code,)*
                }
            }

            /// How bad it is to break it.
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$rule => Severity::$severity,)*
                }
            }
        }
    };
}

rules! {
    /// The file is larger than any policy.
    TooLarge = "too-large" Error,
    /// The file is not UTF-8.
    NotUtf8 = "not-utf-8" Error,
    /// The file is no YAML, or uses what a policy does not need: anchors, merges, tags, several documents.
    Syntax = "syntax" Error,
    /// A field stands twice.
    DuplicateField = "duplicate-field" Error,
    /// A field is not known.
    UnknownField = "unknown-field" Error,
    /// A value is not one of those that a field takes.
    UnknownValue = "unknown-value" Error,
    /// A value is of the wrong kind, has the wrong unit, or is missing.
    WrongValue = "wrong-value" Error,
    /// A secret may stand in the file.
    SecretInFile = "secret-in-file" Error,
    /// The ttl ends before the last retry may come.
    WindowBelowHorizon = "window-below-horizon" Error,
    /// The ttl of a webhook ends before its sender has given up.
    WebhookWindowBelowSender = "webhook-window-below-sender" Error,
    /// A payment of unknown outcome cannot be looked up.
    PaymentWithoutLookup = "payment-without-lookup" Error,
    /// A payment goes through without a key.
    PaymentWithoutKey = "payment-without-key" Error,
    /// The key of a payment is new after its ttl.
    PaymentForgotten = "payment-forgotten" Error,
    /// Another payment under a known key is taken for the first one.
    PaymentBodyNotCompared = "payment-body-not-compared" Error,
    /// The difference between two payments is shown, and nothing of it is redacted.
    PaymentDiffShown = "payment-diff-shown" Warning,
    /// Another body under a known key is taken for the first one.
    BodyNotCompared = "body-not-compared" Warning,
    /// Requests without a key are let through.
    KeyNotRequired = "key-not-required" Warning,
    /// It is not said where the tenant is known from.
    MissingTenant = "missing-tenant" Error,
    /// The tenant is taken from what the client writes by itself.
    TenantFromClient = "tenant-from-client" Error,
    /// A part of a key differs from try to try.
    KeyOfTimeOrChance = "key-of-time-or-chance" Error,
    /// A part of a key looks as if it could differ from try to try.
    KeyMayDrift = "key-may-drift" Warning,
    /// A key does not tell two events or messages apart.
    KeyWithoutIdentity = "key-without-identity" Error,
    /// Clients are sent to a status URL that is not served.
    NoStatusUrl = "no-status-url" Error,
    /// Webhooks are taken without a signature.
    WebhookWithoutSecret = "webhook-without-secret" Error,
    /// It is not said in which header the signature stands.
    WebhookWithoutHeader = "webhook-without-header" Error,
    /// A captured delivery can be sent again after it was forgotten.
    ToleranceBeyondWindow = "tolerance-beyond-window" Error,
    /// A captured delivery can be sent again for longer than clocks are off.
    ToleranceWide = "tolerance-wide" Warning,
    /// The broker stops delivering or keeping a message before it is set aside.
    BrokerEndsFirst = "broker-ends-first" Error,
    /// A window is too short for a try and its retries.
    NonceWindowShort = "nonce-window-short" Error,
    /// A nonce is used where a key belongs.
    NonceWindowLong = "nonce-window-long" Warning,
    /// The fence stands alone, and payments come through the doors.
    FenceAloneWithPayments = "fence-alone-with-payments" Error,
    /// The fence stands alone: what it knows is lost with its memory.
    FenceAlone = "fence-alone" Warning,
    /// A claim of a fence that stands alone ends while its holder is at work.
    FencePendingBelowTimeout = "fence-pending-below-timeout" Error,
    /// What was done is known for less time than what is being done.
    FenceSealedBelowPending = "fence-sealed-below-pending" Error,
    /// A fence that stands alone forgets before the last retry may come.
    FenceSealedBelowHorizon = "fence-sealed-below-horizon" Error,
    /// It is not said where the fence keeps its claims.
    FenceWithoutStore = "fence-without-store" Error,
    /// The policy configures nothing.
    NoSources = "no-sources" Warning,
    /// The log does not say which record a duplicate was answered from.
    LogWithoutEvidence = "log-without-evidence" Warning,
    /// An effect may happen again after a crash.
    EffectMayRepeat = "effect-may-repeat" Error,
    /// The lookup of a payment lags, so that its miss proves nothing.
    PaymentLookupLags = "payment-lookup-lags" Warning,
    /// A payment rests on its provider's word alone.
    PaymentOnDeclaration = "payment-on-declaration" Warning,
    /// A workflow does not say which tools it calls.
    CallsUndeclared = "calls-undeclared" Warning,
}

/// Something that is wrong with a policy or with a guarantee report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyFinding {
    /// The rule that is broken.
    pub rule: PolicyRule,
    /// Which field it is about: `http.orders.ttl`; empty for the file as a whole. A field that the file leaves out is named as it
    /// would stand there.
    pub path: String,
    /// The line of that field, counted from 1, or of the section that it is missing in.
    pub line: u64,
    /// The column, in characters, counted from 1.
    pub column: u64,
    /// What could happen.
    pub why: String,
    /// What to write instead.
    pub instead: String,
}

impl PolicyFinding {
    pub(super) fn new(rule: PolicyRule, path: &str, place: Place, why: &str, instead: &str) -> Self {
        let Place { line, column } = place;
        Self { rule, path: plain(path), line, column, why: plain(why), instead: plain(instead) }
    }

    /// How bad it is.
    pub const fn severity(&self) -> Severity {
        self.rule.severity()
    }
}

impl fmt::Display for PolicyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, path, line, column, why, instead } = self;
        let at = if path.is_empty() { "the file" } else { path };
        write!(
            f,
            "{line}:{column}: {}[{}] {at}: {why}; write instead: {instead}",
            rule.severity().name(),
            rule.code()
        )
    }
}

/// What a file says reaches terminals and the logs of builds: without the characters that command them.
fn plain(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect()
}
