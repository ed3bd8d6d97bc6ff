//! Panics of code that is called inside tasks which others wait for: of a store, a sink, a clock, a callback, a subscriber
//! of the log. A panic ends what was under way, and never such a task.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt as _;

/// Carries it out; a panic of it is the error, in its words.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| message(&*panic))
}

/// Does something that may fail unseen: to say what has happened, where the subscriber may be what panics.
pub(crate) fn quietly(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}

/// What a panic says.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
