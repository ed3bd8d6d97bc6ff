//! The reason why an MCP tool cannot be used as it is declared.

/// The reason why an MCP tool or its server cannot be used as it is declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum McpToolError {
    /// The arguments, the lookup, or an expected field is no template.
    #[error("the MCP tool has a wrong {part}: {detail} [declaration]")]
    Template {
        /// The part of the declaration.
        part: &'static str,
        /// Description of the error.
        detail: String,
    },
    /// The program, the URL or the tool has no name.
    #[error("the MCP {part} has no name [declaration]")]
    Name {
        /// The part of the declaration: `program` or `tool`.
        part: &'static str,
    },
    /// The lookup is a call of the tool itself, which writes.
    #[error(
        "the lookup of the MCP tool {tool:?} calls the tool itself: a lookup calls another tool, which reads [declaration]"
    )]
    Lookup {
        /// The name of the tool.
        tool: String,
    },
    /// A header has a name or a value that HTTP does not allow, or the URL is none of HTTP. A value is not shown, because it
    /// may be a secret.
    #[error("the requests to the MCP server cannot be made: {detail} [declaration]")]
    Header {
        /// Description of the error.
        detail: String,
    },
}
