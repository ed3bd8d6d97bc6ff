//! Changed code in a run that is under way: a part that was added for later runs, and a step whose input has changed
//! while its result has not.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::failure::Failure;
use super::identity::Kind;
use super::label::Label;
use super::live::Open;
use crate::ledger::{RequestHash, diff};
use crate::payload::Payload;
use crate::store::{PastStep, QuestionKind};

impl Ctx {
    /// True if this run takes a part of the code that was added while runs were under way. Put the new part, an effect
    /// or a wait in front of recorded ones, behind this question:
    ///
    /// ```
    /// # use counterfoil::{Ctx, Failure};
    /// # use std::time::Duration;
    /// async fn order(ctx: Ctx, order: String) -> Result<String, Failure> {
    ///     if ctx.patched("cooling-off").await? {
    ///         ctx.sleep(Duration::from_hours(1)).await?; // runs that were past this point do not wait
    ///     }
    ///     ctx.step("receipt", &order, |order| format!("receipt for {order}")).await
    /// }
    /// ```
    ///
    /// The answer is no if the run has recorded anything that its code has not asked for yet: a step, a wait or a call
    /// further down, or in another branch. Otherwise the answer is yes. The answer is recorded, and is the same on
    /// every resume, for every use of the name in the run (in a loop of [turns](Self::turns), in the turn), and after a
    /// retry or in a fork. Remove the question together with the old path once the last run without the patch has
    /// ended.
    ///
    /// # Crash
    /// The answer becomes durable before anything that the code does because of it.
    pub async fn patched(&self, name: &str) -> Result<bool, Failure> {
        let open = self.open(Kind::Patch, Label::of(name, Some(name.to_owned()))).await?;
        if let Some(past) = self.live.recorded(&open).await? {
            return self.replayed(open, None, past).await;
        }
        if let Some(check) = &self.live.check {
            self.live.unrecorded(check, &open.identity).await;
        }
        let is_patched = self.live.patch(&open.identity);
        open.close();
        Ok(is_patched)
    }

    /// Compares a recorded step with the code, which gives it another input now: the closure, which touches nothing, is
    /// run again. An equal result is kept, and the run goes on; a different one blocks the run.
    pub(super) async fn compared<T: Serialize + DeserializeOwned>(
        &self,
        open: Open,
        hash: RequestHash,
        past: PastStep,
        closure: impl FnOnce() -> T,
    ) -> Result<T, Failure> {
        let now = {
            let _inside = self.live.inside();
            Payload::of(&closure())
        };
        let now = match now {
            Ok(now) => now,
            Err(error) => return Err(self.live.shown(open, error.into()).await),
        };
        let then: serde_json::Value = self.value(&open.identity, past).await?;
        let then = Payload::of(&then)?;
        if now != then {
            let differs = diff(&then, &now).map_or_else(|error| error.to_string(), |diff| diff.to_string());
            let question = format!(
                "{}: the {} has another input than when it was recorded, and gives another result, which differs by {differs}. What is \
                 recorded stands. Restore the code, give the step a new name, or put the change behind `ctx.patched`. Then go on, or \
                 abandon the run?",
                self.live.id, open.identity
            );
            return self.block(QuestionKind::Diverged, question).await;
        }
        self.live.adopt(&open.identity, hash);
        let value = now.decode()?;
        open.close();
        Ok(value)
    }
}
