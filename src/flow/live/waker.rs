//! The waker of a run's body.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// Wakes the driver, and remembers it: a future that woke itself has not come to rest.
#[derive(Default)]
pub(in crate::flow) struct RunWaker {
    woken: AtomicBool,
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
}
