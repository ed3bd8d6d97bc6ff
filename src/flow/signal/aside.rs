//! A signal that the run cannot read is set aside as a question, and the run waits on. Signals come from webhooks and people: a
//! malformed one must not spoil the run for ever.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::NewSignal;
use super::name::OWN;
use crate::exec::ExecError;
use crate::flow::inner::Inner;
use crate::flow::live::Live;
use crate::id::{QuestionId, Tenant};
use crate::payload::{Payload, PayloadError};
use crate::store::{Change, Document, Question, QuestionKind, Resolution, Signal, Store as _, StoreError};

/// The kind of document that tells which signal a question is about. The document's id is the question.
const KIND: &str = "signal_aside";

/// A check that the waiting code can read a signal.
pub(in crate::flow) type Reads = fn(&Payload) -> Result<(), PayloadError>;

pub(in crate::flow) fn reads<T: DeserializeOwned>(body: &Payload) -> Result<(), PayloadError> {
    body.decode::<T>().map(drop)
}

/// A signal that was set aside, by its name and id.
#[derive(Debug, Serialize, Deserialize)]
struct Aside {
    name: String,
    id: String,
}

impl Live {
    /// Sets a signal aside: the signal is received, and a question about it is opened.
    ///
    /// # Crash
    /// The receipt and the question are one transaction. Without it the signal is still pending, and the next
    /// activation sets it aside.
    pub(in crate::flow) fn set_aside(&self, signal: Signal, error: PayloadError) -> Change {
        let core = &self.core;
        let question = QuestionId(core.ids.next());
        let why = match error {
            PayloadError::Mismatch { expected, reason } => format!("it does not fit `{expected}`: {reason}"),
            other => other.to_string(),
        };
        let (name, id) = (signal.name.clone(), signal.id.clone());
        tracing::warn!(tenant = %self.tenant, run = %self.id, question = %question, name, id, "signal set aside: run cannot read it");
        let asked = Question {
            id: question,
            tenant: self.tenant.clone(),
            record: None,
            run: Some(self.id),
            kind: QuestionKind::Unread,
            question: format!(
                "{run}: the signal {name:?} (id {id:?}) cannot be read: {why}. It is set aside, and the run waits for another one. \
                 Hand it to the run once more, when its code can read it (`again`), hand the run a value instead (`deliver`), or leave it \
                 out (`skip`)?",
                run = self.id,
            ),
            opened_at: core.now(),
            waiting: None,
            answer: None,
        };
        let mut change = core.change(Some(self.lane)).escalation(asked);
        let aside = Aside { name, id };
        change.documents.push(Document::first(&self.tenant, KIND, question.to_string(), &aside, core.now()));
        change.received = Some(Box::new(signal));
        change
    }
}

impl Inner {
    /// The signal that an answer hands to a run, if the question is about a signal that was set aside. It is a signal
    /// of its own, under an id made of the question's.
    pub(in crate::flow) async fn handed(
        &self,
        tenant: &Tenant,
        question: QuestionId,
        resolution: &Resolution,
    ) -> Result<Option<(Signal, Option<Payload>)>, ExecError> {
        let store_failed = |source: StoreError| ExecError::Store { key: question.to_string(), source };
        let unanswerable = |reason: &str| ExecError::Unanswerable { question, reason: reason.to_owned() };
        let asked = self.core.group.escalation_find(tenant, question).await.map_err(store_failed)?;
        let asked = asked.filter(|asked| asked.kind == QuestionKind::Unread && asked.answer.is_none());
        let Some(run) = asked.and_then(|asked| asked.run).filter(|_| *resolution != Resolution::Skip) else {
            return Ok(None);
        };
        let found = self.core.group.document_find(tenant, KIND, &question.to_string()).await;
        let unknown = || unanswerable("nothing tells any more which signal it was; answer `skip`");
        let found = found.map_err(store_failed)?.ok_or_else(unknown)?;
        let Aside { name, id } = serde_json::from_str(&found.body).map_err(|_| unknown())?;
        let body = match resolution {
            Resolution::Deliver(value) => Payload::of(value)?.within(&self.core.limits)?,
            Resolution::Again => {
                let first =
                    self.core.group.signal_find(tenant, run, &name, &id).await.map_err(store_failed)?;
                self.core.load(tenant, &first.ok_or_else(unknown)?.body).await?
            }
            _ => return Ok(None), // the answer is refused: a signal takes no other one
        };
        let addressed = self.addressed(tenant, run).await.map_err(store_failed)?;
        let Some((_, last)) = addressed.filter(|(run, _)| !run.state.is_final()) else {
            return Err(unanswerable("its run has ended, and can be handed nothing; answer `skip`"));
        };
        let new = NewSignal { tenant: tenant.clone(), run, name, id: format!("{OWN}{question}"), body };
        Ok(Some(self.behind(last, new)))
    }
}
