//! What a host hands to its workflows: connection pools, clients, settings.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;

use super::ctx::Ctx;
use super::failure::Failure;
use super::unregistered::Unregistered;

/// Values by their types.
#[derive(Default)]
pub(super) struct States(HashMap<TypeId, (&'static str, Box<dyn Any + Send + Sync>)>);

impl States {
    /// Adds a value, in place of an earlier one of its type.
    pub(super) fn add<S: Send + Sync + 'static>(&mut self, state: S) {
        self.0.insert(TypeId::of::<S>(), (type_name::<S>(), Box::new(state)));
    }

    /// True if there is a value of the type of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.values().any(|(known, _)| *known == name)
    }
}

impl Ctx {
    /// The value of this type that the engine was [given](super::EngineBuilder::state): a connection pool, a client, settings. It is not
    /// recorded, so a workflow uses it in steps and transactions, and decides nothing by it outside of them.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use counterfoil::{Ctx, Engine, Failure};
    ///
    /// struct Greeting(&'static str);
    ///
    /// async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
    ///     let Greeting(greeting) = ctx.state::<Greeting>()?;
    ///     ctx.step("greeting", &name, |name| format!("{greeting}, {name}")).await
    /// }
    ///
    /// let engine = Engine::in_memory().state(Greeting("Hello")).workflow("greet", 1, greet).start().await?;
    /// assert_eq!(engine.default_tenant().run(greet, "Ann".to_owned()).await?, "Hello, Ann");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the engine has no value of this type. Returned by the workflow, that blocks the run until an engine has one.
    pub fn state<S: Send + Sync + 'static>(&self) -> Result<&S, Failure> {
        let found = self.engine.states.0.get(&TypeId::of::<S>());
        let found = found.and_then(|(_, state)| state.downcast_ref());
        found.ok_or_else(|| Unregistered::State(type_name::<S>().to_owned()).into())
    }
}
