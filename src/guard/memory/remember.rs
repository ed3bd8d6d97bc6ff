//! Something is said to be remembered: one operation, under its key.

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

/// How sure a source is that does not say so.
const CONFIDENCE: f64 = 0.7;
/// Digests of normal forms. Another scheme of normal forms needs another name.
const FORM: &str = "counterfoil/memory/form/1";
const REQUEST: &str = "counterfoil/memory/request/1";
const SOURCE: &str = "counterfoil/memory/source/1";

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
            of_run: false,
            kept: Mutex::default(),
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
            let wish = Wish { of_run: self.key.is_none(), ..self.wish(kind, source) };
            ctx.guarded(label, &bound_to, self.key.clone(), wish).await
        })
    }
}

impl IntoFuture for Remember<TenantClient> {
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
    /// A run says it, under a key of its own.
    of_run: bool,
    /// The shelf as the last proposal leaves it.
    kept: Mutex<Option<Kept>>,
}

impl Guarded for Wish {
    type Answer = Remembered;
    type Error = MemoryError;

    /// A memory that is new, on a shelf that this process has written to last. Whatever makes it another one is a row that is taken:
    /// the shelf's place, or the normal form.
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
                return Ok(None); // whoever says it outside of runs may say it again
            }
            let Some((onto, newest)) = Shelf::kept(core, tenant, &name) else { return Ok(None) };
            let secret = core.tenant_key(tenant).await?;
            let form = Form::first(core, &name, &keyed(&secret, FORM, &[&self.text.normal]));
            let said = self.said(key, &secret, onto, form, &newest).await;
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
            // Each wait is one more for the transaction that others share.
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
            let (change, answer) = self.said(key, &secret, onto, form, &newest).await.map_err(unasked)?;
            Ok(Proposal::Write(change, answer))
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

    /// What is written, and what is answered, if a shelf is so.
    async fn said(
        &self,
        key: &str,
        secret: &DigestKey,
        onto: Shelf<'_>,
        form: Form,
        newest: &Newest,
    ) -> Result<(Box<Change>, Remembered), StoreError> {
        let (same, core) = (form.memory.clone(), onto.core);
        let decision = self.decide(same.as_ref(), newest).await;
        // What a run says is answered by the run's own record, which is written with it.
        let request = (!self.of_run).then(|| self.request(secret));
        let source = keyed(secret, SOURCE, &[&self.source]);
        let saying = Saying { wish: self, key, request, source, newest };
        let (documents, kept, answer) = saying.write(onto, form, &decision).await?;
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        Ok((Box::new(Change { documents, ..core.change(None) }), answer))
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

/// It is said, on a shelf as it was read.
struct Saying<'a> {
    wish: &'a Wish,
    key: &'a str,
    /// What its key is bound to, if it is to be answered under that.
    request: Option<KeyedDigest>,
    source: KeyedDigest,
    newest: &'a Newest,
}

impl Saying<'_> {
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
        // Also where it is known by a form that another version has made: from now on it is known under this one, too.
        if form.memory.is_none() {
            writing.known_as(form, memory.place);
        }
        writing.source(memory.id, source, content, *confidence);
        // Of the one that said it first, the row above tells the same.
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

    /// What a new memory contradicts bears the same mark.
    fn mark_others(&self, memory: &Memory, writing: &mut Writing<'_>) {
        for mark in &memory.contradicts {
            let Some(mut other) = self.other(mark.memory).cloned() else { continue };
            other.contradicts.push(Mark { memory: memory.id, place: memory.place, differs: mark.differs });
            writing.memory(&other);
        }
    }
}
