//! Keys for encryption, and where they come from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use zeroize::Zeroizing;

use super::cipher::{DigestCipher, TextCipher};
use crate::id::Tenant;
use crate::payload::{DigestKey, Encrypted, hex, unhex};

/// A key for encryption: 32 random bytes, and an id by which texts name the key that they were encrypted under.
#[derive(Clone)]
pub struct EncryptionKey {
    pub(super) id: Box<str>,
    secret: Zeroizing<[u8; 32]>,
}

impl EncryptionKey {
    /// The maximum length of an id, in bytes.
    pub const MAX_ID_BYTES: usize = Encrypted::MAX_KEY_ID_BYTES;

    /// A key with an id of at most 32 letters, digits, `-`, `_` and `.`. The id is not secret: each encrypted text
    /// names it. Never give one id to two keys.
    ///
    /// # Errors
    /// [`KeyringError::Id`] if the id is another one.
    pub fn new(id: impl AsRef<str>, secret: [u8; 32]) -> Result<Self, KeyringError> {
        let id = id.as_ref();
        if !Encrypted::is_key_id(id) {
            return Err(KeyringError::Id { id: id.to_owned() });
        }
        Ok(Self { id: id.into(), secret: Zeroizing::new(secret) })
    }

    /// The id of the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A key for one purpose, from which nothing about this one, or about that for another purpose, can be derived.
    pub(super) fn derived(&self, purpose: &str) -> [u8; 32] {
        DigestKey::new(*self.secret).digest(format!("counterfoil/encryption/1/{purpose}").as_bytes())
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptionKey({})", self.id)
    }
}

/// The keys of a tenant, cheap to clone. New texts are encrypted under one of them, and texts under all of them can be read.
///
/// The first key stays for as long as the tenant has rows: the digests of requests and of large payloads are encrypted
/// under it.
///
/// ```
/// use counterfoil::store::encryption::{EncryptionKey, TenantKeys};
///
/// # let (old, new) = ([1; 32], [2; 32]);
/// let keys = TenantKeys::new(EncryptionKey::new("2026-11", old)?);
/// // A key is rotated in two steps, so that each process can read what another one writes: first all processes learn
/// // the new key, then they use it.
/// let learned = keys.clone().reads(EncryptionKey::new("2027-01", new)?);
/// let used = keys.writes(EncryptionKey::new("2027-01", new)?);
/// # Ok::<(), counterfoil::store::encryption::KeyringError>(())
/// ```
#[derive(Clone)]
pub struct TenantKeys {
    pub(super) digests: Arc<DigestCipher>,
    check: [u8; 32],
    texts: Arc<[Arc<TextCipher>]>,
    /// The position of the key for new texts.
    writes: usize,
}

#[allow(clippy::needless_pass_by_value, reason = "the ciphers take the place of the keys")]
impl TenantKeys {
    /// The keys of a tenant that has one key.
    pub fn new(first: EncryptionKey) -> Self {
        Self {
            digests: Arc::new(DigestCipher::of(&first)),
            check: first.derived("check"),
            texts: [Arc::new(TextCipher::of(&first))].into(),
            writes: 0,
        }
    }

    /// Adds a key under which texts can be read.
    #[must_use]
    pub fn reads(self, key: EncryptionKey) -> Self {
        let added = Arc::new(TextCipher::of(&key));
        let texts = self.texts.iter().cloned().chain([added]).collect();
        Self { texts, ..self }
    }

    /// Adds a key under which texts can be read and new texts are encrypted.
    #[must_use]
    pub fn writes(self, key: EncryptionKey) -> Self {
        let writes = self.texts.len();
        Self { writes, ..self.reads(key) }
    }

    /// A digest by which a wrong first key is recognised. It shows nothing of the key.
    pub(crate) fn check(&self) -> String {
        hex(&self.check)
    }

    /// The keys, with each key in turn as the one for new texts: first the one that is.
    pub(super) fn each(&self) -> impl Iterator<Item = Self> {
        let others = (0..self.texts.len()).filter(|writes| *writes != self.writes);
        std::iter::once(self.writes).chain(others).map(|writes| Self { writes, ..self.clone() })
    }

