//! The file as it is written: its sections, and the meaning of their fields.

use std::collections::BTreeMap;

use super::choice::{
    AfterTtl, BrokerKind, ConflictStatus, FenceRole, FenceStore, LedgerStore, LoggedField, OnUnknown,
    RequiredHeader, TenantFrom, WebhookScheme, WhileInFlight,
};
use super::plain::{Count, Truth};
use super::preset::Preset;
use super::section::section;
use super::span::{Span, Ttl};
use super::word::{EnvName, Header, KeyPart, Pointer, SourceName, UrlPath};

section! {
    /// The idempotency policy of a service: what its doors require, remember and answer.
    File {
        /// Headers that HTTP writes must have: `[Idempotency-Key]` unless it is said, `[]` to let requests without a key through.
        require_headers: Vec<RequiredHeader>,
        /// Whether another body under a known key is refused; true unless it is said.
        reject_on_body_mismatch: Truth,
        /// Where records and claims are kept.
        stores: Stores,
        /// How long first answers are kept, for each kind of source.
        ttl: Ttls,
        /// What a client is told that uses a key again for another request.
        on_conflict: OnConflict,
        /// What doors log of each request.
        logging: Logging,
        /// HTTP writes under an `Idempotency-Key`, by name.
        http: BTreeMap<SourceName, HttpSection>,
        /// Senders of webhooks, by name.
        webhooks: BTreeMap<SourceName, WebhookSection>,
        /// Queue consumers, by name.
        queues: BTreeMap<SourceName, QueueSection>,
        /// What is made once within minutes, by kind: messages of a chat, say.
        nonces: BTreeMap<SourceName, NonceSection>,
        /// The fence that spares the database a storm of duplicates.
        fence: FenceSection,
    }
}

section! {
    /// Where records and claims are kept.
    Stores {
        /// The ledger's database.
        ledger: LedgerStore,
        /// Where the fence keeps its claims.
        fence: FenceStore,
    }
}

section! {
    /// How long first answers are kept, in days or hours, for each kind of source.
    Ttls {
        /// Requests of clients; `3 days` unless it is said.
        api: Ttl,
        /// Webhooks; `7 days` unless it is said.
        webhook: Ttl,
        /// Jobs and messages; `30 days` unless it is said.
        batch: Ttl,
        /// Payments; `90 days` unless it is said.
        payment: Ttl,
    }
}

section! {
    /// What a client is told that uses a key again for another request.
    OnConflict {
        /// 409 unless it is said, or 422.
        status: ConflictStatus,
        /// Whether it is shown what differs; true unless it is said.
        include_diff: Truth,
    }
}

section! {
    /// What doors log of each request.
    Logging {
        /// The fields; all of them unless it is said. Bodies and secrets are never logged.
        include_fields: Vec<LoggedField>,
    }
}

section! {
    /// HTTP writes under an `Idempotency-Key`.
    HttpSection {
        /// The kind of source; `api` unless it is said.
        preset: Preset,
        /// Where the tenant is known from.
        tenant: TenantFrom,
        /// Headers that a request must have, if it is other than the file's.
        require_headers: Vec<RequiredHeader>,
        /// Whether another body under a known key is refused, if it is other than the file's.
        reject_on_body_mismatch: Truth,
        /// How long first answers are kept, if it is other than the file's.
        ttl: Ttl,
        /// What is left afterwards; `tombstone` unless it is said.
        after_ttl: AfterTtl,
        /// Until when clients may retry, counted from the first try.
        retry_horizon: Span,
        /// What a client is told that uses a key again for another request, if it is other than the file's.
        on_conflict: OnConflict,
        /// What becomes of a request whose handler died; `ask` unless it is said.
        on_unknown: OnUnknown,
        /// Headers that are bound to the key.
        bind_headers: Vec<Header>,
        /// Query parameters that are bound to the key; all of them unless it is said.
        bind_query: Vec<String>,
        /// Fields of a JSON body that are not compared.
        exclude: Vec<Pointer>,
        /// Fields of a JSON body of which digests are kept and nothing is shown.
        redact: Vec<Pointer>,
        /// Further headers of the response that are kept.
        keep_headers: Vec<Header>,
        /// The longest body of a request, in bytes; 1 MiB unless it is said.
        max_request_bytes: Count,
        /// The longest body of a response, in bytes; 1 MiB unless it is said.
        max_response_bytes: Count,
        /// How long a handler may take; `5 min` unless it is said.
        timeout: Span,
        /// How long a request waits for the first one under its key; it does not unless it is said.
        wait: Span,
        /// What a client is told whose first request is still being handled; `conflict` unless it is said.
        in_flight: WhileInFlight,
        /// Under which path the status of operations is served; none is unless it is said.
        status_at: UrlPath,
        /// Whether 201 is given the first time and 200 when the response is given again; false unless it is said.
        created_then_ok: Truth,
        /// The prefix of the types of problems.
        problem_types: String,
    }
}

