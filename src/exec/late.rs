//! Late answers of fenced workers that prove a second effect. The store has opened a question about each; the effects
//! that their tools can undo are undone here.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::core::Core;
use super::outcome::{ExecError, admitted, failed, unless_panicked};
use super::{escalate, orphans, surplus, undo};
use crate::id::QuestionId;
use crate::ledger::{ContractClass, Found, Record, State, is_second_effect};
use crate::store::{FIRST_LATE_QUESTION, Question, Refusal, Store as _, StoreError, Verdict};

/// The number of questions that are read at a time.
const PAGE: u32 = 1000;
/// The pause before questions that could not be read are read again. It doubles with each failure, up to `LATEST`.
const LATER: Duration = Duration::from_secs(5);
const LATEST: Duration = Duration::from_mins(1);

impl Core {
    /// Looks for questions about second effects, now and whenever the store may have opened one.
    pub(crate) fn watch_late_answers(self: &Arc<Self>) {
        self.lasting("late answers", run);
    }
}

/// Runs until the core is gone or closing.
///
/// # Crash
/// A question stays open until its effect is undone, and each undoing has a record: the next process goes on.
async fn run(core: Weak<Core>) {
    let (mut known, mut pause) = (HashSet::new(), LATER);
    while let Some(strong) = core.upgrade() {
        if strong.is_closing() {
            return;
        }
        let again = match take_up(&strong, &mut known).await {
            Ok(()) => None,
            Err(error) => {
                log_trouble!(error, "questions about late answers not read, will retry");
                Some(strong.clock.sleep(pause))
            }
        };
        let opened = strong.late.clone();
        drop(strong); // a sleeper must not keep a closed database open
        match again {
            None => {
                pause = LATER;
                opened.notified().await;
            }
            // Where no other worker lives, nothing may be notified before the next start.
            Some(again) => {
                pause = (pause * 2).min(LATEST);
                tokio::select! {
                    biased; // no random choice, so that a simulation is repeatable
                    () = opened.notified() => {}
                    () = again => {}
                }
            }
        }
    }
}

/// `known`: the questions that this process has logged. The store has opened them in the transaction of a late answer, where nobody
/// logs them.
async fn take_up(core: &Arc<Core>, known: &mut HashSet<QuestionId>) -> Result<(), StoreError> {
    let mut after = QuestionId(FIRST_LATE_QUESTION.0 - 1);
    let mut all = HashSet::new();
    loop {
        let open = core.group.escalation_duplicated(after, PAGE).await?;
        let Some(last) = open.last() else {
            known.retain(|question| all.contains(question)); // the others are answered
            return Ok(());
        };
        after = last.id;
        for question in open {
            all.insert(question.id);
            if known.insert(question.id) {
                let Question { tenant, run, id, kind, .. } = &question;
                let (run, kind) = (run.map(tracing::field::display), kind.name());
                tracing::warn!(%tenant, run, question = %id, kind, "question about a late answer open");
                count!(core.meter, DUPLICATES of tenant);
            }
            let core = core.clone();
            core.tracker.clone().spawn(async move {
                let id = question.id;
                if let Err(error) = unless_panicked(&id, Box::pin(answer_if_possible(&core, question))).await
                {
                    log_trouble!(error, question = %id, "second effect not undone, question stays open");
                }
            });
        }
    }
}

/// Answers the question if the effect is the record's own. Otherwise undoes the effect, if its tool undoes effects
/// beyond the first one, and answers the question.
///
/// # Crash
/// The undoing has a record under the effect's id, by which the next process finds its outcome.
async fn answer_if_possible(core: &Arc<Core>, question: Question) -> Result<(), ExecError> {
    let tenant = &question.tenant;
    let read = |source| ExecError::Store { key: question.id.to_string(), source };
    let Some(id) = question.record else { return Ok(()) };
    let Some(mut record) = core.group.record_at(tenant, id).await.map_err(read)? else { return Ok(()) };
    if record.awaited_by().is_some() {
        if core.is_anothers(record.fence).await.map_err(read)? {
            return Ok(()); // that worker looks at the question as well
        }
        // The record's run is over, or the store would not have opened the question: nobody else reads the answer.
        orphans::take_up(core, &record, 0).await?;
        match core.group.record_at(tenant, id).await.map_err(read)? {
            Some(settled) => record = settled,
            None => return Ok(()),
        }
    }
    let evidence =
        core.group.record_evidence(tenant, id).await.map_err(|source| failed(&record.key, source))?;
    let Some(late) = evidence.into_iter().find(|late| late.question_id() == question.id) else {
        return Ok(());
    };
    let contract = core.contract_of(&record).await.map_err(read)?.class;
    if is_own(&record, late.external_ref.as_deref(), contract) {
        let answered = escalate::settled(core, question, serde_json::json!({ "kept": late.external_ref }));
        return close(core, &record, answered).await;
    }
    // Without an id of its own the effect cannot be told from the one that is kept.
    let is_surplus = |id: &String| record.external_ref.as_ref().is_some_and(|kept| kept != id);
    let Some(external_ref) = late.external_ref.filter(is_surplus) else { return Ok(()) };
    let output = core.load_response(tenant, &late.response).await?.ok();
    let surplus = [Found { external_ref: Some(external_ref), output }];
    let happened = matches!(record.state, State::Committed { .. } | State::Compensated { .. });
    if !happened || !surplus::undoes(core, &record, &surplus) {
        return Ok(());
    }
    if !undo::undo_surplus(core, &record, &surplus).await?.is_empty() {
        return Ok(());
    }
    let answered = escalate::settled(core, question, serde_json::json!({ "undone": surplus::ids(&surplus) }));
    close(core, &record, answered).await
}

/// True if the record was settled by this late answer, so that the answer tells of no other effect.
fn is_own(record: &Record, external_ref: Option<&str>, contract: ContractClass) -> bool {
    matches!(record.state, State::Committed { .. }) && !is_second_effect(record, external_ref, contract)
}

async fn close(core: &Core, record: &Record, answered: Question) -> Result<(), ExecError> {
    match core.group.commit_one(core.change(None).escalation(answered)).await {
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(()), // a person was faster
        verdict => admitted(&record.key, verdict),
    }
}
