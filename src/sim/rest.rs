//! The rules at rest: the records are compared with one another, and with the effects that the world has counted.

use std::collections::{BTreeMap, BTreeSet};

use super::check::{Rule, Violation};
use super::family::{did, family};
use super::history;
use super::life::Lasting;
use super::machine::Told;
use super::outbox;
use super::world::World;
use crate::id::{RecordId, RunId, Tenant};
use crate::ledger::{Basis, EffectClass, OperationKey, Record, State};
use crate::payload::Stored;
use crate::store::{Evidence, Question, QuestionKind, Run, RunState, SharedEffect};
use crate::tool::Undoing;

/// Checks the rules at rest. `told` holds the results that callers got in the lives that belong to the ledger;
/// `restored` is true if there were other lives.
pub(super) fn at_rest(
    Lasting { world, disk, checker }: &Lasting,
    told: &[BTreeMap<usize, Told>],
    restored: bool,
) -> Vec<Violation> {
    let store = &disk.model;
    let rest = Rest {
        records: store.records(),
        runs: store.runs(),
        uses: store.uses(),
        // The row of a pending call is no question: a run that waits for its provider at rest waits for no person.
        questions: store.escalations().into_iter().filter(|q| q.kind != QuestionKind::Pending).collect(),
        evidence: store.evidence(),
    };
    let mut violations = Vec::new();
    let mut violated = |rule, what| violations.push(Violation { rule, what });
    let counts = counts(world);
    for record in &rest.records {
        // A call that its run left behind may stay started if a lookup shows that it did not happen, if it leaves no
        // mark, or if a person has answered a question about it.
        let dropped = || {
            let place = (record.tenant.clone(), record.key.clone());
            let nothing = checker.is_missing(record) && !counts.contains_key(&place);
            rest.is_over(record.owner.run)
                && (nothing || !record.class.leaves_mark() || rest.was_decided(record))
        };
        let asked = rest.open_question(record).is_some() || rest.asks_what_happened_late(record.id);
        if record.state == State::Started && !asked && !dropped() {
            violated(Rule::NothingDropped, format!("{} may have happened, and nobody asks", record.key));
        }
    }
    for run in &rest.runs {
        rest.check_run(run, &mut violated);
    }
    let told: Vec<_> = told.iter().flatten().collect();
    for (place, a) in &told {
        if let Some((_, b)) = told.iter().find(|(other, b)| other == place && b != a) {
            violated(Rule::FirstResultWins, format!("a caller was told {a} and another one {b}"));
        }
    }
    rest.check_evidence(world, &mut violated);
    rest.compare(world, &mut violated);
    history::compare(&rest.records, &store.contacts(), &checker.attempts(), &mut violated);
    let known: BTreeSet<_> = rest.records.iter().map(|r| (r.tenant.clone(), r.key.clone())).collect();
    for (place, count) in counts.iter().filter(|(place, count)| **count > 1 && !known.contains(*place)) {
        if !checker.may_repeat(place) {
            violated(
                Rule::SilentDuplicate,
                format!("{} happened {count} times, and nothing is recorded", place.1),
            );
        }
    }
    rest.check_undone(&counts, &world.forgotten(), &mut violated);
    // After a restore, lost events are published again, so the comparison is skipped.
    if let Some(heard) = world.heard().filter(|_| !restored) {
        outbox::compare(&store.aggregates(), &heard, &rest.questions, &mut violated);
    }
    violations
}

struct Rest {
    records: Vec<Record>,
    runs: Vec<Run>,
    uses: Vec<SharedEffect>,
    questions: Vec<Question>,
    evidence: Vec<Evidence>,
}

