//! The configuration file as it is written: its sections, and the meaning of their fields.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::rim::policy::plain::{Count, Truth};
use crate::rim::policy::section::section;
use crate::rim::policy::span::Span;
use crate::rim::policy::tool_word::{Approver, Effect, Offer, words};
use crate::rim::policy::word::{Pointer, SourceName};

section! {
    /// A gateway between one MCP client and its MCP servers.
    GatewayFile {
        /// The SQLite file of the ledger.
        ledger: String,
        /// The file with the keys of an encrypted ledger; the ledger is not encrypted unless it is said.
        keys: String,
        /// The file with the secret of a chain of evidence, or `none` for a chain without one; there is no chain unless it is said.
        chain: String,
        /// The name of the client. Calls that are alike are one operation only if they come from one client; `client` unless it is said.
        client: String,
        /// The tenant that owns the operations; the default tenant unless it is said.
        tenant: String,
        /// The time within which the same call is one operation; `10 min` unless it is said.
        window: Span,
        /// The servers, by name.
        servers: BTreeMap<SourceName, ServerSection>,
    }
}

section! {
    /// A server: a program that speaks MCP on its standard input and output, or a URL.
    ServerSection {
        /// The URL of a server that speaks MCP over streamable HTTP, in place of a program.
        url: String,
        /// Headers of each request to the URL. `${NAME}` in a value is an environment variable of the gateway.
        headers: BTreeMap<String, String>,
        /// The program.
        command: String,
        /// The arguments of the program.
        args: Vec<String>,
        /// Environment variables of the program, besides those of the gateway.
        env: BTreeMap<String, String>,
        /// The time within which the server must be ready; `30 s` unless it is said.
        ready_within: Span,
        /// The annotations of the server's tools that are believed; none unless it is said.
        trust: Vec<Hint>,
        /// The time within which the same call is one operation, if it is other than the file's.
        window: Span,
        /// The policies of the server's tools, by the server's own names for them.
        tools: BTreeMap<String, ToolSection>,
    }
}

section! {
    /// The policy of a tool.
    ToolSection {
        /// The effect of the tool on the world; `internal_mutation` unless it is said.
        effect: Effect,
        /// What the server offers for a call of unknown outcome; `lookup` if the tool has one, and otherwise `blind`.
        contract: Offer,
        /// The arguments that name the operation. Calls in which they are equal are one operation, for ever.
        key: Vec<Pointer>,
        /// The time within which the same call is one operation, if it is other than the server's.
        window: Span,
        /// The argument that takes the reference of the operation, for servers that store one.
        reference: Pointer,
        /// The place of the effect's id in the tool's answer.
        id: Pointer,
        /// The arguments that are not kept: a digest takes the place of each before anything is recorded.
        redact: Vec<Pointer>,
        /// The parts of the tool's answer that are not kept, and that the client does not get.
        redact_output: Vec<Pointer>,
        /// What an answer with `isError` means; `recorded` unless it is said.
        errors: Errors,
        /// The longest time that a call may take without a sign of progress; `5 min` unless it is said.
        timeout: Span,
        /// The time for which a request may still be on its way after the gateway died; 60 s or the timeout unless it is said.
        settle: Span,
        /// The time for which the server remembers a key; for ever unless it is said. A call of unknown outcome is not sent again after it.
        key_window: Span,
        /// The maximum length of a key that the server takes, in characters; 64 unless it is said.
        key_max: Count,
        /// The account, credential or region that the server scopes its keys to.
        scope: String,
        /// Who approves each call: a person for a notification and a deletion, and nobody for other effects, unless it is said.
        approval: Approver,
        /// The names of the people who may approve.
        reviewers: Vec<String>,
        /// The number of people who must approve; 1 unless it is said.
        quorum: Count,
        /// Whether the client's own user may approve, asked through the client; false unless it is said.
        elicit: Truth,
        /// The time for which the client's own user is asked; `5 min` unless it is said.
        elicit_within: Span,
        /// The way to find out what became of a call.
        lookup: LookupSection,
        /// The largest rate of calls; no limit unless it is said.
        quota: QuotaSection,
    }
}

section! {
    /// The largest rate of a tool's calls. A call that comes too early waits for its turn.
    QuotaSection {
        /// The number of calls within the time.
        calls: Count,
        /// The time.
        per: Span,
        /// The number of calls that may go out at once after a pause; 1 unless it is said.
        burst: Count,
    }
}

section! {
    /// A lookup: a call of another tool of the same server, which reads.
    LookupSection {
        /// The name of the tool that reads.
        tool: String,
        /// The arguments of the lookup. `{key}` in a text is the reference of the operation, and `{/title}` an argument of the call.
        arguments: BTreeMap<String, Value>,
        /// The place of the effect, or of a list of candidates, in the answer; the whole answer unless it is said.
        at: Pointer,
        /// What a candidate must have: places in it, each with the value there, in which `{key}` and `{/title}` stand for their values.
        matches: BTreeMap<Pointer, Value>,
        /// A text that the answer must contain, for servers that answer with a text.
        contains: String,
        /// The place of the effect's id in a candidate.
        id: Pointer,
        /// What an answer with `isError` means; `unknown` unless it is said.
        errors: LookupErrors,
        /// Whether the lookup may miss an effect for a while; false unless it is said.
        lags: Truth,
    }
}

words! {
    /// What an answer with `isError` means.
    Errors {
        /// It is the answer of the operation, and is given again.
        Recorded,
        /// Nothing was done: the same call may be made again.
        NotDone,
        /// Nobody knows what was done.
        Unknown,
    }
}

words! {
    /// What an answer of a lookup with `isError` means.
    LookupErrors {
        /// There is no such effect.
        NotFound,
        /// The lookup has no answer.
        Unknown,
    }
}

words! {
    /// An annotation of a tool, by which the server makes a claim about it.
    Hint {
        /// `readOnlyHint`: calls of such tools pass without a record.
        ReadOnly,
        /// `idempotentHint`: calls of such tools may be repeated when their outcome is unknown.
        Idempotent,
    }
}
