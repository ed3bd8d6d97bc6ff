//! The provider's store. It must not know HTTP, nor any fault but those which change what is stored.
//!
//! Time and ids come from the database, in the transaction that uses them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{SqliteConnection, SqlitePool};

use super::behaviour::Behaviour;

const PAGE_SIZE: u32 = 2;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS notice (
        seq        INTEGER PRIMARY KEY AUTOINCREMENT,
        id         TEXT NOT NULL UNIQUE,
        reference  TEXT NOT NULL,
        recipient  TEXT NOT NULL,
        text       TEXT NOT NULL,
        status     TEXT NOT NULL DEFAULT 'sent' CHECK (status IN ('sent', 'cancelled')),
        visible_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS notice_by_reference ON notice (reference, seq);
    -- What a key stood for: the content it came with, and the notice as it was first answered.
    CREATE TABLE IF NOT EXISTS idempotency_key (
        key       TEXT PRIMARY KEY,
        content   TEXT NOT NULL,
        answer    TEXT NOT NULL,
        stored_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS create_request (
        one   INTEGER PRIMARY KEY CHECK (one = 1),
        total INTEGER NOT NULL
    ) STRICT;
    INSERT OR IGNORE INTO create_request VALUES (1, 0);
";

/// What a client wants to be sent.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    pub reference: String,
    pub recipient: String,
    pub text: String,
}

/// A create request: with an id if it is a conditional create, with a key if it carried one.
pub struct Request {
    pub id: Option<String>,
    pub key: Option<String>,
    pub content: Content,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Notice {
    pub id: String,
    #[serde(flatten)]
    pub content: Content,
    pub status: String,
}

/// What came of a create request.
pub enum Created {
    New(Notice),
    IdTaken(Notice),
    /// `first` is the notice as it was first answered, whatever became of it since.
    KeyKnown {
        first: Notice,
        same_content: bool,
    },
}

/// What the world saw, by reference. Cancelling does not undo that it was sent.
#[derive(Default, Serialize)]
pub struct Effects {
    #[serde(rename = "effects")]
    pub stored: BTreeMap<String, i64>,
    pub cancelled: BTreeMap<String, i64>,
    pub requests: i64,
    /// Effects that no lookup sees yet: those of requests in hand, and notices behind their lag.
    pub unseen: u64,
}

#[derive(Clone)]
pub struct Notices {
    pool: SqlitePool,
}

impl Notices {
    pub async fn open(file: &Path) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // Survives any kill of the process; only a power failure could take the last commits.
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(30));
        // One connection: there is one writer anyway, and the pool's queue is fairer than SQLite's busy loop.
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        sqlx::raw_sql(SCHEMA).execute(&pool).await?;
        Ok(Self { pool })
    }

    /// Counts a create request, whatever becomes of it.
    pub async fn count_request(&self) -> Result<(), sqlx::Error> {
        sqlx::query("UPDATE create_request SET total = total + 1").execute(&self.pool).await?;
        Ok(())
    }

    /// Stores what is asked for, unless the contract knows its key or its id is taken: one transaction.
    pub async fn create(&self, request: &Request, behaviour: &Behaviour) -> Result<Created, sqlx::Error> {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let key = request.key.as_deref().filter(|_| behaviour.contract.remembers_keys());
        if let Some(key) = key {
            if let Some(window_ms) = behaviour.key_window_ms {
                forget_keys(&mut tx, window_ms).await?;
            }
            if let Some((first, content)) = find_key(&mut tx, key).await? {
                // Committed, because keys may have been forgotten.
                tx.commit().await?;
                return Ok(Created::KeyKnown { first, same_content: content == request.content });
            }
        }
        if let Some(id) = &request.id
            && let Some(taken) = find_notice(&mut tx, id).await?
        {
            return Ok(Created::IdTaken(taken));
        }

        let notice = insert_notice(&mut tx, request.id.as_deref(), request, behaviour.lookup_lag_ms).await?;
        if behaviour.forget {
            tx.rollback().await?;
            return Ok(Created::New(notice));
        }
        if behaviour.store_twice {
            insert_notice(&mut tx, None, request, behaviour.lookup_lag_ms).await?;
        }
        if let Some(key) = key {
            insert_key(&mut tx, key, &notice).await?;
        }
        tx.commit().await?;
        Ok(Created::New(notice))
    }

    /// The notice with this id, if lookups may see it yet.
    pub async fn find(&self, id: &str) -> Result<Option<Notice>, sqlx::Error> {
        let row: Option<NoticeRow> = sqlx::query_as(
            "SELECT id, reference, recipient, text, status FROM notice
             WHERE id = ?1 AND visible_ms <= CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(notice))
    }

    /// One page, counted from 1, of the notices that lookups may see, and whether there are more.
    pub async fn page(&self, reference: &str, page: u32) -> Result<(Vec<Notice>, bool), sqlx::Error> {
        let rows: Vec<NoticeRow> = sqlx::query_as(
            "SELECT id, reference, recipient, text, status FROM notice
             WHERE reference = ?1 AND visible_ms <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
             ORDER BY seq LIMIT ?2 OFFSET ?3",
        )
        .bind(reference)
        .bind(PAGE_SIZE + 1) // one more than is shown, to see whether there is a next page
        .bind(i64::from(page.saturating_sub(1)) * i64::from(PAGE_SIZE))
        .fetch_all(&self.pool)
        .await?;
        let more = rows.len() > PAGE_SIZE as usize;
        Ok((rows.into_iter().take(PAGE_SIZE as usize).map(notice).collect(), more))
    }

    /// Cancels the notice, if it exists; again is the same as once.
    pub async fn cancel(&self, id: &str) -> Result<Option<Notice>, sqlx::Error> {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query("UPDATE notice SET status = 'cancelled' WHERE id = ?1")
            .bind(id)
            .execute(&mut *tx)
            .await?;
        let cancelled = find_notice(&mut tx, id).await?;
        tx.commit().await?;
        Ok(cancelled)
    }

    /// All effects at one moment; no contract and no lag hides anything here.
    pub async fn effects(&self) -> Result<Effects, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let (requests,) = sqlx::query_as("SELECT total FROM create_request").fetch_one(&mut *tx).await?;
        let rows: Vec<(String, i64, i64)> = sqlx::query_as(
            "SELECT reference, count(*), sum(status = 'cancelled') FROM notice GROUP BY reference",
        )
        .fetch_all(&mut *tx)
        .await?;
        let (unseen,) = sqlx::query_as(
            "SELECT count(*) FROM notice WHERE visible_ms > CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        )
        .fetch_one(&mut *tx)
        .await?;
        let mut seen = Effects { requests, unseen, ..Effects::default() };
        for (reference, stored, cancelled) in rows {
            if cancelled > 0 {
                seen.cancelled.insert(reference.clone(), cancelled);
            }
            seen.stored.insert(reference, stored);
        }
        Ok(seen)
    }
}

