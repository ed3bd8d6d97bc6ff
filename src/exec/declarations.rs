//! The declarations that this worker knows. It keeps all of them: their number is at most that of the tools, times the
//! builds that changed a tool.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::id::{DeclarationId, Name};
use crate::ledger::Declaration;

/// The declarations that this worker has read or written.
#[derive(Debug, Default)]
pub(super) struct Declarations(Mutex<Known>);

#[derive(Debug, Default)]
pub(super) struct Known {
    /// All declarations in the order of their numbers, from 1 on. None is ever skipped or removed.
    pub(super) all: Vec<Arc<Declaration>>,
    /// The present declaration of each tool.
    pub(super) now: HashMap<Name, (DeclarationId, Arc<Declaration>)>,
}

impl Declarations {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    pub(super) fn at(&self, id: DeclarationId) -> Option<Arc<Declaration>> {
        let place = usize::try_from(id.0).ok()?.checked_sub(1)?;
        self.all.get(place).cloned()
    }

    pub(super) fn number(&self, declaration: &Declaration) -> Option<DeclarationId> {
        let place = self.all.iter().position(|known| **known == *declaration)?;
        Some(id(place + 1))
    }
}

pub(super) fn id(number: usize) -> DeclarationId {
    DeclarationId(i64::try_from(number).unwrap_or(i64::MAX))
}
