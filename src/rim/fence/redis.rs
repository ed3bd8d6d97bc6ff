//! The fence on a Redis server.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value};

use super::{Claimed, FenceError, FenceToken, KeyFence, checked_size, entry_name};

/// The prefix of a pending entry; its token follows.
const PENDING: &[u8] = b"pending ";
/// The prefix of a sealed entry; its value follows.
const SEALED: &[u8] = b"sealed ";
/// The maximum time to live: Redis refuses some longer ones.
const LONGEST: Duration = Duration::from_hours(24 * 365 * 100);

/// Replaces the pending entry of a token by its sealed value. A seal that is repeated because its answer was lost
/// finds its own value.
const SEAL: &str = "
local now = redis.call('GET', KEYS[1])
if now == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 1
end
return now == ARGV[2] and 1 or 0";
const RELEASE: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0";

/// A fence on a Redis server, 6 or later. Feature `redis`.
///
/// The fence connects on first use, and again after each loss of its connection. One connection carries the questions
/// of all tasks. Entries are named by a prefix and the SHA-256 of the key, in hexadecimal.
///
/// Built without TLS: for `rediss://` add redis 1 with one of its TLS features to your own dependencies.
///
/// ```
/// # fn fence() -> Result<(), counterfoil::fence::FenceError> {
/// use counterfoil::fence::RedisFence;
///
/// let fence = RedisFence::new("redis://127.0.0.1:6379/0")?.prefix("shop:");
/// # let _ = fence;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisFence {
    client: Client,
    prefix: String,
    time_limit: Duration,
    connection: Arc<Mutex<Connection>>,
    scripts: Arc<Scripts>,
}

impl fmt::Debug for RedisFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFence").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

struct Scripts {
    seal: Script,
    release: Script,
}

/// The connection that all tasks share, with its number, which counts the connections that were dropped.
#[derive(Default)]
struct Connection {
    number: u64,
    open: Option<ConnectionManager>,
}

impl RedisFence {
    /// A fence on the server at this address: `redis://user:password@host:6379/0`. The constructor does not connect.
    ///
    /// # Errors
    /// [`FenceError::Address`] if the address is invalid.
    pub fn new(url: &str) -> Result<Self, FenceError> {
        // The client's error detail may contain the address with its password; the error category does not.
        let client =
            Client::open(url).map_err(|error| FenceError::Address { detail: error.category().to_owned() })?;
        let scripts = Scripts { seal: Script::new(SEAL), release: Script::new(RELEASE) };
        Ok(Self {
            client,
            prefix: "counterfoil:fence:".to_owned(),
            time_limit: Duration::from_millis(500),
            connection: Arc::default(),
            scripts: Arc::new(scripts),
        })
    }

    /// Sets the prefix of the names of all entries. Default: `counterfoil:fence:`. Fences with one prefix share their
    /// keys.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets the time limit of each answer, and of each attempt to connect. Default: 500 ms.
    #[must_use]
    pub fn time_limit(self, time_limit: Duration) -> Self {
        // An open connection has the former limit, so it is dropped.
        Self { time_limit, connection: Arc::default(), ..self }
    }

    fn entry(&self, key: &str) -> String {
        format!("{}{}", self.prefix, entry_name(key))
    }

    /// A question on the shared connection.
    fn ask(&self) -> Result<Question<'_>, FenceError> {
        let mut connection = self.connection();
        let open = match &connection.open {
            Some(open) => open.clone(),
            None => {
                // Attempts are not repeated here, but by the next question.
                let config = ConnectionManagerConfig::new()
                    .set_number_of_retries(0)
                    .set_connection_timeout(Some(self.time_limit))
                    .set_response_timeout(Some(self.time_limit));
                let open = self.client.get_connection_manager_lazy(config).map_err(|error| failed(&error))?;
                connection.open.insert(open).clone()
            }
        };
        Ok(Question { fence: self, number: connection.number, connection: open, answered: false })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question in flight. If it fails or is dropped, its connection is dropped as well, and the next question connects
/// again: the address may lead to another server by now, and a network that drops packets reports no error.
struct Question<'a> {
    fence: &'a RedisFence,
    number: u64,
    connection: ConnectionManager,
    answered: bool,
}

impl Question<'_> {
    fn answered<A>(mut self, answer: RedisResult<A>) -> Result<A, FenceError> {
        let answer = answer.map_err(|error| failed(&error));
        // A server that is full or holds an unexpected entry is the right server all the same.
        self.answered = matches!(answer, Ok(_) | Err(FenceError::Full | FenceError::Damaged));
        answer
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut connection = self.fence.connection();
        if connection.number == self.number {
            *connection = Connection { number: self.number + 1, open: None };
        }
    }
}

