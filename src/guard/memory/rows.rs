//! What is remembered, as documents. The memories of one kind about one subject stand on a shelf, whose revision is the place that was
//! taken last. Whoever writes moves the shelf on, and so knows that nothing on it has changed since it was read: of two that decide at
//! once, one decides again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::decide::COMPARED;
use super::shelves::{Kept, Newest, Shelves, Standing, State};
use super::{Difference, Forgotten, KeyedDigest, Remembered};
use crate::clock::Timestamp;
use crate::exec::Core;
use crate::guard::rows::{Row, part, read};
use crate::id::{MemoryId, Tenant};
use crate::payload::hex;
use crate::store::{Document, Store as _, StoreError};

/// Shelves, under subject and kind.
const SHELF: &str = "memory_shelf";
/// Memories, under their shelf and their place on it, the newest first. Those that are not forgotten are open.
const MEMORY: &str = "memory";
/// Of each normal form on a shelf the place of the memory that is known under it.
const FORM: &str = "memory_form";
/// What was answered, under the key of the operation: the same again gets it.
const KEY: &str = "memory_key";
/// Who said a memory and in which words, under the memory and the place that was taken.
const SOURCE: &str = "memory_source";
/// How sure a source was at most, under the memory and the source's digest; of the one that said it first, once it is surer.
const SAID: &str = "memory_said";

/// So many rows are read at once where all are.
const PAGE: u32 = 500;

/// One thing that is known about a subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Memory {
    pub(super) id: MemoryId,
    /// In the words in which it was said first. Empty once it is forgotten.
    pub(super) content: String,
    /// In millionths.
    pub(super) confidence: u32,
    /// How often it was said.
    pub(super) sources: u32,
    /// What it cannot be true beside. The others bear the same mark of this one.
    pub(super) contradicts: Vec<Mark>,
    pub(super) forgotten: Option<Forgotten>,
    #[serde(skip)]
    pub(super) place: u32,
    #[serde(skip)]
    pub(super) revision: u32,
    #[serde(skip, default = "of_row")]
    pub(super) created_at: Timestamp,
    #[serde(skip, default = "of_row")]
    pub(super) updated_at: Timestamp,
}

/// That a memory says the same as another one of its shelf but for one fact. Stored without names: a memory bears many, and a shelf
/// is read whenever something is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(i64, u32, Difference)", into = "(i64, u32, Difference)")]
pub(super) struct Mark {
    pub(super) memory: MemoryId,
    pub(super) place: u32,
    pub(super) differs: Difference,
}

impl From<(i64, u32, Difference)> for Mark {
    fn from((memory, place, differs): (i64, u32, Difference)) -> Self {
        Self { memory: MemoryId(memory), place, differs }
    }
}

impl From<Mark> for (i64, u32, Difference) {
    fn from(mark: Mark) -> Self {
        (mark.memory.0, mark.place, mark.differs)
    }
}

/// That somebody said it once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Source {
    shelf: String,
    /// Who or what said it. Empty once the memory is forgotten, as its words.
    pub(super) by: String,
    pub(super) content: String,
    /// In millionths.
    pub(super) confidence: u32,
    #[serde(skip)]
    pub(super) place: u32,
    #[serde(skip, default = "of_row")]
    pub(super) at: Timestamp,
}

/// What was answered under a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) memory: MemoryId,
    place: u32,
    shelf: String,
    /// What the key is bound to, keyed, in hexadecimal.
    pub(super) request: String,
    /// It holds no words: those of other memories may be forgotten.
    pub(super) answer: Remembered,
}

/// What a source has said of a memory before.
#[derive(Debug, Default)]
pub(super) struct SaidBefore {
    pub(super) row: Option<Document>,
    /// How sure it was at most, in millionths; nothing if it has said nothing.
    pub(super) confidence: Option<u32>,
}

/// A shelf, as somebody found it who is about to write.
#[derive(Clone, Debug)]
pub(super) struct Shelf<'c> {
    pub(super) core: &'c Core,
    tenant: &'c Tenant,
    id: String,
    state: State,
}

/// A normal form, as it was found on a shelf.
#[derive(Clone, Debug)]
pub(super) struct Form {
    id: String,
    revision: u32,
    since: Timestamp,
    /// The memory that is known under it, unless that is forgotten.
    pub(super) memory: Option<Memory>,
}

impl Form {
    /// A normal form under which nothing is known yet.
    pub(super) fn first(core: &Core, shelf: &str, digest: &KeyedDigest) -> Self {
        Self { id: format!("{shelf}/{}", hex(digest)), revision: 0, since: core.now(), memory: None }
    }

