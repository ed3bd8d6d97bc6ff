//! What the links say: the state that each covered row has, and the chains themselves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::anchor::{Anchor, Head};
use super::covered::whole;
use super::digest::{Digests, SHORT};
use super::key::ChainKey;
use super::link::{Body, Entry, Fate, Link, Place, Sort};
use super::report::{Finding, FindingKind};
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::payload::hex;
use crate::store::{Store, StoreError};

/// The number of links that are read at once.
const PAGE: u32 = 1000;
/// The length by which the clocks of two processes may be apart.
const APART: Duration = Duration::from_mins(1);

/// The links that were read, and what they say.
pub(super) struct Standings<'k> {
    /// The secret by which signatures are checked, if they are.
    key: Option<&'k ChainKey>,
    digests: &'k Digests,
    /// The calls and reviews that count, by their places; `None` if all do.
    only: Option<BTreeSet<Place>>,
    rows: BTreeMap<(i64, Sort, i64), Standing>,
    /// The last erasure of each erased tenant, by the place that stands for the tenant.
    erased: HashMap<Place, Timestamp>,
    chains: BTreeMap<i64, Chain>,
    altered: Vec<Finding>,
    pub(super) links: u64,
}

/// The state of a row by its links.
pub(super) struct Standing {
    pub(super) tenant: Tenant,
    /// The instant of the last link about the row.
    at: Timestamp,
    revision: u32,
    digest: [u8; SHORT],
    /// The revisions that were written, as bits: of a row that counts its changes, those below 128.
    written: u128,
    /// True if a revision was written twice: the database was put back to an earlier state of the row between the two writes.
    pub(super) is_forked: bool,
    /// Other states that the row may have: two writes of one revision, or an end of its retention.
    others: Vec<Entry>,
}

/// The calls and reviews whose rows were not seen yet, each with its tenant.
#[derive(Default)]
pub(super) struct Unseen {
    pub(super) records: BTreeMap<i64, Tenant>,
    pub(super) reviews: BTreeMap<Place, Tenant>,
}

#[derive(Default)]
struct Chain {
    last: i64,
    signature: String,
    settled: i64,
    /// The numbers that are not there, as ranges.
    gaps: Vec<(i64, i64)>,
    /// The numbers that may be missing, as ranges.
    absent: Vec<(i64, i64)>,
    /// The signatures of the links that an anchor names.
    anchored: BTreeMap<i64, String>,
}

impl Standing {
    /// The state of a row that no link has told of yet.
    fn new(tenant: Tenant, at: Timestamp) -> Self {
        let (revision, digest, written, is_forked, others) = (0, [0; SHORT], 0, false, Vec::new());
        Self { tenant, at, revision, digest, written, is_forked, others }
    }

    /// True if the row may be as it is.
    pub(super) fn fits(&self, revision: u32, digest: &[u8; SHORT]) -> bool {
        let is_it =
            |other: &Entry| other.revision == revision && other.digest == *digest && other.fate != Fate::Gone;
        (self.revision == revision && self.digest == *digest) || self.others.iter().any(is_it)
    }

    /// False if only an end of the retention is known: the row itself is older than the chain.
    pub(super) const fn is_known(&self) -> bool {
        self.revision > 0
    }

    /// True if the row is a tombstone.
    pub(super) fn is_tombstone(&self, revision: u32, digest: &[u8; SHORT]) -> bool {
        let is_it = |other: &Entry| {
            other.fate == Fate::Tombstone && other.revision == revision && other.digest == *digest
        };
        self.others.iter().any(is_it)
    }

    /// True if retention may have deleted the row itself.
    pub(super) fn may_be_gone(&self) -> bool {
        self.others.iter().any(|other| other.fate == Fate::Gone)
    }

    fn note(&mut self, entry: &Entry, at: Timestamp) {
        self.at = self.at.max(at);
        if entry.fate == Fate::Written && entry.place.counts_its_changes() {
            let bit = 1_u128.checked_shl(entry.revision).unwrap_or(0);
            self.is_forked |= self.written & bit != 0;
            self.written |= bit;
        }
        if entry.fate != Fate::Written || entry.revision == self.revision {
            if entry.revision >= self.revision {
                self.others.push(*entry);
            }
        } else if entry.revision > self.revision {
            (self.revision, self.digest) = (entry.revision, entry.digest);
            // An end of the retention that was to follow an earlier revision did not come.
            let revision = self.revision;
            self.others.retain(|other| other.revision > revision);
        }
    }
}

impl<'k> Standings<'k> {
    pub(super) fn new(
        key: Option<&'k ChainKey>,
        digests: &'k Digests,
        anchor: Option<&Anchor>,
        only: Option<BTreeSet<Place>>,
    ) -> Self {
        let mut chains = BTreeMap::<i64, Chain>::new();
        for Head { chain, number, signature } in anchor.into_iter().flat_map(|anchor| &anchor.heads) {
            chains.entry(*chain).or_default().anchored.insert(*number, signature.clone());
        }
        let (rows, erased, altered) = (BTreeMap::new(), HashMap::new(), Vec::new());
        Self { key, digests, only, rows, erased, chains, altered, links: 0 }
    }

    /// Reads the links that were written since the last reading.
    pub(super) async fn catch_up(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let mut chain = 0;
        loop {
            let mut after = self.chains.get(&chain).map_or(0, |chain| chain.last);
            loop {
                let page = store.link_list(chain, after, PAGE).await?;
                let Some(last) = page.last() else { break };
                after = last.number;
                for link in &page {
                    self.read(link);
                }
            }
            match store.link_chain(chain).await? {
                Some(next) => chain = next,
                None => return Ok(()),
            }
        }
    }

