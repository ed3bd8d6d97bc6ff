//! A value that is made under a nonce, as the ledger carries it out.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde::Serialize;

use crate::clock::Timestamp;
use crate::exec::{Executor, OwnConnection};
use crate::ledger::{ErrorKind, Record, RequestHash, State};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::rim::sealed::sealed;
use crate::tool::{Call, Done, Prepared, ToolError, ToolSpec, Unprepared};

type Making<'a> = BoxFuture<'a, Result<Payload, ToolError>>;

/// A way to make a value.
pub(super) trait Make: Send {
    fn make<'a>(self, call: &'a Call) -> Making<'a>
    where
        Self: 'a;
}

impl<F> Make for F
where
    F: FnOnce(&Call) -> Making<'static> + Send,
{
    fn make<'a>(self, call: &'a Call) -> Making<'a>
    where
        Self: 'a,
    {
        self(call)
    }
}

/// A value that is made in a transaction which seals the record.
pub(super) struct InTransaction<C, T, E, F> {
    executor: Executor,
    make: F,
    of: Of<C, T, E>,
}

type Of<C, T, E> = PhantomData<fn() -> (C, T, E)>;

impl<C, T, E, F> InTransaction<C, T, E, F> {
    pub(super) const fn new(executor: Executor, make: F) -> Self {
        Self { executor, make, of: PhantomData }
    }
}

impl<C, T, E, F> Make for InTransaction<C, T, E, F>
where
    C: OwnConnection + 'static,
    T: Serialize + Send + 'static,
    E: fmt::Display + Send + 'static,
    F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<T, E>> + Send + 'static,
{
    fn make<'a>(self, call: &'a Call) -> Making<'a>
    where
        Self: 'a,
    {
        let Self { executor, make, .. } = self;
        Box::pin(async move {
            let made = sealed(call, &executor, move |connection: &mut C| {
                let making = make(connection);
                Box::pin(async move {
                    let made = making.await.map_err(|error| error.to_string())?;
                    let payload = Payload::of(&made).map_err(|error| error.to_string())?;
                    Ok::<_, String>((payload.clone(), payload))
                })
            });
            made.await.map_err(|unsealed| unsealed.error(|said| said))
        })
    }
}

/// A kind of values, as the ledger knows it.
pub(super) struct Met(pub(super) Arc<ToolSpec>);

impl Unprepared for Met {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn prepare(&self, _: &Payload) -> Result<Arc<dyn Prepared>, PayloadError> {
        let nobody = Under::<fn(&Call) -> Making<'static>> { spec: self.0.clone(), make: Mutex::new(None) };
        Ok(Arc::new(nobody))
    }

    fn typed(&self) -> &dyn Any {
        self
    }
}

/// A value to be made under a nonce; without a closure if its caller is gone.
pub(super) struct Under<M> {
    spec: Arc<ToolSpec>,
    make: Mutex<Option<M>>,
}

impl<M> Under<M> {
    pub(super) const fn new(spec: Arc<ToolSpec>, make: M) -> Self {
        Self { spec, make: Mutex::new(Some(make)) }
    }
}

impl<M: Make> Prepared for Under<M> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The request is a constant: only the nonce is compared, whatever else the request contains.
    fn request(&self, _: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        Ok((Payload::stored("null"), false))
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        let make = self.make.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            match make {
                Some(make) => make.make(call).await.map(Done::new),
                None => Err(ToolError::new(ErrorKind::Validation, "its caller is gone: nothing was made")),
            }
        })
    }

    fn needs_caller(&self) -> bool {
        self.make.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// True once the window is over, to the second, and not only after the next sweep.
    fn outlives(&self, record: &Record, _: &RequestHash, now: Timestamp) -> bool {
        !matches!(record.state, State::Started)
            && record.created_at.after(self.spec.retention.keep_for) <= now
    }
}
