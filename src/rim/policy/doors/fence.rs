//! The fence with the settings of a policy.

use crate::exec::Executor;
use crate::rim::fence::{FenceTtl, Fenced, KeyFence};
use crate::rim::policy::FencePolicy;

impl FencePolicy<'_> {
    /// A fence in front of the executor's ledger, with the times to live of the policy.
    pub fn fenced(&self, executor: &Executor, fence: impl KeyFence) -> Fenced {
        Fenced::new(executor, fence).ttl(FenceTtl { pending: self.pending(), sealed: self.sealed() })
    }
}