section! {
    /// A sender of webhooks.
    WebhookSection {
        /// How it signs.
        scheme: WebhookScheme,
        /// The environment variables that hold its secrets, several while they are rotated. Never the secrets themselves.
        secrets: Vec<EnvName>,
        /// The header of the signature, for the scheme `hmac`.
        signature_header: Header,
        /// How far its clock may be off, in both directions; `5 min` unless it is said.
        tolerance: Span,
        /// Where the tenant is known from.
        tenant: TenantFrom,
        /// The kind of source; `webhook` unless it is said.
        preset: Preset,
        /// What makes two deliveries one; `[provider, event_id, version, action]` unless it is said.
        key: Vec<KeyPart>,
        /// Where the version of an event's subject stands in its body, for the part `version` of a key that is written down.
        version: Pointer,
        /// For senders without an id: within which time equal bodies are one delivery.
        body_window: Span,
        /// The longest body, in bytes; 1 MiB unless it is said.
        max_body_bytes: Count,
        /// How long deliveries are remembered, if it is other than the file's.
        ttl: Ttl,
        /// What is left afterwards; `tombstone` unless it is said.
        after_ttl: AfterTtl,
        /// Until when the sender retries, counted from the first try; the scheme's own schedule unless it is said.
        retry_horizon: Span,
        /// What becomes of a delivery whose handler died; `transaction` unless it is said.
        on_unknown: OnUnknown,
    }
}

section! {
    /// A queue consumer.
    QueueSection {
        /// The broker; `nats` unless it is said.
        broker: BrokerKind,
        /// The subject or queue; the source's name unless it is said.
        subject: String,
        /// The kind of source; `batch` unless it is said.
        preset: Preset,
        /// Where the tenant is known from.
        tenant: TenantFrom,
        /// What makes two messages one; the message's id, or else the broker's sequence, unless it is said.
        key: Vec<KeyPart>,
        /// How often a message is tried before it is set aside; 10 unless it is said.
        tries: Count,
        /// The pause before a message is tried again; `30 s` unless it is said.
        retry_delay: Span,
        /// How long a handler may take; `5 min` unless it is said.
        timeout: Span,
        /// Where messages are set aside that fail each time; in the ledger unless it is said.
        set_aside: String,
        /// How often the broker delivers a message, if it counts (`max_deliver`, `x-delivery-limit`).
        broker_deliveries: Count,
        /// How long the broker keeps a message, if it drops old ones.
        broker_retention: Span,
        /// How long messages are remembered, if it is other than the file's.
        ttl: Ttl,
        /// What is left afterwards; `tombstone` unless it is said.
        after_ttl: AfterTtl,
        /// Until when a message may come again, counted from its first delivery.
        retry_horizon: Span,
        /// What becomes of a message whose handler died; `transaction` unless it is said.
        on_unknown: OnUnknown,
    }
}

section! {
    /// What is made once within minutes.
    NonceSection {
        /// Within which time a nonce is known; `300 s` unless it is said.
        window: Span,
        /// Where the tenant is known from.
        tenant: TenantFrom,
        /// Until when clients may retry, counted from the first try; `60 s` unless it is said.
        retry_horizon: Span,
    }
}

section! {
    /// The fence that spares the database a storm of duplicates.
    FenceSection {
        /// What it is for; `in_front_of_ledger` unless it is said.
        role: FenceRole,
        /// The environment variable that holds the server's URL; `REDIS_URL` unless it is said.
        url: EnvName,
        /// How long a claim holds whose holder says nothing more; `30 s` unless it is said.
        pending: Span,
        /// How long it is known that something was done; `24 hours` unless it is said.
        sealed: Span,
    }
}