impl Rest {
    fn open_question(&self, record: &Record) -> Option<&Question> {
        let blocks_owner =
            |q: &Question| q.kind.blocks_its_run() && q.run.is_some() && q.run == record.owner.run;
        // A question about an orphaned effect of a failed run does not keep its record waiting.
        let orphaned = |q: &Question| q.kind == QuestionKind::Orphaned && q.record == Some(record.id);
        let about = |q: &Question| Some(q.id) == record.escalation || orphaned(q) || blocks_owner(q);
        self.questions.iter().find(|q| q.answer.is_none() && about(q))
    }

    /// True if a person has decided about the effect of a run.
    fn was_decided(&self, record: &Record) -> bool {
        let about = |q: &Question| {
            matches!(q.kind, QuestionKind::Orphaned | QuestionKind::Compensation)
                && q.record == Some(record.id)
        };
        self.questions.iter().any(|q| about(q) && q.answer.is_some())
    }

    fn is_over(&self, run: Option<RunId>) -> bool {
        self.runs.iter().any(|known| Some(known.id) == run && known.state.is_final())
    }

    fn uses(&self, run: &Run, record: RecordId) -> bool {
        self.uses.iter().any(|used| used.run == run.id && used.record == record)
    }

    /// True if a run that ended well uses the record, whichever run owns it.
    fn is_wanted(&self, record: &Record) -> bool {
        self.runs.iter().filter(|run| self.ended_well(run)).any(|run| self.uses(run, record.id))
    }

    /// True if the run succeeded, and no ancestor has failed that would undo it.
    fn ended_well(&self, run: &Run) -> bool {
        let failed = |parent: &Run| {
            matches!(parent.state, RunState::Failed { .. })
                && family(parent, &self.runs.iter()).iter().any(|child| child.id == run.id)
        };
        matches!(run.state, RunState::Succeeded { .. }) && !self.runs.iter().any(failed)
    }

    /// True if the run goes on with the answer to an open question: about itself, about a child that it waits for, or
    /// about a child that it undoes.
    fn is_asked_about(&self, run: &Run) -> bool {
        let goes_on_with = |kind: QuestionKind| match run.state {
            RunState::Blocked { .. } => kind.blocks_its_run(),
            // A timer wakes it, whatever is asked beside it.
            RunState::Waiting { until: Some(_), .. } => true,
            _ => {
                QuestionKind::PARKING.contains(&kind) || kind.blocks_its_run() || kind == QuestionKind::Unread
            }
        };
        let concerns =
            |q: &Question| q.run == Some(run.id) || q.record.is_some_and(|record| self.uses(run, record));
        let open = |run: &Run| {
            let about = |q: &Question| QuestionKind::PARKING.contains(&q.kind) && q.run == Some(run.id);
            self.questions.iter().any(|q| q.answer.is_none() && about(q))
        };
        let child_is_asked_about = |child: &Run| {
            child.parent == Some(run.id)
                && if child.state.is_final() { open(child) } else { self.is_asked_about(child) }
        };
        self.questions.iter().any(|q| q.answer.is_none() && concerns(q) && goes_on_with(q.kind))
            || self.runs.iter().any(child_is_asked_about)
    }

    fn check_run(&self, run: &Run, violated: &mut impl FnMut(Rule, String)) {
        match run.state {
            RunState::Active => {
                violated(Rule::NothingDropped, format!("run {} is active and nobody has it", run.id));
            }
            RunState::Queued => {
                violated(Rule::NothingDropped, format!("run {} is queued and nobody admits it", run.id));
            }
            RunState::Waiting { .. } | RunState::Blocked { .. } if !self.is_asked_about(run) => {
                violated(Rule::NothingDropped, format!("run {} waits and nobody asks", run.id));
            }
            _ => {}
        }
        // A blocked run has not ended: its own question is open, or the check above has reported it.
        if matches!(run.state, RunState::Failed { .. }) {
            let family = family(run, &self.runs.iter());
            for record in self
                .records
                .iter()
                .filter(|record| did(&family, record))
                .filter(|r| matches!(r.state, State::Committed { .. }))
            {
                if !self.questions.iter().any(|q| q.record == Some(record.id)) && !self.is_wanted(record) {
                    let what = format!("{} happened for run {}, which did not end well", record.key, run.id);
                    violated(Rule::NoEffectForgotten, what);
                }
            }
        }
    }

