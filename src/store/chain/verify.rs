//! The comparison of the rows with the chain.

use std::collections::BTreeSet;

use super::anchor::Anchor;
use super::covered::{Covered, review};
use super::digest::{Digests, SHORT};
use super::key::ChainKey;
use super::link::{Place, Sort};
use super::mark::ChainMark;
use super::report::{ChainReport, Finding, FindingKind};
use super::standing::{Standings, Unseen};
use crate::clock::Timestamp;
use crate::id::{QuestionId, RecordId, Tenant};
use crate::ledger::{OperationKey, Record, Review};
use crate::payload::DigestKey;
use crate::store::{Store, StoreError};

/// The number of rows that are read at once.
const PAGE: u32 = 500;
/// The number of times that a row is read again which does not fit: a process may have written it meanwhile.
const AGAIN: usize = 5;

/// What is compared.
#[derive(Clone, Debug)]
pub(crate) enum Scope<'s> {
    /// All rows of the ledger.
    Ledger,
    /// The rows of one call, and the review that it was approved by.
    Call(&'s Tenant, OperationKey),
}

/// Compares rows with the chain. `None` if the ledger has no chain, or the tenant no such call.
pub(crate) async fn verify(
    store: &dyn Store,
    key: &ChainKey,
    anchor: Option<&Anchor>,
    scope: Scope<'_>,
    as_of: Timestamp,
) -> Result<Option<ChainReport>, StoreError> {
    let store = database(store);
    let Some(mark) = ChainMark::of(store).await? else { return Ok(None) };
    let units = match &scope {
        Scope::Ledger => None,
        Scope::Call(tenant, key) => match store.record_find(tenant, key).await? {
            Some(record) => Some(of_call(tenant, &record)),
            None => return Ok(None),
        },
    };
    let digests = mark.digests();
    let places = units.as_ref().map(|units| units.iter().map(|unit| unit.place(&digests)).collect());
    let checked = mark.is_checked_by(key).then_some(key);
    let links = Standings::new(checked, &digests, anchor, places);
    let (since, most_older) = (mark.since(), mark.older());
    let mut comparison = Comparison { store, digests: &digests, since, most_older, links, rows: 0, older: 0 };
    comparison.links.catch_up(store).await?; // before all rows: each row of these links is to be there
    let suspects = match units {
        Some(units) => units,
        None => comparison.ledger().await?,
    };
    let mut findings = comparison.again(suspects).await?;
    findings.extend(comparison.too_many_older());
    let is_signed = mark.is_signed_by(key);
    if key.is_secret() && !is_signed {
        let what = "the mark, which the given secret did not sign".into();
        findings.insert(0, Finding::of_chain(FindingKind::MarkAltered, what));
    }
    Ok(Some(comparison.report(findings, is_signed, as_of)))
}

/// The number of rows that a chain is to cover, and does not because it begins now.
pub(super) async fn older_rows(store: &dyn Store) -> Result<u64, StoreError> {
    let digests = Digests::new(&DigestKey::new([0; 32])); // no link is compared
    let (since, most_older) = (Timestamp(i64::MAX), u64::MAX);
    let links = Standings::new(None, &digests, None, None);
    let mut all =
        Comparison { store: database(store), digests: &digests, since, most_older, links, rows: 0, older: 0 };
    all.ledger().await?;
    Ok(all.older)
}

/// The database behind all wrappers, whose rows are as they are stored.
fn database(mut store: &dyn Store) -> &dyn Store {
    while let Some(behind) = store.behind() {
        store = behind;
    }
    store
}

fn of_call(tenant: &Tenant, record: &Record) -> BTreeSet<Unit> {
    let review = record.approval.as_ref().and_then(|approval| approval.review.as_ref());
    let review = review.map(|(id, _)| Unit::Review(tenant.clone(), id.clone()));
    review.into_iter().chain([Unit::Call(tenant.clone(), record.id)]).collect()
}

struct Comparison<'k> {
    store: &'k dyn Store,
    digests: &'k Digests,
    since: Timestamp,
    /// The number of rows from before the chain when it began.
    most_older: u64,
    links: Standings<'k>,
    rows: u64,
    older: u64,
}

/// A covered row as it is stored.
struct Stored {
    place: Place,
    revision: u32,
    digest: [u8; SHORT],
    at: Timestamp,
    name: String,
}

/// What is compared at once, and read again if it does not fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Call(Tenant, RecordId),
    Review(Tenant, String),
    /// A review that was not among those of the tenants.
    LostReview(Tenant, Place),
}

impl Unit {
    const fn tenant(&self) -> &Tenant {
        let (Self::Call(tenant, _) | Self::Review(tenant, _) | Self::LostReview(tenant, _)) = self;
        tenant
    }

    /// The place of the record or of the review.
    fn place(&self, digests: &Digests) -> Place {
        match self {
            Self::Call(_, id) => Place::of_record(id.0),
            Self::Review(tenant, id) => review(tenant, id, digests),
            Self::LostReview(_, place) => *place,
        }
    }
}

