//! The covered rows of a change, each with its entry.

use super::digest::{Digests, SHORT};
use super::link::{Entry, Fate, Place, Sort};
use crate::id::Tenant;
use crate::ledger::{Record, Review};
use crate::store::cell::Declared;
use crate::store::change::Written;
use crate::store::{Change, Contact, Document, Evidence, Question, Retired};

/// The entries of a change, with the tenant that owns its rows; `None` if evidence does not rest on any of them.
pub(super) fn covered(change: &Change, digests: &Digests) -> Option<(Tenant, Vec<Entry>)> {
    let mut tenant = None;
    let mut entries = Vec::new();
    for row in change.written() {
        let (of, entry) = match row {
            Written::Record(row) => (&row.tenant, Record::entry(row, digests)),
            Written::Contact(row) => (&row.tenant, row.entry(digests)),
            Written::Evidence(row) => (&row.tenant, row.entry(digests)),
            Written::Question(row) if row.is_covered() => (&row.tenant, row.entry(digests)),
            Written::Document(row) if row.is_covered() => (&row.tenant, row.entry(digests)),
            Written::DroppedContact(row) => {
                let place = Place { sort: Sort::Contact, record: row.record.0, row: row.id };
                (&row.tenant, Entry { place, fate: Fate::Gone, revision: 2, digest: [0; SHORT] })
            }
            Written::Retired(row) => (&row.tenant, retired(row, digests)),
            Written::Erased(tenant) => (
                tenant,
                Entry { place: whole(tenant, digests), fate: Fate::Gone, revision: 1, digest: [0; SHORT] },
            ),
            // No evidence rests on these. A large payload is found by its digest, which the record holds.
            Written::Worker(_)
            | Written::Admission(_)
            | Written::Schedule(_)
            | Written::Document(_)
            | Written::Published(_)
            | Written::Event(_)
            | Written::Mark(_)
            | Written::Forgotten(_)
            | Written::RetiredRun(_)
            | Written::ExpiredSignal(_)
            | Written::Payload(_)
            | Written::Key(_)
            | Written::Run(_)
            | Written::Label(_)
            | Written::RecordLabel(_)
            | Written::Look(_)
            | Written::Step(_)
            | Written::Prune(_)
            | Written::SharedEffect(_)
            | Written::Question(_)
            | Written::Signal(_)
            | Written::Received(_)
            | Written::Link(_) => continue,
        };
        tenant.get_or_insert(of);
        entries.push(entry);
    }
    tenant.map(|tenant| (tenant.clone(), entries))
}

fn retired(retired: &Retired, digests: &Digests) -> Entry {
    let place = Place::of_record(retired.id.0);
    let (fate, digest) = match &retired.left {
        Some(left) if retired.is_kept() => (Fate::Kept, digests.row(&**left)),
        Some(left) => (Fate::Tombstone, digests.row(&**left)),
        None => (Fate::Gone, [0; SHORT]),
    };
    Entry { place, fate, revision: retired.revision.saturating_add(1), digest }
}

/// A row on which evidence rests.
pub(super) trait Covered: Declared {
    fn covered_place(&self, digests: &Digests) -> Place;

    /// False for a row of the same table on which no evidence rests.
    fn is_covered(&self) -> bool {
        true
    }

    fn entry(&self, digests: &Digests) -> Entry {
        let (place, digest) = (self.covered_place(digests), digests.row(self));
        Entry { place, fate: Fate::Written, revision: self.revision(), digest }
    }
}

impl Covered for Record {
    fn covered_place(&self, _: &Digests) -> Place {
        Place::of_record(self.id.0)
    }
}

impl Covered for Contact {
    fn covered_place(&self, _: &Digests) -> Place {
        Place { sort: Sort::Contact, record: self.record.0, row: self.id }
    }
}

impl Covered for Evidence {
    fn covered_place(&self, digests: &Digests) -> Place {
        let row = digests.place(&[&self.fence.to_string(), &self.attempt.to_string()]);
        Place { sort: Sort::Evidence, record: self.record.0, row }
    }
}

impl Covered for Question {
    fn covered_place(&self, _: &Digests) -> Place {
        let record = self.record.map_or(0, |record| record.0);
        Place { sort: Sort::Answer, record, row: self.id.0 }
    }

    /// A store itself opens questions about late answers, so a question is covered from its answer on.
    fn is_covered(&self) -> bool {
        self.record.is_some() && self.answer.is_some()
    }
}

impl Covered for Document {
    fn covered_place(&self, digests: &Digests) -> Place {
        review(&self.tenant, &self.id, digests)
    }

    fn is_covered(&self) -> bool {
        self.kind.as_str() == Review::KIND
    }
}

/// The place of a review.
pub(super) fn review(tenant: &Tenant, id: &str, digests: &Digests) -> Place {
    Place { sort: Sort::Review, record: 0, row: digests.place(&[tenant.as_str(), id]) }
}

/// The place that stands for all rows of a tenant.
pub(super) fn whole(tenant: &Tenant, digests: &Digests) -> Place {
    Place { sort: Sort::Tenant, record: 0, row: digests.place(&[tenant.as_str()]) }
}