impl KeyFence for RedisFence {
    fn kind(&self) -> &'static str {
        "redis"
    }

    async fn claim(
        &self,
        key: &str,
        token: &FenceToken,
        pending_for: Duration,
    ) -> Result<Claimed, FenceError> {
        let entry = self.entry(key);
        let pending = [PENDING, token.as_str().as_bytes()].concat();
        let mut both = redis::pipe();
        both.cmd("SET").arg(&entry).arg(&pending).arg("NX").arg("PX").arg(milliseconds(pending_for));
        both.cmd("GET").arg(&entry);
        both.ignore_errors();
        let mut question = self.ask()?;
        let answers = both.query_async::<Vec<RedisResult<Value>>>(&mut question.connection).await;
        let answer = answers.and_then(|answers| {
            let Ok([set, found]) = <[_; 2]>::try_from(answers) else {
                return Err((ErrorKind::UnexpectedReturnType, "two answers were expected").into());
            };
            let found = found.and_then(|found| Ok(redis::from_redis_value(found)?));
            claimed(&pending, set.map(|set| set != Value::Nil), found)
        });
        match question.answered(answer)? {
            Some(entry) => read(&entry),
            None => Ok(Claimed::New),
        }
    }

    async fn seal(
        &self,
        key: &str,
        token: &FenceToken,
        value: &[u8],
        sealed_for: Duration,
    ) -> Result<bool, FenceError> {
        checked_size(value)?;
        let mut question = self.ask()?;
        let answer = self
            .scripts
            .seal
            .key(self.entry(key))
            .arg([PENDING, token.as_str().as_bytes()].concat())
            .arg([SEALED, value].concat())
            .arg(milliseconds(sealed_for))
            .invoke_async(&mut question.connection)
            .await;
        question.answered(answer)
    }

    async fn release(&self, key: &str, token: &FenceToken) -> Result<bool, FenceError> {
        let mut question = self.ask()?;
        let answer = self
            .scripts
            .release
            .key(self.entry(key))
            .arg([PENDING, token.as_str().as_bytes()].concat())
            .invoke_async(&mut question.connection)
            .await;
        question.answered(answer)
    }
}

/// The entry that refuses the claim; `None` if the claim was made, now or by an earlier try of the same token.
///
/// A sealed entry counts even if the SET failed, on a server that is full or a replica: a sealed entry does not
/// change.
fn claimed(
    own: &[u8],
    set: RedisResult<bool>,
    found: RedisResult<Option<Vec<u8>>>,
) -> RedisResult<Option<Vec<u8>>> {
    match (set, found) {
        (Ok(true), _) => Ok(None),
        (_, Ok(Some(entry))) if entry == own => Ok(None),
        (_, Ok(Some(entry))) if entry.starts_with(SEALED) => Ok(Some(entry)),
        (Err(error), _) | (_, Err(error)) => Err(error),
        (Ok(false), Ok(Some(entry))) => Ok(Some(entry)),
        // The entry expired between the two commands: the next claim finds the key free.
        (Ok(false), Ok(None)) => Ok(Some(PENDING.to_vec())),
    }
}

fn read(entry: &[u8]) -> Result<Claimed, FenceError> {
    if let Some(value) = entry.strip_prefix(SEALED) {
        Ok(Claimed::Sealed(value.to_vec()))
    } else if entry.starts_with(PENDING) {
        Ok(Claimed::Pending)
    } else {
        Err(FenceError::Damaged)
    }
}

fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.min(LONGEST).as_millis()).unwrap_or(u64::MAX).max(1)
}

fn failed(error: &RedisError) -> FenceError {
    // The detail of an answer that was not understood contains the answer.
    let detail = || {
        let words = error.detail().filter(|_| error.code().is_some());
        words.unwrap_or_else(|| error.category()).to_owned()
    };
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => FenceError::Late,
        ErrorKind::Io => FenceError::Away { detail: error.to_string() },
        ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
            FenceError::Denied { detail: detail() }
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => FenceError::ReadOnly,
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown,
        ) => FenceError::Away { detail: detail() },
        _ => match error.code() {
            Some("OOM") => FenceError::Full,
            Some("NOAUTH" | "WRONGPASS") => FenceError::Denied { detail: detail() },
            Some("WRONGTYPE") => FenceError::Damaged,
            _ => FenceError::Refused { detail: detail() },
        },
    }
}
