//! The usage of model calls, in tokens and in money, as recorded with each call.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use super::message::Reply;
use super::model;
use crate::flow::{RunError, TenantClient};
use crate::id::RunId;
use crate::payload::MAX_EXACT_INTEGER;

/// The usage of one model call, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The number of calls; counted by the engine.
    #[serde(default)]
    pub calls: u64,
    /// The number of input tokens.
    pub input_tokens: u64,
    /// The number of output tokens.
    pub output_tokens: u64,
    /// The cost, in millionths of the currency of the model's prices.
    #[serde(default)]
    pub cost_micros: u64,
}

impl Usage {
    /// The usage of these numbers of tokens, at no price.
    pub const fn tokens(input: u64, output: u64) -> Self {
        Self { calls: 0, input_tokens: input, output_tokens: output, cost_micros: 0 }
    }

    /// The usage as that of one call, limited to exact JSON numbers, because a provider may claim any number.
    pub(super) fn of_one_call(self) -> Self {
        Self { calls: 1, ..self } + Self::default()
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let add = |a: u64, b: u64| a.saturating_add(b).min(MAX_EXACT_INTEGER);
        Self {
            calls: add(self.calls, other.calls),
            input_tokens: add(self.input_tokens, other.input_tokens),
            output_tokens: add(self.output_tokens, other.output_tokens),
            cost_micros: add(self.cost_micros, other.cost_micros),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(usages: I) -> Self {
        usages.fold(Self::default(), Add::add)
    }
}

impl TenantClient {
    /// The usage of a run's model calls so far, from their records. Attempts without a reply are not included,
    /// because their usage is unknown.
    pub async fn usage(&self, run: RunId) -> Result<Usage, RunError> {
        let replies = self.responses(run, model::is_model).await?;
        let replies = replies.iter().filter_map(|reply| reply.decode::<Reply>().ok());
        Ok(replies.map(|reply| reply.usage).sum())
    }
}
