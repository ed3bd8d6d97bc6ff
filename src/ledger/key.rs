//! Operation keys: the semantic identity of one logical tool call, never random and never a time.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::id::{RunName, Tenant};
use crate::payload::hex;

/// The reach of a key. The tenant is part of every key, so no key reaches beyond its tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// One operation type: the default, and the narrowest scope that needs no further name.
    #[default]
    Operation,
    /// One user within the operation type.
    User(String),
    /// All operation types of the tenant: one key is one effect, whatever its type.
    Tenant,
}

/// The identity of a tool call: "send this approved notice once". The tool builds the key from its input.
///
/// ```
/// use counterfoil::{Key, Tenant};
/// let tenant = Tenant::new("acme")?;
/// let key = Key::of("send_notice").target("case:9").operation("draft 4").render()?;
/// assert_eq!(key.as_str(), "send_notice:case%3A9:draft 4");
/// // Parts are escaped: no two different tuples give one key.
/// assert_ne!(Key::of("t").target("a:b").operation("c").render()?,
///            Key::of("t").target("a").operation("b:c").render()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Key {
    kind: String,
    parts: Vec<(Part, String)>,
    scope: Scope,
    revision: u32,
    hashed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Target,
    Operation,
    Given,
    Derived,
    Run,
    Turn,
    Step,
    Nth,
}

impl Key {
    /// The maximum length of a rendered key, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Begins a key for an operation type, usually the tool's name.
    pub fn of(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), parts: Vec::new(), scope: Scope::default(), revision: 0, hashed: false }
    }

    /// A key that the client gave: any string, for example one from [`client_key`](crate::client_key).
    pub fn given(kind: impl Into<String>, key: impl Into<String>) -> Self {
        Self::of(kind).with(Part::Given, key)
    }

    /// A key derived from named fields (source type, source id, revision or content hash, action): the SHA-256 of
    /// their names and values, each with its length, so that two different lists never give one key.
    pub fn derived<'a>(
        kind: impl Into<String>,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut hasher = Sha256::new_with_prefix(b"counterfoil/key/1\0");
        let mut fields = fields.into_iter().peekable();
        if fields.peek().is_none() {
            // An empty list is refused when it is rendered, like every empty part: otherwise all such keys would be
            // one.
            return Self::of(kind).with(Part::Derived, "");
        }
        for text in fields.flat_map(|(name, value)| [name, value]) {
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text);
        }
        Self::of(kind).with(Part::Derived, hex(&hasher.finalize()))
    }

    /// The identity of a call inside one run, for tools without a key of their own: the id that the code of the run
    /// gave the call.
    pub(crate) fn in_run(kind: impl Into<String>, run: RunName, turn: u32, id: impl Into<String>) -> Self {
        Self::within(kind, run, turn).with(Part::Step, id)
    }

    /// The identity of a call inside one run, by the ordinal of the call. No id that code gives renders alike.
    pub(crate) fn nth_in_run(kind: impl Into<String>, run: RunName, turn: u32, nth: &str) -> Self {
        Self::within(kind, run, turn).with(Part::Nth, nth)
    }

    fn within(kind: impl Into<String>, run: RunName, turn: u32) -> Self {
        let key = Self::of(kind).with(Part::Run, run.text());
        if turn > 0 { key.with(Part::Turn, turn.to_string()) } else { key }
    }

    /// The operation type.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Sets the target of the operation: a case, an account, an order.
    #[allow(clippy::needless_pass_by_value, reason = "`.target(id)` and `.target(&id)` both read well")]
    pub fn target(self, target: impl ToString) -> Self {
        self.with(Part::Target, target.to_string())
    }

    /// Sets the operation on the target: the id of a draft, a revision, a due date.
    #[allow(clippy::needless_pass_by_value, reason = "`.operation(id)` and `.operation(&id)` both read well")]
    pub fn operation(self, operation: impl ToString) -> Self {
        self.with(Part::Operation, operation.to_string())
    }

    /// Sets the reach of the key.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// The same operation once more, on purpose: for an effect that was compensated, or must be done again. Revision
    /// 0 is the first.
    pub fn revision(mut self, revision: u32) -> Self {
        self.revision = revision;
        self
    }

    /// Hashes the parts if the key is too long, instead of refusing the key.
    pub fn hashed(mut self) -> Self {
        self.hashed = true;
        self
    }

    fn with(mut self, part: Part, text: impl Into<String>) -> Self {
        self.parts.push((part, text.into()));
        self
    }

    /// Checks the parts and renders the key without its tenant: rows hold the tenant beside the key.
    pub fn render(&self) -> Result<OperationKey, KeyError> {
        let mut text = String::with_capacity(64);
        match &self.scope {
            Scope::Operation => escape("operation type", &self.kind, &mut text)?,
            Scope::Tenant => text.push_str("~tenant"),
            Scope::User(user) => {
                escape("operation type", &self.kind, &mut text)?;
                text.push_str(":~user:");
                escape("user", user, &mut text)?;
            }
        }
        if self.parts.is_empty() {
            return Err(KeyError::Empty { part: "target" });
        }
        for (i, (part, value)) in self.parts.iter().enumerate() {
            // A target followed by an operation is the common form and has no markers. A part in any other place is
            // marked: otherwise a target alone and an operation alone would be one key.
            let after_target = i == 1 && self.parts[0].0 == Part::Target;
            let (name, marker) = match part {
                Part::Target => ("target", if i == 0 { ":" } else { ":~target:" }),
                Part::Operation => ("operation", if after_target { ":" } else { ":~operation:" }),
                Part::Given => ("key", ":~key:"),
                Part::Derived => ("derived", ":~sha256:"),
                Part::Run => ("run", ":~"),
                Part::Turn => ("turn", ":~turn:"),
                Part::Step => ("id", ":"),
                Part::Nth => ("ordinal", ":~"),
            };
            text.push_str(marker);
            escape(name, value, &mut text)?;
        }
        let revision = if self.revision > 0 { format!("{REVISION}{}", self.revision) } else { String::new() };
        // Only a key that would be refused is hashed: a key that fits stays the same when `hashed()` is added later.
        if self.hashed && text.len() + revision.len() > Self::MAX_BYTES {
            text = long(&text);
        }
        text.push_str(&revision);
        if text.len() > Self::MAX_BYTES {
            return Err(KeyError::TooLong { bytes: text.len(), max: Self::MAX_BYTES });
        }
        Ok(OperationKey(text.into()))
    }
}

