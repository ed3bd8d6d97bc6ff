//! The row about idleness: the statements of an engine with nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counterfoil::store::{Change, Passing, Store, StoreFuture, Verdict};

use crate::options::Options;
use crate::place::{Database, Home, Place};
use crate::report::{Finding, Values};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};
use crate::waiting::{For, park};

const MINUTE: Duration = Duration::from_mins(1);

pub(crate) fn statements(options: &Options) -> Result<Vec<Finding>, String> {
    let finding = |(runs, wait, what)| {
        let home = Home::of(Database::Sqlite, options)?;
        let asked = multi_thread().block_on(asked_a_minute(&home.place("idle"), runs, wait));
        let measure = format!("statements per minute of an idle engine with {runs} runs waiting for {what}");
        let subject = Values::new("a minute", vec![asked]);
        Ok(Finding::absolute("idle", measure, subject, None).at_most(60.0, 0.0))
    };
    [(1000, For::Timer, "timers"), (10_000, For::Signal, "signals")].into_iter().map(finding).collect()
}

/// The number of statements of an engine while this number of runs waits and nothing else happens. Counted over a whole
/// minute, because half a minute is seven or eight heartbeats, and the figure would show that difference.
pub(crate) async fn asked_a_minute(place: &Place, runs: usize, wait: For) -> f64 {
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let engine = subject::builder(place)
        .wrap_store(|store| Arc::new(Counting { store, asked: counted }))
        .start()
        .await
        .expect("an engine");
    park(&engine.tenant(TENANT).expect("a tenant"), runs, wait).await;
    let before = asked.load(Ordering::SeqCst);
    tokio::time::sleep(MINUTE).await;
    let asked = asked.load(Ordering::SeqCst) - before;
    engine.shutdown(subject::DRAIN).await;
    asked as f64
}

/// A store that counts its statements, reads and writes alike.
#[derive(Debug)]
struct Counting {
    store: Arc<dyn Store>,
    asked: Arc<AtomicU64>,
}

impl Store for Counting {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        self.passing();
        self.store.commit(changes)
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }

    fn passing(&self) -> Option<Passing> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        None
    }

    /// Passes the wait on uncounted, because waiting for a hint sends no statement.
    fn woken(&self) -> StoreFuture<'_, ()> {
        self.store.woken()
    }
}
