//! The rules by which a thing that a provider shows is recognised: by our token, its id and its state.

use std::time::Duration;

use serde_json::Value;

use super::expected::Expected;
use super::seen::{LookupTarget, Match, Tally, unclear};
use crate::ledger::{ErrorKind, LookupResult};
use crate::tool::ToolError;

/// The rules for the things in an answer, which is JSON.
#[derive(Clone, Debug)]
pub(in crate::tool) struct Rules {
    pub(in crate::tool) id: String,
    pub(in crate::tool) token: Option<Token>,
    pub(in crate::tool) newest_first: bool,
    pub(in crate::tool) pending: Option<(States, Duration)>,
    pub(in crate::tool) failed: Option<(States, ErrorKind)>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { id: "/id".into(), token: None, newest_first: false, pending: None, failed: None }
    }
}

/// The field with the state of a thing, and the words to look for in it.
#[derive(Clone, Debug)]
pub(in crate::tool) struct States {
    pointer: String,
    words: Vec<String>,
}

impl States {
    pub(in crate::tool) fn of(
        pointer: impl Into<String>,
        words: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self { pointer: pointer.into(), words: words.into_iter().map(Into::into).collect() }
    }

    /// The word in the thing's state, if it is one of these.
    fn said<'a>(&self, thing: &'a Value) -> Option<&'a str> {
        let said = thing.pointer(&self.pointer)?.as_str()?;
        self.words.iter().any(|word| word == said).then_some(said)
    }
}

/// The field with our token in a thing.
#[derive(Clone, Debug)]
pub(in crate::tool) struct Token {
    pub(in crate::tool) pointer: String,
    /// True if things that others have made may lack the field.
    pub(in crate::tool) may_lack: bool,
}

impl Rules {
    /// The result of a lookup that has shown these things. A thing with our token must also match `expected`.
    ///
    /// # Errors
    /// [`ToolError`] if a thing does not clearly show whose it is.
    pub(in crate::tool) fn finding<T>(
        &self,
        mut things: Vec<Value>,
        sought: LookupTarget<'_>,
        expected: &Expected,
        output: impl Fn(Value) -> Result<T, serde_json::Error>,
    ) -> Result<LookupResult<T>, ToolError> {
        if self.newest_first {
            things.reverse();
        }
        let mut tally = Tally::new();
        for thing in things {
            tally.take(self.judge(thing, sought, expected, &output)?);
        }
        tally.finding(sought.noted)
    }

    fn judge<T>(
        &self,
        thing: Value,
        sought: LookupTarget<'_>,
        expected: &Expected,
        output: impl Fn(Value) -> Result<T, serde_json::Error>,
    ) -> Result<Match<T>, ToolError> {
        if let Some(token) = &self.token
            && !self.is_ours(&thing, token, sought)?
        {
            return Ok(Match::Another);
        }
        if let Some(difference) = expected.difference(&thing) {
            return Ok(Match::Conflict(difference));
        }
        let id =
            self.id_of(&thing).ok_or_else(|| unclear(format!("a thing without an id at {:?}", self.id)))?;
        if let Some((states, look_again)) = &self.pending
            && states.said(&thing).is_some()
        {
            return Ok(Match::Pending { external_ref: id, look_again: *look_again });
        }
        if let Some((states, kind)) = &self.failed
            && let Some(said) = states.said(&thing)
        {
            return Ok(Match::Failed { kind: *kind, message: format!("{id} is {said}") });
        }
        let output = output(thing).map_err(|e| unclear(format!("{id} is of an unknown form: {e}")))?;
        Ok(Match::ours(output, id))
    }

    /// True if the thing carries our token.
    fn is_ours(&self, thing: &Value, token: &Token, sought: LookupTarget<'_>) -> Result<bool, ToolError> {
        let Token { pointer, may_lack } = token;
        match thing.pointer(pointer).map(Value::as_str) {
            Some(Some(carried)) => Ok(carried == sought.token),
            // A null token belongs to a thing that was made without one. With a wrong pointer all of our things would
            // seem so.
            Some(None) if thing.pointer(pointer).is_some_and(Value::is_null) => Ok(false),
            None if *may_lack && (sought.noted.is_none() || self.id_of(thing).as_deref() != sought.noted) => {
                Ok(false)
            }
            None if *may_lack => Err(unclear(format!(
                "the provider gave {:?} to this call, and that thing has no token at {pointer:?}: the pointer is wrong, or the call \
                 does not send the token",
                sought.noted.unwrap_or_default()
            ))),
            _ => Err(unclear(format!("a thing without a token at {pointer:?}"))),
        }
    }

    fn id_of(&self, thing: &Value) -> Option<String> {
        match thing.pointer(&self.id)? {
            Value::String(id) => Some(id.clone()),
            Value::Number(id) => Some(id.to_string()),
            _ => None,
        }
    }
}
