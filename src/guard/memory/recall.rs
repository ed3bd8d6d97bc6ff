//! What is known about a subject, page by page, and who said it.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::rows::{Memory, Shelf, Source, sources};
use super::{Contradicts, Memories, MemoryError, in_run, of_one, shelf, unasked};
use crate::clock::Timestamp;
use crate::exec::Core;
use crate::flow::{Ctx, Failure, Label, TenantClient};
use crate::id::{MemoryId, Tenant};

/// So much is recalled at once, unless somebody says how much.
const PAGE: u32 = 100;

/// A question about what is known. Nothing happens before it is awaited.
#[must_use = "nothing is recalled before this is awaited"]
#[derive(Debug)]
pub struct Recall<By> {
    memories: Memories<By>,
    kind: String,
    before: Option<i64>,
    limit: u32,
    id: Option<String>,
}

/// Some of what is known, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// The memories.
    pub memories: Vec<Known>,
    /// Where the next page [begins](Recall::from), if there may be one.
    pub next: Option<i64>,
}

/// Something that is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Its name.
    pub memory: MemoryId,
    /// In the words in which it was said first.
    pub content: String,
    /// How sure it is, from 0 to 1.
    pub confidence: f64,
    /// How often it was said.
    pub sources: u32,
    /// What says the same but for one fact.
    pub contradicts: Vec<Contradicts>,
    /// When it was first said.
    pub created_at: Timestamp,
    /// When it was last said.
    pub updated_at: Timestamp,
}

/// That something was said once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// Who or what said it.
    pub source: String,
    /// In which words.
    pub content: String,
    /// How sure it was, from 0 to 1.
    pub confidence: f64,
    /// When.
    pub at: Timestamp,
    /// Its place among all that was said: the next page begins behind it.
    pub place: i64,
}

impl<By> Recall<By> {
    pub(super) const fn new(memories: Memories<By>, kind: String) -> Self {
        Self { memories, kind, before: None, limit: PAGE, id: None }
    }

    /// Goes on where another page [has ended](Page::next).
    pub const fn from(mut self, next: i64) -> Self {
        self.before = Some(next);
        self
    }

    /// At most so many; a hundred unless it is said.
    pub const fn limit(mut self, memories: u32) -> Self {
        self.limit = memories;
        self
    }

    async fn page(&self, core: &Core, tenant: &Tenant) -> Result<Page, MemoryError> {
        let subject = &self.memories.subject;
        shelf(subject, &self.kind)?;
        let before = self.before.map(|before| u32::try_from(before).unwrap_or(u32::MAX));
        let found = async {
            Shelf::find(core, tenant, Shelf::name(subject, &self.kind))
                .await?
                .newest(before, self.limit)
                .await
        };
        let found = found.await.map_err(unasked(subject))?;
        let next = found.last().map(|memory| memory.place.into());
        Ok(Page { memories: found.into_iter().map(known).collect(), next })
    }
}

fn known(memory: Memory) -> Known {
    let mut marks = memory.contradicts;
    marks.sort_by_key(|mark| mark.memory);
    Known {
        memory: memory.id,
        content: memory.content,
        confidence: of_one(memory.confidence),
        sources: memory.sources,
        contradicts: marks
            .iter()
            .map(|mark| Contradicts { memory: mark.memory, differs: mark.differs })
            .collect(),
        created_at: memory.created_at,
        updated_at: memory.updated_at,
    }
}

impl Recall<Ctx> {
    /// Which of several questions that the run asks at once.
    #[allow(clippy::needless_pass_by_value, reason = "`.id(7)` and `.id(&name)` both read well")]
    pub fn id(mut self, id: impl ToString) -> Self {
        self.id = Some(id.to_string());
        self
    }
}

impl IntoFuture for Recall<Ctx> {
    type Output = Result<Page, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Crash
    /// What was recalled is recorded, and recalled again as it was.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let ctx = &self.memories.by;
            let bound_to = (&self.memories.subject, &self.kind, self.before, self.limit);
            let label = Label::of("memory:recall", self.id.clone());
            let read = async {
                let (core, tenant) = ctx.core();
                self.page(&core, &tenant).await
            };
            ctx.guarded_read(label, &bound_to, read, in_run).await
        })
    }
}

impl IntoFuture for Recall<TenantClient> {
    type Output = Result<Page, MemoryError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (core, tenant) = self.memories.by.core();
            self.page(&core, &tenant).await
        })
    }
}

impl Memories<TenantClient> {
    /// Who said a memory and in which words, the first first; from behind a [place](Said::place) on, at most a hundred. Of
    /// a forgotten one the words are gone.
    pub async fn sources(&self, memory: MemoryId, after: Option<i64>) -> Result<Vec<Said>, MemoryError> {
        let (core, tenant) = self.by.core();
        let unasked = unasked(&self.subject);
        if Memory::of(&core, &tenant, &self.subject, memory).await.map_err(&unasked)?.is_none() {
            return Err(MemoryError::Unknown { memory });
        }
        let after = u32::try_from(after.unwrap_or_default()).unwrap_or_default();
        let said = sources(&core, &tenant, memory, after, PAGE).await.map_err(&unasked)?;
        Ok(said.into_iter().map(said_by).collect())
    }
}

fn said_by(said: Source) -> Said {
    let Source { by, content, confidence, at, place, .. } = said;
    Said { source: by, content, confidence: of_one(confidence), at, place: place.into() }
}