    /// Reads a normal form of a shelf. Nothing is missed if another one writes at the same time: the rows that this form makes
    /// necessary are then refused.
    pub(super) async fn find(
        core: &Core,
        tenant: &Tenant,
        shelf: &str,
        digest: &KeyedDigest,
    ) -> Result<Self, StoreError> {
        let first = Self::first(core, shelf, digest);
        let Some(found) = core.group.document_find(tenant, FORM, &first.id).await? else { return Ok(first) };
        let memory = Memory::find(core, tenant, shelf, read(&found)?).await?;
        let memory = memory.filter(|memory| memory.forgotten.is_none());
        Ok(Self { revision: found.revision, since: found.created_at, memory, ..first })
    }
}

/// The newest memories of a shelf after some of them have changed.
fn after(newest: &Newest, changed: Vec<Memory>) -> Newest {
    let mut all = newest.to_vec();
    for memory in changed {
        match all.binary_search_by(|standing| memory.place.cmp(&standing.memory.place)) {
            Ok(place) => all[place] = Arc::new(Standing { memory, text: all[place].text.clone() }),
            // One that was compared with nothing because it is too old is not among the newest now.
            Err(0) => all.insert(0, Standing::of(memory)),
            Err(_) => {}
        }
    }
    all.truncate(COMPARED as usize);
    all.into()
}

/// An instant that the row holds beside its body.
const fn of_row() -> Timestamp {
    Timestamp(0)
}

/// Places on a shelf are listed from the newest on.
fn on_shelf(shelf: &str, place: u32) -> String {
    format!("{shelf}/{:010}", u32::MAX - place)
}

fn of_memory(memory: MemoryId, place: u32) -> String {
    format!("{memory}/{place:010}")
}

impl Memory {
    fn read(found: &Document) -> Result<Self, StoreError> {
        let place =
            found.id.rsplit('/').next().and_then(|place| place.parse().ok()).map(|left: u32| u32::MAX - left);
        let memory: Self = read(found)?;
        Ok(Self {
            place: place.unwrap_or_default(),
            revision: found.revision,
            created_at: found.created_at,
            updated_at: found.updated_at,
            ..memory
        })
    }

    async fn find(core: &Core, tenant: &Tenant, shelf: &str, place: u32) -> Result<Option<Self>, StoreError> {
        let found = core.group.document_find(tenant, MEMORY, &on_shelf(shelf, place)).await?;
        found.as_ref().map(Self::read).transpose()
    }

    /// A memory about this subject, forgotten or not, and the name of its shelf. Who said it first tells where it stands.
    pub(super) async fn of(
        core: &Core,
        tenant: &Tenant,
        subject: &str,
        id: MemoryId,
    ) -> Result<Option<(Self, String)>, StoreError> {
        let Some(first) = sources(core, tenant, id, 0, 1).await?.pop() else { return Ok(None) };
        if !first.shelf.starts_with(&format!("{}/", part(subject))) {
            return Ok(None);
        }
        let found = Self::find(core, tenant, &first.shelf, first.place).await?;
        Ok(found.map(|memory| (memory, first.shelf)))
    }
}

impl Answered {
    pub(super) async fn find(core: &Core, tenant: &Tenant, key: &str) -> Result<Option<Self>, StoreError> {
        let found = core.group.document_find(tenant, KEY, key).await?;
        found.as_ref().map(read).transpose()
    }

    pub(super) async fn is_forgotten(&self, core: &Core, tenant: &Tenant) -> Result<bool, StoreError> {
        let found = Memory::find(core, tenant, &self.shelf, self.place).await?;
        Ok(found.is_none_or(|memory| memory.forgotten.is_some()))
    }
}

/// Who said a memory, from behind a place on, the earliest first.
pub(super) async fn sources(
    core: &Core,
    tenant: &Tenant,
    memory: MemoryId,
    after: u32,
    limit: u32,
) -> Result<Vec<Source>, StoreError> {
    let rows = core.group.document_list(tenant, SOURCE, &of_memory(memory, after), limit).await?;
    let own = format!("{memory}/");
    let of_it = rows.iter().map_while(|row| Some((row, row.id.strip_prefix(&own)?)));
    let source = |(row, place): (&Document, &str)| {
        let place = place.parse().unwrap_or_default();
        Ok(Source { place, at: row.created_at, ..read(row)? })
    };
    of_it.map(source).collect()
}

impl<'c> Shelf<'c> {
    /// The memories of one kind about one subject.
    pub(super) fn name(subject: &str, kind: &str) -> String {
        format!("{}/{kind}", part(subject))
    }

