//! The wrapper of a store.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::codec::{Codec, Rows as _};
use super::key::EncryptionKeys;
use crate::clock::Timestamp;
use crate::id::{Fence, QuestionId, RecordId, RunId, Tenant};
use crate::ledger::{Look, OperationKey, Record};
use crate::payload::{DigestKey, Payload, PayloadDigest};
use crate::store::chain::Link;
use crate::store::reads::reads;
use crate::store::{
    Aggregate, AvoidedDuplicates, Change, Contact, Document, Due, Evidence, ExpiredSignal, Form, History,
    HistoryPlace, OrderingKey, OutboxEvent, Published, PublishedValue, Question, QuestionCount, QuestionLoad,
    QuestionSpan, QueueLoad, RecordLabel, Refusal, Run, RunCursor, RunFilter, RunLabel, RunPage, RunState,
    Schedule, SharedEffect, Signal, Store, StoreError, StoreFuture, Turns, Verdict, Worker,
};

/// A store whose private values are encrypted before the store behind it sees them.
pub struct EncryptedStore {
    store: Arc<dyn Store>,
    codec: Codec,
}

impl fmt::Debug for EncryptedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EncryptedStore").field(&self.store).finish()
    }
}

/// Implements each question by asking the store and decrypting its answer.
macro_rules! decrypted {
    () => {};
    // The rows of a history do not name their run, and keys and payloads do not name their tenant.
    ($(#[$meaning:meta])+ run_history($($named:ident: $kind:ty),+) -> $answer:ty; $($rest:tt)*) => {
        $(#[$meaning])+
        fn run_history<'a>(&'a self, tenant: &'a Tenant, id: RunId, turns: Turns) -> StoreFuture<'a, $answer> {
            Box::pin(async move {
                let mut history = self.store.run_history(tenant, id, turns).await?;
                self.codec.decrypt(tenant, |pass| pass.history(id, &mut history))?;
                Ok(history)
            })
        }
        decrypted!($($rest)*);
    };
    ($(#[$meaning:meta])+ run_history_page($($named:ident: $kind:ty),+) -> $answer:ty; $($rest:tt)*) => {
        $(#[$meaning])+
        fn run_history_page<'a>(
            &'a self,
            tenant: &'a Tenant,
            id: RunId,
            after: &'a HistoryPlace,
            limit: u32,
        ) -> StoreFuture<'a, $answer> {
            Box::pin(async move {
                let mut history = self.store.run_history_page(tenant, id, after, limit).await?;
                self.codec.decrypt(tenant, |pass| pass.history(id, &mut history))?;
                Ok(history)
            })
        }
        decrypted!($($rest)*);
    };
    ($(#[$meaning:meta])+ tenant_key($($named:ident: $kind:ty),+) -> $answer:ty; $($rest:tt)*) => {
        $(#[$meaning])+
        fn tenant_key<'a>(&'a self, tenant: &'a Tenant) -> StoreFuture<'a, $answer> {
            Box::pin(async move {
                let mut key = self.store.tenant_key(tenant).await?;
                if let Some(key) = &mut key {
                    self.codec.decrypt(tenant, |pass| pass.digest_key(key))?;
                }
                Ok(key)
            })
        }
        decrypted!($($rest)*);
    };
    ($(#[$meaning:meta])+ payload_find($($named:ident: $kind:ty),+) -> $answer:ty; $($rest:tt)*) => {
        $(#[$meaning])+
        fn payload_find<'a>(&'a self, tenant: &'a Tenant, digest: PayloadDigest) -> StoreFuture<'a, $answer> {
            Box::pin(self.payload(tenant, digest))
        }
        decrypted!($($rest)*);
    };
    ($(#[$meaning:meta])+ $question:ident($($named:ident: $kind:ty),*) -> $answer:ty; $($rest:tt)*) => {
        $(#[$meaning])+
        #[allow(clippy::elidable_lifetime_names, reason = "what some questions name lives as long as the answer")]
        fn $question<'a>(&'a self, $($named: $kind),*) -> StoreFuture<'a, $answer> {
            Box::pin(async move {
                let mut answer = self.store.$question($($named),*).await?;
                answer.decrypt(&self.codec)?;
                Ok(answer)
            })
        }
        decrypted!($($rest)*);
    };
}

impl EncryptedStore {
    /// Wraps a store.
    pub fn new(store: Arc<dyn Store>, keys: Arc<dyn EncryptionKeys>) -> Self {
        Self { store, codec: Codec { keys } }
    }

    async fn payload(&self, tenant: &Tenant, digest: PayloadDigest) -> Result<Option<Payload>, StoreError> {
        let mut address = digest;
        self.codec.encrypt(tenant, |pass| pass.address(&mut address))?;
        let Some(mut payload) = self.store.payload_find(tenant, address).await? else { return Ok(None) };
        self.codec.decrypt(tenant, |pass| pass.large_payload(&mut payload))?;
        Ok(Some(payload))
    }

    /// Encrypts the changes. A change of a tenant without keys is refused, and with it the later ones of its lane.
    async fn encrypted(&self, changes: &[Change]) -> Result<(Vec<Change>, Vec<Option<Refusal>>), StoreError> {
        let (mut written, mut refused) =
            (Vec::with_capacity(changes.len()), Vec::with_capacity(changes.len()));
        let mut stopped: HashSet<OrderingKey> = HashSet::new();
        for change in changes {
            if change.lane.is_some_and(|lane| stopped.contains(&lane)) {
                refused.push(Some(Refusal::Predecessor));
                continue;
            }
            let mut change = change.clone();
            self.codec.encrypt_change(&mut change);
            refused.push(if change.form == Form::Encrypted {
                self.as_stored(&mut change.expired_signals).await?;
                written.push(change);
                None
            } else {
                stopped.extend(change.lane);
                let why = "the tenant has no key for encryption, and nothing is kept of it in the clear: give its key";
                Some(Refusal::Invalid(why.into()))
            });
        }
        Ok((written, refused))
    }

    /// Gives expired signals the bytes that are stored, which may be those of an earlier key: the store compares them.
    async fn as_stored(&self, expired: &mut [ExpiredSignal]) -> Result<(), StoreError> {
        for ExpiredSignal { signal, left: _ } in expired {
            let Signal { tenant, run, name, id, .. } = &*signal;
            let Some(stored) = self.store.signal_find(tenant, *run, name, id).await? else { continue };
            let (mut plain, mut listed) = (stored.clone(), signal.clone());
            if plain.decrypt(&self.codec).is_ok() && listed.decrypt(&self.codec).is_ok() && plain == listed {
                signal.body = stored.body;
            }
        }
        Ok(())
    }
}

impl Store for EncryptedStore {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        if changes.iter().all(|change| change.form == Form::Encrypted) {
            return self.store.commit(changes);
        }
        Box::pin(async move {
            let (written, refused) = self.encrypted(changes).await?;
            let verdicts = if written.is_empty() { Vec::new() } else { self.store.commit(&written).await? };
            let mut verdicts = verdicts.into_iter();
            let verdict = |refusal: Option<Refusal>| match refusal {
                Some(refusal) => Some(Verdict::Refused(refusal)),
                None => verdicts.next(),
            };
            Ok(refused.into_iter().filter_map(verdict).collect())
        })
    }

    /// Encrypts a change where it is queued. Two kinds are encrypted in their transaction: one for which the store must be asked,
    /// and the failure of a run, because the log names its code.
    fn prepare(&self, change: &mut Change) {
        let fails = change.run.as_ref().is_some_and(|run| matches!(run.state, RunState::Failed { .. }));
        if change.expired_signals.is_empty() && !fails {
            self.codec.encrypt_change(change);
        }
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }

    reads!(decrypted);
}
