//! How far a lookup sees: what its answer is worth, and what it cannot know.

use std::time::Duration;

use super::contract::LookupOffer;

/// What a kind of lookup can know, as data: a contract that rests on it ([`Contract::sight`](super::Contract::sight))
/// takes over its worth and its settle time, and the guarantee report prints its blind spots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The kind of lookup, as in "by message id in a stream".
    pub by: &'static str,
    /// What its answer is worth while no blind spot applies.
    pub offer: LookupOffer,
    /// How long a miss is not believed after the old sender was fenced.
    pub settle: Duration,
    /// A request may arrive after its sender has ended. Not so where the sender itself makes the effect.
    pub outlives_sender: bool,
    /// What it knows.
    pub knows: &'static [&'static str],
    /// What it cannot know: where one of these may apply, declare [`LookupOffer::Eventual`], or have a person asked.
    pub blind_spots: &'static [&'static str],
}
