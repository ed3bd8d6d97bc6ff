//! Queue consumers with the settings of a policy.

use crate::exec::Executor;
use crate::id::Tenant;
use crate::ledger::Backoff;
use crate::rim::policy::QueuePolicy;
use crate::rim::queue::{Broker, QueueConsumer};

impl QueuePolicy<'_> {
    /// A consumer with the tries, the pauses and the time limit of the policy. The program adds the settings that
    /// only code can supply: the broker's connection, the consumer's name and tenant, and the handler of messages.
    pub fn consumer<B: Broker>(&self, executor: &Executor, tenant: &Tenant, broker: B) -> QueueConsumer<B> {
        let pause = self.retry_delay();
        QueueConsumer::new(executor, tenant, self.name(), broker)
            .tries(self.tries())
            .handler_limit(self.timeout())
            .backoff(Backoff { base: pause, cap: pause })
            .logging(self.policy.log_fields())
    }
}
