//! The lookup of a command's effect by another command, which reads.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::error::CommandToolError;
use super::exit::{json, said};
use super::process::{Limits, run};
use super::template::{CommandTemplate, Given, Parts};
use crate::ledger::{ErrorKind, LookupOffer, LookupResult, Sight};
use crate::payload::Secret;
use crate::tool::declared::template::Values;
use crate::tool::declared::{Recognition, without_secrets};
use crate::tool::lookup::{Expected, Rules, States, Token, unclear};
use crate::tool::{Call, ToolError};

/// A lookup by a command that changes nothing and prints JSON: a list that is searched, or one thing.
///
/// Only exit code 0 with the announced content is an answer. *Not found* is an empty list, or for one thing the declared
/// exit code. Any other code, a signal, an output that is cut off or of another form leaves the call ambiguous.
///
/// The command runs with the environment and in the folder of its tool, and with its own variables besides.
///
/// A lookup needs [`carries`](Self::carries), `{token}` in what it gives to its command by itself, or an
/// [expected field](super::CommandToolBuilder::expects) of its tool: any answer would count as the effect otherwise. For
/// [one thing](Self::one) a value of the input is enough.
#[derive(Clone, Debug)]
#[must_use]
pub struct CommandLookup {
    parts: Parts,
    shape: Shape,
    rules: Rules,
    limits: Limits,
}

#[derive(Clone, Debug)]
enum Shape {
    List { items: String },
    One { missing: i32 },
}

impl CommandLookup {
    /// The sight of this lookup.
    pub const SIGHT: Sight = Sight {
        by: "a command by client token",
        offer: LookupOffer::Strong,
        settle: Duration::from_mins(1),
        outlives_sender: true,
        knows: &["what the command shows under our token, at the moment of the lookup"],
        blind_spots: &[
            "a command whose view lags behind its writes: declare LookupOffer::Eventual after the sight",
            "a process of an engine that was killed, which still runs after the settle time",
            "effects that were deleted, archived or moved to another account since",
            "effects that other credentials than the lookup's may not see",
        ],
    };

    /// A lookup in a list: a JSON array at the pointer `items` ("" if the output itself is the array).
    pub fn list(program: impl Into<String>, items: impl Into<String>) -> Self {
        Self::of(program.into(), Shape::List { items: items.into() })
    }

    /// A lookup of one thing: exit code 0 shows it, and the exit code `missing` says that there is none.
    pub fn one(program: impl Into<String>, missing: i32) -> Self {
        Self::of(program.into(), Shape::One { missing })
    }

    fn of(program: String, shape: Shape) -> Self {
        let limits = Limits { time: Some(Duration::from_secs(10)), output: 4 * 1024 * 1024 };
        Self { parts: Parts { program, ..Parts::default() }, shape, rules: Rules::default(), limits }
    }

