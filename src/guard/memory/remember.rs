//! Something is said to be remembered: one operation, under its key.

use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::decide::{COMPARED, Decision, Place, compare, grown};
use super::facts::Text;
use super::{
    Contradicts, MAX_BYTES, Memories, MemoryError, NAME, OWN, Outcome, Remembered, Similarity, in_run, keyed,
    millionths, of_one, shelf, unasked,
};
use crate::exec::{Core, ExecError};
use crate::flow::{Ctx, Failure, ForTenant, Guarded, Label, Proposal};
use crate::id::{IdError, MemoryId, Name, Tenant, checked};
use crate::payload::{DigestKey, Payload, hex};
use crate::store::{Contradiction, KeyedDigest, Memory, MemorySource, MemoryWrite, Store as _};

/// How sure a source is that does not say so.
const CONFIDENCE: f64 = 0.7;
/// Digests of normal forms. Another scheme of normal forms needs another name.
const FORM: &str = "counterfoil/memory/form/1";
const REQUEST: &str = "counterfoil/memory/request/1";

/// Something to be remembered. Nothing happens before it is awaited.
#[must_use = "nothing is remembered before this is awaited"]
#[derive(Debug)]
pub struct Remember<By> {
    memories: Memories<By>,
    kind: String,
    content: String,
    source: Option<String>,
    confidence: f64,
    merge_from: Option<f64>,
    key: Option<String>,
    id: Option<String>,
}

impl<By> Remember<By> {
    pub(super) const fn new(memories: Memories<By>, kind: String, content: String) -> Self {
        Self {
            memories,
            kind,
            content,
            source: None,
            confidence: CONFIDENCE,
            merge_from: None,
            key: None,
            id: None,
        }
    }

    /// Who or what says it: a mail, a call, a person. Confidence grows with each further source, and not when one says the
    /// same again. Unless it is said: the run, or outside of runs nobody in particular.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// How sure the source is, from 0 to 1; 0.7 unless it is said.
    pub const fn confidence(mut self, confidence: f64) -> Self {
        self.confidence = confidence;
        self
    }

    /// Merges it into the most similar memory of the same facts, if that is at least so similar, from 0 to 1. Its own
    /// wording stays readable among the sources.
    pub const fn merge_similar(mut self, from: f64) -> Self {
        self.merge_from = Some(from);
        self
    }

    /// The operation's key, of the tenant: the same again gets the first answer, wherever it is said. Unless it is given,
    /// a run makes one of its own, and outside of runs it is made of subject, kind, source and content.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    fn checked(&self) -> Result<Name, MemoryError> {
        if let Some(key) = &self.key {
            checked("key", key, NAME)?;
            if key.starts_with(OWN) {
                return Err(IdError::Reserved { what: "key" }.into());
            }
        }
        match self.content.len() {
            _ if self.content.trim().is_empty() => return Err(MemoryError::Empty),
            bytes if bytes > MAX_BYTES => return Err(MemoryError::TooLong { bytes }),
            _ => {}
        }
        if let Some(source) = &self.source {
            checked("source", source, NAME)?;
        }
        shelf(&self.memories.subject, &self.kind)
    }

    fn wish(&self, kind: Name, source: String) -> Wish {
        Wish {
            subject: self.memories.subject.clone(),
            kind,
            text: Text::of(&self.content),
            content: self.content.clone(),
            source,
            confidence: millionths(self.confidence),
            merge_from: self.merge_from,
            similarity: self.memories.similarity.clone(),
        }
    }
}

impl Remember<Ctx> {
    /// Which of several things that the run remembers at once.
    #[allow(clippy::needless_pass_by_value, reason = "`.id(7)` and `.id(&name)` both read well")]
    pub fn id(mut self, id: impl ToString) -> Self {
        self.id = Some(id.to_string());
        self
    }
}

impl IntoFuture for Remember<Ctx> {
    type Output = Result<Remembered, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Crash
    /// The memory, its source and the run's record of the answer are one transaction.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let kind = match self.checked().map_err(in_run) {
                Ok(kind) => kind,
                Err(refused) => return Err(refused.unwrap_or_else(|error| Failure::new(error.to_string()))),
            };
            let ctx = self.memories.by.clone();
            let source = self.source.clone().unwrap_or_else(|| ctx.origin().to_string());
            let bound_to = (&self.memories.subject, &self.kind, &self.content, &self.source);
            let label = Label::of("remember", self.id.clone());
            ctx.guarded(label, &bound_to, self.key.clone(), self.wish(kind, source)).await
        })
    }
}

impl IntoFuture for Remember<ForTenant> {
    type Output = Result<Remembered, MemoryError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Crash
    /// The memory and its source are one transaction. Said again under its key, it gets the same answer.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let kind = self.checked()?;
            let wish = self.wish(kind, self.source.clone().unwrap_or_default());
            let key = match self.key {
                Some(key) => key,
                None => {
                    let (core, tenant) = self.memories.by.core();
                    format!("{OWN}said/{}", hex(&wish.request(&core.tenant_key(&tenant).await?)))
                }
            };
            self.memories.by.guarded(key, wish).await
        })
    }
}

/// What somebody wants remembered.
struct Wish {
    subject: String,
    kind: Name,
    content: String,
    text: Text,
    source: String,
    confidence: u32,
    merge_from: Option<f64>,
    similarity: Arc<dyn Similarity>,
}

