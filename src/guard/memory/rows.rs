//! Memories as documents. The memories of one kind about one subject are on a shelf, whose revision is the place that
//! was taken last. Each write increments the shelf's revision, and so proves that the shelf is unchanged since it was
//! read: of two concurrent writes, one decides again.

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

/// One row for each shelf, under subject and kind.
const SHELF: &str = "memory_shelf";
/// One row for each memory, under its shelf and its place there, the newest first. A memory is open until it is
/// forgotten.
const MEMORY: &str = "memory";
/// One row for each normal form on a shelf: the place of its memory.
const FORM: &str = "memory_form";
/// One row for each answer, under the key of the operation: a repeat gets the same answer.
const KEY: &str = "memory_key";
/// One row for each statement, under the memory and the place that was taken: the source and its words.
const SOURCE: &str = "memory_source";
/// One row for a source's highest confidence, under the memory and the source's digest. The source of the first
/// statement has such a row only once its confidence has grown.
const SAID: &str = "memory_said";

/// The number of rows in a page, where all rows are read.
const PAGE: u32 = 500;

/// A memory about a subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Memory {
    pub(super) id: MemoryId,
    /// The words of the first statement. Empty once the memory is forgotten.
    pub(super) content: String,
    /// The confidence, in millionths.
    pub(super) confidence: u32,
    /// The number of statements.
    pub(super) sources: u32,
    /// The memories that contradict this one. Each of them has the same mark for this memory.
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

/// A mark that two memories of a shelf differ in one fact. Stored as a tuple without field names: a memory may have
/// many marks, and each statement reads a shelf.
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

/// One statement of a memory by a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Source {
    shelf: String,
    /// The source. Empty once the memory is forgotten, as is the content.
    pub(super) by: String,
    pub(super) content: String,
    /// The confidence of the source, in millionths.
    pub(super) confidence: u32,
    #[serde(skip)]
    pub(super) place: u32,
    #[serde(skip, default = "of_row")]
    pub(super) at: Timestamp,
}

/// An answer that is kept under a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) memory: MemoryId,
    place: u32,
    shelf: String,
    /// The digest that the key is bound to, by the tenant's key, in hexadecimal.
    pub(super) request: String,
    /// The answer. It holds no words, because the memories that it names may be forgotten.
    pub(super) answer: Remembered,
}

/// The earlier statements of a source about a memory.
#[derive(Debug, Default)]
pub(super) struct SaidBefore {
    pub(super) row: Option<Document>,
    /// The source's highest confidence, in millionths; `None` if the source has made no statement.
    pub(super) confidence: Option<u32>,
}

/// A shelf as it was read before a write.
#[derive(Clone, Debug)]
pub(super) struct Shelf<'c> {
    pub(super) core: &'c Core,
    tenant: &'c Tenant,
    id: String,
    state: State,
}

/// A normal form of a shelf, as it was read.
#[derive(Clone, Debug)]
pub(super) struct Form {
    id: String,
    revision: u32,
    since: Timestamp,
    /// The memory of this normal form, unless it is forgotten.
    pub(super) memory: Option<Memory>,
}

impl Form {
    /// A normal form that has no memory yet.
    pub(super) fn first(core: &Core, shelf: &str, digest: &KeyedDigest) -> Self {
        Self { id: format!("{shelf}/{}", hex(digest)), revision: 0, since: core.now(), memory: None }
    }

    /// Reads a normal form of a shelf. A concurrent write is not missed: the rows that follow from this form are then
    /// refused.
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
            // A memory that is too old to be compared is not one of the newest now.
            Err(0) => all.insert(0, Standing::of(memory)),
            Err(_) => {}
        }
    }
    all.truncate(COMPARED as usize);
    all.into()
}

/// A placeholder for an instant that the row holds outside of its body.
const fn of_row() -> Timestamp {
    Timestamp(0)
}

/// The id of a memory's row. The ids of a shelf sort from the newest place on.
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

    /// A memory about this subject, forgotten or not, and the name of its shelf. The first statement holds the shelf
    /// and the place.
    pub(super) async fn of(
        core: &Core,
        tenant: &Tenant,
        subject: &str,
        id: MemoryId,
    ) -> Result<Option<(Self, String)>, StoreError> {
        let Some(first) = (Sources { core, tenant, memory: id }).first().await? else { return Ok(None) };
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

/// The statements of a memory.
pub(super) struct Sources<'a> {
    pub(super) core: &'a Core,
    pub(super) tenant: &'a Tenant,
    pub(super) memory: MemoryId,
}

impl Sources<'_> {
    /// The statements after a place, the earliest first.
    pub(super) async fn page(&self, after: u32, limit: u32) -> Result<Vec<Source>, StoreError> {
        let Self { core, tenant, memory } = *self;
        let rows = core.group.document_list(tenant, SOURCE, &of_memory(memory, after), limit).await?;
        let own = format!("{memory}/");
        let of_it = rows.iter().map_while(|row| Some((row, row.id.strip_prefix(&own)?)));
        let source = |(row, place): (&Document, &str)| {
            let place = place.parse().unwrap_or_default();
            Ok(Source { place, at: row.created_at, ..read(row)? })
        };
        of_it.map(source).collect()
    }

    async fn first(&self) -> Result<Option<Source>, StoreError> {
        Ok(self.page(0, 1).await?.pop())
    }
}

