//! Sealing the record of an attempt in the transaction of its effect, in the ledger's own database.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::compare::compare;
use super::noting::Note;
use crate::ledger::{ContractClass, Event, Record, apply};
use crate::payload::Payload;
use crate::store::{Change, StoreError, durable};
use crate::tool::Seals;

/// The external reference of an effect that is a change in the ledger's own database.
const IN_TRANSACTION: &str = "ledger-transaction";

/// The record of an attempt that is sealed in the transaction of its effect.
struct Sealing {
    note: Arc<Note>,
    contract: ContractClass,
    /// The record as the transaction's first write leaves it.
    marked: Record,
}

impl Seals for Sealing {
    fn mark(&self) -> Change {
        self.note.core.change(self.note.lane).record(Box::new(self.marked.clone()))
    }

    fn seal(&self, response: &Payload) -> Option<Change> {
        let core = &self.note.core;
        let (response, large) = core.storable_response(response.clone().response(&core.limits));
        let event = Event::Commit { response, external_ref: None, basis: self.marked.basis };
        let sealed = apply(&self.marked, event, core.fence, core.now()).ok()?;
        let mut change = core.change(self.note.lane).record(Box::new(sealed));
        change.payloads.extend(large.map(|payload| (self.marked.tenant.clone(), payload)));
        compare(core, &mut change, self.contract, Box::default());
        Some(change)
    }

    fn took_place(self: Box<Self>, seal: Change) {
        durable::note(&seal, &self.note.core.meter, &self.note.core.spans); // it was written past the queue, which notes all other changes
        if let Some((sealed, record)) = seal.record.zip(self.note.record().as_mut()) {
            *record = sealed;
        }
        // Events that were written in the transaction could not be announced to the publisher before.
        self.note.core.group.events().notify_one();
    }

    fn ended_inside(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move {
            let Self { note, marked, .. } = &*self;
            // The mark is durable now: a refused one is there already. The next write to the record follows it.
            note.core.group.commit_one(self.mark()).await.map(drop)?;
            if let Some(record) = note.record().as_mut() {
                **record = marked.clone();
            }
            Ok(())
        })
    }
}

/// The handle that seals the attempt's record. `None` if the attempt is over.
pub(super) fn of(note: Arc<Note>, contract: ContractClass) -> Option<Box<dyn Seals>> {
    let event = Event::Note { external_ref: IN_TRANSACTION.to_owned() };
    let marked = apply(note.record().as_ref()?, event, note.core.fence, note.core.now()).ok()?;
    Some(Box::new(Sealing { note, contract, marked }))
}
