//! The start of a process: its program, arguments, environment and standard input, filled before anything is started.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::Value;

use super::error::CommandToolError;
use crate::payload::Secret;
use crate::tool::ToolError;
use crate::tool::declared::holds_secret;
use crate::tool::declared::template::{Json, Text, Values};

/// The variables of the engine's environment that a command has: what it needs to find programs, files and its language. Others may
/// hold the engine's own secrets.
const PASSED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// The parts of a declaration, as they are given.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) secrets: Vec<(String, Secret<String>)>,
    pub(super) passed: Vec<String>,
    pub(super) dir: Option<PathBuf>,
    pub(super) stdin: Given,
}

/// The standard input, as it is declared.
#[derive(Clone, Debug, Default)]
pub(super) enum Given {
    /// Empty.
    #[default]
    None,
    /// The input as JSON.
    Input,
    /// A JSON value with holes.
    Json(Value),
}

#[derive(Clone, Debug)]
enum Stdin {
    None,
    Input,
    Json(Json),
}

/// The parts of a declaration, read. It has no `Debug`, because it holds secrets.
#[derive(Clone)]
pub(super) struct CommandTemplate {
    program: String,
    args: Vec<Text>,
    env: Vec<(String, Text)>,
    secrets: Vec<(String, String)>,
    passed: Vec<String>,
    dir: Option<PathBuf>,
    stdin: Stdin,
}

/// A process that is ready to be started.
pub(super) struct Invocation {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, OsString)>,
    pub(super) dir: Option<PathBuf>,
    pub(super) stdin: Vec<u8>,
}

impl CommandTemplate {
    pub(super) fn read(parts: &Parts) -> Result<Self, CommandToolError> {
        let wrong = |part| move |detail| CommandToolError::Template { part, detail };
        if parts.program.is_empty() || parts.program.contains('\0') {
            return Err(CommandToolError::Program { program: parts.program.clone() });
        }
        let args = parts.args.iter().map(|arg| Text::parse(arg).map_err(wrong("argument")));
        let env = parts.env.iter().map(|(name, value)| {
            named(name)?;
            Ok((name.clone(), Text::parse(value).map_err(wrong("environment variable"))?))
        });
        let secrets = parts.secrets.iter().map(|(name, secret)| {
            named(name)?;
            let value = secret.expose().filter(|value| !value.contains('\0'));
            let value = value.ok_or_else(|| CommandToolError::Variable { name: name.clone() })?;
            Ok((name.clone(), value.clone()))
        });
        let stdin = match &parts.stdin {
            Given::None => Stdin::None,
            Given::Input => Stdin::Input,
            Given::Json(template) => Stdin::Json(Json::parse(template).map_err(wrong("standard input"))?),
        };
        parts.passed.iter().try_for_each(|name| named(name))?;
        Ok(Self {
            program: parts.program.clone(),
            args: args.collect::<Result<_, _>>()?,
            env: env.collect::<Result<_, _>>()?,
            secrets: secrets.collect::<Result<_, _>>()?,
            passed: parts.passed.clone(),
            dir: parts.dir.clone(),
            stdin,
        })
    }

    /// The same command with the environment of the tool, beneath its own.
    pub(super) fn beneath(mut self, tool: &Self) -> Self {
        self.env.splice(..0, tool.env.iter().cloned());
        self.secrets.splice(..0, tool.secrets.iter().cloned());
        self.passed.extend(tool.passed.iter().cloned());
        self.dir = self.dir.or_else(|| tool.dir.clone());
        self
    }

    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// True if the process gets the call's key.
    pub(super) fn has_token(&self) -> bool {
        let in_stdin = matches!(&self.stdin, Stdin::Json(template) if template.has_token());
        let mut texts = self.args.iter().chain(self.env.iter().map(|(_, value)| value));
        in_stdin || texts.any(Text::has_token)
    }

