//! The sight of a lookup: the trust in its answer, and the effects that it cannot see.

use std::time::Duration;

use super::contract::LookupOffer;

/// The sight of a kind of lookup, as data. A contract that rests on it ([`Contract::sight`](super::Contract::sight))
/// takes over its offer and its settle time, and the guarantee report prints its blind spots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The kind of lookup, as in "by message id in a stream".
    pub by: &'static str,
    /// The trust in the answer of the lookup while no blind spot applies.
    pub offer: LookupOffer,
    /// The settle time: a miss is not believed until this much time has passed after the old sender was fenced.
    pub settle: Duration,
    /// True if a request may arrive after its sender has ended; false if the sender itself makes the effect.
    pub outlives_sender: bool,
    /// The facts that the lookup can know.
    pub knows: &'static [&'static str],
    /// The facts that the lookup cannot know. If one of them may apply, declare [`LookupOffer::Eventual`], or have a
    /// person asked.
    pub blind_spots: &'static [&'static str],
}