    /// The cipher for new texts.
    pub(super) fn cipher(&self) -> &TextCipher {
        &self.texts[self.writes]
    }

    /// The cipher of a text that names this key.
    pub(super) fn named(&self, id: &str) -> Option<&TextCipher> {
        self.texts.iter().find(|cipher| *cipher.id == *id).map(|cipher| &**cipher)
    }
}

impl fmt::Debug for TenantKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.texts.iter().map(|cipher| &cipher.id)).finish()
    }
}

/// The source of the tenants' keys, which lies outside of the ledger's database: a file, a secret store, a key
/// management service.
///
/// It is asked for each change and for each row that is read, so it answers from memory. A key that it no longer has
/// makes its texts unreadable, also those in backups: dropping the keys of a tenant erases what the tenant's texts say.
pub trait EncryptionKeys: Send + Sync + 'static {
    /// The keys of a tenant; `None` if there are none. Nothing is then written for the tenant, and reading its rows is
    /// an error.
    fn of(&self, tenant: &Tenant) -> Option<TenantKeys>;
}

/// The same keys for all tenants.
impl EncryptionKeys for TenantKeys {
    fn of(&self, _: &Tenant) -> Option<TenantKeys> {
        Some(self.clone())
    }
}

impl<K: EncryptionKeys + ?Sized> EncryptionKeys for Arc<K> {
    fn of(&self, tenant: &Tenant) -> Option<TenantKeys> {
        (**self).of(tenant)
    }
}

/// Keys from a text with a line for each key:
///
/// ```text
/// # tenant   id        secret: 64 hexadecimal digits
/// *          2026-11   9f1c…
/// *          2027-01   02ab…   write
/// acme       acme-1    77d0…
/// globex     dropped
/// ```
///
/// `*` stands for the tenants that have no line of their own. A tenant with white space or `#` in its name needs a source of
/// keys of your own. The first key of a tenant must stay while the tenant has
/// rows. New texts are encrypted under the key that is marked `write`, or under the first one. Whoever puts `dropped` in place of the
/// keys of a tenant erases what its texts say, and nothing more is written for it. Where there is no `*`, its lines may be removed
/// as well; with `*`, the tenant would go on under the common keys.
///
/// ```
/// use counterfoil::Tenant;
/// use counterfoil::store::encryption::{EncryptionKeys, Keyring};
///
/// let line = |tenant: &str, id: &str, digit: &str| format!("{tenant} {id} {}\n", digit.repeat(64));
/// let keyring = Keyring::parse(&(line("acme", "acme-1", "a") + &line("globex", "globex-1", "b")))?;
/// assert!(keyring.of(&Tenant::new("acme")?).is_some());
/// keyring.replace(&line("globex", "globex-1", "b"))?; // the texts of acme are erased
/// assert!(keyring.of(&Tenant::new("acme")?).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Keyring {
    keys: RwLock<Arc<ByTenant>>,
}

/// The keys by tenant, those of all other tenants under `*`. `None` if the tenant's keys were dropped.
type ByTenant = BTreeMap<String, Option<TenantKeys>>;

pub(crate) const OTHERS: &str = "*";

impl Keyring {
    /// Reads keys from a text.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        Ok(Self { keys: RwLock::new(Arc::new(parsed(text)?)) })
    }

    /// Reads keys from a file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, KeyringError> {
        let path = path.as_ref();
        let unreadable = |error: std::io::Error| KeyringError::File {
            path: path.display().to_string(),
            detail: error.to_string(),
        };
        Self::parse(&Zeroizing::new(std::fs::read_to_string(path).map_err(unreadable)?))
    }

    /// Puts the keys of a text in place of the present ones, in a process that goes on working.
    ///
    /// # Errors
    /// The same as of [`parse`](Self::parse), and [`KeyringError::FirstKey`] if a tenant that has keys gets another first one.
    /// The present keys then stay.
    pub fn replace(&self, text: &str) -> Result<(), KeyringError> {
        let keys = parsed(text)?;
        let mut present = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        for (tenant, before) in present.iter() {
            let (Some(before), Some(Some(after))) = (before, keys.get(tenant)) else { continue };
            if before.check != after.check {
                return Err(KeyringError::FirstKey { tenant: tenant.clone() });
            }
        }
        *present = Arc::new(keys);
        Ok(())
    }

    /// The ids of the keys by tenant, those of all other tenants under `*`: first that of the first key. `None` if the
    /// tenant's keys were dropped.
    #[cfg(feature = "cli")]
    pub(crate) fn ids(&self) -> BTreeMap<String, Option<Vec<String>>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let ids = |keys: &TenantKeys| keys.texts.iter().map(|cipher| cipher.id.to_string()).collect();
        keys.iter().map(|(tenant, keys)| (tenant.clone(), keys.as_ref().map(ids))).collect()
    }
}

