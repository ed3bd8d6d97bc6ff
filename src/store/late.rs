//! The question that a late answer raises. The store opens it in the transaction that writes the
//! later of the two: the answer, or the seal of its record.

use sha2::{Digest as _, Sha256};

use super::Evidence;
use super::change::Change;
use super::escalation::{Question, QuestionKind};
use crate::id::{QuestionId, RecordId, Tenant};
use crate::ledger::{Record, State, is_second_effect};

/// The lowest id of such a question. The counter of a worker never reaches it.
pub(crate) const FIRST: QuestionId = QuestionId(1 << 62);

impl Change {
    /// The record whose late answers are compared with the change, if this change tells the store to compare.
    pub(crate) fn compared(&self) -> Option<(&Tenant, RecordId)> {
        self.contract?;
        match (&self.evidence, &self.record) {
            (Some(evidence), _) => Some((&evidence.tenant, evidence.record)),
            (None, Some(record)) if self.taken_over.is_some() => Some((&record.tenant, record.id)),
            _ => None,
        }
    }

    /// The question that a late answer raises about the record, as the record is once this change is written.
    /// `is_left`: the record is started, and its run has ended.
    pub(super) fn late_question(&self, record: &Record, is_left: bool, late: &Evidence) -> Option<Question> {
        let is_compared = match (&self.evidence, &self.taken_over) {
            (Some(this), _) => (this.fence, this.attempt) == (late.fence, late.attempt),
            (None, Some(known)) => !known.contains(&(late.fence, late.attempt)),
            (None, None) => false,
        };
        let is_second = is_second_effect(record, late.external_ref.as_deref(), self.contract?);
        let is_unread = is_left && !record.class.repeatable();
        (is_compared && (is_second || is_unread)).then(|| late.question(record))
    }
}

impl Evidence {
    /// The id of the question that this answer raises. The id is derived, so that two writers who open the question
    /// open only one.
    pub(crate) fn question_id(&self) -> QuestionId {
        let mut hasher = Sha256::new_with_prefix(b"counterfoil/late/1\0");
        for number in [self.record.0, self.fence.0, i64::from(self.attempt)] {
            hasher.update(number.to_be_bytes());
        }
        let mut bits = [0; 8];
        bits.copy_from_slice(&hasher.finalize()[..8]);
        QuestionId(FIRST.0 | i64::from_be_bytes(bits) & (FIRST.0 - 1))
    }

    fn question(&self, record: &Record) -> Question {
        let id =
            |id: Option<&str>| id.map_or_else(|| "without an id".to_owned(), |id| format!("with id {id}"));
        let state = match &record.state {
            State::Committed { .. } => {
                let kept = id(record.external_ref.as_deref());
                format!(
                    "The operation happened more than once. The effect {kept} is kept. What about the other?"
                )
            }
            State::Compensated { .. } => "The operation was undone. Does this effect stand?".to_owned(),
            State::Started => "Its run is over. It had dropped the call, and a lookup did not show the effect. What about it?".to_owned(),
            state => format!("The record says `{}`. What about this effect?", state.name()),
        };
        let question = format!(
            "{} ({}): attempt {} by worker {} was answered late, when its time was over: it had an effect {}. {state}",
            record.key,
            record.class.name(),
            self.attempt,
            self.fence,
            id(self.external_ref.as_deref()),
        );
        Question {
            id: self.question_id(),
            tenant: self.tenant.clone(),
            record: Some(record.id),
            run: record.owner.run,
            kind: QuestionKind::Duplicated,
            question,
            opened_at: self.at.max(record.updated_at),
            waiting: None,
            answer: None,
        }
    }
}
