//! The times of what happened, for charts.

use std::collections::BTreeSet;

use super::tables::Tables;
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::ledger::{Basis, Record, State};
use crate::store::figures::{Sign, signs_from};
use crate::store::{AvoidedDuplicates, Contact, ContactResult, Question, QuestionKind, QuestionSpan};

impl Tables {
    pub(super) fn escalation_spans(&self, tenant: &Tenant, limit: u32) -> Vec<QuestionSpan> {
        let asked =
            self.escalations.values().filter(|q| q.tenant == *tenant && q.kind != QuestionKind::Pending);
        let mut asked: Vec<_> = asked.collect();
        asked.sort_by_key(|question| std::cmp::Reverse((question.opened_at, question.id)));
        let span = |question: &Question| QuestionSpan {
            kind: question.kind,
            opened_at: question.opened_at,
            answered_at: question.answer.as_ref().map(|answer| answer.at),
        };
        asked.into_iter().take(limit as usize).map(span).collect()
    }

    pub(super) fn record_avoided(&self, tenant: &Tenant, since: Timestamp, limit: u32) -> AvoidedDuplicates {
        let shows = |contact: &Contact| contact.is_lookup && contact.result == ContactResult::Effect;
        let looked_up = self.contacts.values().filter(|contact| contact.tenant == *tenant && shows(contact));
        let told_late = self.evidence.values().filter(|late| late.tenant == *tenant);
        let used = self.uses.values().filter(|used| used.tenant == *tenant);
        let signs = [
            last(looked_up.map(|contact| (contact.ended, contact.record)), since, limit),
            last(told_late.map(|late| (late.at, late.record)), since, limit),
            last(used.map(|used| (used.at, used.record)), since, limit),
        ];
        let from = signs_from(&signs, since, limit);
        let [looked_up, told_late, used] = signs;
        let records: BTreeSet<_> = looked_up.iter().chain(&told_late).map(|(_, record)| *record).collect();
        let settled = records.into_iter().filter_map(|id| settled_by_sign(self.record(tenant, id)?));
        let mut found: Vec<_> = settled.filter(|at| *at >= since).collect();
        found.sort_by_key(|at| std::cmp::Reverse(*at));
        AvoidedDuplicates { found, shared: used.into_iter().map(|(at, _)| at).collect(), from }
    }
}

/// The instant at which the record was settled, unless it rests on the answer to an attempt.
fn settled_by_sign(record: &Record) -> Option<Timestamp> {
    let happened = matches!(record.state, State::Committed { .. } | State::Compensated { .. });
    record.sealed_at.filter(|_| happened && record.basis == Basis::Lookup)
}

/// The last signs, from `since` on.
fn last(signs: impl Iterator<Item = Sign>, since: Timestamp, limit: u32) -> Vec<Sign> {
    let mut signs: Vec<_> = signs.filter(|(at, _)| *at >= since).collect();
    signs.sort_by_key(|sign| std::cmp::Reverse(*sign));
    signs.truncate(limit as usize);
    signs
}