impl<'c> Shelf<'c> {
    /// The name of the shelf for the memories of one kind about one subject.
    pub(super) fn name(subject: &str, kind: &str) -> String {
        format!("{}/{kind}", part(subject))
    }

    /// Reads a shelf. This happens before its memories are read, so that a write in between shows by the place.
    pub(super) async fn find(core: &'c Core, tenant: &'c Tenant, id: String) -> Result<Self, StoreError> {
        let found = core.group.document_find(tenant, SHELF, &id).await?;
        let (place, since) = found.as_ref().map_or((0, core.now()), |row| (row.revision, row.created_at));
        let (standing, written) = found.as_ref().map_or(Ok((0, 0)), read)?;
        Ok(Self { core, tenant, id, state: State { place, standing, written, since } })
    }

    /// A shelf as this process left it, with all its memories. `None` if the shelf has more memories than are cached.
    pub(super) fn kept(core: &'c Core, tenant: &'c Tenant, id: &str) -> Option<(Self, Newest)> {
        let Kept { state, newest, .. } = core.memories::<Shelves>().find(tenant, id)?;
        let is_whole = newest.len() == state.standing as usize;
        is_whole.then(|| (Self { core, tenant, id: id.to_owned(), state }, newest))
    }

    /// The newest memories with their tokens and facts: all memories that a new statement is compared with.
    pub(super) async fn compared(&self) -> Result<Newest, StoreError> {
        let kept = self.core.memories::<Shelves>().find(self.tenant, &self.id);
        if let Some(kept) = kept.filter(|kept| kept.state == self.state) {
            return Ok(kept.newest);
        }
        Ok(self.newest(None, COMPARED).await?.into_iter().map(Standing::of).collect())
    }

    /// The newest memories before a place.
    pub(super) async fn newest(&self, before: Option<u32>, limit: u32) -> Result<Vec<Memory>, StoreError> {
        // The limit prevents a read into the rows of the next shelf.
        let limit = limit.min(self.state.standing);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let after = before.map_or_else(|| format!("{}/", self.id), |before| on_shelf(&self.id, before));
        let rows = self.core.group.document_open(self.tenant, MEMORY, &after, limit).await?;
        let own = format!("{}/", self.id);
        rows.iter().take_while(|row| row.id.starts_with(&own)).map(Memory::read).collect()
    }

    /// The confidence of a source in a memory. The source of the first statement may have no row but that of its
    /// statement.
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
                let first = Sources { core: self.core, tenant: self.tenant, memory }.first().await?;
                first.filter(|first| first.by == source).map(|first| first.confidence)
            }
        };
        Ok(SaidBefore { row, confidence })
    }

    /// Begins a write to the shelf, which takes the next place.
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
    /// The state of the shelf after the write.
    state: State,
    pub(super) at: Timestamp,
    rows: Vec<Document>,
    /// The memories of the write, in their new state.
    memories: Vec<Memory>,
}

impl Writing<'_> {
    fn add<T: Serialize>(&mut self, kind: &str, id: String, before: Option<(u32, Timestamp)>, body: &T) {
        let (revision, since) = before.unwrap_or((0, self.at));
        let (tenant, revision) = (self.shelf.tenant, revision + 1);
        self.rows.push(Row { tenant, kind, id, revision, since, at: self.at }.holding(body));
    }

    /// A new memory at the place of this write.
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

    /// Adds a memory in its new state.
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
            row.open = standing; // lists show open memories only
        }
    }

    /// Adds the row by which a normal form points to the memory at this place.
    pub(super) fn known_as(&mut self, form: Form, place: u32) {
        let before = (form.revision > 0).then_some((form.revision, form.since));
        self.add(FORM, form.id, before, &place);
    }

    /// Adds a statement of a source.
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

    /// Adds the highest confidence of a source in a memory.
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

    /// Adds the answer that a key keeps.
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

    /// Forgets a memory: a tombstone stays, and its content and its sources are removed.
    pub(super) async fn forget(&mut self, memory: Memory, forgotten: Forgotten) -> Result<(), StoreError> {
        self.shelf.core.memories::<Shelves>().forget(self.shelf.tenant, &self.shelf.id);
        self.forget_words(memory.id).await?;
        self.unmark(&memory).await?;
        let (content, contradicts) = (String::new(), Vec::new());
        self.memory(&Memory { content, contradicts, forgotten: Some(forgotten), ..memory });
        Ok(())
    }

    /// Removes the words of a memory's statements. If there are many statements, some rows are committed before the
    /// others.
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
            // A refusal means that another process forgets the same memory: the final write decides.
            let _ = core.group.commit_one(some).await?;
        }
    }

    /// Removes this memory's mark from each memory that it contradicts.
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

    /// All rows, with the shelf's own, and the shelf as they leave it.
    pub(super) fn onto(mut self, newest: &Newest) -> (Vec<Document>, Kept) {
        let newest = after(newest, std::mem::take(&mut self.memories));
        let kept = Kept::new((self.shelf.tenant.clone(), self.shelf.id.clone()), self.state, newest);
        (self.rows(), kept)
    }

    /// All rows, with the shelf's own.
    pub(super) fn rows(mut self) -> Vec<Document> {
        let before = self.shelf.state;
        let before = (before.place > 0).then_some((before.place, before.since));
        let (id, body) = (self.shelf.id.clone(), (self.state.standing, self.state.written));
        self.add(SHELF, id, before, &body);
        self.rows
    }
}