    /// True if a question asks about an effect that a worker learned of too late.
    fn asks_what_happened_late(&self, record: RecordId) -> bool {
        self.questions.iter().any(|q| q.kind == QuestionKind::Duplicated && q.record == Some(record))
    }

    /// Checks that a question asks about each effect that a late answer proves.
    fn check_evidence(&self, world: &World, violated: &mut impl FnMut(Rule, String)) {
        for late in &self.evidence {
            let of = |record: &&Record| record.id == late.record && record.class.leaves_mark();
            let Some(record) = self.records.iter().find(of) else { continue };
            let other = late.external_ref.is_some() && late.external_ref != record.external_ref;
            let contradicts = match record.state {
                State::Started => false,
                // A person may have answered without an id.
                State::Committed { .. } => {
                    other && record.external_ref.is_some() && !world.may_repeat(record)
                }
                State::Compensated { .. } => other,
                _ => true,
            };
            if contradicts && !self.asks_what_happened_late(record.id) {
                let what = format!("{} is {}, a late answer says otherwise", record.key, record.state.name());
                violated(Rule::EvidenceIgnored, what);
            }
        }
    }

    /// Compares compensations with the effects that they undo.
    fn check_undone(
        &self,
        counts: &BTreeMap<(Tenant, OperationKey), usize>,
        forgotten: &BTreeSet<(Tenant, OperationKey)>,
        violated: &mut impl FnMut(Rule, String),
    ) {
        let mut violated = |what| violated(Rule::UndoneTruly, what);
        let mut undone = BTreeSet::new();
        let compensations = self.records.iter().filter(|record| record.class == EffectClass::Compensation);
        for (record, undoing) in compensations.filter_map(|record| Some((record, undoing(record)?))) {
            let forward = (record.tenant.clone(), OperationKey::stored(undoing.key));
            let place = (record.tenant.clone(), record.key.clone());
            let happened = counts.contains_key(&forward) || forgotten.contains(&forward);
            if counts.contains_key(&place) && !happened {
                violated(format!("{} was undone and had not happened", forward.1));
            }
            let is_done = matches!(record.state, State::Committed { .. });
            let said = self.records.iter().find(|r| (&r.tenant, &r.key) == (&forward.0, &forward.1));
            if is_done
                && !undoing.surplus
                && !said.is_some_and(|r| matches!(r.state, State::Compensated { .. }))
            {
                violated(format!("{} is undone, and its record does not say so", forward.1));
            }
            undone.extend(is_done.then_some(forward));
        }
        for record in self.records.iter().filter(|r| matches!(r.state, State::Compensated { .. })) {
            let place = (record.tenant.clone(), record.key.clone());
            if !undone.contains(&place) && !self.was_decided(record) {
                violated(format!("{} is said to be undone, and nothing undid it", record.key));
            }
            if self.is_wanted(record) && !self.questions.iter().any(|q| q.record == Some(record.id)) {
                violated(format!(
                    "{} is undone, a run that ended well rests on it, and nobody asks",
                    record.key
                ));
            }
        }
    }

    /// Compares the records with the effects that the world has counted.
    fn compare(&self, world: &World, violated: &mut impl FnMut(Rule, String)) {
        let counts = counts(world);
        for record in &self.records {
            let place = (record.tenant.clone(), record.key.clone());
            let count = counts.get(&place).copied().unwrap_or(0);
            if count > 1 && !is_marked(world, record, &self.questions) {
                violated(Rule::SilentDuplicate, format!("{} happened {count} times", record.key));
            }
            // A model call may be repeated, and the last answer counts.
            let happened = count > 0 && !record.class.repeatable();
            let is_late = self.asks_what_happened_late(record.id);
            if happened && matches!(record.state, State::Failed { .. }) && !is_late {
                violated(Rule::WrongFailure, format!("{} is failed and happened", record.key));
            }
            let asked = |q: &Question| q.kind == QuestionKind::Missing && q.record == Some(record.id);
            if is_lost(world, record, count) && !self.questions.iter().any(asked) {
                violated(Rule::SilentLoss, format!("{} is committed and did not happen", record.key));
            }
            if let Some(other) = self.taken_from(world, record) {
                let what = format!("{} is committed by the effect of {}", record.key, other.key);
                violated(Rule::SilentLoss, what);
            }
        }
    }

