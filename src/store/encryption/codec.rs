//! The encryption of changes and the decryption of answers, by the keys of their tenants.

use std::sync::Arc;

use super::key::{EncryptionKeys, TenantKeys};
use super::private::{Pass, Private, Unreadable};
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::payload::Payload;
use crate::store::error::ANY_KEY;
use crate::store::{
    AvoidedDuplicates, Change, Due, ExpiredSignal, Form, OutboxEvent, QuestionCount, QuestionLoad,
    QuestionSpan, QueueLoad, Retired, RetiredRun, Run, RunPage, StoreError, Worker,
};

/// The encryption of rows by the keys of their tenants.
#[derive(Clone)]
pub(super) struct Codec {
    pub(super) keys: Arc<dyn EncryptionKeys>,
}

/// The keys of this tenant are missing.
pub(super) struct NoKeys(pub(super) Tenant);

impl From<NoKeys> for StoreError {
    fn from(NoKeys(tenant): NoKeys) -> Self {
        Self::NoKey { tenant: tenant.to_string(), key: ANY_KEY.into() }
    }
}

/// The encryption of the rows of one tenant, with the keys that it has now.
pub(super) struct Encryption {
    tenant: Tenant,
    /// `None` if the rows are readable.
    keys: Option<TenantKeys>,
}

impl Encryption {
    pub(super) fn turn(&self, turn: impl FnOnce(&mut Pass<'_>)) {
        if let Some(keys) = &self.keys {
            turn(&mut Pass { keys, tenant: &self.tenant, encrypts: true, unreadable: None });
        }
    }

    pub(super) fn row<R: Private + Clone>(&self, row: &R) -> R {
        let mut row = row.clone();
        self.turn(|pass| row.pass(pass));
        row
    }

    pub(super) fn change(&self, change: &Change) -> Change {
        let mut change = change.clone();
        if let Some(keys) = &self.keys {
            Codec { keys: Arc::new(keys.clone()) }.encrypt_change(&mut change); // these keys are those of every tenant
        }
        change
    }
}

impl Codec {
    /// The encryption of the rows of a tenant.
    pub(super) fn of(&self, tenant: &Tenant) -> Result<Encryption, NoKeys> {
        let keys = if is_readable(tenant) {
            None
        } else {
            Some(self.keys.of(tenant).ok_or_else(|| NoKeys(tenant.clone()))?)
        };
        Ok(Encryption { tenant: tenant.clone(), keys })
    }

    /// Encrypts the private values of a change.
    pub(super) fn encrypt_change(&self, change: &mut Change) {
        if change.form == Form::Readable {
            let encrypted = self.encrypt_values(change);
            change.form = if encrypted.is_ok() { Form::Encrypted } else { Form::KeyMissing };
        }
    }

    fn encrypt_values(&self, change: &mut Change) -> Result<(), NoKeys> {
        let Change {
            fence: _,
            lane: _,
            contract: _,
            taken_over: _,
            beside: _,
            form: _,
            worker: _,
            admission: _,
            schedule,
            documents,
            published,
            erased: _,
            events,
            aggregates: _,
            forgotten: _,
            retired,
            retired_runs,
            expired_signals,
            payloads,
            tenant_key,
            run,
            labels: _,
            record,
            record_labels: _,
            look: _,
            contacts,
            dropped_contacts: _,
            steps,
            prune: _,
            used: _,
            escalations,
            signal,
            received,
            evidence,
            link: _,
        } = change;
        self.encrypt_rows(schedule.as_deref_mut())?;
        self.encrypt_rows(documents)?;
        self.encrypt_rows(published.as_deref_mut())?;
        self.encrypt_rows(events)?;
        self.encrypt_rows(run.as_deref_mut())?;
        self.encrypt_rows(record.as_deref_mut())?;
        self.encrypt_rows(contacts)?;
        self.encrypt_rows(steps)?;
        self.encrypt_rows(escalations)?;
        self.encrypt_rows(signal.as_deref_mut())?;
        self.encrypt_rows(received.as_deref_mut())?;
        self.encrypt_rows(evidence.as_deref_mut())?;
        // A row that is retired was listed before, as it is stored if its tenant has no keys any more. It goes all the same.
        for Retired { tenant, id: _, revision: _, left, payloads } in retired {
            let _ = self.encrypt(tenant, |pass| {
                if let Some(left) = left {
                    left.pass(pass);
                }
                for digest in payloads {
                    pass.address(digest);
                }
            });
        }
        for RetiredRun { run, is_left: _, input_hash, outcome: _ } in retired_runs {
            let _ = self.encrypt(&run.tenant.clone(), |pass| {
                run.pass(pass);
                pass.hash(input_hash);
            });
        }
        for ExpiredSignal { signal, left: _ } in expired_signals {
            let _ = self.encrypt_rows([signal]); // a digest is left
        }
        for (tenant, payload) in payloads {
            self.encrypt(tenant, |pass| pass.large_payload(payload))?;
        }
        if let Some((tenant, key)) = tenant_key {
            self.encrypt(tenant, |pass| pass.digest_key(key))?;
        }
        Ok(())
    }

