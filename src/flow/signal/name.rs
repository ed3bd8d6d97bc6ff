//! The names of signals. Those that begin with `~` are the engine's own.

use std::fmt;
use std::marker::PhantomData;

use crate::flow::label::Label;
use crate::id::{IdError, Name, checked};

/// The character that begins the engine's own names.
pub(in crate::flow) const OWN: char = '~';
/// Checks that users may give a signal this name.
pub(in crate::flow) fn usable(name: &str) -> Result<(), IdError> {
    checked("signal", name, Name::MAX_BYTES)?;
    if name.starts_with(OWN) {
        return Err(IdError::Reserved { what: "signal" });
    }
    Ok(())
}

/// The name of a signal together with the type of its body, for sender and receiver.
///
/// ```
/// use counterfoil::flow::{RunError, RunHandle, SignalName};
/// use counterfoil::{Ctx, Failure};
///
/// const PAID: SignalName<u64> = SignalName::new("paid");
///
/// async fn order(ctx: Ctx, _order: u32) -> Result<u64, Failure> {
///     ctx.signal(PAID).await
/// }
///
/// async fn webhook(run: RunHandle<u64>, cents: u64, event: &str) -> Result<(), RunError> {
///     run.signal(PAID, cents).id(event).await?;
///     Ok(())
/// }
/// ```
pub struct SignalName<T> {
    name: &'static str,
    _body: PhantomData<fn() -> T>,
}

impl<T> SignalName<T> {
    /// A signal of this name, whose body is a `T`. A name that begins with `~` is refused where it is used.
    pub const fn new(name: &'static str) -> Self {
        Self { name, _body: PhantomData }
    }
}

impl<T> Clone for SignalName<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SignalName<T> {}

impl<T> fmt::Debug for SignalName<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SignalName").field(&self.name).finish()
    }
}

/// The name of a signal whose body is a `T`: a [`SignalName`], or a text, which leaves the type to the caller. A wait gives an id beside
/// the text where several waits of one name are open at once; a sender's id beside the text is the [id of the
/// signal](super::SendSignal::id).
pub trait NamesSignal<T> {
    /// The name, and the id if there is one.
    fn label(self) -> Label;
}

impl<T> NamesSignal<T> for SignalName<T> {
    fn label(self) -> Label {
        Label::from(self.name)
    }
}

impl<T, L: Into<Label>> NamesSignal<T> for L {
    fn label(self) -> Label {
        self.into()
    }
}
