//! The waker of a run's body.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// The body was woken.
const WOKEN: u8 = 1;
/// The body was woken by something that is not the context's.
const BY_OTHER: u8 = 2;

/// Wakes the driver, and remembers the wake-up: a future that woke itself has not come to rest.
///
/// A wake-up by this waker itself is the engine's. The body has wakers of its own (`fresh`), which anybody may hold.
#[derive(Default)]
pub(in crate::flow) struct RunWaker {
    /// The wake-ups since they were last taken: `WOKEN`, `BY_OTHER`.
    woken: AtomicU8,
    /// The number of wake-ups by the context that are under way.
    waking: AtomicUsize,
    /// The number of the body's newest waker.
    newest: AtomicU64,
    /// True if something else has woken the run while it waited for the context alone.
    foreign: AtomicBool,
    driver: Mutex<Option<Waker>>,
}

impl Wake for RunWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_as(WOKEN);
    }
}

impl RunWaker {
    fn wake_as(&self, woken: u8) {
        self.woken.fetch_or(woken, Ordering::AcqRel);
        if let Some(driver) = self.driver.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            driver.wake_by_ref();
        }
    }

    pub(in crate::flow) fn driven_by(&self, waker: &Waker) {
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        match driver.as_mut() {
            Some(known) => known.clone_from(waker),
            None => *driver = Some(waker.clone()),
        }
    }

    /// A new waker for the body. Wake-ups by the former ones still count, but they may come from work that is over: a
    /// thread can hand a result over, and wake up whoever waited for it only after the body has gone on.
    pub(in crate::flow) fn fresh(self: &Arc<Self>) -> Waker {
        let number = self.newest.fetch_add(1, Ordering::AcqRel) + 1;
        Waker::from(Arc::new(BodyWaker { run: self.clone(), number }))
    }

    pub(in crate::flow) fn take_woken(&self) -> bool {
        self.woken.swap(0, Ordering::AcqRel) != 0
    }

    /// Takes the wake-ups. Returns true if something that is not the context's has used the body's newest waker.
    pub(in crate::flow) fn take_woken_by_other(&self) -> bool {
        self.woken.swap(0, Ordering::AcqRel) & BY_OTHER != 0
    }

    /// Makes a wake-up by the context. It may reach the run on a detour through wakers of the user's code, and more
    /// than once.
    pub(super) fn by_context(&self, wake: impl FnOnce()) {
        self.waking.fetch_add(1, Ordering::AcqRel);
        wake();
        self.waking.fetch_sub(1, Ordering::AcqRel);
    }

    /// Notes that the run waits for something that is not the context's. Returns true the first time.
    pub(in crate::flow) fn note_foreign(&self) -> bool {
        !self.foreign.swap(true, Ordering::AcqRel)
    }

    pub(in crate::flow) fn has_foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire)
    }

    /// Waits for a thing of the context's that is outside of it, such as a timer. Its wake-up is not foreign.
    pub(in crate::flow) async fn owning<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let waker = Waker::from(Arc::new(OwnWaker { run: self.clone(), inner: cx.waker().clone() }));
            future.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
}

struct OwnWaker {
    run: Arc<RunWaker>,
    inner: Waker,
}

impl Wake for OwnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.run.by_context(|| self.inner.wake_by_ref());
    }
}

/// A waker of the body.
struct BodyWaker {
    run: Arc<RunWaker>,
    number: u64,
}

impl Wake for BodyWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let run = &self.run;
        let is_newest = run.newest.load(Ordering::Acquire) == self.number;
        let is_other = is_newest && run.waking.load(Ordering::Acquire) == 0;
        run.wake_as(if is_other { WOKEN | BY_OTHER } else { WOKEN });
    }
}
