//! The remembering of a statement: one operation, under its key.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::try_join;

use super::decide::{Decision, Place, compare, grown};
use super::facts::Text;
use super::rows::{Answered, Form, Mark, Memory, SaidBefore, Shelf, Writing};
use super::shelves::{Kept, Newest, Shelves};
use super::{
    KeyedDigest, MAX_BYTES, Memories, MemoryError, NAME, OWN, Outcome, Remembered, Similarity, in_run, keyed,
    millionths, of_one, shelf, unasked,
};
use crate::exec::{Core, ExecError};
use crate::flow::{Ctx, Failure, Guarded, Guess, Guessed, Label, Proposal, TenantClient};
use crate::id::{IdError, MemoryId, Name, Tenant, checked};
use crate::payload::{DigestKey, hex};
use crate::store::{Change, Document, StoreError};

/// The default confidence of a source.
const CONFIDENCE: f64 = 0.7;
/// The domain of the digests of normal forms. A changed normal form needs another domain.
const FORM: &str = "counterfoil/memory/form/1";
const REQUEST: &str = "counterfoil/memory/request/1";
const SOURCE: &str = "counterfoil/memory/source/1";

/// A statement to be remembered. Nothing happens before it is awaited.
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

    /// Sets the source: a mail, a call, a person. The confidence grows with each further source, and not if a source
    /// repeats itself. Default: the run; outside of runs an empty source.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets the confidence of the source, from 0 to 1. Default: 0.7.
    pub const fn confidence(mut self, confidence: f64) -> Self {
        self.confidence = confidence;
        self
    }

    /// Merges the statement into the most similar memory with the same facts, if the similarity is at least `from`,
    /// from 0 to 1. The statement's own words stay readable among the sources.
    pub const fn merge_similar(mut self, from: f64) -> Self {
        self.merge_from = Some(from);
        self
    }

    /// Sets the key of the operation within the tenant: the same statement under the same key gets the first answer,
    /// from wherever it comes. Default: in a run a key of the run's own, and outside of runs a key of subject, kind,
    /// source and content.
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
            of_run: false,
            kept: Mutex::default(),
        }
    }
}

impl Remember<Ctx> {
    /// Sets an id that distinguishes several statements that the run remembers concurrently.
    #[allow(clippy::needless_pass_by_value, reason = "`.id(7)` and `.id(&name)` both read well")]
    pub fn id(mut self, id: impl ToString) -> Self {
        self.id = Some(id.to_string());
        self
    }
}

impl IntoFuture for Remember<Ctx> {
    type Output = Result<Remembered, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Remembers the statement.
    ///
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
            let wish = Wish { of_run: self.key.is_none(), ..self.wish(kind, source) };
            ctx.guarded(label, &bound_to, self.key.clone(), wish).await
        })
    }
}

impl IntoFuture for Remember<TenantClient> {
    type Output = Result<Remembered, MemoryError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Remembers the statement.
    ///
    /// # Crash
    /// The memory and its source are one transaction. A repeat under the same key gets the same answer.
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

/// A statement that a caller wants remembered.
struct Wish {
    subject: String,
    kind: Name,
    content: String,
    text: Text,
    source: String,
    confidence: u32,
    merge_from: Option<f64>,
    similarity: Arc<dyn Similarity>,
    /// True if a run makes the statement under a key of its own.
    of_run: bool,
    /// The shelf as the last proposal leaves it.
    kept: Mutex<Option<Kept>>,
}

impl Guarded for Wish {
    type Answer = Remembered;
    type Error = MemoryError;

    /// Guesses that the statement is a new memory on a shelf that this process wrote last. If the guess is wrong, the
    /// write is refused, because the shelf's place or the normal form's row is taken.
    fn guess<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        key: &'a str,
    ) -> Guessed<'a, Remembered, MemoryError> {
        Box::pin(async move {
            let name = Shelf::name(&self.subject, self.kind.as_str());
            let about = format!("memory/{name}");
            if !self.of_run || !core.guesses.may(tenant, &about) {
                return Ok(None); // a caller outside of runs may repeat the statement under its key
            }
            let Some((onto, newest)) = Shelf::kept(core, tenant, &name) else { return Ok(None) };
            let secret = core.tenant_key(tenant).await?;
            let form = Form::first(core, &name, &keyed(&secret, FORM, &[&self.text.normal]));
            let said = self.saying(key, &secret, &newest).said(onto, form).await;
            let (change, answer) = said.map_err(unasked(key))?;
            let is_new = answer.outcome == Outcome::New;
            Ok(is_new.then_some(Guess { about, change, answer }))
        })
    }

    fn written(&self, core: &Core, _: &Tenant) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(kept) = kept {
            core.memories::<Shelves>().keep(kept);
        }
    }

    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Remembered>, MemoryError>> {
        Box::pin(async move {
            let secret = core.tenant_key(tenant).await?;
            let unasked = |error| unasked(key)(error);
            let name = Shelf::name(&self.subject, self.kind.as_str());
            let form = keyed(&secret, FORM, &[&self.text.normal]);
            // The reads are concurrent: each sequential read would delay the transaction that others share.
            let (first, onto, form) = try_join!(
                async { if self.of_run { Ok(None) } else { Answered::find(core, tenant, key).await } },
                Shelf::find(core, tenant, name.clone()),
                Form::find(core, tenant, &name, &form),
            )
            .map_err(unasked)?;
            if let Some(first) = first {
                if first.request != hex(&self.request(&secret)) {
                    return Err(MemoryError::Conflict { key: key.to_owned(), memory: first.memory });
                }
                let forgotten = first.is_forgotten(core, tenant).await.map_err(unasked)?;
                let outcome = if forgotten { Outcome::Forgotten } else { first.answer.outcome };
                return Ok(Proposal::Before(Remembered { outcome, ..first.answer }));
            }
            let newest = onto.compared().await.map_err(unasked)?;
            let (change, answer) =
                self.saying(key, &secret, &newest).said(onto, form).await.map_err(unasked)?;
            Ok(Proposal::Write(change, answer))
        })
    }

    fn in_run(error: MemoryError) -> Result<Failure, ExecError> {
        in_run(error)
    }
}

