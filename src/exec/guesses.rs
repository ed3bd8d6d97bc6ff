//! Guesses of guards about their rows. A guard reads its rows before it writes them, and the read and the write are two
//! transactions apart. If its rows are very probably unchanged, the guard writes at once; if they have changed, the
//! write is refused, and the guard reads them. A refused write delays all writes of its transaction, so a guard does
//! not guess twice about the same thing.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::id::Tenant;

/// The maximum number of wrong guesses that are remembered. Beyond it all are forgotten, and each costs one more
/// refusal.
const CAPACITY: usize = 4096;

/// The wrong guesses of this process.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<HashSet<(Tenant, String)>>);

impl Guesses {
    /// True if a guard may guess about this thing.
    pub(crate) fn may(&self, tenant: &Tenant, about: &str) -> bool {
        let wrong = self.lock();
        wrong.is_empty() || !wrong.contains(&(tenant.clone(), about.to_owned()))
    }

    /// Notes that a guess about this thing was refused.
    pub(crate) fn was_wrong(&self, tenant: &Tenant, about: String) {
        let mut wrong = self.lock();
        if wrong.len() >= CAPACITY {
            wrong.clear();
        }
        wrong.insert((tenant.clone(), about));
    }

    /// Ignores poisoning, because no holder of this lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, HashSet<(Tenant, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{CAPACITY, Guesses};
    use crate::id::Tenant;

    #[test]
    fn a_wrong_guess_is_made_once_by_tenant() -> Result<(), crate::id::IdError> {
        let (guesses, acme) = (Guesses::default(), Tenant::new("acme")?);
        assert!(guesses.may(&acme, "report"));
        guesses.was_wrong(&acme, "report".to_owned());
        assert!(!guesses.may(&acme, "report"));
        assert!(guesses.may(&acme, "letter") && guesses.may(&Tenant::new("globex")?, "report"));
        for other in 0..CAPACITY {
            guesses.was_wrong(&acme, other.to_string());
        }
        assert!(guesses.may(&acme, "report"), "memory is bounded");
        Ok(())
    }
}
