//! Connections to the primary among several hosts, set up so that a commit that is answered is durable.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

use super::{Options, failure};
use crate::clock::{Boot, Clock as _, SystemClock};
use crate::id::{Entropy as _, SystemEntropy};
use crate::store::{OpenError, Outage, StoreError};

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The engine's own writing statements: always the same few.
    Writing,
    /// The engine's own queries, each of which has its index.
    Reading,
    /// The user's statements: the planner keeps its usual settings.
    Guest,
}

/// The options and hosts from which connections are made.
#[derive(Debug)]
pub(super) struct Connector {
    /// The options for each host, in the order of the URL.
    hosts: Vec<PgConnectOptions>,
    /// The index of the host that was the primary last.
    last: AtomicUsize,
    pub(super) options: Options,
    /// Whether the database is away. Each try that fails is told here, by whichever connection it was made.
    pub(super) outage: Arc<Outage>,
}

impl Connector {
    pub(super) fn new(url: &str, options: Options) -> Result<Self, OpenError> {
        if let Some(schema) = &options.schema {
            check_schema(schema)?;
        }
        let hosts = hosts(url)?;
        let outage = Arc::new(Outage::by(Arc::new(SystemClock)));
        Ok(Self { hosts, last: AtomicUsize::new(0), options, outage })
    }

    /// The hosts, database and schema without the password, for messages.
    pub(super) fn place(&self) -> String {
        let hosts: Vec<_> =
            self.hosts.iter().map(|host| format!("{}:{}", host.get_host(), host.get_port())).collect();
        let database = self.hosts.first().and_then(PgConnectOptions::get_database).unwrap_or("postgres");
        let schema = self.options.schema.as_ref().map(|schema| format!(" schema {schema}"));
        format!("{}/{database}{}", hosts.join(","), schema.unwrap_or_default())
    }

    pub(super) const fn has_standbys(&self) -> bool {
        self.hosts.len() > 1
    }

    /// The options for a listener of the driver: those of the host that was the primary last.
    pub(super) fn primary(&self) -> Option<&PgConnectOptions> {
        self.hosts.get(self.last.load(Ordering::Relaxed))
    }

    /// Connects to the first host that accepts writes, beginning with the last primary.
    pub(super) async fn connect(&self, purpose: Purpose) -> Result<PgConnection, StoreError> {
        let mut trouble = String::new();
        for attempt in 0..self.hosts.len() {
            let which = (self.last.load(Ordering::Relaxed) + attempt) % self.hosts.len();
            let Some(host) = self.hosts.get(which) else { continue };
            match self.connect_to(host, purpose).await {
                Ok(Some(connection)) => {
                    self.last.store(which, Ordering::Relaxed);
                    return Ok(connection);
                }
                Ok(None) => trouble = format!("{trouble}{} is a standby; ", host.get_host()),
                Err(StoreError::Open(error)) => return Err(error.into()),
                Err(error) => {
                    let detail = match error {
                        StoreError::Unreachable { detail } | StoreError::Io { detail } => detail,
                        error => error.to_string(),
                    };
                    trouble = format!("{trouble}{}:{}: {detail}; ", host.get_host(), host.get_port());
                }
            }
        }
        Err(StoreError::Unreachable { detail: trouble.trim_end_matches("; ").to_owned() })
    }

    async fn connect_to(
        &self,
        host: &PgConnectOptions,
        purpose: Purpose,
    ) -> Result<Option<PgConnection>, StoreError> {
        let connecting = async {
            let mut connection = host.connect().await.map_err(|e| failure(&e))?;
            let row = self.set_up(&mut connection, purpose).await.map_err(|e| failure(&e))?;
            self.refuse_weak(&row)?;
            let standby: bool = row.try_get_unchecked(0).map_err(|e| failure(&e))?;
            if standby {
                let _ = connection.close().await; // the connection is of no use, whatever its end
                return Ok(None);
            }
            Ok(Some(connection))
        };
        within(self.options.connect_timeout, connecting).await.unwrap_or_else(|| {
            let detail = format!("no answer within {:?}", self.options.connect_timeout);
            Err(StoreError::Unreachable { detail })
        })
    }

    /// Removes the state that a user's code may have left on a connection: settings, locks, temporary tables. Returns
    /// true if the connection is as new.
    pub(super) async fn clean(&self, connection: &mut PgConnection, purpose: Purpose) -> bool {
        let clean = "RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP; CLOSE ALL";
        let sql = format!("{clean}; {}", self.setting_up(purpose));
        !self.options.distributed && sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.is_ok()
    }