    /// True if the process gets a value of the call.
    pub(super) fn has_holes(&self) -> bool {
        let in_stdin = matches!(&self.stdin, Stdin::Json(template) if template.has_holes());
        let mut texts = self.args.iter().chain(self.env.iter().map(|(_, value)| value));
        in_stdin || texts.any(Text::has_holes)
    }

    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.secrets.iter().map(|(_, value)| value.as_str())
    }

    /// The process with these values.
    ///
    /// # Errors
    /// A refusal if the input does not fill the templates: nothing was started.
    pub(super) fn fill(&self, values: Values<'_>) -> Result<Invocation, ToolError> {
        if holds_secret(values.input) {
            let why = "not started: the input holds a `Secret`, which only a secret variable carries";
            return Err(ToolError::refused(why));
        }
        let passed = PASSED.into_iter().chain(self.passed.iter().map(String::as_str));
        let mut env: Vec<_> =
            passed.filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?))).collect();
        for (name, value) in &self.env {
            env.push((name.clone(), without_nul(value.fill(values)?)?.into()));
        }
        env.extend(self.secrets.iter().map(|(name, value)| (name.clone(), value.into())));
        let stdin = match &self.stdin {
            Stdin::None => Vec::new(),
            Stdin::Input => values.input.to_string().into_bytes(),
            Stdin::Json(template) => template.fill(values)?.to_string().into_bytes(),
        };
        Ok(Invocation {
            program: self.program.clone(),
            args: self.args(values)?,
            env,
            dir: self.dir.clone(),
            stdin,
        })
    }

    /// The arguments. A value at the beginning of an argument makes no option: `-` there is refused, unless the declaration has
    /// ended the options with `--`.
    fn args(&self, values: Values<'_>) -> Result<Vec<String>, ToolError> {
        let mut options_ended = false;
        let filled = self.args.iter().map(|arg| {
            let text = without_nul(arg.fill(values)?)?;
            if !options_ended && arg.has_holes() && arg.begin().is_empty() && text.starts_with('-') {
                return Err(ToolError::refused(
                    "not started: a value begins with `-`, and the program could take it for an option",
                ));
            }
            options_ended |= !arg.has_holes() && text == "--";
            Ok(text)
        });
        filled.collect()
    }
}

fn without_nul(text: String) -> Result<String, ToolError> {
    if text.contains('\0') {
        return Err(ToolError::refused("not started: a value has a NUL byte, which no argument can have"));
    }
    Ok(text)
}

fn named(name: &str) -> Result<(), CommandToolError> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(CommandToolError::Variable { name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn args(templates: &[&str], input: &Value) -> Result<Vec<String>, ToolError> {
        let args = templates.iter().map(ToString::to_string).collect();
        let parts = Parts { program: "pay".into(), args, ..Parts::default() };
        let filled = CommandTemplate::read(&parts).unwrap().fill(Values { input, token: "k1" });
        filled.map(|invocation| invocation.args)
    }

    #[test]
    fn a_value_is_one_argument_and_never_an_option() {
        let evil = json!({ "id": "--force $(rm) ; x", "n": -3 });
        assert_eq!(args(&["--id={id}"], &evil).unwrap(), ["--id=--force $(rm) ; x"]);
        assert_eq!(args(&["--", "{id}", "{n}"], &evil).unwrap(), ["--", "--force $(rm) ; x", "-3"]);
        assert!(args(&["{id}"], &evil).is_err());
        assert!(args(&["{n}", "--"], &evil).is_err());
        assert!(args(&["x", "a{id}"], &json!({ "id": "a\0b" })).is_err());
        assert!(args(&["{absent}"], &evil).is_err());
        // A value that is `--` ends no options.
        assert!(args(&["--id={id}", "{id}"], &json!({ "id": "--" })).is_err());
    }

    #[test]
    fn the_environment_is_the_declared_one() {
        let env = vec![("KEY".into(), "{token}".into()), ("PATH".into(), "/own".into())];
        let parts = Parts { program: "pay".into(), env, ..Parts::default() };
        let template = CommandTemplate::read(&parts).unwrap();
        assert!(template.has_token());
        let invocation = template.fill(Values { input: &json!({}), token: "k1" }).unwrap();
        let names: Vec<_> = invocation.env.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.iter().all(|name| PASSED.contains(name) || *name == "KEY"), "{names:?}");
        assert_eq!(invocation.env.last().unwrap(), &("PATH".into(), "/own".into()));
    }

    #[test]
    fn a_variable_that_no_process_can_have_is_refused_without_its_value() {
        for name in ["", "A=B", "A\0"] {
            let secrets = vec![(name.into(), Secret::new("sk_12345678".to_owned()))];
            let parts = Parts { program: "pay".into(), secrets, ..Parts::default() };
            let Err(error) = CommandTemplate::read(&parts) else { panic!("{name:?} is no name") };
            assert!(!format!("{error} {error:?}").contains("sk_"), "{error}");
        }
    }
}
