//! Fields that accept one of a few values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plain::Count;

/// A header that a request must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) enum RequiredHeader {
    /// The client's id of the operation, the same in each try.
    #[serde(rename = "Idempotency-Key", alias = "idempotency-key")]
    IdempotencyKey,
}

/// Where a request's tenant is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TenantFrom {
    /// The authenticated identity of whoever sends it.
    Identity,
    /// The endpoint that it was sent to, each tenant having its own with its own secret.
    Endpoint,
    /// The topic, subject or queue that it came from.
    Topic,
    /// A header of the message or the request.
    Header,
    /// There is one tenant alone.
    Single,
}

/// What is left of a record when its ttl is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum AfterTtl {
    /// The key and digests: a later retry is told that it was done, and is not done again.
    Tombstone,
    /// Nothing: the key is new, and a later retry is done again.
    Forget,
    /// Everything, for ever.
    Keep,
}

/// What becomes of a request whose handler died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnUnknown {
    /// A person is asked, and nothing is done meanwhile.
    Ask,
    /// The program looks it up: its code has a lookup.
    Lookup,
    /// It cannot happen: the handler changes the ledger's own database alone, in one transaction with the record.
    Transaction,
}

/// What a client is told whose first request is still being handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WhileInFlight {
    /// 409, and to come again.
    Conflict,
    /// 202, and where the answer will be.
    Accepted,
}

/// The HTTP status of a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Count", into = "u16")]
pub(super) struct ConflictStatus(u16);

impl ConflictStatus {
    pub(super) const fn code(self) -> u16 {
        self.0
    }
}

impl TryFrom<Count> for ConflictStatus {
    type Error = String;

    fn try_from(status: Count) -> Result<Self, String> {
        match status.get() {
            409 => Ok(Self(409)),
            422 => Ok(Self(422)),
            status => Err(format!(
                "{status} does not say that a key was used before; write 409, or 422 as the IETF draft has it"
            )),
        }
    }
}

impl From<ConflictStatus> for u16 {
    fn from(status: ConflictStatus) -> Self {
        status.0
    }
}

impl JsonSchema for ConflictStatus {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConflictStatus".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "enum": [409, 422], "description": "409, or 422 as the IETF draft has it." })
    }
}

/// How a sender signs its webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WebhookScheme {
    /// Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`.
    Standard,
    /// Stripe: `Stripe-Signature`.
    Stripe,
    /// GitHub: `X-Hub-Signature-256`, without a time.
    Github,
    /// An HMAC-SHA256 of the body in a header of your choice, without a time.
    Hmac,
}

/// A message broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[schemars(rename = "Broker")]
pub enum BrokerKind {
    /// NATS `JetStream`.
    Nats,
    /// `RabbitMQ`.
    Rabbitmq,
}

/// The database of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LedgerStore {
    /// One SQLite file, for one process.
    Sqlite,
    /// PostgreSQL, for several workers.
    Postgres,
}

/// Where the fence keeps its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FenceStore {
    /// Redis: fast, and lost with its memory.
    Redis,
    /// A table of an SQL database.
    Sql,
}

/// What the fence is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FenceRole {
    /// It spares the database the storm; losing it loses nothing.
    InFrontOfLedger,
    /// There is no ledger behind it; losing it loses all it knew.
    Alone,
}

/// A field of what a door logs of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum LoggedField {
    /// Whose request it was.
    Tenant,
    /// The key.
    IdempotencyKey,
    /// What was decided.
    Decision,
    /// The record of the effect.
    EffectId,
    /// The kind of door.
    SourceType,
    /// Which of these.
    SourceId,
}