/// The text before the revision at the end of a key. No part of a key can hold this text.
pub(crate) const REVISION: &str = ":~revision:";

/// A rendered key without its revision, and the revision: 0 for the first.
pub(crate) fn unrevised(key: &str) -> (&str, u32) {
    let revised =
        key.rsplit_once(REVISION).and_then(|(first, revision)| Some((first, revision.parse().ok()?)));
    revised.unwrap_or((key, 0))
}

/// The hash that replaces a key that is too long.
fn long(text: &str) -> String {
    format!(
        "~long:{}",
        hex(&Sha256::new_with_prefix(b"counterfoil/long-key/1\0").chain_update(text).finalize())
    )
}

/// An id as a key holds it: without `:`, which separates the parts of a key, and `~`, which marks the engine's own
/// parts.
pub(crate) fn escaped(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    // Characters that no key can hold are refused when the key is rendered.
    let _ = escape("id", id, &mut text);
    text
}

/// Escapes a part: `:` separates parts, `~` marks the engine's own parts, `%` escapes. None of them is left in a
/// part.
fn escape(part: &'static str, value: &str, into: &mut String) -> Result<(), KeyError> {
    if value.is_empty() {
        return Err(KeyError::Empty { part });
    }
    for c in value.chars() {
        match c {
            ':' => into.push_str("%3A"),
            '~' => into.push_str("%7E"),
            '%' => into.push_str("%25"),
            c if c.is_control() => return Err(KeyError::Control { part }),
            c => into.push(c),
        }
    }
    Ok(())
}

/// A checked, rendered key: unique within its tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationKey(Arc<str>);

