//! The reason why a command tool cannot be used as it is declared.

/// The reason why a command tool cannot be used as it is declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandToolError {
    /// An argument, an environment variable, the standard input, or an expected field is no template, or the lookup takes any answer
    /// for the effect.
    #[error("the command tool has a wrong {part}: {detail} [declaration]")]
    Template {
        /// The part of the declaration.
        part: &'static str,
        /// Description of the error.
        detail: String,
    },
    /// The program has no name, or one with a NUL byte.
    #[error("the command tool names no program: {program:?} [declaration]")]
    Program {
        /// The name.
        program: String,
    },
    /// An environment variable has a name or a value that no process can have. The value is not shown, because it may be a
    /// secret.
    #[error("the command tool has an environment variable {name:?} that no process can have [declaration]")]
    Variable {
        /// The name of the variable.
        name: String,
    },
    /// The program is to recognise the call's key, or the lookup goes by it, and the command does not get it.
    #[error(
        "the command tool {tool:?} relies on its program to recognise the key, or on a lookup by the key, and gives it no key: add \
         key_env, or `{{token}}` to an argument or to its standard input [declaration]"
    )]
    KeyNotSent {
        /// The name of the tool.
        tool: String,
    },
}