    fn read(&mut self, link: &Link) {
        self.links += 1;
        let signature = hex(&link.signature);
        let chain = self.chains.entry(link.chain).or_default();
        if link.number > chain.last + 1 {
            chain.gaps.push((chain.last + 1, link.number - 1));
        }
        chain.last = link.number;
        if chain.anchored.get(&link.number) == Some(&signature) {
            chain.anchored.remove(&link.number);
        }
        let is_signed = self.key.is_none_or(|key| link.signature[..] == key.sign(link));
        chain.signature = signature;
        let Some(body) = Body::from_bytes(&link.body).filter(|_| is_signed) else {
            let what = format!("link {} of chain {}", link.number, link.chain);
            self.altered.push(Finding::of_chain(FindingKind::LinkAltered, what));
            return;
        };
        chain.settled = chain.settled.max(body.settled);
        chain.absent.extend(body.absent);
        for entry in &body.entries {
            self.note(entry, link);
        }
    }

    fn note(&mut self, entry: &Entry, link: &Link) {
        let place = entry.place;
        if place.sort == Sort::Tenant {
            let erased = self.erased.entry(place).or_insert(link.at);
            *erased = (*erased).max(link.at);
        } else if self.only.as_ref().is_none_or(|only| only.contains(&place.of())) {
            let standing = self.rows.entry((place.record, place.sort, place.row));
            let fresh = || Standing::new(link.tenant.clone(), link.at);
            standing.or_insert_with(fresh).note(entry, link.at);
        }
    }

    /// The state of a row; `None` if no link is about it.
    pub(super) fn of(&self, place: &Place) -> Option<&Standing> {
        self.rows.get(&(place.record, place.sort, place.row))
    }

    /// The rows of a record.
    pub(super) fn of_record(&self, record: i64) -> impl Iterator<Item = (Place, &Standing)> {
        let rows = self.rows.range((record, Sort::Record, i64::MIN)..=(record, Sort::Tenant, i64::MAX));
        rows.map(|(&(record, sort, row), standing)| (Place { sort, record, row }, standing))
    }

    /// The calls and reviews that links are about.
    pub(super) fn units(&self) -> Unseen {
        let mut units = Unseen::default();
        for (&(record, sort, row), Standing { tenant, .. }) in &self.rows {
            if sort == Sort::Review {
                units.reviews.insert(Place { sort, record, row }, tenant.clone());
            } else {
                units.records.insert(record, tenant.clone());
            }
        }
        units
    }

    /// True if the row may be missing. `is_bare`: retention has taken away what belongs to the row's record.
    pub(super) fn may_lack(&self, place: &Place, standing: &Standing, is_bare: bool) -> bool {
        let erased = self.erased.get(&whole(&standing.tenant, self.digests));
        erased.is_some_and(|erased| erased.after(APART) >= standing.at)
            || !standing.is_known()
            || standing.may_be_gone()
            || (is_bare && place.sort != Sort::Record)
    }

    /// The findings about the links themselves, and the number of links that were under way when their process died.
    pub(super) fn of_links(&self) -> (Vec<Finding>, u64) {
        let (mut findings, mut unsettled) = (self.altered.clone(), 0);
        for (id, chain) in &self.chains {
            for (first, last) in without(&chain.gaps, &chain.absent) {
                if first < chain.settled {
                    let what = format!("links {first} to {} of chain {id}", last.min(chain.settled - 1));
                    findings.push(Finding::of_chain(FindingKind::LinkMissing, what));
                }
                unsettled +=
                    last.saturating_sub(first.max(chain.settled)).saturating_add(1).max(0).unsigned_abs();
            }
            for number in chain.anchored.keys() {
                let what = format!("link {number} of chain {id}, which the anchor names");
                findings.push(Finding::of_chain(FindingKind::CutOff, what));
            }
        }
        (findings, unsettled)
    }

    /// The ends of the chains.
    pub(super) fn anchor(&self) -> Anchor {
        let read = self.chains.iter().filter(|(_, chain)| chain.last > 0);
        let head = |(id, chain): (&i64, &Chain)| Head {
            chain: *id,
            number: chain.last,
            signature: chain.signature.clone(),
        };
        Anchor { heads: read.map(head).collect() }
    }
}

/// The parts of ranges that no other range covers.
fn without(ranges: &[(i64, i64)], others: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut others = others.to_vec();
    others.sort_unstable();
    let mut left = Vec::new();
    for &(mut first, last) in ranges {
        for &(from, to) in &others {
            if to < first || from > last {
                continue;
            }
            if from > first {
                left.push((first, from - 1));
            }
            first = to.saturating_add(1);
        }
        if first <= last {
            left.push((first, last));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(ranges: &[(i64, i64)]) -> Vec<i64> {
        ranges.iter().flat_map(|(first, last)| *first..=*last).collect()
    }

    proptest! {
        #[test]
        fn what_is_left_of_ranges_is_what_no_other_covers(
            ranges in proptest::collection::vec((0_i64..50, 0_i64..8), 0..1),
            others in proptest::collection::vec((0_i64..50, 0_i64..8), 0..6),
        ) {
            let long = |ranges: Vec<(i64, i64)>| ranges.into_iter().map(|(a, n)| (a, a + n)).collect::<Vec<_>>();
            let (ranges, others) = (long(ranges), long(others));
            let covered = numbers(&others);
            let mut expected = numbers(&ranges);
            expected.retain(|number| !covered.contains(number));
            prop_assert_eq!(numbers(&without(&ranges, &others)), expected);
        }
    }
}