type NoticeRow = (String, String, String, String, String);

fn notice((id, reference, recipient, text, status): NoticeRow) -> Notice {
    Notice { id, content: Content { reference, recipient, text }, status }
}

async fn find_notice(db: &mut SqliteConnection, id: &str) -> Result<Option<Notice>, sqlx::Error> {
    let row: Option<NoticeRow> =
        sqlx::query_as("SELECT id, reference, recipient, text, status FROM notice WHERE id = ?1")
            .bind(id)
            .fetch_optional(db)
            .await?;
    Ok(row.map(notice))
}

async fn insert_notice(
    db: &mut SqliteConnection,
    id: Option<&str>,
    request: &Request,
    lookup_lag_ms: u64,
) -> Result<Notice, sqlx::Error> {
    let seq = sqlx::query(
        "INSERT INTO notice (id, reference, recipient, text, visible_ms)
         VALUES (coalesce(?1, 'ntc_' || lower(hex(randomblob(12)))), ?2, ?3, ?4,
                 CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?5)",
    )
    .bind(id)
    .bind(&request.content.reference)
    .bind(&request.content.recipient)
    .bind(&request.content.text)
    .bind(sql_ms(lookup_lag_ms))
    .execute(&mut *db)
    .await?
    .last_insert_rowid();
    let row = sqlx::query_as("SELECT id, reference, recipient, text, status FROM notice WHERE seq = ?1")
        .bind(seq)
        .fetch_one(db)
        .await?;
    Ok(notice(row))
}

async fn forget_keys(db: &mut SqliteConnection, window_ms: u64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "DELETE FROM idempotency_key WHERE stored_ms < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1",
    )
    .bind(sql_ms(window_ms))
    .execute(db)
    .await?;
    Ok(())
}

async fn find_key(db: &mut SqliteConnection, key: &str) -> Result<Option<(Notice, Content)>, sqlx::Error> {
    let row: Option<(String, String)> =
        sqlx::query_as("SELECT answer, content FROM idempotency_key WHERE key = ?1")
            .bind(key)
            .fetch_optional(db)
            .await?;
    row.map(|(answer, content)| Ok((from_json(&answer)?, from_json(&content)?))).transpose()
}

async fn insert_key(db: &mut SqliteConnection, key: &str, first: &Notice) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO idempotency_key (key, content, answer, stored_ms)
         VALUES (?1, ?2, ?3, CAST(unixepoch('subsec') * 1000 AS INTEGER))",
    )
    .bind(key)
    .bind(to_json(&first.content)?)
    .bind(to_json(first)?)
    .execute(db)
    .await?;
    Ok(())
}

/// Half of what an `i64` holds is far beyond any test, and leaves room to add the present.
fn sql_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).min(i64::MAX / 2)
}

fn to_json(value: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

fn from_json<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}
