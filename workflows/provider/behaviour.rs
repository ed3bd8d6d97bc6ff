//! How the provider behaves: which downstream class it is, and what goes wrong. Only data; what it means is done elsewhere.

use serde::{Deserialize, Serialize};

/// What the provider does with keys and lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contract {
    /// The same key gets the stored first answer (200, `Idempotent-Replayed: true`); with another body 400.
    #[default]
    ReplaysKey,
    /// The same key is refused with 409, and the first result is not told.
    RejectsKey,
    /// Keys are ignored; the client chooses the id and creates with `PUT`.
    NaturalKey,
    /// Keys are ignored; notices can be looked up by reference.
    Lookup,
    /// Keys are ignored and nothing can be looked up.
    Blind,
    /// Behaves as `Blind`, but its documentation claims that keys are honoured. Declare it so, and a self-test must expose it.
    IgnoresKey,
}

impl Contract {
    pub fn remembers_keys(self) -> bool {
        matches!(self, Self::ReplaysKey | Self::RejectsKey)
    }

    pub fn offers_lookup(self) -> bool {
        !matches!(self, Self::Blind | Self::IgnoresKey)
    }
}

/// The provider's class and its faults. The default is a healthy provider that replays keys for ever.
///
/// Faults combine, in the order in which a create request meets them: `status_before`, `apply_late_ms`, `forget`,
/// `store_twice`, `answer_late_ms`, `hang_after_commit`, `status_after`, `truncate_answer`.
// An unknown field is refused: a misspelt fault would let a test pass for the wrong reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is one independent fault")]
pub struct Behaviour {
    // The class.
    pub contract: Contract,
    /// Keys older than this are forgotten.
    pub key_window_ms: Option<u64>,

    /// The faults of creating apply to this many create requests and are then reset. Absent: to all.
    pub faults_for_next: Option<u32>,

    // The faults of creating.
    /// Answer with this status and have no effect.
    pub status_before: Option<u16>,
    /// Hold the request back in memory, then have the effect even if the client has gone, then answer.
    pub apply_late_ms: u64,
    /// Answer as if the notice was stored, and store nothing.
    pub forget: bool,
    /// Store two notices for one request.
    pub store_twice: bool,
    /// Have the effect, then wait before answering.
    pub answer_late_ms: u64,
    /// Have the effect, then never answer.
    pub hang_after_commit: bool,
    /// Have the effect, then answer with this status.
    pub status_after: Option<u16>,
    /// `Retry-After` on faults with the status 429 or 503.
    pub retry_after_s: Option<u64>,
    /// Cut the answer's JSON in half.
    pub truncate_answer: bool,
    /// What is stored now is hidden from lookups for this long.
    pub lookup_lag_ms: u64,

    /// Answer lookups with this status. Not counted by `faults_for_next`: it would end before the lookup it is meant for.
    pub lookup_status: Option<u16>,
}

impl Behaviour {
    /// The behaviour for a create request that has just arrived. Counts it, and ends the faults after the last one.
    pub fn take_for_create(&mut self) -> Self {
        let current = self.clone();
        match self.faults_for_next {
            None => current,
            Some(0) => {
                *self = current.without_faults();
                self.clone()
            }
            Some(1) => {
                *self = current.without_faults();
                current
            }
            Some(left) => {
                self.faults_for_next = Some(left - 1);
                current
            }
        }
    }

    fn without_faults(&self) -> Self {
        Self {
            contract: self.contract,
            key_window_ms: self.key_window_ms,
            lookup_status: self.lookup_status,
            ..Self::default()
        }
    }
}
