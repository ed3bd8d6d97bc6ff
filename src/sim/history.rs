//! The comparison of the recorded attempts with those that the tools have seen: each one is told of, and none is made
//! up.

use std::collections::BTreeSet;

use super::check::Rule;
use crate::id::{RecordId, Tenant};
use crate::ledger::{OperationKey, Record, State};
use crate::store::{Contact, ContactResult};

/// The attempts that the tools have seen: the operation of each, and its number.
pub(super) type Attempts = BTreeSet<((Tenant, OperationKey), u32)>;

pub(super) fn compare(
    records: &[Record],
    contacts: &[Contact],
    made: &Attempts,
    violated: &mut impl FnMut(Rule, String),
) {
    let attempts = || contacts.iter().filter(|contact| !contact.is_lookup);
    let told: BTreeSet<(RecordId, u32)> =
        attempts().map(|contact| (contact.record, contact.number)).collect();
    for record in records.iter().filter(|record| !matches!(record.state, State::Gone { .. })) {
        // The record itself tells of the last one.
        let earlier = 1..record.attempts;
        let last = record.attempts.saturating_sub(1);
        for number in earlier.filter(|number| !Contact::is_dropped(*number, last)) {
            if !told.contains(&(record.id, number)) {
                violated(Rule::HistoryWhole, format!("attempt {number} of {} is not told of", record.key));
            }
        }
        let place = (record.tenant.clone(), record.key.clone());
        let answered =
            attempts().filter(|told| told.record == record.id && told.result == ContactResult::Effect);
        for contact in answered.filter(|contact| !made.contains(&(place.clone(), contact.number))) {
            let what = format!(
                "attempt {} of {} is said to be answered, and was not made",
                contact.number, record.key
            );
            violated(Rule::HistoryWhole, what);
        }
    }
}
