//! Effects that are undone before a run is begun again, because the command says so.

use super::past::Past;
use super::{BeginAgain, Plan, RunError};
use crate::exec::{Compensated, compensate};
use crate::ledger::{OperationKey, State};
use crate::store::{Run, RunState};

impl<How> BeginAgain<How> {
    /// Undoes this effect first, by its tool's own compensation; the run is begun again when the effect is undone. Code
    /// that asks for the operation all the same gets
    /// [`FailureCode::Compensated`](crate::flow::FailureCode::Compensated), unless the operation is
    /// [issued once more](Self::reissue) as well.
    ///
    /// # Errors
    /// [`RunError::NotCompensated`] if the effect cannot be undone, or not for certain. Then the run is not begun
    /// again, and effects that were undone before stay undone.
    ///
    /// # Crash
    /// Each compensation has a record. The same command, given again, goes on with the effects that are left.
    pub fn compensate(mut self, effect: &OperationKey) -> Self {
        self.plan.undone.push(effect.clone());
        self
    }
}

impl Plan {
    /// Undoes the next effect of the command that is not undone yet. Returns false if there is none.
    pub(super) async fn undoes_one(&self, row: &Run, past: &Past) -> Result<bool, RunError> {
        let refused =
            |key: &OperationKey, why| RunError::NotCompensated { run: self.run, key: key.to_string(), why };
        for key in &self.undone {
            let record = past.record(key);
            let record =
                record.ok_or_else(|| RunError::NoSuchEffect { run: self.run, key: key.to_string() })?;
            if matches!(record.state, State::Compensated { whole: true, .. }) {
                continue;
            }
            if !row.state.is_final() && !matches!(row.state, RunState::Blocked { .. }) {
                return Err(refused(key, "its run is under way".to_owned()));
            }
            let why = match compensate(&self.inner.core, Box::new(record.clone())).await? {
                Compensated::Undone(undone) => match undone.rest() {
                    None => return Ok(true),
                    Some(rest) => format!("it is undone in part: {rest}"),
                },
                Compensated::Nothing => continue,
                Compensated::Stands(why) => why,
                Compensated::Parked { question } => {
                    format!("whether it is undone is asked in {question}")
                }
            };
            return Err(refused(key, why));
        }
        Ok(false)
    }
}
