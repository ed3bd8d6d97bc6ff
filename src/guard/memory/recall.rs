//! The memories about a subject, page by page, and their sources.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::rows::{Memory, Shelf, Source, Sources};
use super::{Contradicts, Memories, MemoryError, in_run, of_one, shelf, unasked};
use crate::clock::Timestamp;
use crate::exec::Core;
use crate::flow::{Ctx, Failure, Label, TenantClient};
use crate::id::{MemoryId, Tenant};

/// The default number of memories in a page, and the maximum number of sources in one.
const PAGE: u32 = 100;

/// A request for the memories of one kind. Nothing happens before it is awaited.
#[must_use = "nothing is recalled before this is awaited"]
#[derive(Debug)]
pub struct Recall<By> {
    memories: Memories<By>,
    kind: String,
    before: Option<i64>,
    limit: u32,
    id: Option<String>,
}

/// A page of memories, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// The memories of the page.
    pub memories: Vec<Known>,
    /// The position at which the next page [begins](Recall::from); `None` if this page is the last one.
    pub next: Option<i64>,
}

/// A memory as it is recalled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// The id of the memory.
    pub memory: MemoryId,
    /// The content, in the words of the first statement.
    pub content: String,
    /// The confidence, from 0 to 1.
    pub confidence: f64,
    /// The number of statements of the memory.
    pub sources: u32,
    /// The memories that differ from this one in one fact.
    pub contradicts: Vec<Contradicts>,
    /// The time of the first statement (UTC).
    pub created_at: Timestamp,
    /// The time of the last statement (UTC).
    pub updated_at: Timestamp,
}

/// One statement of a memory by a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// The source: a mail, a call, a person.
    pub source: String,
    /// The words of the statement.
    pub content: String,
    /// The confidence of the source, from 0 to 1.
    pub confidence: f64,
    /// The time of the statement (UTC).
    pub at: Timestamp,
    /// The position of the statement in the memory's sources: the next page begins after it.
    pub place: i64,
}

impl<By> Recall<By> {
    pub(super) const fn new(memories: Memories<By>, kind: String) -> Self {
        Self { memories, kind, before: None, limit: PAGE, id: None }
    }

    /// Continues after another page, from its [`next`](Page::next).
    pub const fn from(mut self, next: i64) -> Self {
        self.before = Some(next);
        self
    }

    /// Sets the maximum number of memories. Default: 100.
    pub const fn limit(mut self, memories: u32) -> Self {
        self.limit = memories;
        self
    }

    async fn page(&self, core: &Core, tenant: &Tenant) -> Result<Page, MemoryError> {
        let subject = &self.memories.subject;
        shelf(subject, &self.kind)?;
        let before = self.before.map(|before| u32::try_from(before).unwrap_or(u32::MAX));
        // One more is read than the page holds: it shows that the page is not the last one.
        let found = async {
            Shelf::find(core, tenant, Shelf::name(subject, &self.kind))
                .await?
                .newest(before, self.limit.saturating_add(1))
                .await
        };
        let mut found = found.await.map_err(unasked(subject))?;
        let more = found.len() > self.limit as usize;
        found.truncate(self.limit as usize);
        let next = found.last().filter(|_| more).map(|memory| memory.place.into());
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
    /// Sets an id that distinguishes several pages that the run recalls concurrently.
    #[allow(clippy::needless_pass_by_value, reason = "`.id(7)` and `.id(&name)` both read well")]
    pub fn id(mut self, id: impl ToString) -> Self {
        self.id = Some(id.to_string());
        self
    }
}

impl IntoFuture for Recall<Ctx> {
    type Output = Result<Page, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Recalls the page.
    ///
    /// # Crash
    /// The page is recorded, and a resumed run gets the recorded page.
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
    /// The statements of a memory, the first one first: after a [place](Said::place), at most 100. A forgotten memory
    /// has statements without words and sources.
    pub async fn sources(&self, memory: MemoryId, after: Option<i64>) -> Result<Vec<Said>, MemoryError> {
        let (core, tenant) = self.by.core();
        let unasked = unasked(&self.subject);
        if Memory::of(&core, &tenant, &self.subject, memory).await.map_err(&unasked)?.is_none() {
            return Err(MemoryError::Unknown { memory });
        }
        let after = u32::try_from(after.unwrap_or_default()).unwrap_or_default();
        let sources = Sources { core: &core, tenant: &tenant, memory };
        let said = sources.page(after, PAGE).await.map_err(&unasked)?;
        Ok(said.into_iter().map(said_by).collect())
    }
}

fn said_by(said: Source) -> Said {
    let Source { by, content, confidence, at, place, .. } = said;
    Said { source: by, content, confidence: of_one(confidence), at, place: place.into() }
}
