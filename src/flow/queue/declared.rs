//! The declared queues of an engine, and the choice of a run's place.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Timestamp;
use crate::flow::error::RunError;
use crate::id::{Name, checked};
use crate::ledger::Key;
use crate::store::{InQueue, Queue};

/// The declared queues of an engine, and their admissions.
#[derive(Default)]
pub(in crate::flow) struct Queues {
    pub(super) declared: BTreeMap<String, Queue>,
    /// The queues for which a task admits runs, and whether that task is to look once more when it has found nothing.
    asking: Mutex<BTreeMap<String, bool>>,
    /// True for a client: it declares no queue, and may put runs into any.
    any: bool,
    /// The queues whose last admission was not read back, with its instant (UTC). The lock makes admissions follow one
    /// another.
    pub(super) admitted: tokio::sync::Mutex<BTreeMap<String, Timestamp>>,
}

/// The queue, queue key and priority that were chosen for a run.
#[derive(Clone, Debug, Default)]
pub(in crate::flow) struct Choice {
    pub(in crate::flow) queue: Option<String>,
    pub(in crate::flow) key: Option<String>,
    pub(in crate::flow) priority: i32,
}

impl Queues {
    /// Those of a client.
    pub(in crate::flow) fn elsewhere() -> Self {
        Self { any: true, ..Self::default() }
    }

    /// Declares a queue, or returns the reason why it is refused.
    pub(in crate::flow) fn declare(&mut self, queue: Queue) -> Result<(), String> {
        queue.check()?;
        if queue.name().starts_with('~') {
            return Err("names that begin with '~' are the engine's own".into());
        }
        if self.declared.contains_key(queue.name()) {
            return Err("there is another queue of that name: their limits could not be told apart".into());
        }
        self.declared.insert(queue.name().to_owned(), queue);
        Ok(())
    }

    /// Declares a queue of the engine's own.
    #[cfg(feature = "schedule")]
    pub(in crate::flow) fn declare_own(&mut self, queue: Queue) {
        self.declared.insert(queue.name().to_owned(), queue);
    }

    pub(in crate::flow) fn has(&self, name: &str) -> bool {
        self.declared.contains_key(name)
    }

    pub(super) fn asking(&self) -> MutexGuard<'_, BTreeMap<String, bool>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a run of this queue gives its place free when it parks.
    pub(in crate::flow) fn frees(&self, queue: &InQueue) -> bool {
        self.declared.get(queue.name.as_str()).is_some_and(Queue::frees_while_waiting)
    }

    /// The names of the declared queues.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.declared.keys()
    }

    /// The place for a run that is to be queued: in the chosen queue, or in its workflow's own. `None` if it has no
    /// queue.
    pub(in crate::flow) fn place(
        &self,
        own: Option<&String>,
        choice: Choice,
    ) -> Result<Option<Box<InQueue>>, RunError> {
        let Choice { queue, key, priority } = choice;
        let Some(name) = queue.or_else(|| own.cloned()) else {
            if key.is_some() || priority != 0 {
                return Err(RunError::NoQueue);
            }
            return Ok(None);
        };
        if !self.any && !self.has(&name) {
            let declared = self.names().filter(|name| !name.starts_with('~')).cloned().collect();
            return Err(RunError::UnknownQueue { queue: name, declared });
        }
        if let Some(key) = &key {
            checked("queue key", key, Key::MAX_BYTES)?;
        }
        Ok(Some(Box::new(InQueue { name: Name::new(name)?, key, priority, admitted_at: None })))
    }
}