impl Wish {
    /// The digest that a key is bound to. It excludes the confidence, which a source may change in a repeat.
    fn request(&self, secret: &DigestKey) -> KeyedDigest {
        keyed(secret, REQUEST, &[&self.subject, self.kind.as_str(), &self.source, &self.content])
    }

    /// The statement under this key, beside the newest memories.
    fn saying<'a>(&'a self, key: &'a str, secret: &DigestKey, newest: &'a Newest) -> Saying<'a> {
        // A statement of a run needs no answer of its own: the run's record, written in the same transaction, holds
        // it.
        let request = (!self.of_run).then(|| self.request(secret));
        let source = keyed(secret, SOURCE, &[&self.source]);
        Saying { wish: self, key, request, source, newest }
    }

    async fn decide<'a>(&self, same: Option<&'a Memory>, newest: &'a Newest) -> Decision<'a> {
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

/// A statement that is written to a shelf as it was read.
struct Saying<'a> {
    wish: &'a Wish,
    key: &'a str,
    /// The digest that the key is bound to; `None` if the answer is not kept under the key.
    request: Option<KeyedDigest>,
    source: KeyedDigest,
    newest: &'a Newest,
}

impl Saying<'_> {
    /// The change and the answer for a shelf in this state.
    async fn said(&self, onto: Shelf<'_>, form: Form) -> Result<(Box<Change>, Remembered), StoreError> {
        let (same, core) = (form.memory.clone(), onto.core);
        let decision = self.wish.decide(same.as_ref(), self.newest).await;
        let (documents, kept, answer) = self.write(onto, form, &decision).await?;
        *self.wish.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        Ok((Box::new(Change { documents, ..core.change(None) }), answer))
    }

    async fn write(
        &self,
        onto: Shelf<'_>,
        form: Form,
        decision: &Decision<'_>,
    ) -> Result<(Vec<Document>, Kept, Remembered), StoreError> {
        let Wish { source, content, confidence, .. } = self.wish;
        let (known, outcome) = match decision.place {
            Place::New => (None, Outcome::New),
            Place::Same(known) => (Some(known), Outcome::Merged { similarity: None }),
            Place::Similar(known, score) => (Some(known), Outcome::Merged { similarity: Some(score) }),
        };
        let said = match known {
            Some(known) => onto.said(known.id, source, &self.source).await?,
            None => SaidBefore::default(),
        };
        let mut writing = onto.write();
        let memory = match known {
            Some(known) => Memory {
                confidence: grown(known.confidence, said.confidence, *confidence),
                sources: known.sources.saturating_add(1),
                ..known.clone()
            },
            None => writing.first(content, *confidence, self.marks(decision)),
        };
        let answer = Remembered {
            memory: memory.id,
            outcome,
            confidence: of_one(memory.confidence),
            similar: decision.similar.clone(),
            contradicts: decision.contradicts.clone(),
        };
        writing.memory(&memory);
        if known.is_none() {
            self.mark_others(&memory, &mut writing);
        }
        // Also if the memory was found by the form of an earlier version: the new form points to it from now on.
        if form.memory.is_none() {
            writing.known_as(form, memory.place);
        }
        writing.source(memory.id, source, content, *confidence);
        // For the source that made the first statement, the row of that statement holds the same.
        if known.is_some() && said.confidence.is_none_or(|before| before < *confidence) {
            writing.said(memory.id, &self.source, said.row.as_ref(), *confidence);
        }
        if let Some(request) = &self.request {
            writing.answered(self.key, memory.place, request, &answer);
        }
        let (documents, kept) = writing.onto(self.newest);
        Ok((documents, kept, answer))
    }

    fn other(&self, id: MemoryId) -> Option<&Memory> {
        self.newest.iter().map(|standing| &standing.memory).find(|memory| memory.id == id)
    }

    fn marks(&self, decision: &Decision<'_>) -> Vec<Mark> {
        let marks = decision.contradicts.iter();
        marks
            .filter_map(|mark| {
                let place = self.other(mark.memory)?.place;
                Some(Mark { memory: mark.memory, place, differs: mark.differs })
            })
            .collect()
    }

    /// Adds the mark of a contradiction to each memory that the new one contradicts.
    fn mark_others(&self, memory: &Memory, writing: &mut Writing<'_>) {
        for mark in &memory.contradicts {
            let Some(mut other) = self.other(mark.memory).cloned() else { continue };
            other.contradicts.push(Mark { memory: memory.id, place: memory.place, differs: mark.differs });
            writing.memory(&other);
        }
    }
}
