//! The user's own tables in a simulation: a real SQLite database in memory, beside the simulated disk.
//!
//! Whether a transaction took place is the disk's to say: it did if its checkpoint is durable. So its changes wait,
//! uncommitted, until that is known, and what a dead process has left open is ended by whoever comes next.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};

use crate::clock::Clock;
use crate::payload::{Payload, Stored};
use crate::store::sqlite::{TransactionError, carry_out, failure, rollback, simulate, take_events};
use crate::store::{Change, OutboxEvent, PastStep, Step, Store, StoreError, Verdict};

/// The tables of a simulation, opened when they are first needed. Like a disk they outlive every process.
#[derive(Clone, Default)]
pub(super) struct Tables(Arc<tokio::sync::Mutex<Option<Open>>>);

struct Open {
    connection: SqliteConnection,
    /// The checkpoint of a transaction that was begun, until its end is seen. It has a value once there is one that
    /// may be on the disk.
    begun: Option<Step>,
}

/// The tables, and the disk that a process writes its checkpoints to.
pub struct Database {
    tables: Tables,
    disk: Arc<dyn Store>,
}

impl Tables {
    pub(super) fn on(&self, disk: Arc<dyn Store>) -> Database {
        Database { tables: self.clone(), disk }
    }

    /// Looks at them when all processes are gone.
    pub(super) fn read<T, F>(&self, store: &dyn Store, read: F) -> Result<T, String>
    where
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>>,
    {
        let asked = standing_still(async {
            let mut tables = self.0.lock().await;
            let open = ready(&mut tables, store).await.map_err(|error| error.to_string())?;
            read(&mut open.connection).await.map_err(|error| error.to_string())
        });
        asked
            .now_or_never()
            .unwrap_or_else(|| Err("it waits for something else than these tables".to_owned()))
    }
}

impl Database {
    /// As on the real store, but that a fenced worker is refused only in the end.
    pub(crate) async fn transaction<T, E, F>(
        &self,
        mut change: Change,
        mut step: Step,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> Result<T, TransactionError<E>>
    where
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(T, Payload), E>>,
    {
        let mut tables = self.tables.0.lock().await;
        let carried_out = standing_still(async {
            let open = ready(&mut tables, &*self.disk).await?;
            open.begun = Some(step.clone());
            open.connection.execute("BEGIN IMMEDIATE").await.map_err(|e| failure(&e))?;
            let carried_out = carry_out(&mut open.connection, limit, clock, work).await;
            let carried_out = carried_out?;
            let events = take_events(&mut open.connection).await?;
            Ok::<_, TransactionError<E>>((open, carried_out, events))
        });
        let (open, (value, payload), events) = match carried_out.await {
            Ok(carried_out) => carried_out,
            Err(error) => {
                if matches!(error, TransactionError::EndedInside) {
                    // What the closure committed is there: a checkpoint without a value says so to whoever resumes.
                    change.steps = vec![step];
                    let _ = self.disk.commit(&[change]).await?;
                }
                return Err(error);
            }
        };
        // The outbox is on the disk, and written with the checkpoint, too.
        change.events =
            events.into_iter().map(|event| OutboxEvent { created_at: clock.now(), ..event }).collect();
        step.value = Some(Stored::Inline(payload));
        open.begun = Some(step.clone());
        change.steps = vec![step];
        // The one instant: from here on it has taken place, or it has not.
        for verdict in self.disk.commit(&[change]).await? {
            if let Verdict::Refused(refusal) = verdict {
                return Err(TransactionError::Refused(refusal));
            }
        }
        standing_still(open.end(true)).await?;
        Ok(value)
    }
}

/// The tables, with no transaction open.
async fn ready<'o>(tables: &'o mut Option<Open>, store: &dyn Store) -> Result<&'o mut Open, StoreError> {
    let open = match tables.take() {
        Some(open) => open,
        None => {
            let memory = SqliteConnectOptions::new().in_memory(true).disable_statement_logging();
            let mut connection = memory.connect().await.map_err(|e| failure(&e))?;
            simulate(&mut connection).await?;
            Open { connection, begun: None }
        }
    };
    let open = tables.insert(open);
    if let Some(step) = &open.begun {
        let history = store.run_history(&step.tenant, step.run, crate::store::Turns::ALL).await?;
        let is_it = |past: &&PastStep| (past.kind, &past.name, &past.id) == (step.kind, &step.name, &step.id);
        let durable = history.steps.iter().find(is_it).and_then(|past| past.value.as_ref());
        let took_place = durable.is_some() && durable == step.value.as_ref();
        open.end(took_place).await?;
    }
    Ok(open)
}

impl Open {
    async fn end(&mut self, took_place: bool) -> Result<(), StoreError> {
        if took_place {
            self.connection.execute("COMMIT").await.map_err(|e| failure(&e))?;
        } else {
            rollback(&mut self.connection).await?;
        }
        self.begun = None;
        Ok(())
    }
}

/// Longer than any statement takes: what waits for so long waits for something else than the database.
const PATIENCE: Duration = Duration::from_secs(10);

/// Carries work out and gives neither this thread nor the clock a chance to go on while the database's own thread
/// is at it: which of the two is first would be chance.
async fn standing_still<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    poll_fn(move |cx| {
        loop {
            if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(done);
            }
            if !bell.rings(cx.waker()) {
                return Poll::Pending; // it waits for time to pass, or for another task
            }
        }
    })
    .await
}

/// What the database's thread rings when it is done.
#[derive(Default)]
struct Bell {
    state: Mutex<Rung>,
    rang: Condvar,
}

#[derive(Default)]
struct Rung {
    rung: bool,
    /// Whoever has lost patience.
    gone: Option<Waker>,
}

impl Bell {
    /// Waits for it. If it does not ring soon, `waker` is woken when it does.
    fn rings(&self, waker: &Waker) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.rang.wait_timeout_while(state, PATIENCE, |state| !state.rung);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !state.rung {
            state.gone = Some(waker.clone());
        }
        std::mem::take(&mut state.rung)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let gone = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.rung = true;
            state.gone.take()
        };
        self.rang.notify_all();
        if let Some(waker) = gone {
            waker.wake();
        }
    }
}
