//! A YAML file that declares tools: HTTP requests, processes, and tools of MCP servers. Feature `tool-file`.
//!
//! ```
//! use counterfoil::Engine;
//! use counterfoil::tool_file::ToolFile;
//!
//! let file = ToolFile::parse("
//! tools:
//!   refund:
//!     effect: payment
//!     contract: replays_key
//!     key: [/charge, /case]
//!     http:
//!       post: https://pay.example/charges/{charge}/refunds
//!       key_header: Idempotency-Key
//!       secret_headers: { authorization: 'Bearer ${PAY_KEY}' }
//! ")?;
//! let tools = file.tools(|name| (name == "PAY_KEY").then(|| "sk_test_1".to_owned()))?;
//! let engine = Engine::in_memory().dynamic_tools(tools);
//! # Ok::<(), counterfoil::tool_file::ToolFileError>(())
//! ```

mod build;
mod command;
mod file;
mod http;
#[cfg(all(feature = "mcp", feature = "sqlite"))]
mod mcp;

use crate::rim::policy::PolicyFinding;
use crate::rim::policy::findings::Findings;
use crate::rim::policy::place::Places;
use crate::rim::policy::read::read;
use crate::tool::DynamicTool;

/// Tools that are declared in a file. Its form was checked.
#[derive(Clone, Debug)]
pub struct ToolFile {
    file: file::File,
    places: Places,
}

/// The reason why the tools of a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolFileError {
    /// A field is unknown, missing or unsafe. Holds the findings, each with its line, its column and the text to write instead.
    #[error("the declared tools cannot be used: {} [configuration]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Findings(Vec<PolicyFinding>),
}

impl ToolFile {
    /// Reads the bytes of a file: UTF-8, YAML, at most 256 KiB. All declarations are checked; no secret is needed yet.
    ///
    /// # Errors
    /// [`ToolFileError`] if a field is unknown, missing or unsafe, with the line, the column and the text to write instead.
    ///
    /// ```
    /// use counterfoil::tool_file::{ToolFile, ToolFileError};
    /// let file = "tools:\n  pay:\n    http: { post: 'https://pay.example/' }\n    efect: payment\n";
    /// let Err(ToolFileError::Findings(findings)) = ToolFile::parse(file) else { panic!() };
    /// assert_eq!((findings[0].line, findings[0].instead.as_str()), (4, "`effect`"));
    /// ```
    pub fn parse(file: impl AsRef<[u8]>) -> Result<Self, ToolFileError> {
        let (file, places) = read(file.as_ref()).map_err(|finding| ToolFileError::Findings(vec![finding]))?;
        let mut findings = Findings::new(places.clone());
        let tools = build::tools(&mut findings, &file, &|_: &str| Some("x".to_owned()));
        build::register(&mut findings, tools);
        without(findings, Self { file, places })
    }

    /// The tools, for [`Engine::dynamic_tools`](crate::flow::EngineBuilder::dynamic_tools) or
    /// [`Executor`](crate::Executor). `variable` gives the value of an environment variable that the file names for a secret:
    /// `|name| std::env::var(name).ok()`.
    ///
    /// # Errors
    /// [`ToolFileError`] if a variable has no value, or one that cannot stand in its place.
    pub fn tools(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<DynamicTool>, ToolFileError> {
        let mut findings = Findings::new(self.places.clone());
        let tools = build::tools(&mut findings, &self.file, &variable);
        without(findings, tools.into_iter().map(|(_, tool)| tool).collect())
    }
}

/// The value, if nothing is wrong with it.
fn without<T>(findings: Findings, value: T) -> Result<T, ToolFileError> {
    let findings = findings.into_findings();
    if findings.is_empty() { Ok(value) } else { Err(ToolFileError::Findings(findings)) }
}
