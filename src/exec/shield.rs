//! The shield between a call and its caller: a caller that drops the future, or keeps it and does not poll it, must not
//! leave a request halfway.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::attendance::Attendance;

/// Runs in its caller's task, without a hop, as long as the caller polls it. If the caller drops it unfinished, the
/// rest goes on in a task of its own, so that the outcome is still recorded.
pub(crate) struct Shield<T: Send + 'static> {
    work: Arc<Work<T>>,
    abandoned: Arc<AtomicBool>,
}

/// The work behind a shield. It is placed between the work and the caller's waker, so that it knows if the caller was
/// woken and has not polled since.
pub(super) struct Work<T> {
    rest: Mutex<Rest<T>>,
    tracker: TaskTracker,
    caller: AtomicWaker,
    woken: AtomicBool,
    polls: AtomicU32,
    /// The number of polls at the last look of the attendant.
    seen: AtomicU32,
    /// The attendance that is told when the caller is woken.
    attendance: Option<Arc<Attendance>>,
}

/// The place of the rest of the work.
enum Rest<T> {
    /// The rest is with the caller.
    Here(BoxFuture<'static, T>),
    /// The rest is nowhere: the work is being polled, has panicked, or is done. Work that has panicked must not be
    /// polled again.
    Taken,
    /// The rest is in a task of its own, which sends its result.
    There(oneshot::Receiver<Result<T, Box<dyn Any + Send>>>),
}

impl<T: Send + 'static> Shield<T> {
    pub(crate) fn new(rest: BoxFuture<'static, T>, tracker: TaskTracker, abandoned: Arc<AtomicBool>) -> Self {
        Self::attended(rest, tracker, abandoned, None)
    }

    /// A shield whose work goes on by itself when its caller was woken and does not poll it.
    pub(super) fn attended(
        rest: BoxFuture<'static, T>,
        tracker: TaskTracker,
        abandoned: Arc<AtomicBool>,
        attendance: Option<Arc<Attendance>>,
    ) -> Self {
        let work = Work {
            rest: Mutex::new(Rest::Here(rest)),
            tracker,
            caller: AtomicWaker::new(),
            woken: AtomicBool::new(false),
            polls: AtomicU32::new(0),
            seen: AtomicU32::new(0),
            attendance,
        };
        Self { work: Arc::new(work), abandoned }
    }

    /// The work, which can be told to go on without its caller.
    pub(super) fn work(&self) -> &Arc<Work<T>> {
        &self.work
    }
}

/// Completes the work even if its caller goes away, for a write with consequences that must follow.
pub(crate) fn to_the_end<T, F>(tracker: &TaskTracker, work: F) -> Shield<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    Shield::new(Box::pin(work), tracker.clone(), Arc::default())
}

/// Work whose caller may have ceased to poll it.
pub(super) trait Unattended: Send + Sync {
    /// Goes on in a task of its own, unless the caller polls the work at this moment.
    fn go_on(&self);
    /// True if the caller was woken and has not polled since.
    fn is_woken(&self) -> bool;
    /// True if the caller had been woken at the last call of this method, and has not polled since.
    fn is_kept(&self) -> bool;
}

impl<T: Send + 'static> Unattended for Work<T> {
    fn go_on(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut place = self.rest();
        match std::mem::replace(&mut *place, Rest::Taken) {
            Rest::Here(rest) => {
                let (tell, told) = oneshot::channel();
                *place = Rest::There(told);
                drop(place);
                self.woken.store(false, Ordering::SeqCst);
                let told = async move { drop(tell.send(AssertUnwindSafe(rest).catch_unwind().await)) };
                self.tracker.spawn_on(told, &runtime);
                self.caller.wake(); // the rest knows its new task only: the caller has to learn where it is
            }
            other => *place = other,
        }
    }

    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    fn is_kept(&self) -> bool {
        let polls = self.polls.load(Ordering::Acquire);
        self.is_woken() && self.seen.swap(polls, Ordering::AcqRel) == polls
    }
}

impl<T: Send + 'static> Wake for Work<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if let Some(attendance) = &self.attendance {
            attendance.stir();
        }
        self.caller.wake();
    }
}

impl<T> Work<T> {
    fn rest(&self) -> MutexGuard<'_, Rest<T>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static> Future for Shield<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let work = &self.work;
        work.caller.register(cx.waker());
        work.polls.fetch_add(1, Ordering::AcqRel);
        work.woken.store(false, Ordering::SeqCst);
        let taken = std::mem::replace(&mut *work.rest(), Rest::Taken);
        match taken {
            Rest::Here(mut rest) => {
                let waker = Waker::from(work.clone());
                let polled = rest.as_mut().poll(&mut Context::from_waker(&waker));
                if polled.is_pending() {
                    *work.rest() = Rest::Here(rest);
                }
                polled
            }
            Rest::There(mut told) => match told.poll_unpin(cx) {
                Poll::Ready(Ok(Ok(done))) => Poll::Ready(done),
                Poll::Ready(Ok(Err(panic))) => resume_unwind(panic),
                Poll::Ready(Err(_)) => Poll::Pending, // the runtime is going down, and this task with it
                Poll::Pending => {
                    *work.rest() = Rest::There(told);
                    Poll::Pending
                }
            },
            Rest::Taken => Poll::Pending,
        }
    }
}

impl<T: Send + 'static> Drop for Shield<T> {
    fn drop(&mut self) {
        match std::mem::replace(&mut *self.work.rest(), Rest::Taken) {
            // Without a runtime the process is ending: the record stays `started`, so its outcome is unknown.
            Rest::Here(rest) => {
                if let Ok(runtime) = Handle::try_current() {
                    self.abandoned.store(true, Ordering::Release);
                    self.work.tracker.spawn_on(rest, &runtime);
                }
            }
            Rest::There(_) => self.abandoned.store(true, Ordering::Release), // the work goes on by itself
            Rest::Taken => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_future_that_has_panicked_is_not_polled_again() {
        let (tracker, polls) = (TaskTracker::new(), Arc::new(AtomicU32::new(0)));
        let counted = polls.clone();
        let panics = poll_fn(move |_| -> Poll<()> {
            counted.fetch_add(1, Ordering::Relaxed);
            panic!("as told")
        });
        let shield = Shield::new(Box::pin(panics), tracker.clone(), Arc::default());
        assert!(AssertUnwindSafe(shield).catch_unwind().await.is_err());
        tracker.close();
        tracker.wait().await;
        assert_eq!(polls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_panic_without_its_caller_reaches_the_caller() {
        let (go, gone) = oneshot::channel::<()>();
        let panics = async move {
            drop(gone.await);
            panic!("as told")
        };
        let mut shield: Shield<()> = Shield::new(Box::pin(panics), TaskTracker::new(), Arc::default());
        assert!((&mut shield).now_or_never().is_none());
        shield.work().go_on();
        go.send(()).unwrap();
        assert!(AssertUnwindSafe(shield).catch_unwind().await.is_err());
    }
}