impl OperationKey {
    /// The rendered text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The rendered text of the key, as a shared string.
    pub(crate) fn text(&self) -> Arc<str> {
        self.0.clone()
    }

    /// The key of the same operation once more, on purpose: see [`Key::revision`]. A key that would be too long is
    /// hashed.
    pub(crate) fn next_revision(&self) -> Self {
        let (first, revision) = unrevised(&self.0);
        let revision = format!("{REVISION}{}", revision.saturating_add(1));
        let text = if first.len() + revision.len() > Key::MAX_BYTES { long(first) } else { first.to_owned() };
        Self((text + &revision).into())
    }

    /// A key that was read back from the store.
    pub(crate) fn stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The wire key: the key as it goes to the provider, at most `max` characters long, so that it fits a header, a
    /// URL and the common limits (25, 36, 64, 255). The wire key is a hash, never cut: keys with a common prefix stay
    /// distinct. Its letters are lower case, because some providers and some database collations treat `a` and `A` as
    /// equal. `namespace` separates two deployments that share a provider account.
    ///
    /// # Errors
    /// [`KeyError::WireTooShort`] below [`Self::WIRE_MIN`] characters.
    pub fn wire(&self, namespace: &str, tenant: &Tenant, max: usize) -> Result<String, KeyError> {
        if max < Self::WIRE_MIN {
            return Err(KeyError::WireTooShort { max });
        }
        Ok(self.wire_within(namespace, tenant, max))
    }

    /// The minimum key length that a provider must accept, in characters: 25 digits of base 36 hold 129 bits.
    pub const WIRE_MIN: usize = 25;

    /// The number of the rule by which [`wire`](Self::wire) makes keys. A record's declaration names the rule under
    /// which its key went out. A new rule gets a new number, and the old rule stays.
    pub const WIRE_RULE: u32 = 1;

    /// The wire key for a length that was checked when the tool was registered.
    pub(crate) fn wire_within(&self, namespace: &str, tenant: &Tenant, max: usize) -> String {
        let mut hasher = Sha256::new_with_prefix(b"counterfoil/wire/1\0");
        for text in [namespace, tenant.as_str(), self.as_str()] {
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text);
        }
        let digest = hasher.finalize();
        if max < 64 { base36(&digest.into(), max) } else { hex(&digest) }
    }
}

/// A digest in base 36, the lowest digit first, so that each digit of a shortened text is equally distributed: 50
/// digits, or the first `max` of them.
#[allow(clippy::cast_possible_truncation, reason = "`rest` is below 36, and so the quotient is below 256")]
fn base36(digest: &[u8; 32], max: usize) -> String {
    const DIGITS: usize = 50; // 36^50 > 2^256
    let mut number = *digest;
    let mut text = String::with_capacity(max.min(DIGITS));
    for _ in 0..max.min(DIGITS) {
        let rest = number.iter_mut().fold(0, |rest: u32, byte| {
            let part = rest << 8 | u32::from(*byte);
            *byte = (part / 36) as u8;
            part % 36
        });
        text.extend(char::from_digit(rest, 36));
    }
    text
}

impl fmt::Display for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason why a key was refused. Nothing was stored and nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A part has no characters: two different operations could get the same key.
    #[error("the key's {part} is empty: give what the operation is about [key]")]
    Empty {
        /// The name of the part.
        part: &'static str,
    },
    /// A part holds a control character, which headers and logs cannot carry.
    #[error("the key's {part} holds a control character: remove it [key]")]
    Control {
        /// The name of the part.
        part: &'static str,
    },
    /// The rendered key is too long.
    #[error("the key has {bytes} bytes, {max} at most: shorten its parts, or call `.hashed()` [key]")]
    TooLong {
        /// The length of the rendered key, in bytes.
        bytes: usize,
        /// The maximum length, in bytes.
        max: usize,
    },
    /// The provider allows too few characters for a key that cannot collide.
    #[error("a key of {max} characters cannot be unique: the provider must allow at least 25 [key]")]
    WireTooShort {
        /// The maximum key length of the provider, in characters.
        max: usize,
    },
}