/// The result of comparing one unit.
#[derive(Default)]
struct Compared {
    rows: u64,
    older: u64,
    findings: Vec<Finding>,
}

impl Comparison<'_> {
    /// Compares all rows. Returns the units that do not fit.
    async fn ledger(&mut self) -> Result<BTreeSet<Unit>, StoreError> {
        let (mut suspects, mut unseen) = (BTreeSet::new(), self.links.units());
        let mut after = String::new();
        loop {
            let tenants = self.store.tenant_list(&after, PAGE).await?;
            let Some(last) = tenants.last() else { break };
            after = last.as_str().to_owned();
            for tenant in &tenants {
                self.calls(tenant, &mut unseen, &mut suspects).await?;
                self.reviews(tenant, &mut unseen, &mut suspects).await?;
            }
        }
        let Unseen { records, reviews } = unseen;
        suspects.extend(records.into_iter().map(|(id, tenant)| Unit::Call(tenant, RecordId(id))));
        suspects.extend(reviews.into_iter().map(|(place, tenant)| Unit::LostReview(tenant, place)));
        Ok(suspects)
    }

    /// Compares units again that did not fit. Returns what does not fit in the end.
    async fn again(&mut self, mut suspects: BTreeSet<Unit>) -> Result<Vec<Finding>, StoreError> {
        let mut findings = Vec::new();
        for _ in 0..AGAIN {
            let mut read = Vec::new();
            for unit in std::mem::take(&mut suspects) {
                let stored = self.stored(&unit).await;
                read.push((unit, stored));
            }
            // The links come last: they then know of each row that was read.
            self.links.catch_up(self.store).await?;
            findings.clear();
            for (unit, stored) in read {
                let compared = self.compared(&unit, stored)?;
                if compared.findings.is_empty() {
                    self.count(&compared);
                } else {
                    findings.extend(compared.findings);
                    suspects.insert(unit);
                }
            }
            if suspects.is_empty() {
                break;
            }
        }
        Ok(findings)
    }

    /// The finding that there are more rows from before the chain than there were.
    fn too_many_older(&self) -> Option<Finding> {
        let Self { older, most_older: most, .. } = self;
        let what =
            || format!("{older} rows say that they are older than the chain, and there were {most} of them");
        (older > most).then(|| Finding::of_chain(FindingKind::Added, what()))
    }

    fn report(self, mut findings: Vec<Finding>, is_signed: bool, as_of: Timestamp) -> ChainReport {
        let (of_links, unsettled) = self.links.of_links();
        findings.extend(of_links);
        let found = findings.len() as u64;
        findings.truncate(ChainReport::MOST);
        let Self { since, links, rows, older, .. } = self;
        let (links, anchor) = (links.links, links.anchor());
        ChainReport { is_signed, since, as_of, links, rows, older, unsettled, findings, found, anchor }
    }

    async fn calls(
        &mut self,
        tenant: &Tenant,
        unseen: &mut Unseen,
        suspects: &mut BTreeSet<Unit>,
    ) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let records = self.store.record_list(tenant, "", &after, PAGE).await?;
            let Some(last) = records.last() else { return Ok(()) };
            after = last.key.as_str().to_owned();
            for record in &records {
                unseen.records.remove(&record.id.0);
                let stored = self.call(tenant, record.id, Some(record)).await;
                self.compare_first(Unit::Call(tenant.clone(), record.id), stored, suspects)?;
            }
        }
    }

    async fn reviews(
        &mut self,
        tenant: &Tenant,
        unseen: &mut Unseen,
        suspects: &mut BTreeSet<Unit>,
    ) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let reviews = self.store.document_list(tenant, Review::KIND, &after, PAGE).await?;
            let Some(last) = reviews.last() else { return Ok(()) };
            after.clone_from(&last.id);
            for row in &reviews {
                let stored = vec![self.of(row, row.updated_at, format!("review {}", row.id))];
                unseen.reviews.remove(&stored[0].place);
                self.compare_first(Unit::Review(tenant.clone(), row.id.clone()), Ok(stored), suspects)?;
            }
        }
    }

    fn compare_first(
        &mut self,
        unit: Unit,
        stored: Result<Vec<Stored>, StoreError>,
        suspects: &mut BTreeSet<Unit>,
    ) -> Result<(), StoreError> {
        let compared = self.compared(&unit, stored)?;
        if compared.findings.is_empty() {
            self.count(&compared);
        } else {
            suspects.insert(unit);
        }
        Ok(())
    }

    /// The result for a unit. Rows that cannot be read at all were altered.
    fn compared(&self, unit: &Unit, stored: Result<Vec<Stored>, StoreError>) -> Result<Compared, StoreError> {
        match stored {
            Ok(stored) => Ok(self.compare(unit, &stored)),
            Err(StoreError::Corrupt { row, .. }) => {
                let (kind, tenant) = (FindingKind::Altered, Some(unit.tenant().clone()));
                Ok(Compared { findings: vec![Finding { kind, tenant, what: row }], ..Compared::default() })
            }
            Err(error) => Err(error),
        }
    }

    fn count(&mut self, compared: &Compared) {
        self.rows += compared.rows;
        self.older += compared.older;
    }

    async fn stored(&self, unit: &Unit) -> Result<Vec<Stored>, StoreError> {
        match unit {
            Unit::Call(tenant, id) => {
                let record = self.store.record_at(tenant, *id).await?;
                self.call(tenant, *id, record.as_ref()).await
            }
            Unit::Review(tenant, id) => {
                let row = self.store.document_find(tenant, Review::KIND, id).await?;
                let stored = row.map(|row| self.of(&row, row.updated_at, format!("review {id}")));
                Ok(stored.into_iter().collect())
            }
            Unit::LostReview(..) => Ok(Vec::new()),
        }
    }

    /// The covered rows of a call.
    async fn call(
        &self,
        tenant: &Tenant,
        id: RecordId,
        record: Option<&Record>,
    ) -> Result<Vec<Stored>, StoreError> {
        let key = record.map_or_else(|| format!("record {id}"), |record| record.key.to_string());
        let mut stored = Vec::new();
        stored.extend(record.map(|record| self.of(record, record.updated_at, format!("call {key}"))));
        for row in self.store.record_contacts(tenant, id).await? {
            let sort = if row.is_lookup { "lookup" } else { "attempt" };
            stored.push(self.of(&row, row.ended, format!("{sort} {} of call {key}", row.number)));
        }
        for row in self.store.record_evidence(tenant, id).await? {
            let name = format!("late answer of worker {} about call {key}", row.fence);
            stored.push(self.of(&row, row.at, name));
        }
        for row in self.store.escalation_of(tenant, id).await? {
            if let Some(answer) = &row.answer {
                stored.push(self.of(
                    &row,
                    answer.at,
                    format!("answer to question {} about call {key}", row.id),
                ));
            }
        }
        Ok(stored)
    }

    fn of<R: Covered>(&self, row: &R, at: Timestamp, name: String) -> Stored {
        let entry = row.entry(self.digests);
        Stored { place: entry.place, revision: entry.revision, digest: entry.digest, at, name }
    }

    fn compare(&self, unit: &Unit, stored: &[Stored]) -> Compared {
        let mut compared = Compared::default();
        let tenant = unit.tenant();
        for row in stored {
            let standing = self.links.of(&row.place);
            let kind = match standing {
                Some(standing) if standing.is_forked => FindingKind::RolledBack,
                Some(standing) if standing.fits(row.revision, &row.digest) => {
                    compared.rows += 1;
                    continue;
                }
                Some(standing) if standing.is_known() => FindingKind::Altered,
                // A row that was added may give itself any time.
                _ if row.at < self.since && self.most_older > 0 => {
                    compared.older += 1;
                    continue;
                }
                _ => FindingKind::Added,
            };
            compared.findings.push(Finding { kind, tenant: Some(tenant.clone()), what: row.name.clone() });
        }
        let missing = match unit {
            Unit::Call(_, id) => self.missing(*id, stored),
            Unit::Review(_, id) => self.missing_review(unit, stored, id),
            Unit::LostReview(..) => self.missing_review(unit, stored, "whose id is not known"),
        };
        let finding = |what| Finding { kind: FindingKind::Missing, tenant: Some(tenant.clone()), what };
        compared.findings.extend(missing.into_iter().map(finding));
        compared
    }

    /// The rows of a call that should be there, in words.
    fn missing(&self, id: RecordId, stored: &[Stored]) -> Vec<String> {
        let record = stored.iter().find(|row| row.place.sort == Sort::Record);
        let of_record = self.links.of(&Place::of_record(id.0));
        let is_bare = of_record.is_some_and(|standing| match record {
            Some(row) => standing.is_tombstone(row.revision, &row.digest),
            None => standing.may_be_gone(),
        });
        let of = record.map_or_else(|| format!("record {id}"), |record| record.name.clone());
        let lost = self.links.of_record(id.0).filter(|(place, standing)| {
            let is_there = stored.iter().any(|row| row.place == *place);
            !is_there && !self.links.may_lack(place, standing, is_bare)
        });
        let named = lost.map(|(place, _)| match place.sort {
            Sort::Contact => format!("attempt or lookup {} of {of}", place.row),
            Sort::Answer => format!("answer to question {} about {of}", QuestionId(place.row)),
            Sort::Evidence => format!("late answer about {of}"),
            Sort::Record | Sort::Review | Sort::Tenant => of.clone(),
        });
        named.collect()
    }

    fn missing_review(&self, unit: &Unit, stored: &[Stored], id: &str) -> Vec<String> {
        let place = unit.place(self.digests);
        let is_lost = |standing| stored.is_empty() && !self.links.may_lack(&place, standing, false);
        if self.links.of(&place).is_some_and(is_lost) { vec![format!("review {id}")] } else { Vec::new() }
    }
}