    /// The record of the same tool whose effect a lookup has taken for the effect of this record, and nobody asks about
    /// it. The world gives each effect an id of its own.
    fn taken_from(&self, world: &World, record: &Record) -> Option<&Record> {
        let is_found = matches!(record.state, State::Committed { .. }) && record.basis == Basis::Lookup;
        let id = record.external_ref.as_deref().filter(|_| is_found)?;
        let effect = world.effects().into_iter().find(|effect| effect.id == id)?;
        let is_owner = |other: &&Record| {
            other.id != record.id
                && (&other.tenant, &other.key) == (&effect.tenant, &effect.operation)
                && (&other.tenant, &other.operation) == (&record.tenant, &record.operation)
                && matches!(other.state, State::Committed { .. })
                && other.external_ref.as_deref() == Some(id)
        };
        let is_asked = self.questions.iter().any(|q| q.record == Some(record.id));
        self.records.iter().find(is_owner).filter(|_| !is_asked)
    }
}

/// The effect that a compensation undoes.
fn undoing(record: &Record) -> Option<Undoing> {
    match &record.request {
        Stored::Inline(request) => request.decode().ok(),
        Stored::At(_) | Stored::Oversized(_) => None,
    }
}

/// The number of effects of each operation in the world.
pub(super) fn counts(world: &World) -> BTreeMap<(Tenant, OperationKey), usize> {
    let mut counts = BTreeMap::new();
    for effect in world.effects() {
        *counts.entry((effect.tenant, effect.operation)).or_default() += 1;
    }
    counts
}

/// True if a record or a question reports that the operation may have happened more than once, or if it may repeat by
/// its nature, as a model call may. Whether the effect of a failed run is kept is another question.
pub(super) fn is_marked(world: &World, record: &Record, questions: &[Question]) -> bool {
    use QuestionKind::{Ambiguous, Compensation, Duplicated, Missing, Unconfirmed, UnknownTool};
    let asked = |q: &&Question| q.record == Some(record.id);
    let doubts = |q: &Question| match q.kind {
        Duplicated | Unconfirmed => true,
        // Of an effect that a person is asked about as missing, the engine does not ask once more.
        Ambiguous | UnknownTool | Missing => q.answer.is_none(),
        Compensation => record.class == EffectClass::Compensation && q.answer.is_none(),
        _ => false,
    };
    world.may_repeat(record)
        || record.basis == Basis::Declaration
        || questions.iter().filter(asked).any(doubts)
        // The call is reconciled after its run is resumed.
        || record.state == State::Started
            && questions.iter().any(|q| {
                q.answer.is_none() && q.kind.blocks_its_run() && q.run.is_some() && q.run == record.owner.run
            })
}

/// True if the operation is recorded as done, and nothing happened. Of a provider that is no part of this world, no effect
/// is counted: such a call is lost if its tool was never called. A call that this ledger has sent by no attempt may have
/// been found, or imported; so may the effect that a person made by hand.
pub(super) fn is_lost(world: &World, record: &Record, count: usize) -> bool {
    let place = (record.tenant.clone(), record.key.clone());
    let known = matches!(record.state, State::Committed { .. }) && record.basis != Basis::Decision;
    let unsent = || record.attempts > 0 && !world.was_called(&place) && !world.is_by_hand(record);
    count == 0 && known && (world.was_requested(&place) || unsent())
}
