//! The names of the moments at which a process can die with a difference for the world or for the records, and the
//! [`Watch`] that is called when one is crossed. The engine crosses them where it writes and where it sends. Without
//! a watch a crossing does nothing.

use std::fmt;
use std::future::poll_fn;
use std::str::FromStr;
use std::sync::Arc;
use std::task::Poll;

/// A receiver of every crash point that is crossed, called on the thread that crosses the point, before that thread
/// goes on.
///
/// ```
/// use counterfoil::sim::{CrashPoint, Watch};
/// struct Log;
/// impl Watch for Log {
///     fn at(&self, point: CrashPoint) {
///         println!("{point}: {}", point.about());
///     }
/// }
/// ```
pub trait Watch: Send + Sync {
    /// Called while this point is crossed. At a *before* point, nothing of the step that follows is done. At an
    /// *after* point, the step is done, and nobody has been told.
    fn at(&self, point: CrashPoint);

    /// True if the process is dead: a task that has crossed a point goes no further. A watch that kills its own
    /// process does not need this. A simulated process still exists after its death and must do nothing more.
    fn is_dead(&self) -> bool {
        false
    }

    /// True if the process is paused: a task that has crossed a point goes on later, when another worker may have
    /// taken its work over.
    fn is_paused(&self) -> bool {
        false
    }
}

// `Watch` is passed around as `dyn`.
const _: Option<&dyn Watch> = None;

/// The place where crossings are reported. A crossing does nothing unless a [watch](Watch) was given.
#[derive(Clone, Default)]
pub(crate) struct Probe(Option<Arc<dyn Watch>>);

impl Probe {
    #[cfg(feature = "sim")]
    pub(crate) fn of(watch: Arc<dyn Watch>) -> Self {
        Self(Some(watch))
    }

    pub(crate) const fn is_watched(&self) -> bool {
        self.0.is_some()
    }

    /// Reports a point at which the task can neither stop nor pause, for example inside a transaction.
    pub(crate) fn at(&self, point: CrashPoint) {
        if let Some(watch) = &self.0 {
            watch.at(point);
        }
    }

