//! The needs of a send, and the instants at which they run out. Pauses, throttles and writes lie between the decision
//! to send and the send: directly before the call each need is checked once more, and the attempt is cut off when the
//! first of them runs out.

use std::ops::Range;

use crate::clock::Timestamp;

/// The needs of an attempt for as long as it may send a request. `None`: not needed, or without an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The range in which the provider honours the key: from the first send under it to its last safe instant.
    pub key: Option<Range<Timestamp>>,
    /// The instant at which the approval expires.
    pub approval: Option<Timestamp>,
    /// The instant at which this worker's lease ends.
    pub lease: Option<Timestamp>,
    /// The instant at which the operation's time to be sent is over.
    pub operation_time: Option<Timestamp>,
    /// The instant at which the run's time is over.
    pub run_time: Option<Timestamp>,
    /// The instant at which the run is cancelled, if it has not ended by then.
    pub deadline: Option<Timestamp>,
}

/// The kind of a need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// A key that the provider honours.
    Key,
    /// A valid approval.
    Approval,
    /// The lease of the worker.
    Lease,
    /// Time that is left to the operation.
    OperationTime,
    /// Time that is left to the run.
    RunTime,
    /// A run whose deadline has not passed.
    Deadline,
}

impl Needs {
    /// The first instant at which a need runs out, and that need. Nothing may be sent at or after that instant.
    pub fn earliest(&self) -> Option<(Timestamp, Need)> {
        let Self { key, approval, lease, operation_time, run_time, deadline } = self;
        let ends = [
            (key.as_ref().map(|window| window.end), Need::Key),
            (*approval, Need::Approval),
            (*lease, Need::Lease),
            (*operation_time, Need::OperationTime),
            (*run_time, Need::RunTime),
            (*deadline, Need::Deadline),
        ];
        ends.into_iter().filter_map(|(at, need)| Some((at?, need))).min_by_key(|(at, _)| *at)
    }

    /// The instant at which the attempt is cut off, and the need that runs out. The lease does not cut it off: it is
    /// renewed during the call, and if it is lost, a late answer is evidence. The run's deadline does not either: a
    /// call that is under way is followed to its end.
    pub fn cut_off(&self) -> Option<(Timestamp, Need)> {
        Self { lease: None, deadline: None, ..self.clone() }.earliest()
    }

    /// A need that is not met at this instant. If the clock went back before the first send under a key, the age of
    /// the key is unknown, and the key does not count as honoured.
    pub fn lapsed(&self, now: Timestamp) -> Option<Need> {
        let went_back = self.key.as_ref().is_some_and(|window| now < window.start);
        let over = self.earliest().filter(|(at, _)| *at <= now).map(|(_, need)| need);
        over.or(went_back.then_some(Need::Key))
    }
}

impl Need {
    /// The reason why nothing was sent, or why an attempt was cut off, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Key => "the provider may have forgotten the key by now",
            Self::Approval => "the approval has expired",
            Self::Lease => "this worker's lease has run out",
            Self::OperationTime => "the operation's time is over",
            Self::RunTime => "the run's time is over",
            Self::Deadline => "the run's deadline has passed",
        }
    }
}
