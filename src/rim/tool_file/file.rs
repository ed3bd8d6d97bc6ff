//! The file as it is written: its sections, and the meaning of their fields.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::rim::policy::plain::{Count, Truth};
use crate::rim::policy::section::section;
use crate::rim::policy::span::Span;
use crate::rim::policy::tool_word::{Approver, Effect, Offer, words};
use crate::rim::policy::word::{Header, Pointer, SourceName};
use crate::tool::Meaning;

section! {
    /// Tools that are declared.
    File {
        /// The tools, by name.
        tools: BTreeMap<String, ToolSection>,
        /// The MCP servers of the tools, by name.
        servers: BTreeMap<SourceName, ServerSection>,
    }
}

section! {
    /// A tool: one HTTP request, one process, or one call of an MCP server's tool.
    ToolSection {
        /// The HTTP request.
        http: HttpSection,
        /// The process.
        command: CommandSection,
        /// The call of an MCP server's tool.
        mcp: McpSection,
        /// The effect of the tool on the world; `internal_mutation` unless it is said.
        effect: Effect,
        /// What the provider offers for a call of unknown outcome; `lookup` if the tool has one, and otherwise `blind`.
        contract: Offer,
        /// The fields of the input that name the operation.
        key: Vec<Pointer>,
        /// The fields of the input that are not kept: a digest takes the place of each before anything is recorded.
        redact: Vec<Pointer>,
        /// The fields of the output that are not kept, and that the caller does not get.
        redact_output: Vec<Pointer>,
        /// The meaning of HTTP statuses or exit codes, where it differs from the usual one.
        means: MeansSection,
        /// The place of the effect's id in the answer.
        id: Pointer,
        /// The place of the output in the answer; the whole answer unless it is said.
        output: Pointer,
        /// The maximum size of an answer in bytes; 1 MiB unless it is said. Not for MCP.
        max_bytes: Count,
        /// The longest time of an attempt.
        timeout: Span,
        /// The number of attempts.
        attempts: Count,
        /// The time for which a request may still be on its way after its sender died.
        settle: Span,
        /// The time for which the provider remembers a key; for ever unless it is said. A call of unknown outcome is not sent again after it.
        key_window: Span,
        /// The maximum length of a key that the provider takes, in characters; 64 unless it is said.
        key_max: Count,
        /// The account, credential or region that the provider scopes its keys to.
        scope: String,
        /// Who approves each call: a person for a notification and a deletion, and nobody for other effects, unless it is said.
        approval: Approver,
        /// The names of the people who may approve.
        reviewers: Vec<String>,
        /// The number of people who must approve; 1 unless it is said.
        quorum: Count,
        /// The description of the tool for an agent's model.
        description: String,
        /// The JSON Schema of the input, for an agent's model.
        input: Value,
        /// The way to find out what became of a call.
        lookup: LookupSection,
    }
}

section! {
    /// One HTTP request. Its URL, headers and body may have holes.
    HttpSection {
        /// The URL of a POST.
        post: String,
        /// The URL of a PUT.
        put: String,
        /// The URL of a PATCH.
        patch: String,
        /// The URL of a DELETE.
        delete: String,
        /// The URL of a GET, for a tool that reads.
        get: String,
        /// The header with the call's key.
        key_header: Header,
        /// Further headers.
        headers: BTreeMap<String, String>,
        /// Headers with secrets. `${NAME}` is an environment variable.
        secret_headers: BTreeMap<String, String>,
        /// The JSON body; the input unless it is said.
        body: Value,
        /// Places in the body of an error, with the value by which it says that the key is known.
        duplicate: BTreeMap<Pointer, Value>,
        /// The header by which a refusal says that each request under the key gets it.
        replayed_header: Header,
        /// True if the effect's id is the last part of the header `Location`.
        id_from_location: Truth,
    }
}

section! {
    /// One process. Its arguments, variables and standard input may have holes.
    CommandSection {
        /// The program and its arguments.
        run: Vec<String>,
        /// The environment variable with the call's key.
        key_env: String,
        /// Further environment variables.
        env: BTreeMap<String, String>,
        /// Environment variables with secrets. `${NAME}` is an environment variable of the engine.
        secret_env: BTreeMap<String, String>,
        /// Variables of the engine's environment that are passed on.
        pass_env: Vec<String>,
        /// The folder in which the process runs; that of the engine unless it is said.
        folder: String,
        /// The JSON on its standard input; the input unless it is said.
        stdin: Value,
        /// False if its standard input is empty.
        reads_input: Truth,
        /// True if its output is a text and not JSON.
        text: Truth,
    }
}

