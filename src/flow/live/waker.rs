//! The waker of a run's body.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// Wakes the driver, and remembers it: a future that woke itself has not come to rest.
#[derive(Default)]
pub(in crate::flow) struct RunWaker {
    woken: AtomicBool,
    /// What woke it was the context's.
    own: AtomicBool,
    /// Something else has woken it while it waited for the context alone.
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

    /// The context, or the engine, is about to wake it.
    pub(in crate::flow) fn is_own(&self) {
        self.own.store(true, Ordering::Release);
    }

    pub(in crate::flow) fn take_own(&self) -> bool {
        self.own.swap(false, Ordering::AcqRel)
    }

    /// It waits for something else than the context. True the first time.
    pub(in crate::flow) fn note_foreign(&self) -> bool {
        !self.foreign.swap(true, Ordering::AcqRel)
    }

    pub(in crate::flow) fn has_foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire)
    }

    /// Waits for something of the context's that is outside of it: a timer. That it wakes the run is not foreign.
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
