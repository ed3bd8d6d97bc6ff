//! What a send needs, and until when it has it. Between the decision to send and the send lie pauses, throttles and
//! writes: directly before the call each need is looked at once more, and the attempt is cut off when the first of them
//! runs out.

use std::ops::Range;

use crate::clock::Timestamp;

/// What an attempt needs for as long as a request of it may leave. Absent: not needed, or without an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// When the provider honours the key: from the first send under it to its last safe instant.
    pub key: Option<Range<Timestamp>>,
    /// When the approval expires.
    pub approval: Option<Timestamp>,
    /// When this worker's lease ends.
    pub lease: Option<Timestamp>,
    /// When the operation's time to be sent is over.
    pub operation_time: Option<Timestamp>,
    /// When the run's time is over.
    pub run_time: Option<Timestamp>,
    /// The instant at which the run is cancelled, if it has not ended by then.
    pub deadline: Option<Timestamp>,
}

/// One of the needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// A key that the provider honours.
    Key,
    /// A valid approval.
    Approval,
    /// A lease.
    Lease,
    /// Time left to the operation.
    OperationTime,
    /// Time left to the run.
    RunTime,
    /// A run that is not to be cancelled by now.
    Deadline,
}

impl Needs {
    /// The need that runs out first, and when. Nothing may be sent at or after that instant.
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

    /// The need that cuts the attempt off, and when. The lease does not: it is renewed while the call lasts, and if it is lost,
    /// the answer that still comes is evidence. Nor does the run's deadline: what is under way then is followed to its end.
    pub fn cut_off(&self) -> Option<(Timestamp, Need)> {
        Self { lease: None, deadline: None, ..self.clone() }.earliest()
    }

    /// A need that is not met at this instant. A clock that went back behind the first send under a key does not say how
    /// old the key is.
    pub fn lapsed(&self, now: Timestamp) -> Option<Need> {
        let went_back = self.key.as_ref().is_some_and(|window| now < window.start);
        let over = self.earliest().filter(|(at, _)| *at <= now).map(|(_, need)| need);
        over.or(went_back.then_some(Need::Key))
    }
}

impl Need {
    /// Why nothing was sent, or why an attempt was cut off.
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
