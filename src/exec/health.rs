//! The health of a worker, as it is known without asking the database.

use std::fmt;

use serde::Serialize;

use super::core::Core;
use super::executor::Executor;
use super::peers::Peers;
use crate::id::Fence;
use crate::store::Store as _;

/// The health of a worker: an answer for the probes of an orchestrator. It costs no statement: it says what the last
/// ones have shown.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use counterfoil::Engine;
///
/// let engine = Engine::in_memory().worker_name("billing").start().await?;
/// let health = engine.health();
/// assert!(health.is_live() && health.is_ready());
/// engine.clone().shutdown(std::time::Duration::ZERO).await;
/// assert_eq!(engine.health().to_string(), "not ready: the worker is closing");
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// The number of the worker.
    pub worker: Fence,
    /// The name that the worker was given.
    pub name: Option<String>,
    /// The reasons why the worker is not ready. Empty if it is.
    pub troubles: Vec<Trouble>,
}

/// The reason why a worker is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Trouble {
    /// The database gives no answer. What is under way waits for it.
    DatabaseAway,
    /// The file of the database was removed or replaced: nothing is sent any more.
    DatabaseGone {
        /// The message of the store.
        detail: String,
    },
    /// The lease was not renewed in time: nothing is sent until the database says that it still holds.
    LeaseLate,
    /// Another worker has taken over, or will: this one sends and writes nothing any more. Start another one.
    Fenced,
    /// The worker is closing, or closed: it takes no new calls.
    Closing,
}

impl Health {
    /// True if the process can do its work, now or later. False: it never will again, and is to be replaced.
    pub fn is_live(&self) -> bool {
        !self.troubles.contains(&Trouble::Fenced)
    }

    /// True if new work is taken up at once.
    pub const fn is_ready(&self) -> bool {
        self.troubles.is_empty()
    }
}

impl Core {
    pub(crate) fn health(&self) -> Health {
        let (lost, late) = match &self.peers {
            Peers::Shared(shared) => {
                let lost = shared.lease.is_lost() && !self.is_closing();
                (lost, !lost && shared.lease.left(&**shared.clock.machine()).is_zero())
            }
            Peers::Alone { .. } | Peers::Client { .. } => (false, false),
        };
        let mut troubles = Vec::new();
        if self.is_closing() {
            troubles.push(Trouble::Closing);
        } else if lost {
            troubles.push(Trouble::Fenced);
        } else if late {
            troubles.push(Trouble::LeaseLate);
        }
        if self.group.outage().is_reported() {
            troubles.push(Trouble::DatabaseAway);
        }
        if let Err(error) = self.group.in_place()
            && !self.is_closing()
        {
            troubles.push(Trouble::DatabaseGone { detail: error.to_string() });
        }
        Health { worker: self.fence, name: self.name.as_deref().map(str::to_owned), troubles }
    }
}

impl Executor {
    /// The health of this worker, for probes.
    pub fn health(&self) -> Health {
        self.core.health()
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.is_live(), self.is_ready()) {
            (_, true) => return f.write_str("ready"),
            (true, _) => "not ready",
            (false, _) => "dead",
        };
        let troubles: Vec<_> = self.troubles.iter().map(ToString::to_string).collect();
        write!(f, "{state}: {}", troubles.join("; "))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DatabaseAway => f.write_str("the database gives no answer"),
            Self::DatabaseGone { detail } => f.write_str(detail),
            Self::LeaseLate => f.write_str("the lease was not renewed in time"),
            Self::Fenced => f.write_str("another worker has taken over"),
            Self::Closing => f.write_str("the worker is closing"),
        }
    }
}
