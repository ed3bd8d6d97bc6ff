//! The findings about a policy: each has a stable code, the place, the reason and the text to write instead.

use std::fmt;

use serde::Serialize;

use super::place::Place;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The policy is unsafe, or cannot be read: the check fails.
    Error,
    /// The policy is safe and may not be what its author meant: the check passes.
    Warning,
}

impl Severity {
    /// The stable name of the severity in output.
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
            /// All variants of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$rule),*];

            /// The code, which is stable over versions.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$rule => $code,)*
                }
            }

            /// The severity of a finding about this rule.
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
    /// The file is not valid YAML, or uses features that a policy does not need: anchors, merges, tags, several
    /// documents.
    Syntax = "syntax" Error,
    /// A field occurs twice.
    DuplicateField = "duplicate-field" Error,
    /// A field is unknown.
    UnknownField = "unknown-field" Error,
    /// A value is not one of those that a field accepts.
    UnknownValue = "unknown-value" Error,
    /// A value is of the wrong kind, has the wrong unit, or is missing.
    WrongValue = "wrong-value" Error,
    /// A secret may be written in the file.
    SecretInFile = "secret-in-file" Error,
    /// The ttl ends before the last retry may come.
    WindowBelowHorizon = "window-below-horizon" Error,
    /// The ttl of a webhook ends before its sender has given up.
    WebhookWindowBelowSender = "webhook-window-below-sender" Error,
    /// A payment of unknown outcome cannot be looked up.
    PaymentWithoutLookup = "payment-without-lookup" Error,
    /// A payment without a key is let through.
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
    /// The source of the tenant is not set.
    MissingTenant = "missing-tenant" Error,
    /// The tenant comes from a header that the client sets by itself.
    TenantFromClient = "tenant-from-client" Error,
    /// A part of a key changes with each try.
    KeyOfTimeOrChance = "key-of-time-or-chance" Error,
    /// A part of a key looks as if it could change with each try.
    KeyMayDrift = "key-may-drift" Warning,
    /// A key does not distinguish two events or messages.
    KeyWithoutIdentity = "key-without-identity" Error,
    /// Clients are sent to a status URL that is not served.
    NoStatusUrl = "no-status-url" Error,
    /// Webhooks are accepted without a signature.
    WebhookWithoutSecret = "webhook-without-secret" Error,
    /// The header of the signature is not set.
    WebhookWithoutHeader = "webhook-without-header" Error,
    /// A captured delivery can be sent again after it was forgotten.
    ToleranceBeyondWindow = "tolerance-beyond-window" Error,
    /// A captured delivery can be sent again for longer than clocks deviate.
    ToleranceWide = "tolerance-wide" Warning,
    /// The broker stops delivering a message, or drops it, before it is set aside.
    BrokerEndsFirst = "broker-ends-first" Error,
    /// A window is too short for a try and its retries.
    NonceWindowShort = "nonce-window-short" Error,
    /// A nonce is used where a key belongs.
    NonceWindowLong = "nonce-window-long" Warning,
    /// The fence is used without a ledger, and payments come through the doors.
    FenceAloneWithPayments = "fence-alone-with-payments" Error,
    /// The fence is used without a ledger: its keys are lost with its memory.
    FenceAlone = "fence-alone" Warning,
    /// A claim of a fence without a ledger ends while its holder is at work.
    FencePendingBelowTimeout = "fence-pending-below-timeout" Error,
    /// A sealed key is known for less time than a pending one.
    FenceSealedBelowPending = "fence-sealed-below-pending" Error,
    /// A fence without a ledger forgets before the last retry may come.
    FenceSealedBelowHorizon = "fence-sealed-below-horizon" Error,
    /// The store of the fence is not set.
    FenceWithoutStore = "fence-without-store" Error,
    /// The policy configures nothing.
    NoSources = "no-sources" Warning,
    /// The log does not name the record from which a duplicate was answered.
    LogWithoutEvidence = "log-without-evidence" Warning,
    /// An effect may happen again after a crash.
    EffectMayRepeat = "effect-may-repeat" Error,
    /// The lookup of a payment lags, so that its miss proves nothing.
    PaymentLookupLags = "payment-lookup-lags" Warning,
    /// A payment rests on its provider's declaration alone.
    PaymentOnDeclaration = "payment-on-declaration" Warning,
    /// A workflow does not declare the tools that it calls.
    CallsUndeclared = "calls-undeclared" Warning,
}

/// A violation of a rule in a policy or in a guarantee report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyFinding {
    /// The rule that is broken.
    pub rule: PolicyRule,
    /// The path of the field: `http.orders.ttl`; empty for the file as a whole. A missing field has the path that it
    /// would have in the file.
    pub path: String,
    /// The line of the field, counted from 1, or of the section in which the field is missing.
    pub line: u64,
    /// The column of the field, in characters, counted from 1.
    pub column: u64,
    /// Description of the possible harm.
    pub why: String,
    /// The text to write instead.
    pub instead: String,
}

/// A field of a file, and the place where it is written.
#[derive(Clone, Copy)]
pub(in crate::rim) struct Written<'a> {
    /// The path of the field; empty for the file as a whole.
    pub(in crate::rim) path: &'a str,
    pub(in crate::rim) place: Place,
}

impl<'a> Written<'a> {
    pub(in crate::rim) const fn at(place: Place, path: &'a str) -> Self {
        Self { path, place }
    }
}

impl PolicyFinding {
    pub(in crate::rim) fn new(rule: PolicyRule, field: Written<'_>, why: &str, instead: &str) -> Self {
        let Written { path, place: Place { line, column } } = field;
        Self { rule, path: plain(path), line, column, why: plain(why), instead: plain(instead) }
    }

    /// The severity of the finding.
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

/// Replaces control characters of a text from the file, because findings are written to terminals and build logs.
fn plain(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect()
}
