//! The waker of a run's body.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// Wakes the driver, and remembers the wake-up: a future that woke itself has not come to rest.
#[derive(Default)]
pub(in crate::flow) struct RunWaker {
    woken: AtomicBool,
    /// True if the context, or the engine, woke the run.
    own: AtomicBool,
    /// True if something else has woken the run while it waited for the context alone.
    foreign: AtomicBool,
    driver: Mutex<Option<Waker>>,
}

impl Wake for RunWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        if let Some(driver) = self.driver.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            driver.wake_by_ref();
        }
    }
}

impl RunWaker {
    pub(in crate::flow) fn driven_by(&self, waker: &Waker) {
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        match driver.as_mut() {
            Some(known) => known.clone_from(waker),
            None => *driver = Some(waker.clone()),
        }
    }

    pub(in crate::flow) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    /// Notes that the context, or the engine, is about to wake the run.
    pub(in crate::flow) fn is_own(&self) {
        self.own.store(true, Ordering::Release);
    }

    pub(in crate::flow) fn take_own(&self) -> bool {
        self.own.swap(false, Ordering::AcqRel)
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
        self.run.is_own();
        self.inner.wake_by_ref();
    }
}
