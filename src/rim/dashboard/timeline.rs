//! A run's past as a timeline: what happened on which lane, from when to when. Pure. The figure draws it to scale, and the table
//! below the figure says the same in words.

use crate::clock::Timestamp;
use crate::exec::{Evidence, PastAttempt, PastLookup};
use crate::flow::{PastStep, PastTurn, RunState, RunStatus};
use crate::store::{ContactResult, Question, StepKind};

/// The sort of a mark: how it is drawn, and its word in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sort {
    Run,
    Wait,
    Question,
    Attempt,
    Doubt,
    Failure,
    Lookup,
    Step,
    Signal,
    Child,
    Undone,
    Crash,
    Takeover,
}

impl Sort {
    /// All sorts, as the legend lists them.
    pub(super) const ALL: [Self; 13] = [
        Self::Run,
        Self::Wait,
        Self::Question,
        Self::Attempt,
        Self::Doubt,
        Self::Failure,
        Self::Lookup,
        Self::Step,
        Self::Signal,
        Self::Child,
        Self::Undone,
        Self::Crash,
        Self::Takeover,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Wait => "wait",
            Self::Question => "question",
            Self::Attempt => "attempt",
            Self::Doubt => "attempt of unknown outcome",
            Self::Failure => "failed attempt",
            Self::Lookup => "lookup",
            Self::Step => "step",
            Self::Signal => "signal",
            Self::Child => "child",
            Self::Undone => "undone",
            Self::Crash => "worker lost",
            Self::Takeover => "takeover",
        }
    }

    /// The class of the mark in the style sheet.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Doubt => "doubt",
            Self::Failure => "failure",
            Self::Crash => "crash",
            sort => sort.name(),
        }
    }
}

/// Something that happened at an instant, or from one instant to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) sort: Sort,
    pub(super) from: Timestamp,
    /// Absent for an instant.
    pub(super) to: Option<Timestamp>,
    pub(super) words: String,
}

/// Marks under one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) label: String,
    /// The key of the call that the lane is about.
    pub(super) key: Option<String>,
    pub(super) marks: Vec<Mark>,
}

/// A run's past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timeline {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) lanes: Vec<Lane>,
}

/// What a timeline is made of.
pub(super) struct Past<'a> {
    pub(super) run: &'a RunStatus,
    pub(super) turns: &'a [PastTurn],
    /// The evidence of the calls of these turns.
    pub(super) calls: &'a [Evidence],
    /// The open questions about the run.
    pub(super) questions: &'a [Question],
    pub(super) now: Timestamp,
}

impl Timeline {
    pub(super) fn of(past: &Past<'_>) -> Self {
        let now = if past.run.state.is_final() { past.run.updated_at } else { past.now };
        let mut lanes = vec![run_lane(past, now)];
        lanes.extend(steps_lane(past));
        let mut calls: Vec<_> = past.calls.iter().collect();
        calls.sort_by_key(|call| call.asked_by.at);
        lanes.extend(calls.into_iter().map(|call| call_lane(call, now)));
        let of_run = past.questions.iter().filter(|asked| asked.record.is_none());
        let asked: Vec<_> = of_run.map(|asked| open_question(asked, now)).collect();
        if !asked.is_empty() {
            lanes.push(Lane { label: "questions".into(), key: None, marks: asked });
        }
        let marks = || lanes.iter().flat_map(|lane| &lane.marks);
        let from = marks().map(|mark| mark.from).min().unwrap_or(past.run.started_at);
        let to = marks().filter_map(|mark| mark.to).chain(marks().map(|mark| mark.from)).max().unwrap_or(now);
        // A run of no length is drawn as one of a millisecond.
        Self { from, to: to.max(Timestamp(from.0.saturating_add(1000))), lanes }
    }

    /// The marks of all lanes in the order of time, each with the label of its lane.
    pub(super) fn in_order(&self) -> Vec<(&Lane, &Mark)> {
        let marks = self.lanes.iter().flat_map(|lane| lane.marks.iter().map(move |mark| (lane, mark)));
        let mut marks: Vec<_> = marks.collect();
        marks.sort_by_key(|(_, mark)| (mark.from, mark.sort));
        marks
    }
}

fn run_lane(past: &Past<'_>, now: Timestamp) -> Lane {
    let run = past.run;
    let mut marks =
        vec![Mark { sort: Sort::Run, from: run.started_at, to: Some(now), words: run.state.to_string() }];
    if let RunState::Waiting { .. } | RunState::Queued = run.state {
        let (from, words) = (run.updated_at, run.state.to_string());
        marks.push(Mark { sort: Sort::Wait, from, to: Some(now.max(from)), words });
    }
    Lane { label: "run".into(), key: None, marks }
}