    /// Read before the memories that stand there: what is written in between shows by the place.
    pub(super) async fn find(core: &'c Core, tenant: &'c Tenant, id: String) -> Result<Self, StoreError> {
        let found = core.group.document_find(tenant, SHELF, &id).await?;
        let (place, since) = found.as_ref().map_or((0, core.now()), |row| (row.revision, row.created_at));
        let (standing, written) = found.as_ref().map_or(Ok((0, 0)), read)?;
        Ok(Self { core, tenant, id, state: State { place, standing, written, since } })
    }

    /// A shelf as this process has left it, with all that stands there. Nothing if there is more than is kept in memory.
    pub(super) fn kept(core: &'c Core, tenant: &'c Tenant, id: &str) -> Option<(Self, Newest)> {
        let Kept { state, newest, .. } = core.memories::<Shelves>().find(tenant, id)?;
        let is_whole = newest.len() == state.standing as usize;
        is_whole.then(|| (Self { core, tenant, id: id.to_owned(), state }, newest))
    }

    /// The newest memories, taken apart: all that something new is compared with.
    pub(super) async fn compared(&self) -> Result<Newest, StoreError> {
        let kept = self.core.memories::<Shelves>().find(self.tenant, &self.id);
        if let Some(kept) = kept.filter(|kept| kept.state == self.state) {
            return Ok(kept.newest);
        }
        Ok(self.newest(None, COMPARED).await?.into_iter().map(Standing::of).collect())
    }

    /// The newest that stand before a place.
    pub(super) async fn newest(&self, before: Option<u32>, limit: u32) -> Result<Vec<Memory>, StoreError> {
        // Behind the last one stand those of another shelf.
        let limit = limit.min(self.state.standing);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let after = before.map_or_else(|| format!("{}/", self.id), |before| on_shelf(&self.id, before));
        let rows = self.core.group.document_open(self.tenant, MEMORY, &after, limit).await?;
        let own = format!("{}/", self.id);
        rows.iter().take_while(|row| row.id.starts_with(&own)).map(Memory::read).collect()
    }

    /// How sure a source was of a memory. Of the one that said it first, there may be no row but that of its words.
    pub(super) async fn said(
        &self,
        memory: MemoryId,
        source: &str,
        digest: &KeyedDigest,
    ) -> Result<SaidBefore, StoreError> {
        let id = format!("{memory}/{}", hex(digest));
        let row = self.core.group.document_find(self.tenant, SAID, &id).await?;
        let confidence = match &row {
            Some(row) => Some(read(row)?),
            None => {
                let first = sources(self.core, self.tenant, memory, 0, 1).await?.pop();
                first.filter(|first| first.by == source).map(|first| first.confidence)
            }
        };
        Ok(SaidBefore { row, confidence })
    }

    /// One write to the shelf, which takes its next place.
    pub(super) fn write(self) -> Writing<'c> {
        let at = self.core.now();
        let before = self.state;
        let since = if before.place > 0 { before.since } else { at };
        let state = State { place: before.place + 1, written: self.core.ids.next(), since, ..before };
        Writing { shelf: self, state, at, rows: Vec::new(), memories: Vec::new() }
    }
}

/// The rows of one write to a shelf.
pub(super) struct Writing<'c> {
    shelf: Shelf<'c>,
    /// The shelf's row from now on.
    state: State,
    pub(super) at: Timestamp,
    rows: Vec<Document>,
    /// The memories among the rows, as they are from now on.
    memories: Vec<Memory>,
}

