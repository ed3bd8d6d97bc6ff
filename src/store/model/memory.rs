//! Memories, as every store must keep them.

use std::collections::{BTreeMap, BTreeSet};

use super::tables::Tables;
use crate::id::{MemoryId, Tenant};
use crate::store::{
    Contradiction, Difference, KeyedDigest, Memory, MemorySource, MemoryWrite, Refusal, Shelf,
};

/// Tenant, subject and kind.
type Place = (Tenant, String, String);

#[derive(Debug, Default)]
pub(super) struct Memories {
    shelves: BTreeMap<Place, i64>,
    all: BTreeMap<(Tenant, MemoryId), Memory>,
    forms: BTreeMap<(Place, KeyedDigest), MemoryId>,
    sources: BTreeMap<(Tenant, String), MemorySource>,
    contradictions: BTreeMap<(Tenant, MemoryId, MemoryId), Difference>,
}

impl Memories {
    pub(super) fn check(&self, write: &MemoryWrite) -> Result<(), Refusal> {
        let MemoryWrite { place, memory, form, source, .. } = write;
        let taken = self.shelves.get(&shelf(memory)).copied().unwrap_or_default();
        let stored = self.all.get(&key(memory));
        let fits = match stored {
            Some(stored) => !write.is_new() && stored.place == memory.place && stored.forgotten.is_none(),
            None => write.is_new(),
        };
        let form_is_free = form.is_none_or(|form| !self.forms.contains_key(&(shelf(memory), form)));
        let key_is_free = source.as_ref().is_none_or(|source| !self.sources.contains_key(&said(source)));
        let free = taken.checked_add(1) == Some(*place) && fits && form_is_free && key_is_free;
        if free { Ok(()) } else { Err(Refusal::Exists) }
    }

    pub(super) fn write(&mut self, write: &MemoryWrite) {
        let memory = &write.memory;
        self.shelves.insert(shelf(memory), write.place);
        self.all.insert(key(memory), memory.clone());
        if let Some(form) = write.form {
            self.forms.insert((shelf(memory), form), memory.id);
        }
        if let Some(source) = &write.source {
            self.sources.insert(said(source), source.clone());
        }
        for mark in write.marks() {
            let key = (memory.tenant.clone(), mark.memory, mark.other);
            self.contradictions.entry(key).or_insert(mark.differs);
        }
        if memory.forgotten.is_some() {
            self.forget(memory);
        }
    }

    /// All of a tenant.
    pub(super) fn erase(&mut self, tenant: &Tenant) {
        self.shelves.retain(|(of, ..), _| of != tenant);
        self.all.retain(|(of, ..), _| of != tenant);
        self.forms.retain(|((of, ..), _), _| of != tenant);
        self.sources.retain(|(of, ..), _| of != tenant);
        self.contradictions.retain(|(of, ..), _| of != tenant);
    }

    fn forget(&mut self, memory: &Memory) {
        let own = |tenant: &Tenant, id: MemoryId| *tenant == memory.tenant && id == memory.id;
        self.forms.retain(|((tenant, ..), _), id| !own(tenant, *id));
        self.contradictions.retain(|(tenant, one, other), _| !own(tenant, *one) && !own(tenant, *other));
        for source in self.sources.values_mut().filter(|source| own(&source.tenant, source.memory)) {
            source.source.clear();
            source.content.clear();
        }
    }

    /// It was written before, and its answer was lost.
    pub(super) fn has(&self, write: &MemoryWrite) -> bool {
        match &write.source {
            Some(source) => self.sources.get(&said(source)) == Some(source),
            None => self.all.get(&key(&write.memory)) == Some(&write.memory),
        }
    }

    fn of<'a>(&'a self, tenant: &'a Tenant, id: MemoryId) -> impl Iterator<Item = &'a MemorySource> {
        self.sources.values().filter(move |source| source.tenant == *tenant && source.memory == id)
    }
}

impl Tables {
    pub(super) fn memory_find(&self, tenant: &Tenant, id: MemoryId) -> Option<Memory> {
        self.memories.all.get(&(tenant.clone(), id)).cloned()
    }

    pub(super) fn memory_keyed(&self, tenant: &Tenant, key: &str) -> Option<MemorySource> {
        self.memories.sources.get(&(tenant.clone(), key.to_owned())).cloned()
    }

    pub(super) fn memory_shelf(
        &self,
        tenant: &Tenant,
        subject: &str,
        kind: &str,
        form: &KeyedDigest,
        newest: u32,
    ) -> Shelf {
        let on = (tenant.clone(), subject.to_owned(), kind.to_owned());
        let place = self.memories.shelves.get(&on).copied().unwrap_or_default();
        let same = self.memories.forms.get(&(on, *form));
        let same = same.and_then(|id| self.memory_find(tenant, *id));
        Shelf { place, same, newest: self.memory_list(tenant, subject, kind, i64::MAX, newest) }
    }

    pub(super) fn memory_list(
        &self,
        tenant: &Tenant,
        subject: &str,
        kind: &str,
        before: i64,
        limit: u32,
    ) -> Vec<Memory> {
        let stands = |memory: &&Memory| {
            memory.tenant == *tenant
                && memory.subject == subject
                && memory.kind.as_str() == kind
                && memory.forgotten.is_none()
                && memory.place < before
        };
        let mut found: Vec<_> = self.memories.all.values().filter(stands).cloned().collect();
        found.sort_by_key(|memory| std::cmp::Reverse(memory.place));
        found.truncate(limit as usize);
        found
    }

    pub(super) fn memory_sources(
        &self,
        tenant: &Tenant,
        id: MemoryId,
        after: i64,
        limit: u32,
    ) -> Vec<MemorySource> {
        let mut found: Vec<_> =
            self.memories.of(tenant, id).filter(|source| source.place > after).cloned().collect();
        found.sort_by_key(|source| source.place);
        found.truncate(limit as usize);
        found
    }

    pub(super) fn memory_said(&self, tenant: &Tenant, id: MemoryId, source: &str) -> Option<u32> {
        let said = self.memories.of(tenant, id).filter(|said| said.source == source);
        said.map(|said| said.confidence).max()
    }

    pub(super) fn memory_contradictions(&self, tenant: &Tenant, ids: &[MemoryId]) -> Vec<Contradiction> {
        let of = |id: &MemoryId| {
            let marks = self.memories.contradictions.range((tenant.clone(), *id, MemoryId(i64::MIN))..);
            let own = marks.take_while(|((of, memory, _), _)| of == tenant && memory == id);
            own.map(|((_, memory, other), differs)| Contradiction {
                memory: *memory,
                other: *other,
                differs: *differs,
            })
            .collect::<Vec<_>>()
        };
        ids.iter().collect::<BTreeSet<_>>().into_iter().flat_map(of).collect()
    }
}

fn shelf(memory: &Memory) -> Place {
    (memory.tenant.clone(), memory.subject.clone(), memory.kind.as_str().to_owned())
}

fn key(memory: &Memory) -> (Tenant, MemoryId) {
    (memory.tenant.clone(), memory.id)
}

fn said(source: &MemorySource) -> (Tenant, String) {
    (source.tenant.clone(), source.key.clone())
}