    async fn set_up(&self, connection: &mut PgConnection, purpose: Purpose) -> Result<PgRow, sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(self.setting_up(purpose))).fetch_one(connection).await
    }

    /// The statement that sets a session up and returns its state.
    fn setting_up(&self, purpose: Purpose) -> String {
        let options = &self.options;
        let mut sql = String::from(
            "SELECT pg_is_in_recovery(), current_setting('synchronous_commit'), \
             set_config('default_transaction_isolation', 'read committed', false), \
             set_config('synchronous_commit', current_setting('synchronous_commit'), false)",
        );
        let mut set = |name: &str, value: &str| {
            let _ = write!(sql, ", set_config('{name}', '{value}', false)");
        };
        // A server that waits for a client that has gone holds locks: rows, and the worker's own.
        set("lock_timeout", &options.lock_timeout.as_millis().to_string());
        if !options.distributed {
            set("tcp_keepalives_idle", "10");
            set("tcp_keepalives_interval", "5");
            set("tcp_keepalives_count", "3");
            set("client_min_messages", "warning");
        }
        if purpose != Purpose::Guest {
            // The server cancels a statement that the client stops waiting for. Neither limit ends a commit that
            // waits for its standby.
            set("statement_timeout", &options.answer_timeout.as_millis().to_string());
            set("idle_in_transaction_session_timeout", &options.lock_timeout.as_millis().to_string());
            if !options.distributed {
                // Writing statements find their rows by the keys that they conflict with: one plan is right for good.
                // A query could also use another index, and a table that is still empty does not show which is
                // better: so its plan is not kept. Every join of the engine is by key, and rows that are queried in
                // an order are read in it, a page at a time: a bitmap would sort all of them for each page.
                let kept =
                    if purpose == Purpose::Writing { "force_generic_plan" } else { "force_custom_plan" };
                set("plan_cache_mode", kept);
                for planner in
                    ["enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"]
                {
                    set(planner, "off");
                }
            }
        }
        if let Some(schema) = &options.schema {
            let path = format!(
                ", set_config('search_path', '{schema}' || CASE current_setting('search_path') WHEN '' THEN '' \
                 ELSE ', ' || current_setting('search_path') END, false)"
            );
            sql.push_str(&path);
        }
        sql
    }

    /// Refuses a pooler that gives each transaction another connection: it would leave the engine's settings on
    /// connections of other clients, and run the engine's statements without the settings: in another schema, without
    /// time limits. The check is made before anything is set.
    ///
    /// A host that cannot be reached is left to [`connect`](Self::connect), which reports it. A distributed server
    /// has no processes that could be told apart.
    pub(super) async fn refuse_transaction_pooling(&self) -> Result<(), StoreError> {
        if self.options.distributed {
            return Ok(());
        }
        for host in &self.hosts {
            match within(self.options.connect_timeout, is_shared(host)).await {
                Some(Ok(true)) => return Err(OpenError::TransactionPooling { path: self.place() }.into()),
                Some(Ok(false)) => return Ok(()),
                Some(Err(_)) | None => {}
            }
        }
        Ok(())
    }

    /// Refuses a server that answers a commit before it is on disk: the commit may be lost, and a lost `started`
    /// record means a silent duplicate.
    fn refuse_weak(&self, row: &PgRow) -> Result<(), StoreError> {
        let found: String = row.try_get_unchecked(1).map_err(|e| failure(&e))?;
        if matches!(found.as_str(), "on" | "remote_apply") || self.options.allow_async_commit {
            return Ok(());
        }
        Err(OpenError::WeakDurability { path: self.place(), found }.into())
    }

    /// Refuses several hosts without a standby that commits wait for: the last commits of a primary that dies are
    /// lost when its standby is promoted.
    pub(super) async fn refuse_async_standby(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        if !self.has_standbys() || self.options.allow_async_standby {
            return Ok(());
        }
        let row = sqlx::query("SELECT current_setting('synchronous_standby_names')")
            .fetch_one(connection)
            .await
            .map_err(|e| failure(&e))?;
        let names: String = row.try_get_unchecked(0).map_err(|e| failure(&e))?;
        if names.trim().is_empty() {
            return Err(OpenError::AsynchronousStandby { path: self.place() }.into());
        }
        Ok(())
    }
}

/// True if a pooler shares server connections between clients. Two connections that are open at once have two server
/// processes, and each keeps its own. Under such a pooler one connection gets the process of the other, or another
/// process in its next transaction. There are several looks, because other clients of the pooler may come in between.
async fn is_shared(host: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    const LOOKS: u32 = 3;
    let (mut one, mut other) = (host.connect().await?, host.connect().await?);
    let mine = process(&mut one, "").await?;
    let mut shared = false;
    for _ in 0..LOOKS {
        shared |= process(&mut one, "").await? != mine;
        let held = process(&mut other, "BEGIN; ").await?;
        // No further query if the connection is shared: the pool may have no other connection and would let the query
        // wait for this one.
        shared = shared || held == mine || process(&mut one, "").await? != mine;
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
    }
    one.close().await?;
    other.close().await?;
    Ok(shared)
}

