//! Queue consumers with the settings of a policy.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::exec::Executor;
use crate::id::Tenant;
use crate::ledger::Backoff;
use crate::payload::hex;
use crate::rim::policy::QueuePolicy;
use crate::rim::queue::{Broker, Incoming, QueueConsumer};

impl QueuePolicy<'_> {
    /// A consumer with the key, the tries, the pauses and the time limit of the policy. The program adds the settings that
    /// only code can supply: the broker's connection, the consumer's name and tenant, and the handler of messages. A
    /// message that lacks a part of a key that is written down is set aside at once. Without a key in the file, a message is
    /// known by its id, or else by the broker's sequence.
    pub fn consumer<B: Broker>(&self, executor: &Executor, tenant: &Tenant, broker: B) -> QueueConsumer<B> {
        let pause = self.retry_delay();
        let consumer = QueueConsumer::new(executor, tenant, self.name(), broker)
            .tries(self.tries())
            .handler_limit(self.timeout())
            .backoff(Backoff { base: pause, cap: pause })
            .logging(self.policy.log_fields());
        if self.section.key.is_none() {
            return consumer;
        }
        let parts: Vec<String> = self.key().into_iter().map(str::to_owned).collect();
        consumer.key_or_aside(move |message| key(&parts, message))
    }
}

/// The key of a message by the parts in the policy. `None` if the message lacks a part, because two such messages would be
/// one.
fn key(parts: &[String], message: &Incoming) -> Option<String> {
    let body: Value = message.json().unwrap_or_default();
    let part = |part: &String| {
        Some(match part.as_str() {
            // Each key contains the source. A message has neither an action nor a version of its own.
            "provider" | "action" | "version" => Value::Null,
            // A broker without partitions has all messages in one.
            "partition" => message.partition().into(),
            "topic" | "message_key" => message.routing_key()?.into(),
            "dedupe_id" | "event_id" => message.message_id()?.into(),
            "body_digest" => hex(&Sha256::digest(message.payload())).into(),
            named => match named.strip_prefix("header:") {
                Some(name) => message.header_named(name)?.into(),
                None => body.pointer(named).filter(|value| !value.is_null())?.clone(),
            },
        })
    };
    let parts = parts.iter().map(part).collect::<Option<Vec<_>>>()?;
    Some(Value::Array(parts).to_string())
}
