//! Builders of doors that a policy fills in.

#[cfg(all(feature = "webhook", any(feature = "sqlite", feature = "postgres")))]
mod webhook;

#[cfg(feature = "fence")]
impl super::FencePolicy<'_> {
    /// A fence in front of the executor's ledger, with the times to live that the policy says.
    pub fn fenced(
        &self,
        executor: &crate::exec::Executor,
        fence: impl crate::rim::fence::KeyFence,
    ) -> crate::rim::fence::Fenced {
        let ttl = crate::rim::fence::FenceTtl { pending: self.pending(), sealed: self.sealed() };
        crate::rim::fence::Fenced::new(executor, fence).ttl(ttl)
    }
}

#[cfg(all(feature = "_queue", any(feature = "sqlite", feature = "postgres")))]
impl super::QueuePolicy<'_> {
    /// A consumer with the tries, the pauses and the time limit that the policy says. The program adds what only code can say: the
    /// broker's connection, the consumer's name and tenant, and what a message does.
    pub fn consumer<B: crate::rim::queue::Broker>(
        &self,
        executor: &crate::exec::Executor,
        tenant: &crate::id::Tenant,
        broker: B,
    ) -> crate::rim::queue::QueueConsumer<B> {
        let pause = self.retry_delay();
        crate::rim::queue::QueueConsumer::new(executor, tenant, self.name(), broker)
            .tries(self.tries())
            .handler_limit(self.timeout())
            .backoff(crate::ledger::Backoff { base: pause, cap: pause })
            .logging(self.policy.log_fields())
    }
}
