//! The declaration of a command tool, step by step.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::exit::Exits;
use super::lookup::CommandLookup;
use super::process::Limits;
use super::template::{CommandTemplate, Given, Parts};
use super::{CommandTool, CommandToolError, Declared};
use crate::payload::Secret;
use crate::tool::declared::Meaning;
use crate::tool::declared::template::Json;

/// The declaration of a [`CommandTool`].
#[derive(Debug)]
#[must_use]
pub struct CommandToolBuilder {
    parts: Parts,
    exits: Exits,
    limits: Limits,
    keys: Vec<String>,
    lookup: Option<CommandLookup>,
    expected: Vec<(String, Value)>,
}

impl CommandToolBuilder {
    pub(super) fn new(program: String) -> Self {
        Self {
            parts: Parts { program, stdin: Given::Input, ..Parts::default() },
            exits: Exits::default(),
            limits: Limits { time: None, output: 1024 * 1024 },
            keys: Vec::new(),
            lookup: None,
            expected: Vec::new(),
        }
    }

    /// Gives the call's key to the command in this environment variable.
    pub fn key_env(self, name: impl Into<String>) -> Self {
        self.env(name, "{token}")
    }

    /// Adds an argument. It may have holes. It is one argument whatever its values are: no shell reads it.
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

    /// Adds an environment variable with a secret, which has no holes, and is neither logged nor recorded. A command's error
    /// text that repeats the secret is recorded without it. Never give a secret as an argument: other users of the machine
    /// see arguments.
    pub fn secret_env(mut self, name: impl Into<String>, value: Secret<String>) -> Self {
        self.parts.secrets.push((name.into(), value));
        self
    }

    /// Passes these variables of the engine's environment on. Without this, a command has `PATH`, `HOME`, `LANG`, `LC_ALL`,
    /// `TZ` and `TMPDIR` of the engine and its declared variables, and nothing else: the engine's environment may hold
    /// secrets.
    pub fn pass_env(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.parts.passed.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets the folder in which the command runs. Default: that of the engine.
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.parts.dir = Some(dir.into());
        self
    }

    /// Sets the JSON that the command reads from its standard input. Its texts may have holes; a text that is one hole
    /// becomes the value itself. Default: the input.
    pub fn stdin(mut self, json: impl Into<Value>) -> Self {
        self.parts.stdin = Given::Json(json.into());
        self
    }

    /// Gives the command an empty standard input.
    pub fn without_stdin(mut self) -> Self {
        self.parts.stdin = Given::None;
        self
    }

    /// Sets the meaning of an exit code. Default: 0 is done, and any other code is unknown. A command that was ended by a
    /// signal may have had its effect, whatever is declared.
    pub fn exit(mut self, code: i32, meaning: Meaning) -> Self {
        self.exits.codes.retain(|(declared, _)| *declared != code);
        self.exits.codes.push((code, meaning));
        self
    }

    /// Sets the JSON pointer to the provider's id for the effect, a text or a number in the standard output.
    pub fn external_id(mut self, pointer: impl Into<String>) -> Self {
        self.exits.external_id = Some(pointer.into());
        self
    }

    /// Sets the JSON pointer to the output of the call in the standard output. Default: the whole, which is null if it is
    /// empty.
    pub fn output(mut self, pointer: impl Into<String>) -> Self {
        self.exits.output = pointer.into();
        self
    }

    /// Declares that the standard output is a text and not JSON. The output of the call is the text without its last line
    /// break.
    pub fn text_output(mut self) -> Self {
        self.exits.is_text = true;
        self
    }

    /// Sets the maximum size of the standard output in bytes. Default: 1 MiB. A command that ends with success and has said
    /// more is of unknown outcome.
    pub fn max_output_bytes(mut self, bytes: usize) -> Self {
        self.limits.output = bytes;
        self
    }

    /// Sets the time after which the command and its process group are killed. The outcome is then unknown. Default: the time
    /// of the attempt, at which they are killed in any case.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limits.time = Some(timeout);
        self
    }

    /// Sets the fields of the input that make the key of a [`dynamic`](CommandTool::dynamic) tool: field names or JSON
    /// pointers to texts or numbers. A request without one of them is refused.
    pub fn key_fields(mut self, fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.keys = fields.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the lookup. What it finds is the output of the call.
    pub fn lookup(mut self, lookup: CommandLookup) -> Self {
        self.lookup = Some(lookup);
        self
    }

    /// Adds a field by which the lookup recognises the effect: the value at this JSON pointer in the thing that is found
    /// must be this one, which may have holes.
    pub fn expects(mut self, pointer: impl Into<String>, value: impl Into<Value>) -> Self {
        self.expected.push((pointer.into(), value.into()));
        self
    }

    /// Checks the declaration. The program is not looked for before the first call.
    ///
    /// # Errors
    /// [`CommandToolError`] if a template or the name of a variable is malformed, or the lookup takes any answer for the effect.
    pub fn build(self) -> Result<CommandTool, CommandToolError> {
        let command = CommandTemplate::read(&self.parts)?;
        let is_expected = !self.expected.is_empty();
        let expected = self.expected.iter().map(|(pointer, value)| {
            let wrong = |detail| CommandToolError::Template { part: "expected field", detail };
            Ok((pointer.clone(), Json::parse(value).map_err(wrong)?))
        });
        Ok(CommandTool(Arc::new(Declared {
            expected: expected.collect::<Result<_, CommandToolError>>()?,
            lookup: self.lookup.map(|lookup| lookup.build(&command, is_expected)).transpose()?,
            command,
            exits: self.exits,
            limits: self.limits,
            keys: self.keys,
        })))
    }
}
