//! The names of the moments at which a process can die, as far as it makes a difference to the world or to
//! the records, and who is told when one is crossed. The engine crosses them where it writes and where it sends; without a
//! watch a crossing does nothing.

use std::fmt;
use std::future::poll_fn;
use std::str::FromStr;
use std::sync::Arc;
use std::task::Poll;

/// Is told of every crash point that is crossed, on the thread that crosses it and before it goes on.
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
    /// This point is being crossed. A *before* point: nothing of what follows has been done. An *after* point:
    /// it has been done, and nobody has been told.
    fn at(&self, point: CrashPoint);

    /// The process is dead: whoever has crossed a point goes no further. A watch that kills its own process has no
    /// need of this; a simulated process goes on to exist, and must do nothing any more.
    fn is_dead(&self) -> bool {
        false
    }

    /// The process is paused: whoever has crossed a point goes on later, when others may have taken its work over.
    fn is_paused(&self) -> bool {
        false
    }
}

// A watch is handed around as `dyn`.
const _: Option<&dyn Watch> = None;

/// Where crossings are told. Nobody is told unless a [watch](Watch) was given.
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

    /// Tells of a point where nothing else may happen: inside a transaction, say.
    pub(crate) fn at(&self, point: CrashPoint) {
        if let Some(watch) = &self.0 {
            watch.at(point);
        }
    }

    /// Crosses a point. In a dead process nobody comes back from it; in a paused process nobody does before it goes on.
    pub(crate) async fn cross(&self, point: CrashPoint) {
        let Some(watch) = &self.0 else { return };
        watch.at(point);
        poll_fn(|cx| {
            if watch.is_paused() {
                cx.waker().wake_by_ref(); // it is not polled while it is paused
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
        /// A moment at which a process can die: before and after every write that becomes durable, and before
        /// and after every touch of the world.
        ///
        /// Writes of several runs share transactions. *Before* a write, none of its transaction is durable;
        /// *after* it, all of it is.
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
            /// All of them, in the order in which the life of a run crosses them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$point),*];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)*
                }
            }

            /// What has and what has not happened at this point, in one line.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$point => $doc.trim_start(),)*
                }
            }
        }
    };
}