impl EncryptionKeys for Keyring {
    fn of(&self, tenant: &Tenant) -> Option<TenantKeys> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(tenant.as_str()).or_else(|| keys.get(OTHERS)).cloned().flatten()
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_map()
            .entries(keys.iter().filter_map(|(tenant, keys)| Some((tenant, keys.as_ref()?))))
            .finish()
    }
}

fn parsed(text: &str) -> Result<ByTenant, KeyringError> {
    let mut found = ByTenant::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<_> = line.split_whitespace().collect();
        let wrong = |reason: &'static str| KeyringError::Line { line: number + 1, reason };
        let has_both = || wrong("its tenant has keys: remove them, or the word `dropped`");
        let Some(tenant) = words.first() else { continue };
        if *tenant != OTHERS && Tenant::new(tenant).is_err() {
            return Err(KeyringError::Tenant { line: number + 1, tenant: (*tenant).to_owned() });
        }
        let (id, secret, is_written) = match words[1..] {
            ["dropped"] => {
                if found.insert((*tenant).to_owned(), None).is_some() {
                    return Err(has_both());
                }
                continue;
            }
            [id, secret] => (id, secret, false),
            [id, secret, "write"] => (id, secret, true),
            _ => return Err(wrong("it is not a tenant, an id, a secret, and perhaps `write`")),
        };
        let secret = Zeroizing::new(
            unhex::<32>(secret).ok_or_else(|| wrong("its secret is not 64 hexadecimal digits"))?,
        );
        let key = EncryptionKey::new(id, *secret)?;
        let keys = match found.remove(*tenant) {
            Some(None) => return Err(has_both()),
            Some(Some(keys)) if keys.named(id).is_some() => {
                return Err(wrong("its tenant has another key with this id"));
            }
            Some(Some(keys)) if is_written => keys.writes(key),
            Some(Some(keys)) => keys.reads(key),
            None => TenantKeys::new(key),
        };
        found.insert((*tenant).to_owned(), Some(keys));
    }
    if found.values().all(Option::is_none) {
        return Err(KeyringError::Empty);
    }
    Ok(found)
}