impl Guarded for Wish {
    type Answer = Remembered;
    type Error = MemoryError;

    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Remembered>, MemoryError>> {
        Box::pin(async move {
            let secret = core.tenant_key(tenant).await?;
            let request = self.request(&secret);
            if let Some(first) = core.group.memory_keyed(tenant, key).await.map_err(unasked(key))? {
                return before(core, first, request).await.map(Proposal::Before);
            }
            let form = keyed(&secret, FORM, &[&self.text.normal]);
            let (subject, kind) = (self.subject.as_str(), self.kind.as_str());
            let found = core.group.memory_shelf(tenant, subject, kind, &form, COMPARED).await;
            let found = found.map_err(unasked(subject))?;
            let decision = self.decide(found.same.as_ref(), &found.newest).await;
            let (place, form_is_known) = (found.place + 1, found.same.is_some());
            let saying = Saying { wish: self, core, tenant, key, place, request, form, form_is_known };
            let (write, answer) = saying.write(&decision).await?;
            let change = crate::store::Change { memory: Some(Box::new(write)), ..core.change(None) };
            Ok(Proposal::Write(Box::new(change), answer))
        })
    }

    fn in_run(error: MemoryError) -> Result<Failure, ExecError> {
        in_run(error)
    }
}

impl Wish {
    /// What a key is bound to. Not how sure a source is, which it may not say twice alike.
    fn request(&self, secret: &DigestKey) -> KeyedDigest {
        keyed(secret, REQUEST, &[&self.subject, self.kind.as_str(), &self.source, &self.content])
    }

    async fn decide<'a>(&self, same: Option<&'a Memory>, newest: &'a [Memory]) -> Decision<'a> {
        let compared = compare(&self.text, same, newest);
        let others: Vec<_> = compared.akin.iter().map(|memory| memory.content.clone()).collect();
        let scores = if others.is_empty() || same.is_some() {
            Vec::new()
        } else {
            self.similarity.scores(&self.content, &others).await
        };
        compared.decide(&scores, self.merge_from)
    }
}

/// What was answered under a key before.
async fn before(core: &Core, first: MemorySource, request: KeyedDigest) -> Result<Remembered, MemoryError> {
    let MemorySource { tenant, key, memory, answer, .. } = first;
    if first.request != request {
        return Err(MemoryError::Conflict { key, memory });
    }
    let mut answer: Remembered = Payload::stored(answer).decode()?;
    let found = core.group.memory_find(&tenant, memory).await.map_err(unasked(&key))?;
    if found.is_none_or(|memory| memory.forgotten.is_some()) {
        answer.outcome = Outcome::Forgotten;
    }
    Ok(answer)
}

/// It is said, on a shelf as it was read.
struct Saying<'a> {
    wish: &'a Wish,
    core: &'a Core,
    tenant: &'a Tenant,
    key: &'a str,
    place: i64,
    request: KeyedDigest,
    form: KeyedDigest,
    form_is_known: bool,
}

impl Saying<'_> {
    async fn write(&self, decision: &Decision<'_>) -> Result<(MemoryWrite, Remembered), MemoryError> {
        let (memory, outcome, form) = match decision.place {
            Place::New => (self.first(), Outcome::New, Some(self.form)),
            Place::Same(known) => {
                // Of a form that another version has made: from now on it is known under this one, too.
                let form = (!self.form_is_known).then_some(self.form);
                (self.once_more(known).await?, Outcome::Merged { similarity: None }, form)
            }
            Place::Similar(known, score) => {
                let outcome = Outcome::Merged { similarity: Some(score) };
                (self.once_more(known).await?, outcome, Some(self.form))
            }
        };
        let answer = Remembered {
            memory: memory.id,
            outcome,
            confidence: of_one(memory.confidence),
            similar: decision.similar.clone(),
            contradicts: decision.contradicts.clone(),
        };
        let source = self.source(memory.id, &answer)?;
        let contradicts = decision.contradicts.iter().map(|mark| marked(memory.id, *mark)).collect();
        Ok((MemoryWrite { place: self.place, memory, form, source: Some(source), contradicts }, answer))
    }

    fn first(&self) -> Memory {
        let now = self.core.now();
        Memory {
            id: MemoryId(self.core.ids.next()),
            tenant: self.tenant.clone(),
            subject: self.wish.subject.clone(),
            kind: self.wish.kind.clone(),
            place: self.place,
            content: self.wish.content.clone(),
            digest: self.form,
            confidence: self.wish.confidence,
            sources: 1,
            created_at: now,
            updated_at: now,
            forgotten: None,
        }
    }

    async fn once_more(&self, known: &Memory) -> Result<Memory, MemoryError> {
        let Wish { source, confidence, .. } = self.wish;
        let said = self.core.group.memory_said(self.tenant, known.id, source).await;
        let said = said.map_err(unasked(self.key))?;
        Ok(Memory {
            confidence: grown(known.confidence, said, *confidence),
            sources: known.sources.saturating_add(1),
            updated_at: self.core.now(),
            ..known.clone()
        })
    }

    fn source(&self, memory: MemoryId, answer: &Remembered) -> Result<MemorySource, MemoryError> {
        Ok(MemorySource {
            tenant: self.tenant.clone(),
            key: self.key.to_owned(),
            memory,
            place: self.place,
            request: self.request,
            source: self.wish.source.clone(),
            content: self.wish.content.clone(),
            confidence: self.wish.confidence,
            answer: Payload::of(answer)?.as_str().to_owned(),
            at: self.core.now(),
        })
    }
}

fn marked(memory: MemoryId, mark: Contradicts) -> Contradiction {
    Contradiction { memory, other: mark.memory, differs: mark.differs }
}