section! {
    /// One call of a tool of an MCP server.
    McpSection {
        /// The name of the server, as `servers` has it.
        server: SourceName,
        /// The server's own name of the tool.
        tool: String,
        /// The arguments, which may have holes; the input unless it is said.
        arguments: Value,
        /// The argument that takes the call's key, for servers that store one.
        reference: Pointer,
        /// What an answer with `isError` means; `unknown` unless it is said.
        errors: Means,
    }
}

section! {
    /// An MCP server: a program, or a URL.
    ServerSection {
        /// The program.
        command: String,
        /// The arguments of the program.
        args: Vec<String>,
        /// Environment variables of the program, besides those of the engine. `${NAME}` is an environment variable of the engine.
        env: BTreeMap<String, String>,
        /// The URL of a server that speaks streamable HTTP.
        url: String,
        /// Headers of each request to the URL. `${NAME}` is an environment variable.
        secret_headers: BTreeMap<String, String>,
        /// The time within which the server must be ready; `30 s` unless it is said.
        ready_within: Span,
    }
}

section! {
    /// HTTP statuses, or exit codes, by what they mean.
    MeansSection {
        /// The call happened.
        done: Vec<u16>,
        /// The provider has accepted the call and finishes it by itself.
        accepted: Vec<u16>,
        /// Certainly nothing happened, and the same call would be refused again.
        refused: Vec<u16>,
        /// Certainly nothing happened, and the call goes again.
        later: Vec<u16>,
        /// The provider knows the key already.
        duplicate: Vec<u16>,
        /// The call may have happened.
        unknown: Vec<u16>,
    }
}

impl MeansSection {
    /// The statuses or codes, each with its meaning.
    pub(super) fn all(&self) -> impl Iterator<Item = (u16, Meaning)> {
        let lists = [
            (&self.done, Meaning::Done),
            (&self.accepted, Meaning::Accepted),
            (&self.refused, Meaning::Refused),
            (&self.later, Meaning::Later),
            (&self.duplicate, Meaning::Duplicate),
            (&self.unknown, Meaning::Unknown),
        ];
        let all = lists.into_iter().map(|(list, meaning)| (list.iter().flatten(), meaning));
        all.flat_map(|(list, meaning)| list.map(move |code| (*code, meaning)))
    }
}

section! {
    /// A lookup: a request, a command, or a call of another tool of the same server, which reads.
    LookupSection {
        /// The URL of a GET.
        get: String,
        /// The program and its arguments.
        run: Vec<String>,
        /// The name of the tool that reads.
        tool: String,
        /// The arguments of that tool.
        arguments: Value,
        /// The place of the list of candidates in the answer.
        at: Pointer,
        /// True if the answer itself is the list of candidates.
        list: Truth,
        /// The exit code that says that there is no effect. Without `at` and `list`, the command shows one thing.
        missing_exit: u8,
        /// True if an answer with `isError` says that there is no effect.
        missing_is_error: Truth,
        /// The place of the call's key in a candidate.
        token: Pointer,
        /// True if candidates of others may have nothing at that place.
        others_lack_token: Truth,
        /// What our effect has: places in it, each with its value, which may have holes.
        expects: BTreeMap<Pointer, Value>,
        /// A text that the answer must contain. For MCP alone.
        contains: String,
        /// The place of the effect's id in a candidate; `/id` unless it is said.
        id: Pointer,
        /// True if the list begins with the newest.
        newest_first: Truth,
        /// Whether the lookup may miss an effect for a while; false unless it is said.
        lags: Truth,
        /// The longest time of a lookup; `10 s` unless it is said. Not for MCP.
        timeout: Span,
    }
}

words! {
    /// The meaning of an answer.
    Means {
        /// The call happened.
        Done,
        /// The provider has accepted the call and finishes it by itself.
        Accepted,
        /// Certainly nothing happened, and the same call would be refused again.
        Refused,
        /// Certainly nothing happened, and the call goes again.
        Later,
        /// The provider knows the key already.
        Duplicate,
        /// The call may have happened.
        Unknown,
    }
}

impl Means {
    #[cfg(all(feature = "mcp", feature = "sqlite"))]
    pub(super) const fn meaning(self) -> Meaning {
        match self {
            Self::Done => Meaning::Done,
            Self::Accepted => Meaning::Accepted,
            Self::Refused => Meaning::Refused,
            Self::Later => Meaning::Later,
            Self::Duplicate => Meaning::Duplicate,
            Self::Unknown => Meaning::Unknown,
        }
    }
}
