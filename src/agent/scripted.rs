//! A model that follows a script: for tests, simulations and examples.

use std::fmt;
use std::sync::Arc;

use super::message::{Message, Prompt, Reply};
use super::model::Model;
use crate::tool::{Call, ToolError};

type Script = dyn Fn(&Prompt) -> Reply + Send + Sync;

/// A model whose reply is a function of what it is asked. Clones follow the same script.
#[derive(Clone)]
pub struct Scripted(Arc<Script>);

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scripted").finish()
    }
}

impl Scripted {
    /// Says what this function says.
    pub fn new(script: impl Fn(&Prompt) -> Reply + Send + Sync + 'static) -> Self {
        Self(Arc::new(script))
    }

    /// Says these in turn, by how often the conversation shows that it has spoken; the last one from then on.
    pub fn turns(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<_> = replies.into_iter().collect();
        Self::new(move |prompt| {
            let spoken = prompt.messages.iter().filter(|m| matches!(m, Message::Assistant { .. })).count();
            replies.get(spoken).or(replies.last()).cloned().unwrap_or_default()
        })
    }
}

impl Model for Scripted {
    async fn complete(&self, _: &Call, prompt: &Prompt) -> Result<Reply, ToolError> {
        Ok((self.0)(prompt))
    }
}