/// The checkpoints, and the waits that they tell of.
fn steps_lane(past: &Past<'_>) -> Option<Lane> {
    let mut steps: Vec<_> = past.turns.iter().flat_map(|turn| &turn.steps).collect();
    steps.sort_by_key(|step| step.at);
    let mut before = past.run.started_at;
    let mut marks = Vec::new();
    for step in steps {
        marks.extend(step_marks(step, before));
        before = step.at;
    }
    (!marks.is_empty()).then(|| Lane { label: "steps".into(), key: None, marks })
}

fn step_marks(step: &PastStep, before: Timestamp) -> Vec<Mark> {
    let named = format!("{} {}", word(step.kind), step.name.trim_start_matches('~'));
    let at = |sort, words| Mark { sort, from: step.at, to: None, words };
    match step.kind {
        StepKind::Timer => {
            let due = step.value.as_ref().and_then(|due| due.inline()?.decode().ok()).map(Timestamp);
            vec![Mark { sort: Sort::Wait, from: step.at, to: due.map(|due| due.max(step.at)), words: named }]
        }
        StepKind::Signal => {
            let waited = Mark {
                sort: Sort::Wait,
                from: before.min(step.at),
                to: Some(step.at),
                words: format!("waited for {named}"),
            };
            vec![waited, at(Sort::Signal, format!("{named} {}", step.id))]
        }
        StepKind::Child => vec![at(Sort::Child, format!("{named} {}", step.id))],
        StepKind::CallFailed => vec![at(Sort::Failure, named)],
        StepKind::Undoing => vec![at(Sort::Undone, "the effects of the run are being undone".into())],
        _ => vec![at(Sort::Step, named)],
    }
}

/// The kind of a checkpoint in words.
pub(super) const fn word(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Step => "step",
        StepKind::Timer => "timer",
        StepKind::Drawn => "drawn value",
        StepKind::Select => "choice",
        StepKind::Transaction => "transaction",
        StepKind::CallFailed => "failed call",
        StepKind::Abandoned => "dropped future",
        StepKind::Kept => "kept effect",
        StepKind::Signal => "signal",
        StepKind::Child => "child",
        StepKind::Sent => "sent signal",
        StepKind::Turns => "turn",
        StepKind::Input => "new input",
        StepKind::Again => "begun again",
        StepKind::Guard => "guard",
        StepKind::Emitted => "event",
        StepKind::Undoing => "undoing",
        StepKind::Patch => "patch",
        StepKind::Adopted => "adopted step",
        StepKind::Published => "published value",
    }
}

/// The attempts, lookups and questions of a call.
fn call_lane(call: &Evidence, now: Timestamp) -> Lane {
    let asked = call.asked_by.at;
    let mut marks: Vec<_> = call.history.lookups.iter().map(lookup).collect();
    let mut worker = None;
    for made in &call.history.attempts {
        // Of a later attempt the record may not tell when it began: it was after everything before it.
        let ended = |mark: &Mark| mark.to.unwrap_or(mark.from);
        let after =
            marks.iter().filter(|mark| made.ended.is_none_or(|end| ended(mark) <= end)).map(ended).max();
        let from = made.began.or(after).unwrap_or(asked);
        if worker.is_some_and(|before| before != made.worker) {
            let words = format!("taken over by worker {}", made.worker);
            marks.push(Mark { sort: Sort::Takeover, from, to: None, words });
        }
        worker = Some(made.worker);
        marks.extend(attempt(made, from, call, now));
    }
    marks.extend(call.questions.iter().map(|asked| {
        let to = asked.answer.as_ref().map_or(now, |answer| answer.at);
        let words = match &asked.answer {
            Some(answer) => format!("asked, and answered by {}: {}", answer.by, answer.resolution.name()),
            None => format!("asked: {}", asked.question),
        };
        Mark { sort: Sort::Question, from: asked.opened_at, to: Some(to.max(asked.opened_at)), words }
    }));
    if call.outcome.undone.is_some() {
        let (from, words) = (call.outcome.updated_at, "the effect is undone".to_owned());
        marks.push(Mark { sort: Sort::Undone, from, to: None, words });
    }
    marks.sort_by_key(|mark| (mark.sort, mark.from));
    Lane { label: call.tool.clone(), key: Some(call.key.clone()), marks }
}