impl Writing<'_> {
    fn add<T: Serialize>(&mut self, kind: &str, id: String, before: Option<(u32, Timestamp)>, body: &T) {
        let (revision, since) = before.unwrap_or((0, self.at));
        let (tenant, revision) = (self.shelf.tenant, revision + 1);
        self.rows.push(Row { tenant, kind, id, revision, since, at: self.at }.holding(body));
    }

    /// A memory that is new.
    pub(super) fn first(&self, content: &str, confidence: u32, contradicts: Vec<Mark>) -> Memory {
        Memory {
            id: MemoryId(self.shelf.core.ids.next()),
            content: content.to_owned(),
            confidence,
            sources: 1,
            contradicts,
            forgotten: None,
            place: self.state.place,
            revision: 0,
            created_at: self.at,
            updated_at: self.at,
        }
    }

    /// A memory as it is from now on.
    pub(super) fn memory(&mut self, memory: &Memory) {
        let before = (memory.revision > 0).then_some((memory.revision, memory.created_at));
        let standing = memory.forgotten.is_none();
        match before {
            None => self.state.standing += 1,
            Some(_) if !standing => self.state.standing = self.state.standing.saturating_sub(1),
            Some(_) => {}
        }
        self.memories.push(Memory { revision: memory.revision + 1, updated_at: self.at, ..memory.clone() });
        self.add(MEMORY, on_shelf(&self.shelf.id, memory.place), before, memory);
        if let Some(row) = self.rows.last_mut() {
            row.open = standing; // those that stand there are listed
        }
    }

    /// The memory of this place is known under a normal form from now on.
    pub(super) fn known_as(&mut self, form: Form, place: u32) {
        let before = (form.revision > 0).then_some((form.revision, form.since));
        self.add(FORM, form.id, before, &place);
    }

    /// Somebody says it.
    pub(super) fn source(&mut self, memory: MemoryId, source: &str, content: &str, confidence: u32) {
        let source = Source {
            shelf: self.shelf.id.clone(),
            by: source.to_owned(),
            content: content.to_owned(),
            confidence,
            place: self.state.place,
            at: self.at,
        };
        self.add(SOURCE, of_memory(memory, self.state.place), None, &source);
    }

    /// A source is so sure of a memory.
    pub(super) fn said(
        &mut self,
        memory: MemoryId,
        source: &KeyedDigest,
        before: Option<&Document>,
        confidence: u32,
    ) {
        let before = before.map(|row| (row.revision, row.created_at));
        self.add(SAID, format!("{memory}/{}", hex(source)), before, &confidence);
    }

    /// This was answered under a key.
    pub(super) fn answered(&mut self, key: &str, place: u32, request: &KeyedDigest, answer: &Remembered) {
        let answered = Answered {
            memory: answer.memory,
            place,
            shelf: self.shelf.id.clone(),
            request: hex(request),
            answer: answer.clone(),
        };
        self.add(KEY, key.to_owned(), None, &answered);
    }

    /// A tombstone stays of a memory; what it says, and who said it, goes.
    pub(super) async fn forget(&mut self, memory: Memory, forgotten: Forgotten) -> Result<(), StoreError> {
        self.shelf.core.memories::<Shelves>().forget(self.shelf.tenant, &self.shelf.id);
        self.forget_words(memory.id).await?;
        self.unmark(&memory).await?;
        let (content, contradicts) = (String::new(), Vec::new());
        self.memory(&Memory { content, contradicts, forgotten: Some(forgotten), ..memory });
        Ok(())
    }

    /// The words of a memory go. Of one that was said very often, some of the rows are written before the others.
    async fn forget_words(&mut self, memory: MemoryId) -> Result<(), StoreError> {
        let (core, tenant) = (self.shelf.core, self.shelf.tenant);
        let (own, mut after) = (format!("{memory}/"), of_memory(memory, 0));
        loop {
            let page = core.group.document_list(tenant, SOURCE, &after, PAGE).await?;
            let of_it = page.iter().take_while(|row| row.id.starts_with(&own));
            let mut gone = Vec::new();
            for found in of_it {
                let source: Source = read(found)?;
                if !source.content.is_empty() {
                    let silent = Source { by: String::new(), content: String::new(), ..source };
                    let (id, revision, since) = (found.id.clone(), found.revision + 1, found.created_at);
                    gone.push(
                        Row { tenant, kind: SOURCE, id, revision, since, at: self.at }.holding(&silent),
                    );
                }
            }
            let last = page.last().filter(|row| page.len() == PAGE as usize && row.id.starts_with(&own));
            let Some(last) = last else {
                self.rows.extend(gone);
                return Ok(());
            };
            after = last.id.clone();
            let some = crate::store::Change { documents: gone, ..core.change(None) };
            // Refused if another forgets it at the same time: the last write decides.
            let _ = core.group.commit_one(some).await?;
        }
    }

    /// What this memory contradicts bears no mark of it any more.
    async fn unmark(&mut self, memory: &Memory) -> Result<(), StoreError> {
        for mark in &memory.contradicts {
            let found = Memory::find(self.shelf.core, self.shelf.tenant, &self.shelf.id, mark.place).await?;
            if let Some(mut other) = found.filter(|other| other.forgotten.is_none()) {
                other.contradicts.retain(|mark| mark.memory != memory.id);
                self.memory(&other);
            }
        }
        Ok(())
    }

    /// All rows, the shelf's among them, and the shelf as they leave it.
    pub(super) fn onto(mut self, newest: &Newest) -> (Vec<Document>, Kept) {
        let newest = after(newest, std::mem::take(&mut self.memories));
        let kept = Kept::new((self.shelf.tenant.clone(), self.shelf.id.clone()), self.state, newest);
        (self.rows(), kept)
    }

    /// All rows, the shelf's among them.
    pub(super) fn rows(mut self) -> Vec<Document> {
        let before = self.shelf.state;
        let before = (before.place > 0).then_some((before.place, before.since));
        let (id, body) = (self.shelf.id.clone(), (self.state.standing, self.state.written));
        self.add(SHELF, id, before, &body);
        self.rows
    }
}
