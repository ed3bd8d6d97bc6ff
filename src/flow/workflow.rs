//! Workflows as they are registered: a plain `async fn`, its types forgotten.

use std::any::TypeId;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::failure::Failure;
use crate::id::Name;
use crate::payload::{Payload, PayloadError};

/// A workflow: any `async fn(Ctx, Input) -> Result<Output, Failure>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a workflow",
    note = "a workflow is an `async fn(ctx: Ctx, input: Input) -> Result<Output, Failure>` whose future is `Send`"
)]
pub trait Workflow<I, O>: Send + Sync + 'static {
    /// Its execution.
    type Run: Future<Output = Result<O, Failure>> + Send + 'static;
    /// Starts it.
    fn start(&self, ctx: Ctx, input: I) -> Self::Run;
}

impl<F, I, O, Fut> Workflow<I, O> for F
where
    F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Failure>> + Send + 'static,
{
    type Run = Fut;
    fn start(&self, ctx: Ctx, input: I) -> Fut {
        self(ctx, input)
    }
}

/// What the engine polls.
pub(super) type Body = BoxFuture<'static, Result<Payload, Failure>>;
type Start = dyn Fn(Ctx, &Payload) -> Result<Body, PayloadError> + Send + Sync;

/// A registered workflow.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) name: Name,
    pub(super) version: u32,
    pub(super) start: Arc<Start>,
}

/// The workflows of an engine, by name and by function.
#[derive(Default)]
pub(super) struct Workflows {
    by_name: HashMap<String, Registered>,
    by_function: HashMap<TypeId, String>,
}

impl Workflows {
    /// Adds a workflow, or says why not.
    pub(super) fn add<W, I, O>(&mut self, name: &str, version: u32, workflow: W) -> Result<(), String>
    where
        W: Workflow<I, O>,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
    {
        let checked = Name::new(name).map_err(|e| e.to_string())?;
        if self.by_name.contains_key(name) {
            return Err("there is one of that name: its runs could not be told apart; rename it".into());
        }
        if self.by_function.insert(TypeId::of::<W>(), name.to_owned()).is_some() {
            return Err("the same function is registered under another name".into());
        }
        let workflow = Arc::new(workflow);
        let start: Arc<Start> = Arc::new(move |ctx, input| {
            let (workflow, input) = (workflow.clone(), input.decode()?);
            // Called when it is first polled, where a panic of the run's code is caught.
            Ok(Box::pin(async move { Ok(Payload::of(&workflow.start(ctx, input).await?)?) }))
        });
        self.by_name.insert(name.to_owned(), Registered { name: checked, version, start });
        Ok(())
    }

    pub(super) fn find(&self, name: &str) -> Option<&Registered> {
        self.by_name.get(name)
    }

    pub(super) fn of_function<W: 'static>(&self) -> Option<&Registered> {
        self.by_name.get(self.by_function.get(&TypeId::of::<W>())?)
    }
}
