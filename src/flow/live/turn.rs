//! The turns of a run's loops: the run is in one turn at a time, and forgets the turn when it is over.

use super::Live;
use super::state::InTurn;
use crate::flow::failure::{Failure, misuse};
use crate::flow::identity::Identity;

impl Live {
    /// Begins or resumes the turn of this number, for as long as the guard lives.
    pub(in crate::flow) fn enter_turn(&self, number: u32, by: &Identity) -> Result<Entered<'_>, Failure> {
        let mut state = self.state();
        if state.turn.is_some() {
            return Err(misuse(format!(
                "the loop {:?} was begun while another is open: a run is in one turn at a time; let them follow one \
                 another, or give each a run of its own",
                by.name
            )));
        }
        state.turn = Some(InTurn::of(number));
        state.turn_of = Some((by.name.clone(), by.id.clone()));
        Ok(Entered(self))
    }

    /// The loop that began the run's present turn, if one did.
    pub(in crate::flow) fn turn_of(&self) -> Option<(String, String)> {
        self.state().turn_of.clone()
    }

    /// Ends the present turn, forgets its records, and begins the next one.
    pub(in crate::flow) fn next_turn(&self, number: u32) {
        let mut state = self.state();
        if let Some(turn) = state.turn.replace(InTurn::of(number)) {
            state.replay.forget(turn.number);
        }
    }

    /// Ends the last turn of a loop. No loop has begun the next one.
    pub(in crate::flow) fn last_turn(&self) {
        let mut state = self.state();
        if let Some(turn) = state.turn.take() {
            state.replay.forget(turn.number);
        }
        state.turn_of = None;
    }

    /// The number of open futures of the present turn.
    pub(in crate::flow) fn open_in_turn(&self) -> usize {
        self.state().turn.as_ref().map_or(0, |turn| turn.scope.open)
    }

    /// Marks that the code of a turn is being polled, for as long as the guard lives.
    pub(in crate::flow) fn polling_turn(&self) -> PollingTurn<'_> {
        self.mark_polled(true);
        PollingTurn(self)
    }

    fn mark_polled(&self, polled: bool) {
        if let Some(turn) = &mut self.state().turn {
            turn.polled = polled;
        }
    }
}

/// A guard. While it lives, a loop is in one of its turns.
pub(in crate::flow) struct Entered<'a>(&'a Live);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.state().turn = None;
    }
}

pub(in crate::flow) struct PollingTurn<'a>(&'a Live);

impl Drop for PollingTurn<'_> {
    fn drop(&mut self) {
        self.0.mark_polled(false);
    }
}