    fn encrypt_rows<'r, R: Private + 'r>(
        &self,
        rows: impl IntoIterator<Item = &'r mut R>,
    ) -> Result<(), NoKeys> {
        for row in rows {
            self.encrypt(&row.tenant().clone(), |pass| row.pass(pass))?;
        }
        Ok(())
    }

    pub(super) fn encrypt(&self, tenant: &Tenant, turn: impl FnOnce(&mut Pass<'_>)) -> Result<(), NoKeys> {
        self.of(tenant)?.turn(turn);
        Ok(())
    }

    pub(super) fn decrypt(
        &self,
        tenant: &Tenant,
        turn: impl FnOnce(&mut Pass<'_>),
    ) -> Result<(), StoreError> {
        let Some(keys) = self.of(tenant)?.keys else { return Ok(()) };
        let mut pass = Pass { keys: &keys, tenant, encrypts: false, unreadable: None };
        turn(&mut pass);
        match pass.unreadable {
            None => Ok(()),
            Some(Unreadable::NoKey(key)) => Err(StoreError::NoKey { tenant: tenant.to_string(), key }),
            Some(Unreadable::Forged(key)) => Err(StoreError::Corrupt {
                row: format!("of tenant {tenant}"),
                detail: format!("a value was not encrypted under the key {key} for this row"),
            }),
        }
    }
}

/// An event and its large payload, encrypted under each key of its tenant: first under the key for new texts. An event
/// that is added again may be stored under another one, and is to be recognised.
pub(crate) fn encrypted_events(
    keys: &dyn EncryptionKeys,
    event: &OutboxEvent,
    large: Option<&Payload>,
) -> Result<Vec<(OutboxEvent, Option<Payload>)>, StoreError> {
    let tenant = &event.tenant;
    let under = |keys: TenantKeys| {
        let encryption = Encryption { tenant: tenant.clone(), keys: Some(keys) };
        let mut large = large.cloned();
        if let Some(payload) = &mut large {
            encryption.turn(|pass| pass.large_payload(payload));
        }
        (encryption.row(event), large)
    };
    Ok(keys.of(tenant).ok_or_else(|| NoKeys(tenant.clone()))?.each().map(under).collect())
}

/// True if the rows of this tenant are about the ledger as a whole, which a process reads before it has keys.
fn is_readable(tenant: &Tenant) -> bool {
    *tenant == Tenant::ledger()
}

/// The answer of a store.
pub(super) trait Rows {
    /// Decrypts the rows. In a list, a row that cannot be decrypted is left as it is, so that an operator sees it.
    fn decrypt(&mut self, codec: &Codec) -> Result<(), StoreError>;
}

impl<R: Private> Rows for R {
    fn decrypt(&mut self, codec: &Codec) -> Result<(), StoreError> {
        codec.decrypt(&self.tenant().clone(), |pass| self.pass(pass))
    }
}

impl<R: Rows> Rows for Option<R> {
    fn decrypt(&mut self, codec: &Codec) -> Result<(), StoreError> {
        self.as_mut().map_or(Ok(()), |row| row.decrypt(codec))
    }
}

impl<R: Rows> Rows for Vec<R> {
    fn decrypt(&mut self, codec: &Codec) -> Result<(), StoreError> {
        for row in self {
            if let Err(error) = row.decrypt(codec) {
                tracing::warn!(%error, "row of a list is left encrypted");
            }
        }
        Ok(())
    }
}

impl Rows for RunPage<Run> {
    fn decrypt(&mut self, codec: &Codec) -> Result<(), StoreError> {
        self.runs.decrypt(codec)
    }
}

impl Rows for Due {
    /// Cuts the events off before the first one that cannot be decrypted: a publisher would give its text to the sink.
    fn decrypt(&mut self, codec: &Codec) -> Result<(), StoreError> {
        let mut events = self.events.iter_mut().enumerate();
        let failed = events.find_map(|(place, event)| Some((place, event.decrypt(codec).err()?)));
        let Some((place, error)) = failed else { return Ok(()) };
        self.events.truncate(place);
        Err(error)
    }
}

/// Declares answers without private values.
macro_rules! open {
    ($($answer:ty),+) => {
        $(impl Rows for $answer {
            fn decrypt(&mut self, _: &Codec) -> Result<(), StoreError> {
                Ok(())
            }
        })+
    };
}

open!(
    bool,
    i64,
    String,
    Timestamp,
    Tenant,
    Worker,
    QueueLoad,
    QuestionCount,
    QuestionLoad,
    QuestionSpan,
    AvoidedDuplicates
);