    /// Crosses a point. In a dead process the future never resolves; in a paused process it resolves when the process
    /// goes on.
    pub(crate) async fn cross(&self, point: CrashPoint) {
        let Some(watch) = &self.0 else { return };
        watch.at(point);
        poll_fn(|cx| {
            if watch.is_paused() {
                cx.waker().wake_by_ref(); // the task is not polled while the process is paused
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        if watch.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}

macro_rules! points {
    ($(#[doc = $doc:literal] $point:ident = $name:literal,)*) => {
        /// A moment at which a process can die: before and after every write that becomes durable, and before and
        /// after every call to the world.
        ///
        /// Writes of several runs share transactions. *Before* a write, nothing of its transaction is durable;
        /// *after* it, the whole transaction is.
        ///
        /// ```
        /// use counterfoil::sim::CrashPoint;
        /// for point in CrashPoint::ALL {
        ///     assert_eq!(point.name().parse(), Ok(point));
        /// }
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum CrashPoint {
            $(#[doc = $doc] $point,)*
        }

        impl CrashPoint {
            /// All crash points, in the order in which the life of a run crosses them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$point),*];

            /// The stable name of the point.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)*
                }
            }

            /// One line that says which writes and calls have happened at this point, and which have not.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$point => $doc.trim_start(),)*
                }
            }
        }
    };
}

points! {
    /// The store is open. This worker is not enrolled, and earlier workers are not fenced.
    BeforeEnrolment = "before-enrolment",
    /// This worker is enrolled and earlier workers are fenced. It has taken no run over.
    AfterEnrolment = "after-enrolment",
    /// A run was requested. The run is not recorded.
    BeforeRunStart = "before-run-start",
    /// A run is recorded. No caller was told, and the code of the run has not started.
    AfterRunStart = "after-run-start",
    /// A schedule is set or due. Its next tick and the run of this tick are not recorded.
    BeforeTick = "before-tick",
    /// The next tick and the run of this tick are durable. No caller was told, and the run's code has not started.
    AfterTick = "after-tick",
    /// A guard's row is about to change, because a decision is requested or made. The change is not durable.
    BeforeDocument = "before-document",
    /// A guard's row has changed, with all consequences. No caller was told.
    AfterDocument = "after-document",
    /// Runs of a queue are about to begin. None of them is admitted.
    BeforeAdmission = "before-admission",
    /// The admitted runs belong to this worker. Their code has not started.
    AfterAdmission = "after-admission",
    /// A run was found whose worker is gone, or whose timer or answer is due. It is not this worker's yet.
    BeforeTakeover = "before-takeover",
    /// The run belongs to this worker. Its code has not started again.
    AfterTakeover = "after-takeover",
    /// A step has its result. The checkpoint is not durable.
    BeforeCheckpoint = "before-checkpoint",
    /// The checkpoint of a step is durable.
    AfterCheckpoint = "after-checkpoint",
    /// A signal is about to be sent to a run. The signal is not durable.
    BeforeSignal = "before-signal",
    /// A signal to a run is durable. The run was not told.
    AfterSignal = "after-signal",
    /// A run is about to receive a signal. The receipt is not durable.
    BeforeReceipt = "before-receipt",
    /// A run has received a signal, durably.
    AfterReceipt = "after-receipt",
    /// A call was requested. Its intent is not durable, and nothing was sent.
    BeforeStarted = "before-started",
    /// The intent of a call is durable. Nothing was sent.
    AfterStarted = "after-started",
    /// A tool is about to be called. The attempt is durable, and nothing of it was sent.
    BeforeCall = "before-call",
    /// A tool has returned. Its effect may have happened, and nothing of its answer is recorded.
    AfterCall = "after-call",
    /// A tool has learned the provider's id during its call. The id is not durable.
    BeforeNote = "before-note",
    /// The provider's id is durable. The call goes on.
    AfterNote = "after-note",
    /// It is certain that a call did not happen. The failure is not durable.
    BeforeFailed = "before-failed",
    /// The failure of a call that did not happen is durable. The call has not been tried again.
    AfterFailed = "after-failed",
    /// It is known that a call happened. The result is not durable.
    BeforeSeal = "before-seal",
    /// The result of a call is durable.
    AfterSeal = "after-seal",
    /// A run has failed, and its effects are to be undone. The plan to undo them is not durable.
    BeforeUndoing = "before-undoing",
    /// The plan to undo the effects of a failed run is durable. No effect was undone.
    AfterUndoing = "after-undoing",
    /// An effect is undone. The record of the effect does not say so.
    BeforeCompensated = "before-compensated",
    /// The record of an effect says that it is undone.
    AfterCompensated = "after-compensated",
    /// The retention of some records is over. The records are still there, unchanged.
    BeforeForgetting = "before-forgetting",
    /// Records whose retention was over are deleted, or only their digests are left.
    AfterForgetting = "after-forgetting",
    /// Events are about to be published. The events are durable, and nothing of this attempt was sent.
    BeforePublish = "before-publish",
    /// The sink has answered. Nothing of its answer is recorded.
    AfterPublish = "after-publish",
    /// The publisher knows how far an aggregate is published. The position is not durable.
    BeforePublished = "before-published",
    /// The position up to which an aggregate is published is durable.
    AfterPublished = "after-published",
    /// A message was processed in its transaction. Neither its changes nor the fact that it is processed are durable.
    BeforeProcessed = "before-processed",
    /// A message is processed and its changes are durable. The message was not acknowledged.
    AfterProcessed = "after-processed",
    /// The closure of a transaction has made its changes. Neither the changes nor their checkpoint are durable.
    BeforeTransaction = "before-transaction",
    /// The changes of a transaction and their checkpoint are durable.
    AfterTransaction = "after-transaction",
    /// A dead attempt was found. The attempt still belongs to the dead worker.
    BeforeAdoption = "before-adoption",
    /// A dead attempt belongs to this worker. The provider was not asked about its outcome.
    AfterAdoption = "after-adoption",
    /// The provider is about to be asked about the outcome of a call.
    BeforeLookup = "before-lookup",
    /// The provider has answered about the outcome of a call. Nothing of the answer is recorded.
    AfterLookup = "after-lookup",
    /// A call may go out again. The new attempt is not durable.
    BeforeAttempt = "before-attempt",
    /// Another attempt is durable. Nothing of it was sent.
    AfterAttempt = "after-attempt",
    /// Only a person can decide. The question is not durable.
    BeforeQuestion = "before-question",
    /// The question is durable and listed.
    AfterQuestion = "after-question",
    /// A run waits for something durable. Its row says that it is active.
    BeforePark = "before-park",
    /// A waiting run is a row and holds no memory.
    AfterPark = "after-park",
    /// A question was answered. The answer is not durable.
    BeforeAnswer = "before-answer",
    /// The answer and its consequences are durable. Nobody was woken.
    AfterAnswer = "after-answer",
    /// A confirming lookup is due. The fact that it is being made is not durable.
    BeforeConfirming = "before-confirming",
    /// A confirming lookup is about to be made. The lookup is due again later, in case its worker dies.
    AfterConfirming = "after-confirming",
    /// The confirming lookup was made. The lookup is still due.
    BeforeConfirmed = "before-confirmed",
    /// The confirming lookup is no longer due.
    AfterConfirmed = "after-confirmed",
    /// A run was answered from the record of another run. The use of that record is not durable.
    BeforeUse = "before-use",
    /// The use of another run's record is durable.
    AfterUse = "after-use",
    /// A turn is over, or a run that had killed its process made progress. The progress is not durable.
    BeforeProgress = "before-progress",
    /// The progress is durable: the next turn has begun, or the deaths of a run that made progress no longer count.
    AfterProgress = "after-progress",
    /// A tenant's key for digests of secrets was drawn. The key is not durable.
    BeforeDigestKey = "before-digest-key",
    /// A tenant's key for digests of secrets is durable. No secret was digested with it.
    AfterDigestKey = "after-digest-key",
    /// A run has its result. The result is not durable.
    BeforeRunEnd = "before-run-end",
    /// The result of a run is durable. No caller was told.
    AfterRunEnd = "after-run-end",
    /// This worker has finished its work. The worker has not signed off.
    BeforeRetirement = "before-retirement",
    /// This worker has signed off. Its process still exists.
    AfterRetirement = "after-retirement",
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CrashPoint {
    type Err = UnknownPoint;
    fn from_str(name: &str) -> Result<Self, UnknownPoint> {
        let point = Self::ALL.into_iter().find(|point| point.name() == name);
        point.ok_or_else(|| UnknownPoint { name: name.to_owned() })
    }
}

/// An error: no crash point has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no crash point {name:?}: `CrashPoint::ALL` lists them, as in `after-call`")]
pub struct UnknownPoint {
    /// The name that was given.
    pub name: String,
}