async fn process(connection: &mut PgConnection, before: &str) -> Result<i32, sqlx::Error> {
    let sql = format!("{before}SELECT pg_backend_pid()");
    sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(connection).await?.try_get_unchecked(0)
}

/// Checks the name of a schema, which is part of SQL text: it must be a plain identifier.
fn check_schema(schema: &str) -> Result<(), OpenError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if starts && schema.len() <= 63 && schema.chars().all(plain) {
        return Ok(());
    }
    let detail = "a schema's name has 1 to 63 lower-case letters, digits and underscores, and no digit first";
    Err(OpenError::Unusable { path: format!("schema {schema:?}"), detail: detail.into() })
}

/// The options for each host of a URL in the form of libpq: `postgres://user@one:5432,two:5433/database`. The driver
/// only knows URLs of one host.
fn hosts(url: &str) -> Result<Vec<PgConnectOptions>, OpenError> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| unusable("it has no scheme"))?;
    let (authority, tail) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let (user, hosts) = authority.rfind('@').map_or(("", authority), |at| authority.split_at(at + 1));
    let tail = without_session_attrs(tail)?;
    let parse = |host: &str| {
        let options: PgConnectOptions = format!("{scheme}://{user}{host}{tail}")
            .parse()
            .map_err(|e: sqlx::Error| unusable(&e.to_string()))?;
        let name = options.get_application_name().unwrap_or("counterfoil").to_owned();
        let options = options.application_name(&name).statement_cache_capacity(super::statement::KEPT);
        Ok(options.disable_statement_logging())
    };
    hosts.split(',').map(parse).collect()
}

/// Removes `target_session_attrs`, which belongs to libpq: the engine always looks for a host that accepts writes.
fn without_session_attrs(tail: &str) -> Result<String, OpenError> {
    let Some((path, query)) = tail.split_once('?') else { return Ok(tail.to_owned()) };
    let mut kept = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.strip_prefix("target_session_attrs=") {
            None => kept.push(parameter),
            Some("read-write" | "primary" | "any") => {}
            Some(other) => {
                return Err(unusable(&format!("target_session_attrs={other} finds no host to write to")));
            }
        }
    }
    let mark = if kept.is_empty() { "" } else { "?" };
    Ok(format!("{path}{mark}{}", kept.join("&")))
}

/// The error for an unusable URL. The URL itself is not repeated, because it may hold a password.
fn unusable(detail: &str) -> OpenError {
    OpenError::Unusable { path: "the database's URL".into(), detail: detail.to_owned() }
}

/// The result of the future, or `None` if the future takes longer than `limit`.
pub(super) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future.fuse());
    let mut late = SystemClock.sleep(limit).fuse();
    futures_util::select_biased! {
        done = future => Some(done),
        () = late => None,
    }
}

/// The pauses between retries: they double, and each is shortened at random, so that workers that lost one server
/// together do not return together.
pub(super) struct Patience {
    began: Boot,
    limit: Duration,
    pause: Duration,
}

impl Patience {
    const FIRST: Duration = Duration::from_millis(2);
    const LONGEST: Duration = Duration::from_millis(500);

    pub(super) fn of(limit: Duration) -> Self {
        Self { began: SystemClock.boot(), limit, pause: Self::FIRST }
    }

    /// Waits for the next retry; false if the time limit is over.
    pub(super) async fn again(&mut self) -> bool {
        if self.began.until(SystemClock.boot()) >= self.limit {
            return false;
        }
        let half = self.pause / 2;
        let chance = u32::try_from(SystemEntropy.bits() % 1000).unwrap_or(0);
        SystemClock.sleep(half + half * chance / 1000).await;
        self.pause = (self.pause * 2).min(Self::LONGEST);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::hosts;

    #[test]
    fn a_url_may_name_several_hosts() {
        let found = |url: &str| -> Vec<_> {
            let hosts = hosts(url).unwrap();
            hosts
                .iter()
                .map(|h| (h.get_host().to_owned(), h.get_port(), h.get_database().map(str::to_owned)))
                .collect()
        };
        let of =
            |host: &str, port, database: Option<&str>| (host.to_owned(), port, database.map(str::to_owned));
        assert_eq!(found("postgres://u:p@a:1/d"), [of("a", 1, Some("d"))]);
        assert_eq!(
            found("postgres://u:p@a:1,b:2/d?target_session_attrs=read-write&application_name=x"),
            [of("a", 1, Some("d")), of("b", 2, Some("d"))]
        );
        assert_eq!(found("postgres://a:1,[::1]:2"), [of("a", 1, None), of("[::1]", 2, None)]);
        assert!(hosts("postgres://a/d?target_session_attrs=standby").is_err());
        let error = hosts("postgres//u:secret@a").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