fn attempt(made: &PastAttempt, from: Timestamp, call: &Evidence, now: Timestamp) -> Vec<Mark> {
    let is_settled = call.outcome.settled_at.is_some();
    let to = made.ended.or(call.outcome.settled_at).unwrap_or(now).max(from);
    let sort = match made.result {
        Some(ContactResult::Effect | ContactResult::Pending) => Sort::Attempt,
        Some(ContactResult::Failed | ContactResult::Nothing) => Sort::Failure,
        None if !is_settled => Sort::Attempt,
        _ => Sort::Doubt,
    };
    let result = made.result.map_or("no answer yet", ContactResult::name);
    let words = format!("attempt {} by worker {}: {result}", made.number, made.worker);
    let words = match &made.message {
        Some(message) => format!("{words}, {message}"),
        None => words,
    };
    let mut marks = vec![Mark { sort, from, to: Some(to), words }];
    if made.result == Some(ContactResult::Lost) {
        let words = format!("worker {} was lost in attempt {}", made.worker, made.number);
        marks.push(Mark { sort: Sort::Crash, from: to, to: None, words });
    }
    marks
}

fn lookup(made: &PastLookup) -> Mark {
    let words = format!("lookup {} by worker {}: {}", made.number, made.worker, made.result.name());
    let from = made.began.unwrap_or(made.ended).min(made.ended);
    Mark { sort: Sort::Lookup, from, to: Some(made.ended), words }
}

fn open_question(asked: &Question, now: Timestamp) -> Mark {
    let to = Some(now.max(asked.opened_at));
    Mark { sort: Sort::Question, from: asked.opened_at, to, words: format!("asked: {}", asked.question) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::exec::{AskedBy, CallHistory, OutcomeEvidence};
    use crate::id::{Fence, RunId, Tenant};

    fn at(second: i64) -> Timestamp {
        Timestamp(second * 1_000_000)
    }

    fn attempt(number: u32, worker: i64, times: (Option<i64>, i64), result: ContactResult) -> PastAttempt {
        let (began, ended) = (times.0.map(at), Some(at(times.1)));
        let (worker, result) = (Fence(worker), Some(result));
        PastAttempt {
            number,
            worker,
            worker_name: None,
            began,
            ended,
            result,
            error: None,
            message: None,
            external_ref: None,
        }
    }

    /// A call whose first worker died after four seconds, and which another one has looked up and sent again.
    fn taken_over() -> Evidence {
        let nothing = PastLookup {
            number: 1,
            attempt: 1,
            worker: Fence(2),
            worker_name: None,
            began: Some(at(6)),
            ended: at(7),
            result: ContactResult::Nothing,
            error: None,
            message: None,
            external_ref: None,
        };
        let attempts = vec![
            attempt(1, 1, (Some(1), 5), ContactResult::Lost),
            attempt(2, 2, (None, 9), ContactResult::Effect), // of which the record does not tell when it began
        ];
        let history = CallHistory { attempts, lookups: vec![nothing], ..CallHistory::default() };
        let asked_by = AskedBy { run: None, step: None, turn: 0, call_id: None, at: at(1) };
        let outcome = OutcomeEvidence {
            state: "committed",
            basis: None,
            external_ref: None,
            failure: None,
            abandoned: None,
            undone: None,
            attempts: 2,
            settled_at: Some(at(9)),
            updated_at: at(9),
        };
        Evidence {
            tenant: Tenant::default(),
            key: "pay:c1".into(),
            wire_key: "pay:c1".into(),
            tool: "pay".into(),
            effect: "payment",
            asked_by,
            labels: BTreeMap::new(),
            used_by: vec![],
            approval: None,
            history,
            late_answers: vec![],
            questions: vec![],
            outcome,
            kept_until: None,
            as_of: at(10),
        }
    }

    #[test]
    fn one_sees_where_a_worker_was_lost_and_what_was_done_about_it() {
        let run = RunStatus {
            id: RunId(1),
            tenant: Tenant::default(),
            workflow: "refund".into(),
            version: 1,
            key: None,
            parent: None,
            state: RunState::Succeeded,
            queue: None,
            turn: 0,
            recovery_attempts: 0,
            deadline: None,
            started_at: at(0),
            updated_at: at(10),
        };
        let calls = [taken_over()];
        let past = Past { run: &run, turns: &[], calls: &calls, questions: &[], now: at(99) };
        let timeline = Timeline::of(&past);
        let seen: Vec<_> =
            timeline.in_order().into_iter().map(|(_, mark)| (mark.sort, mark.from, mark.to)).collect();
        assert_eq!(
            seen,
            [
                (Sort::Run, at(0), Some(at(10))),
                (Sort::Doubt, at(1), Some(at(5))),
                (Sort::Crash, at(5), None),
                (Sort::Lookup, at(6), Some(at(7))),
                (Sort::Attempt, at(7), Some(at(9))),
                (Sort::Takeover, at(7), None),
            ]
        );
        assert_eq!((timeline.from, timeline.to), (at(0), at(10)), "a run that has ended grows no more");
    }
}
