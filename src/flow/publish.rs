//! Published values: the state that a run shows to the outside, written with the checkpoint that says so.

use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::error::RunError;
use super::failure::Failure;
use super::handle::RunHandle;
use super::identity::Kind;
use super::keyed::RunOf;
use super::label::Label;
use crate::id::{Name, checked};
use crate::payload::Limits;
use crate::store::Store as _;
use crate::tool::canonical;

/// The pause between two looks for a new value.
const POLL: Duration = Duration::from_millis(250);

impl Ctx {
    /// Publishes a value under a name: [`RunHandle::published`] reads the last one from outside, while the run goes on and
    /// after its end. Publishing waits for no disk.
    ///
    /// The values of one name follow one another: a reader that has seen one sees no earlier one, whatever crashes. A run
    /// that is begun again from an earlier step shows its last value until it publishes again. A fork has published nothing
    /// before it publishes by itself. The values are kept as long as the run's details.
    ///
    /// The run is blocked if the value is larger than [`Limits::inline_bytes`](crate::payload::Limits): publish a reference
    /// then.
    ///
    /// # Crash
    /// The value and the checkpoint are one change. If neither is durable, the resumed run publishes the value.
    ///
    /// ```
    /// # use counterfoil::{Ctx, Failure};
    /// async fn import(ctx: Ctx, files: Vec<String>) -> Result<(), Failure> {
    ///     for (done, file) in files.iter().enumerate() {
    ///         ctx.publish("progress", &format!("{done} of {}", files.len())).await?;
    ///         ctx.step("import", file, |_file| ()).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn publish<P: Serialize + Sync + ?Sized>(&self, name: &str, value: &P) -> Result<(), Failure> {
        let fits = checked("name of a published value", name, Name::MAX_BYTES);
        self.unless_mendable(fits.map_err(Failure::from)).await?;
        let open = self.open(Kind::Published, Label::from(name)).await?;
        let past = self.live.recorded(&open).await?;
        let (open, value) = self.live.fitting(open, past.is_some(), |key| canonical(value, key)).await?;
        if let Some(past) = past {
            // Not bound to the value: a build that shows something else goes on.
            return self.replayed(open, None, past).await;
        }
        let limits = &self.live.core.limits;
        let small = Limits { max_bytes: limits.inline_bytes, ..*limits };
        let value = self.unless_mendable(value.within(&small).map_err(Failure::from)).await?;
        if let Err(error) = self.live.publish(&open.identity, value).await {
            return Err(self.live.failure(error).await);
        }
        open.close();
        Ok(())
    }
}

/// The values that a run publishes under one name, from the present one on.
pub struct Watch<P> {
    run: RunHandle<()>,
    name: String,
    seen: u32,
    _value: PhantomData<fn() -> P>,
}

impl<O> RunHandle<O> {
    /// The last value that the run has [published](Ctx::publish) under this name, if any.
    pub async fn published<P: DeserializeOwned>(&self, name: &str) -> Result<Option<P>, RunError> {
        let found = self.inner.core.group.published_find(&self.tenant, self.id, name).await?;
        Ok(found.map(|found| found.value.decode()).transpose()?)
    }

    /// Follows the values that the run publishes under this name.
    ///
    /// ```no_run
    /// # async fn follow(client: counterfoil::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let run = client.default_tenant().run_of_named("import", "2026-11").handle().await?;
    /// let mut progress = run.watch::<String>("progress");
    /// while let Some(progress) = progress.next().await? {
    ///     println!("{progress}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn watch<P: DeserializeOwned>(&self, name: impl Into<String>) -> Watch<P> {
        let run = RunHandle::of(self.inner.clone(), self.tenant.clone(), self.id);
        Watch { run, name: name.into(), seen: 0, _value: PhantomData }
    }
}

impl<O> RunOf<O> {
    /// The last value that the run has published under this name: see [`RunHandle::published`].
    pub async fn published<P: DeserializeOwned>(&self, name: &str) -> Result<Option<P>, RunError> {
        self.handle().await?.published(name).await
    }
}

impl<P: DeserializeOwned> Watch<P> {
    /// The next value: the present one at first, and then each time a later one. Values in between may be left out, and
    /// none comes twice. `None` once the run is over and its last value was given. The store is asked four times a second.
    pub async fn next(&mut self) -> Result<Option<P>, RunError> {
        loop {
            let RunHandle { inner, tenant, id, .. } = &self.run;
            // Read first, so that a value which the run published just before its end is not missed.
            let over = self.run.status().await?.state.is_final();
            let found = inner.core.group.published_find(tenant, *id, &self.name).await?;
            if let Some(found) = found.filter(|found| found.revision > self.seen) {
                self.seen = found.revision;
                return Ok(Some(found.value.decode()?));
            }
            if over {
                return Ok(None);
            }
            inner.core.clock.sleep(POLL).await;
        }
    }
}
