//! Rows about bytes on the disk.

use std::path::{Path, PathBuf};

use sqlx::Connection as _;

use crate::options::Options;
use crate::raw;
use crate::report::{Finding, Values};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};

/// The number of calls or steps, in ten runs.
const N: u32 = 10_000;
const RUNS: u32 = 10;

struct Sizes {
    /// The size of the database after a truncating checkpoint, in bytes.
    db: f64,
    /// The largest size of the WAL, in MB. An open WAL is never truncated.
    wal_mb: f64,
}

/// Measures the bytes in one round, because they are the same in each.
pub(crate) fn bytes(options: &Options) -> Result<Vec<Finding>, String> {
    let folder = options.folder();
    let path = |name: &str| folder.path().join(name);
    let [empty, calls, steps, rows] = ["empty.db", "calls.db", "steps.db", "rows.db"].map(path);
    let (empty, calls, steps, rows) = multi_thread().block_on(async {
        (
            engine_file(&empty, 0, 0).await,
            engine_file(&calls, N / RUNS, 0).await,
            engine_file(&steps, 0, N / RUNS).await,
            raw_file(&rows).await,
        )
    });
    let each = |sizes: &Sizes| Values::new("B", vec![(sizes.db - empty.db) / f64::from(N)]);
    let raw = || Some(Values::new("B", vec![rows.db / f64::from(N)]));
    let measure = |what: &str, sizes: &Sizes| {
        format!("bytes on disk per {what} (peak of the WAL {:.1} MB)", sizes.wal_mb)
    };
    Ok(vec![
        Finding::absolute("disk", measure("guarded call", &calls), each(&calls), raw()).at_most(650.0, 500.0),
        Finding::absolute("disk", measure("plain step", &steps), each(&steps), raw()).at_most(250.0, 190.0),
    ])
}

/// The sizes of a database with ten runs, each with this number of calls and steps.
async fn engine_file(db: &Path, calls: u32, steps: u32) -> Sizes {
    let engine = subject::engine(&db.to_owned().into()).await;
    let tenant = engine.tenant(TENANT).expect("a tenant");
    for _ in 0..RUNS {
        tenant.run(subject::guarded, calls).await.expect("a run");
        tenant.run(subject::plain, steps).await.expect("a run");
    }
    let wal_mb = size(&wal(db)) / 1e6;
    engine.shutdown(subject::DRAIN).await;
    drop(tenant);
    Sizes { db: truncated(db).await, wal_mb }
}

async fn raw_file(db: &Path) -> Sizes {
    let raw = raw::open(&db.to_owned().into()).await.group(10, N).await;
    let wal_mb = size(&wal(db)) / 1e6;
    raw.close().await;
    Sizes { db: truncated(db).await, wal_mb }
}

/// The size of a database whose WAL was truncated to nothing.
async fn truncated(db: &Path) -> f64 {
    let mut connection = raw::sqlite::connect(db).await;
    sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await.expect("a checkpoint");
    connection.close().await.expect("closed");
    size(db)
}

fn wal(db: &Path) -> PathBuf {
    let mut name = db.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

fn size(file: &Path) -> f64 {
    std::fs::metadata(file).map_or(0.0, |metadata| metadata.len() as f64)
}