/// The reason why keys were refused. No message quotes a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyringError {
    /// The id of a key has another form.
    #[error(
        "{id:?} is no id of a key: give at most {} letters, digits, `-`, `_` and `.` [configuration]",
        EncryptionKey::MAX_ID_BYTES
    )]
    Id {
        /// The id, as it was given.
        id: String,
    },
    /// A line of the text cannot be read.
    #[error("line {line} of the keys cannot be read: {reason} [configuration]")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The reason.
        reason: &'static str,
    },
    /// A line names no tenant.
    #[error("line {line} of the keys names no tenant: {tenant:?} [configuration]")]
    Tenant {
        /// The number of the line, from 1.
        line: usize,
        /// The name, as it was given.
        tenant: String,
    },
    /// The first key of a tenant that stays is another one than before.
    #[error(
        "the first key of {tenant} is another one than before, and the digests of its rows are encrypted under that one: keep \
         its line before the others [configuration]"
    )]
    FirstKey {
        /// The tenant, or `*`.
        tenant: String,
    },
    /// The text holds no key.
    #[error(
        "the keys are empty: write one line with a tenant or `*`, an id, and 64 hexadecimal digits [configuration]"
    )]
    Empty,
    /// The file cannot be read.
    #[error("the keys at {path} cannot be read: {detail} [configuration]")]
    File {
        /// The path of the file.
        path: String,
        /// The message of the operating system.
        detail: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn line(tenant: &str, id: &str, digit: char, more: &str) -> String {
        format!("  {tenant}\t{id} {} {more}\n", String::from(digit).repeat(64))
    }

    #[test]
    fn tenants_have_their_own_keys_or_the_common_ones() {
        let text =
            ["# a comment\n\n", &line("*", "k1", 'a', ""), &line("acme", "own", 'b', "# theirs")].concat();
        let keyring = Keyring::parse(&text).unwrap();
        let id = |name: &str| keyring.of(&tenant(name)).unwrap().cipher().id.to_string();
        assert_eq!((id("acme").as_str(), id("other").as_str()), ("own", "k1"));
        assert!(keyring.of(&tenant("acme")).unwrap().named("k1").is_none());
        assert_eq!(format!("{keyring:?}"), r#"{"*": {"k1"}, "acme": {"own"}}"#);
    }

    #[test]
    fn a_tenant_whose_keys_are_dropped_does_not_go_on_under_the_common_ones() {
        let common = line("*", "k1", 'a', "");
        let keyring = Keyring::parse(&(common.clone() + &line("acme", "own", 'b', ""))).unwrap();
        keyring.replace(&(common.clone() + "acme dropped # 2026-11-28\n")).unwrap();
        assert!(keyring.of(&tenant("acme")).is_none());
        assert!(keyring.of(&tenant("other")).is_some());
        for both in
            [common.clone() + "acme dropped\n" + &line("acme", "own", 'b', ""), common + "* dropped\n"]
        {
            assert!(
                keyring.replace(&both).unwrap_err().to_string().contains("its tenant has keys"),
                "{both}"
            );
        }
        assert!(matches!(Keyring::parse("acme dropped"), Err(KeyringError::Empty)));
    }

    #[test]
    fn a_new_key_is_first_learned_and_then_used() {
        let one = line("*", "k1", 'a', "");
        let keyring = Keyring::parse(&one).unwrap();
        let ids = |keyring: &Keyring| {
            let keys = keyring.of(&tenant("t")).unwrap();
            (keys.cipher().id.to_string(), keys.named("k2").is_some(), keys.check)
        };
        let (_, _, check) = ids(&keyring);
        assert_eq!(ids(&keyring), ("k1".into(), false, check));
        keyring.replace(&(one.clone() + &line("*", "k2", 'b', ""))).unwrap();
        assert_eq!(ids(&keyring), ("k1".into(), true, check));
        keyring.replace(&(one.clone() + &line("*", "k2", 'b', "write"))).unwrap();
        assert_eq!(ids(&keyring), ("k2".into(), true, check));
        let other = keyring.replace(&(line("*", "k2", 'b', "write") + &one)).unwrap_err();
        assert_eq!(other, KeyringError::FirstKey { tenant: "*".into() });
        assert_eq!(ids(&keyring), ("k2".into(), true, check), "the keys stay");
    }

    #[test]
    fn bad_lines_are_refused_and_no_secret_is_quoted() {
        let good = line("*", "k1", 'a', "");
        let keyring = Keyring::parse(&good).unwrap();
        let secret = "e".repeat(63);
        for (text, expected) in [
            (String::new(), "the keys are empty"),
            (format!("* k1 {secret}"), "line 1 of the keys cannot be read: its secret is not 64"),
            (format!("{good}* k2 {secret}e read"), "line 2 of the keys cannot be read: it is not a tenant"),
            (format!("{good}{good}"), "line 2 of the keys cannot be read: its tenant has another key"),
            (format!("* k:1 {secret}e"), "\"k:1\" is no id of a key"),
            (format!("* {} {secret}e", "k".repeat(33)), "is no id of a key"),
            (format!("{} k1 {secret}e", "t".repeat(65)), "line 1 of the keys names no tenant"),
        ] {
            let error = keyring.replace(&text).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains(&secret), "{error}");
        }
        assert!(keyring.of(&tenant("t")).is_some(), "the keys stay");
        assert!(matches!(Keyring::read("/nowhere/keys"), Err(KeyringError::File { .. })));
        let key = EncryptionKey::new("k", [7; 32]).unwrap();
        assert_eq!(format!("{key:?}"), "EncryptionKey(k)");
        assert_eq!(format!("{:?}", TenantKeys::new(key)), r#"{"k"}"#);
    }
}
