//! `Ctx::state`: the accessor by which a workflow's code reads a [value of its host](super::host_values).

use std::any::type_name;

use super::ctx::Ctx;
use super::failure::Failure;
use super::unregistered::Unregistered;

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
        let found = self.engine.host_values.get::<S>();
        found.ok_or_else(|| Unregistered::State(type_name::<S>().to_owned()).into())
    }
}
