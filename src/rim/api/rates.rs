//! The rate limits of callers and of those who guess tokens, in this process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::caller::Caller;
use crate::clock::Boot;
use crate::ledger::{Bucket, Rate};

/// The maximum number of callers that are counted, and of tokens that are remembered. Beyond it the counting begins anew.
const CALLERS: usize = 4096;
/// The time for which a valid token is remembered.
const REMEMBERED: Duration = Duration::from_mins(10);

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

/// The SHA-256 of a bearer token.
pub(super) type TokenDigest = [u8; 32];

/// The rate limit of all requests together whose token is not known to be valid. Each of them reads the database, and
/// whoever guesses tokens is no caller with a rate of their own. A token that was valid a short time ago is not limited
/// here, so that guesses keep nobody out who works; whether it is valid now is still read.
pub(super) struct Guesses {
    rate: Rate,
    guessed: Mutex<Guessed>,
}

#[derive(Default)]
struct Guessed {
    /// `None` before the first guess: the bucket is full.
    bucket: Option<Bucket>,
    /// The tokens that were valid, each with the last instant at which it was.
    valid: HashMap<TokenDigest, Boot>,
}

impl Guesses {
    pub(super) fn of(rate: Rate) -> Self {
        Self { rate, guessed: Mutex::default() }
    }

    /// Counts a request before its token is looked up, so that guesses at the same time are counted, too.
    ///
    /// # Errors
    /// The time until the next guess, if this one comes too early.
    pub(super) fn take(&self, token: &TokenDigest, now: Boot) -> Result<(), Duration> {
        let mut guessed = self.lock();
        match guessed.valid.get(token) {
            Some(at) if at.until(now) < REMEMBERED => return Ok(()),
            Some(_) => {
                guessed.valid.remove(token);
            }
            None => {}
        }
        let bucket = guessed.bucket.get_or_insert(Bucket::full(now));
        if bucket.take(&self.rate, now) { Ok(()) } else { Err(bucket.wait(&self.rate, now)) }
    }

    /// The token is valid: the request was no guess.
    pub(super) fn valid(&self, token: TokenDigest, now: Boot) {
        let mut guessed = self.lock();
        if guessed.valid.len() >= CALLERS && !guessed.valid.contains_key(&token) {
            guessed.valid.clear();
        }
        if guessed.valid.insert(token, now).is_none() {
            guessed.give_back(&self.rate);
        }
    }

    /// The token is not valid. One that was valid before is so no more, and counts as a guess from now on.
    pub(super) fn invalid(&self, token: &TokenDigest, now: Boot) {
        let mut guessed = self.lock();
        if guessed.valid.remove(token).is_some() {
            guessed.bucket.get_or_insert(Bucket::full(now)).take(&self.rate, now);
        }
    }

    /// The database did not say whether the token is valid.
    pub(super) fn unknown(&self, token: &TokenDigest) {
        let mut guessed = self.lock();
        if !guessed.valid.contains_key(token) {
            guessed.give_back(&self.rate);
        }
    }

    /// Ignores poisoning, because no holder of this lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, Guessed> {
        self.guessed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guessed {
    fn give_back(&mut self, rate: &Rate) {
        if let Some(bucket) = &mut self.bucket {
            bucket.give_back(rate);
        }
    }
}
