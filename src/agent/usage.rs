//! What model calls took, in tokens and in money, as it is recorded with each of them.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use super::message::Reply;
use super::model;
use crate::flow::{RunError, TenantClient};
use crate::id::RunId;
use crate::payload::MAX_EXACT_INTEGER;

/// What one model call took, or several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// How many calls; counted by the engine.
    #[serde(default)]
    pub calls: u64,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// In millionths of the currency that the model's prices are in.
    #[serde(default)]
    pub cost_micros: u64,
}

impl Usage {
    /// So many tokens, at no price.
    pub const fn tokens(input: u64, output: u64) -> Self {
        Self { calls: 0, input_tokens: input, output_tokens: output, cost_micros: 0 }
    }

    /// As that of one call, and as far as JSON carries numbers: a provider may claim anything.
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
    /// What the model calls of a run have taken so far, from their records. Attempts that brought no reply are not
    /// in it: nobody has said what they took.
    pub async fn usage(&self, run: RunId) -> Result<Usage, RunError> {
        let replies = self.responses(run, model::is_model).await?;
        let replies = replies.iter().filter_map(|reply| reply.decode::<Reply>().ok());
        Ok(replies.map(|reply| reply.usage).sum())
    }
}