points! {
    /// The store is open; this worker is not enrolled, and those before it are not fenced.
    BeforeEnrolment = "before-enrolment",
    /// This worker is enrolled and those before it are fenced; it has taken nothing over.
    AfterEnrolment = "after-enrolment",
    /// A run was asked for; it is not recorded.
    BeforeRunStart = "before-run-start",
    /// A run is recorded; nobody knows, and its code has not run.
    AfterRunStart = "after-run-start",
    /// A schedule is set or due; its next tick and the run of this one are not recorded.
    BeforeTick = "before-tick",
    /// A schedule's next tick and the run of this one are durable; nobody knows, and its code has not run.
    AfterTick = "after-tick",
    /// A guard's row is to change: something is to be decided, or is; that is not durable.
    BeforeDocument = "before-document",
    /// A guard's row has changed, with all that follows; nobody was told.
    AfterDocument = "after-document",
    /// Runs of a queue are to begin; none of them has its place.
    BeforeAdmission = "before-admission",
    /// The runs whose turn has come are this worker's; their code has not run.
    AfterAdmission = "after-admission",
    /// A run that was left behind, or whose time or answer has come, is found; it is not this worker's yet.
    BeforeTakeover = "before-takeover",
    /// The run is this worker's; its code has not run again.
    AfterTakeover = "after-takeover",
    /// A step's result is there; its checkpoint is not durable.
    BeforeCheckpoint = "before-checkpoint",
    /// A step's checkpoint is durable.
    AfterCheckpoint = "after-checkpoint",
    /// Something is to be said to a run; it is not durable.
    BeforeSignal = "before-signal",
    /// What was said to a run is durable; the run was not told.
    AfterSignal = "after-signal",
    /// A run is to receive what was said to it; that is not durable.
    BeforeReceipt = "before-receipt",
    /// A run has received what was said to it.
    AfterReceipt = "after-receipt",
    /// A call was asked for; its intent is not durable, and nothing was sent.
    BeforeStarted = "before-started",
    /// The intent of a call is durable; nothing was sent.
    AfterStarted = "after-started",
    /// A tool is about to be called: an attempt is durable, and nothing of it was sent.
    BeforeCall = "before-call",
    /// A tool has returned: its effect may have happened, and nothing of its answer is recorded.
    AfterCall = "after-call",
    /// A tool has learned the provider's id during its call; it is not durable.
    BeforeNote = "before-note",
    /// The provider's id is durable; the call goes on.
    AfterNote = "after-note",
    /// It is certain that a call did not happen; that is not durable.
    BeforeFailed = "before-failed",
    /// It is durable that a call did not happen; it has not been tried again.
    AfterFailed = "after-failed",
    /// It is known that a call happened; that is not durable.
    BeforeSeal = "before-seal",
    /// The result of a call is durable.
    AfterSeal = "after-seal",
    /// A run has failed, and what it did is to be undone; that is not durable.
    BeforeUndoing = "before-undoing",
    /// What a failed run did is to be undone, durably; nothing of it was.
    AfterUndoing = "after-undoing",
    /// An effect is undone; its own record does not say so.
    BeforeCompensated = "before-compensated",
    /// The record of an effect says that it is undone.
    AfterCompensated = "after-compensated",
    /// The time of some records is over; they are there as before.
    BeforeForgetting = "before-forgetting",
    /// Records whose time was over are gone, or digests are left of them.
    AfterForgetting = "after-forgetting",
    /// Events are about to be published: they are durable, and nothing of this try was sent.
    BeforePublish = "before-publish",
    /// The sink has answered; nothing of its answer is recorded.
    AfterPublish = "after-publish",
    /// It is known how far an aggregate is published; that is not durable.
    BeforePublished = "before-published",
    /// How far an aggregate is published is durable.
    AfterPublished = "after-published",
    /// A message was processed in its transaction; neither what it changed nor that it is processed is durable.
    BeforeProcessed = "before-processed",
    /// A message and what it changed are durable; it was not acknowledged.
    AfterProcessed = "after-processed",
    /// The closure of a transaction has made its changes; neither they nor their checkpoint are durable.
    BeforeTransaction = "before-transaction",
    /// The changes of a transaction and their checkpoint are durable.
    AfterTransaction = "after-transaction",
    /// A dead attempt was found; it still belongs to the dead worker.
    BeforeAdoption = "before-adoption",
    /// A dead attempt belongs to this worker; nobody was asked what became of it.
    AfterAdoption = "after-adoption",
    /// The provider is about to be asked what became of a call.
    BeforeLookup = "before-lookup",
    /// The provider has said what became of a call; nothing of it is recorded.
    AfterLookup = "after-lookup",
    /// A call may go out again; that attempt is not durable.
    BeforeAttempt = "before-attempt",
    /// Another attempt is durable; nothing of it was sent.
    AfterAttempt = "after-attempt",
    /// Only a person can say; the question is not durable.
    BeforeQuestion = "before-question",
    /// The question is durable and listed.
    AfterQuestion = "after-question",
    /// A run waits for something durable; its row says that it is active.
    BeforePark = "before-park",
    /// A waiting run is a row, and holds no memory.
    AfterPark = "after-park",
    /// A question was answered; that is not durable.
    BeforeAnswer = "before-answer",
    /// The answer and what follows from it are durable; nobody was woken.
    AfterAnswer = "after-answer",
    /// A confirming lookup is due; that it is being made is not durable.
    BeforeConfirming = "before-confirming",
    /// A confirming lookup is about to be made; it is due again later, in case nothing comes of it.
    AfterConfirming = "after-confirming",
    /// The confirming lookup was made; it is still due.
    BeforeConfirmed = "before-confirmed",
    /// The confirming lookup is done with.
    AfterConfirmed = "after-confirmed",
    /// A run was answered from another one's record; its use is not durable.
    BeforeUse = "before-use",
    /// The use of another run's record is durable.
    AfterUse = "after-use",
    /// A turn is over, or a run that had killed its process got somewhere; that is not durable.
    BeforeProgress = "before-progress",
    /// The next turn has begun, or deaths of a run that got somewhere no longer count; that is durable.
    AfterProgress = "after-progress",
    /// A tenant's key for digests of secrets was drawn; it is not durable.
    BeforeDigestKey = "before-digest-key",
    /// A tenant's key for digests of secrets is durable; nothing was digested with it.
    AfterDigestKey = "after-digest-key",
    /// A run has its result; that is not durable.
    BeforeRunEnd = "before-run-end",
    /// The result of a run is durable; nobody was told.
    AfterRunEnd = "after-run-end",
    /// This worker has finished its work; it has not signed off.
    BeforeRetirement = "before-retirement",
    /// This worker has signed off; its process is still there.
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

/// There is no crash point of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no crash point {name:?}: `CrashPoint::ALL` lists them, as in `after-call`")]
pub struct UnknownPoint {
    /// The name.
    pub name: String,
}
