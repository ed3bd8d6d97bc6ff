//! A model that follows a script: for tests, simulations and examples.

use std::fmt;
use std::sync::Arc;

use super::message::{Message, Prompt, Reply};
use super::model::Model;
use crate::tool::{Call, ToolError};

type Script = dyn Fn(&Prompt) -> Reply + Send + Sync;

/// A model whose reply is a function of the prompt. Clones follow the same script.
#[derive(Clone)]
pub struct Scripted(Arc<Script>);

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scripted").finish()
    }
}

impl Scripted {
    /// A model that replies with the result of this function.
    pub fn new(script: impl Fn(&Prompt) -> Reply + Send + Sync + 'static) -> Self {
        Self(Arc::new(script))
    }

    /// A model that gives these replies in turn. The number of assistant messages in the conversation selects the
    /// reply; after the last reply, the model repeats it.
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