    /// Adds an argument, which may have holes.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.parts.args.push(arg.into());
        self
    }

    /// Adds arguments, which may have holes.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.parts.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable. Its value may have holes.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parts.env.push((name.into(), value.into()));
        self
    }

    /// Adds an environment variable with a secret: see [`CommandToolBuilder::secret_env`](super::CommandToolBuilder::secret_env).
    pub fn secret_env(mut self, name: impl Into<String>, value: Secret<String>) -> Self {
        self.parts.secrets.push((name.into(), value));
        self
    }

    /// Sets the folder in which the command runs. Default: that of its tool.
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.parts.dir = Some(dir.into());
        self
    }

    /// Sets the JSON that the command reads from its standard input. Its texts may have holes. Default: nothing.
    pub fn stdin(mut self, json: impl Into<Value>) -> Self {
        self.parts.stdin = Given::Json(json.into());
        self
    }

    /// Sets the time after which the command and its process group are killed, and the call stays ambiguous. Default: 10 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limits.time = Some(timeout);
        self
    }

    /// Sets the maximum size of the output in bytes. Default: 4 MiB. A larger output leaves the call ambiguous.
    pub fn max_output_bytes(mut self, bytes: usize) -> Self {
        self.limits.output = bytes;
        self
    }

    /// Sets the pointer to the provider's id in a thing. The id is a text or a number. Default: `/id`.
    pub fn id(mut self, pointer: impl Into<String>) -> Self {
        self.rules.id = pointer.into();
        self
    }

    /// Sets the pointer to our token in a thing. A thing with another token is not ours. A thing without the field leaves
    /// the call ambiguous; see [`carries_if_any`](Self::carries_if_any).
    pub fn carries(mut self, pointer: impl Into<String>) -> Self {
        self.rules.token = Some(Token { pointer: pointer.into(), may_lack: false });
        self
    }

    /// Sets the pointer to our token in our things, for a list to which others write, too. A thing without the field
    /// belongs to others.
    pub fn carries_if_any(mut self, pointer: impl Into<String>) -> Self {
        self.rules.token = Some(Token { pointer: pointer.into(), may_lack: true });
        self
    }

    /// Sets the words for a thing that is accepted and not finished, and the pointer to them. The thing is looked up
    /// again after this pause: see [`LookupResult::Pending`].
    pub fn pending(
        mut self,
        pointer: impl Into<String>,
        words: impl IntoIterator<Item = impl Into<String>>,
        look_again: Duration,
    ) -> Self {
        self.rules.pending = Some((States::of(pointer, words), look_again));
        self
    }

    /// Sets the words for a thing that had no effect and will have none, and the pointer to them: see
    /// [`LookupResult::Failed`].
    pub fn failed(
        mut self,
        pointer: impl Into<String>,
        words: impl IntoIterator<Item = impl Into<String>>,
        kind: ErrorKind,
    ) -> Self {
        self.rules.failed = Some((States::of(pointer, words), kind));
        self
    }

    /// Declares that the list begins with the newest: of several effects, the last one shown is the first one.
    pub fn newest_first(mut self) -> Self {
        self.rules.newest_first = true;
        self
    }

    /// The lookup of a tool, checked. `is_expected`: the effect is recognised by fields that the tool expects.
    pub(super) fn build(self, tool: &CommandTemplate, is_expected: bool) -> Result<Looks, CommandToolError> {
        let own = CommandTemplate::read(&self.parts)?;
        // The environment of the tool does not count: a lookup that ignores the key in it would take any answer.
        let recognition = Recognition {
            compares: self.rules.token.is_some() || is_expected,
            asks_by_key: own.has_token(),
            asks_for_one: matches!(self.shape, Shape::One { .. }) && own.has_holes(),
        };
        if !recognition.suffices() {
            let detail = Recognition::NONE.to_owned();
            return Err(CommandToolError::Template { part: "lookup", detail });
        }
        let goes_by_key = self.rules.token.is_some() || recognition.asks_by_key;
        let Self { shape, rules, limits, .. } = self;
        Ok(Looks { template: own.beneath(tool), shape, rules, limits, goes_by_key })
    }
}

/// A lookup that was checked.
pub(super) struct Looks {
    template: CommandTemplate,
    shape: Shape,
    rules: Rules,
    limits: Limits,
    goes_by_key: bool,
}

impl Looks {
    /// True if the lookup finds only what carries the call's key.
    pub(super) const fn goes_by_key(&self) -> bool {
        self.goes_by_key
    }

    pub(super) async fn find<T>(
        &self,
        call: &Call,
        values: Values<'_>,
        expected: &Expected,
        output: impl Fn(Value) -> Result<T, serde_json::Error>,
    ) -> Result<LookupResult<T>, ToolError> {
        let shown = match self.template.fill(values) {
            Ok(invocation) => self.things(run(invocation, self.limits).await),
            Err(error) => Err(error),
        };
        let things =
            shown.map_err(|error| unclear(without_secrets(&error.message, self.template.secrets())))?;
        self.rules.finding(things, call.into(), expected, output)
    }

    /// The things that the command shows.
    fn things(&self, ended: Result<super::process::Ended, ToolError>) -> Result<Vec<Value>, ToolError> {
        let ended = ended?;
        let code = ended.status.code();
        if matches!(self.shape, Shape::One { missing } if code == Some(missing)) {
            return Ok(Vec::new());
        }
        if code != Some(0) {
            return Err(unclear(format!("the lookup ended with {}", said(&ended))));
        }
        if !ended.whole {
            return Err(unclear(format!("the lookup's output has more than {} bytes", ended.output.len())));
        }
        let mut shown = json(&ended.output)
            .map_err(|error| unclear(format!("the lookup's output is no JSON: {error}")))?;
        match &self.shape {
            Shape::List { items } => match shown.pointer_mut(items).map(Value::take) {
                Some(Value::Array(things)) => Ok(things),
                _ => Err(unclear(format!("the lookup's output has no list at {items:?}"))),
            },
            Shape::One { .. } if shown.is_object() => Ok(vec![shown]),
            Shape::One { .. } => Err(unclear("the lookup's output is no JSON object")),
        }
    }
}
