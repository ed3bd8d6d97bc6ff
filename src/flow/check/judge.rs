//! Records that the checked code did not ask for: left behind, or out of the check's sight.

use std::sync::Arc;

use super::Replayer;
use super::report::{Changed, Consequence, LeftBehind, ReplayAnswer, ReplayEntry, ReplayReport};
use crate::flow::error::RunError;
use crate::flow::live::Live;
use crate::ledger::{Divergence, State};
use crate::store::{PastCall, Store as _};

/// The extent to which the check has seen the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The code to its end: it asks for nothing more.
    End,
    /// The code until every branch waits. At this point the engine looks for recorded effects that were not asked for,
    /// before anything new goes out.
    Rest,
    /// Less of the code than the engine would carry out by itself.
    Part,
}

impl Replayer {
    /// Sets the answer of the report, from its findings so far and from the records that were not asked for.
    pub(super) async fn judge(
        &self,
        live: &Arc<Live>,
        seen: Seen,
        report: &mut ReplayReport,
    ) -> Result<(), RunError> {
        let mut unreached = Vec::new();
        let unasked: Vec<_> = live.with_replay(|replay| replay.unasked(None).into_iter().cloned().collect());
        for call in unasked {
            match self.left_behind(live, seen, &call).await? {
                Some(left) => report.orphaned.push(left),
                None => unreached.push(ReplayEntry::of_call(&call.operation, &call.step)),
            }
        }
        for deed in live.with_replay(|replay| replay.unasked_deeds(None)) {
            if is_missed(live, seen, &deed.kept_id()) {
                let why = "it is not asked for any more".to_owned();
                report.changed.push(Changed { what: deed.to_string(), why });
            } else {
                unreached.push(ReplayEntry::of(&deed));
            }
        }
        for other in others(live) {
            if !unreached.contains(&other) {
                unreached.push(other); // a failed call has a record and a checkpoint, and is listed once
            }
        }
        report.answer = if report.is_broken() {
            ReplayAnswer::Breaks
        } else if seen == Seen::End || unreached.is_empty() {
            ReplayAnswer::Ok
        } else {
            ReplayAnswer::CannotTell { unreached }
        };
        Ok(())
    }

    /// A recorded call as an effect that is left behind. `None` if the engine would not count it as one.
    async fn left_behind(
        &self,
        live: &Arc<Live>,
        seen: Seen,
        call: &PastCall,
    ) -> Result<Option<LeftBehind>, RunError> {
        if !is_missed(live, seen, &call.record.to_string()) {
            return Ok(None);
        }
        let core = &self.inner.core;
        let record = core.group.record_at(&live.tenant, call.record).await?;
        let stands = |state: &State| matches!(state, State::Started | State::Committed { .. });
        let Some(record) = record.filter(|record| record.class.needs_owner() && stands(&record.state)) else {
            return Ok(None);
        };
        let held = live.held_calls();
        let again = held.iter().find(|new| new.tool == call.operation && new.hash == call.request_hash);
        let tool = core.registry.find(&call.operation);
        let consequence = match tool.map_or(Divergence::Escalate, |tool| tool.spec().divergence) {
            _ if seen == Seen::End => Consequence::Asks,
            _ if again.is_some() => Consequence::Blocks,
            Divergence::Adopt => return Ok(None),
            Divergence::Compensate => Consequence::Undoes,
            Divergence::Escalate => Consequence::Blocks,
        };
        Ok(Some(LeftBehind {
            tool: call.operation.clone(),
            key: call.key.to_string(),
            effect: record.class,
            happened: matches!(record.state, State::Committed { .. }),
            consequence,
            asked_for_as: again.map(|new| new.key.clone()),
        }))
    }
}

/// True if the engine would miss the record, child, signal or event with this id. While every branch waits, the engine
/// does not miss those that a run that was begun again may still come to.
fn is_missed(live: &Live, seen: Seen, done: &str) -> bool {
    match seen {
        Seen::End => true,
        Seen::Rest => !live.with_replay(|replay| replay.again.is_later(done)),
        Seen::Part => false,
    }
}

/// Checkpoints that the code did not ask for, and calls that another run's record answered. They are harmless, unless
/// the code asks for one later and it does not fit.
fn others(live: &Live) -> Vec<ReplayEntry> {
    live.with_replay(|replay| {
        let mut checkpoints = replay.unasked_checkpoints();
        checkpoints.retain(|checkpoint| !checkpoint.kind.is_deed());
        let uses = replay.unasked_uses().map(|used| ReplayEntry::of_call(&used.operation, &used.step));
        checkpoints.iter().map(ReplayEntry::of).chain(uses).collect()
    })
}
