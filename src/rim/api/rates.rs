//! The rate limit of callers, in this process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::caller::Caller;
use crate::clock::Boot;
use crate::ledger::{Bucket, Rate};

/// The maximum number of callers that are counted. Beyond it the counting begins anew.
const CALLERS: usize = 4096;

/// The token buckets of the callers.
pub(super) struct Rates {
    rate: Rate,
    buckets: Mutex<HashMap<Caller, Bucket>>,
}

impl Rates {
    pub(super) fn of(rate: Rate) -> Self {
        Self { rate, buckets: Mutex::default() }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// The time until the next request, if this one comes too early.
    pub(super) fn take(&self, caller: &Caller, now: Boot) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= CALLERS && !buckets.contains_key(caller) {
            buckets.clear();
        }
        let bucket = buckets.entry(caller.clone()).or_insert(Bucket::full(now));
        if bucket.take(&self.rate, now) { Ok(()) } else { Err(bucket.wait(&self.rate, now)) }
    }
}
