//! A tool that is one process, from a declaration. Feature `tool-command`.

mod builder;
mod error;
mod exit;
mod lookup;
mod process;
mod template;

use std::future::Future;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use builder::CommandToolBuilder;
pub use error::CommandToolError;
pub use lookup::CommandLookup;

use exit::Exits;
use lookup::Looks;
use process::{Limits, run};
use template::CommandTemplate;

use super::declared::template::{Json, Values};
use super::declared::{Declaration, dynamic, expected, find, relies_on_key, send, without_secrets};
use super::{Call, Done, DynamicTool, ToolError};
use crate::ledger::{Contract, EffectClass, LookupResult};

/// A tool that is one process: its program, the meaning of its exit codes, and the lookup by another command.
///
/// The arguments, the environment variables and the standard input may have holes: `{field}` and `{/json/pointer}` are values
/// of the input, and `{token}` is the call's key. No shell reads them: a value is never more than one argument, and never an
/// option. The standard output is JSON, and the output of the call.
///
/// Each attempt starts one process, in a process group of its own. The group is killed when the attempt is cut off, and when the
/// first process has ended. An engine that is killed kills nothing: its process goes on, and the contract's
/// [settle time](Contract::settle) must cover it.
///
/// ```
/// use counterfoil::Engine;
/// use counterfoil::ledger::{Contract, ContractClass, EffectClass};
/// use counterfoil::payload::Secret;
/// use counterfoil::tool::Meaning;
/// use counterfoil::tool::command_tool::{CommandLookup, CommandTool};
///
/// let refund = CommandTool::new("refund-cli")
///     .args(["refund", "--charge={charge}", "--cents={cents}"])
///     .key_env("IDEMPOTENCY_KEY")
///     .secret_env("PAY_KEY", Secret::new("sk_test_1".to_owned()))
///     .exit(2, Meaning::Refused)
///     .exit(75, Meaning::Later)
///     .external_id("/id")
///     .key_fields(["charge", "case"])
///     .lookup(CommandLookup::list("refund-cli", "/refunds").args(["list", "--charge={charge}"]).carries("/key"))
///     .expects("/cents", "{cents}")
///     .build()?
///     .dynamic("refund", EffectClass::Payment, Contract::new(ContractClass::ReplaysKey))?;
/// let engine = Engine::in_memory().dynamic_tool(refund);
/// # Ok::<(), counterfoil::tool::command_tool::CommandToolError>(())
/// ```
///
/// A typed [`Tool`](super::Tool) holds a `CommandTool`, and calls [`send`](Self::send) and [`find`](Self::find).
#[derive(Clone)]
pub struct CommandTool(Arc<Declared>);

struct Declared {
    command: CommandTemplate,
    exits: Exits,
    limits: Limits,
    keys: Vec<String>,
    lookup: Option<Looks>,
    expected: Vec<(String, Json)>,
}

impl CommandTool {
    /// A tool that runs this program: a path, or a name that is looked for in `PATH`.
    #[allow(clippy::new_ret_no_self, reason = "a tool begins with its declaration, as an HTTP tool does")]
    pub fn new(program: impl Into<String>) -> CommandToolBuilder {
        CommandToolBuilder::new(program.into())
    }

    /// Runs the process of a call, once.
    ///
    /// # Errors
    /// [`ToolError`], sorted by what the process may have done. A second process within one attempt, and one after its
    /// attempt has ended, are not started: the error leaves the outcome of the attempt unknown.
    pub fn send<I, O>(
        &self,
        call: &Call,
        input: &I,
    ) -> impl Future<Output = Result<Done<O>, ToolError>> + Send + use<I, O>
    where
        I: Serialize + ?Sized,
        O: DeserializeOwned,
    {
        send(&self.0, call, input)
    }

    /// Looks for the effect of a call, by the declared lookup.
    ///
    /// # Errors
    /// [`ToolError`] if the lookup has not clearly shown the outcome, or no lookup is declared.
    pub fn find<I, O>(
        &self,
        call: &Call,
        input: &I,
    ) -> impl Future<Output = Result<LookupResult<O>, ToolError>> + Send + use<I, O>
    where
        I: Serialize + ?Sized,
        O: DeserializeOwned + Send,
    {
        find(&self.0, call, input)
    }

    /// The tool under this name, for [`Engine::dynamic_tool`](crate::flow::EngineBuilder::dynamic_tool) or
    /// [`Executor`](crate::Executor): add there what a command does not say, such as an approval, a quota or a description
    /// for a model. The declared lookup is added to the contract.
    ///
    /// # Errors
    /// [`CommandToolError::KeyNotSent`] if the contract or the lookup relies on a key that the command does not get.
    pub fn dynamic(
        &self,
        name: impl Into<String>,
        effect: EffectClass,
        contract: impl Into<Contract>,
    ) -> Result<DynamicTool, CommandToolError> {
        let (name, contract) = (name.into(), contract.into());
        // A lookup by a key that was never given finds nothing, and the call would be made again.
        let by_key = self.0.lookup.as_ref().is_some_and(Looks::goes_by_key);
        if (relies_on_key(&contract) || by_key) && !self.0.command.has_token() {
            return Err(CommandToolError::KeyNotSent { tool: name });
        }
        Ok(dynamic(&self.0, name, effect, contract))
    }
}

impl Declaration for Declared {
    const NOT_SENT: &'static str = "not started";

    async fn send(&self, call: &Call, input: &Value) -> Result<Done<Value>, ToolError> {
        let invocation = self.command.fill(Values { input, token: call.key() })?;
        call.claim_send()?;
        let time = [self.limits.time, call.time_left()].into_iter().flatten().min();
        let ended = run(invocation, Limits { time, ..self.limits }).await;
        let judged = ended.and_then(|ended| self.exits.judge(&ended));
        judged.map_err(|error| ToolError {
            message: without_secrets(&error.message, self.command.secrets()),
            ..error
        })
    }

    async fn find<O>(&self, call: &Call, input: &Value) -> Result<LookupResult<O>, ToolError>
    where
        O: DeserializeOwned + Send,
    {
        let Some(lookup) = &self.lookup else {
            return Err(ToolError::unknown("the command tool declares no lookup"));
        };
        let values = Values { input, token: call.key() };
        let expected = expected(&self.expected, values)?;
        lookup.find(call, values, &expected, serde_json::from_value).await
    }

    fn key_fields(&self) -> &[String] {
        &self.keys
    }

    fn blind_spots(&self) -> Option<&'static [&'static str]> {
        self.lookup.as_ref().map(|_| CommandLookup::SIGHT.blind_spots)
    }
}

impl std::fmt::Debug for CommandTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandTool").field("program", &self.0.command.program()).finish_non_exhaustive()
    }
}
