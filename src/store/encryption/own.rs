//! Transactions that the user's own tables share with the ledger, and the rows about messages: their private values are
//! encrypted like all others.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;

use super::codec::{Codec, Encryption};
use super::private::Pass;
use crate::clock::Timestamp;
use crate::id::{QuestionId, Tenant};
use crate::ledger::Origin;
use crate::payload::{Payload, Stored};
use crate::store::inbox::Inbox;
use crate::store::outage::Outage;
use crate::store::own::{
    OwnConnection, OwnDatabase, Transacting, TransactionsOn, Unseen, Within, Work, turned,
};
use crate::store::{Aside, Change, Delivery, Known, SetAside, Step, StoreError, StoreFuture};

/// A database of the user's own that also holds the encrypted ledger.
pub(super) struct EncryptedDatabase {
    pub(super) database: Arc<dyn OwnDatabase>,
    pub(super) codec: Codec,
}

impl EncryptedDatabase {
    fn of(&self, tenant: &Tenant) -> Result<Encryption, StoreError> {
        Ok(self.codec.of(tenant)?)
    }

    fn transactions<C: OwnConnection>(&self) -> Result<&dyn TransactionsOn<C>, StoreError> {
        let other = || StoreError::Io { detail: "the database has another kind of connections".into() };
        C::of(&*self.database).ok_or_else(other)
    }

    fn known(&self, delivery: &Delivery, mut known: Known) -> Result<Known, StoreError> {
        self.codec.decrypt(&delivery.tenant, |pass| delivery.known(pass, &mut known))?;
        Ok(known)
    }
}

impl Delivery {
    /// The delivery, with the change along with it encrypted.
    fn encrypted(&self, by: &Encryption) -> Self {
        let along = self.along.as_deref().map(|change| Box::new(by.change(change)));
        Self { along, ..self.clone() }
    }

    fn result(&self, pass: &mut Pass<'_>, result: &mut Payload) {
        pass.payload(format_args!("message {:?} {:?}", self.consumer, self.message), result);
    }

    fn detail(&self, pass: &mut Pass<'_>, detail: &mut String) {
        pass.text(format_args!("message {:?} {:?} failure", self.consumer, self.message), detail);
    }

    fn aside(&self, pass: &mut Pass<'_>, aside: &mut Aside) {
        if let SetAside::TriedTooOften(Some(detail)) = &mut aside.why {
            self.detail(pass, detail);
        }
    }

    fn known(&self, pass: &mut Pass<'_>, known: &mut Known) {
        match known {
            Known::Processed(result) => self.result(pass, result),
            Known::SetAside(aside) => self.aside(pass, aside),
            Known::Expired | Known::Outdated => {}
        }
    }
}

impl Inbox for EncryptedDatabase {
    fn inbox_known<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>> {
        Box::pin(async move {
            let known = self.database.inbox_known(delivery).await?;
            known.map(|known| self.known(delivery, known)).transpose()
        })
    }

    fn inbox_count<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>> {
        Box::pin(async move {
            let known = self.database.inbox_count(delivery).await?;
            known.map(|known| self.known(delivery, known)).transpose()
        })
    }

    fn inbox_uncount<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, ()> {
        self.database.inbox_uncount(delivery)
    }

    fn inbox_failed<'a>(&'a self, delivery: &'a Delivery, detail: &'a str) -> StoreFuture<'a, i64> {
        Box::pin(async move {
            let mut detail = detail.to_owned();
            self.of(&delivery.tenant)?.turn(|pass| delivery.detail(pass, &mut detail));
            self.database.inbox_failed(delivery, &detail).await
        })
    }

    fn inbox_set_aside<'a>(
        &'a self,
        delivery: &'a Delivery,
        aside: &'a Aside,
        question: QuestionId,
    ) -> StoreFuture<'a, Option<QuestionId>> {
        Box::pin(async move {
            let (own, mut aside) = (self.of(&delivery.tenant)?, aside.clone());
            own.turn(|pass| delivery.aside(pass, &mut aside));
            self.database.inbox_set_aside(&delivery.encrypted(&own), &aside, question).await
        })
    }

    fn inbox_again<'a>(&'a self, delivery: &'a Delivery, question: QuestionId) -> StoreFuture<'a, ()> {
        self.database.inbox_again(delivery, question)
    }

    fn inbox_retire<'a>(
        &'a self,
        consumer: &'a str,
        until: Timestamp,
        is_left: bool,
    ) -> StoreFuture<'a, bool> {
        self.database.inbox_retire(consumer, until, is_left)
    }

    fn inbox_next_over<'a>(
        &'a self,
        consumer: &'a str,
        after: Timestamp,
        is_left: bool,
    ) -> StoreFuture<'a, Option<Timestamp>> {
        self.database.inbox_next_over(consumer, after, is_left)
    }
}

impl OwnDatabase for EncryptedDatabase {
    #[cfg(feature = "sqlite")]
    fn on_sqlite(&self) -> Option<&dyn TransactionsOn<sqlx::sqlite::SqliteConnection>> {
        self.database.on_sqlite().map(|_| self as _)
    }

    #[cfg(feature = "postgres")]
    fn on_postgres(&self) -> Option<&dyn TransactionsOn<sqlx::postgres::PgConnection>> {
        self.database.on_postgres().map(|_| self as _)
    }

    fn continuity<'a>(
        &'a self,
        before: Option<&'a Origin>,
    ) -> StoreFuture<'a, (Option<&'static str>, Option<Origin>)> {
        self.database.continuity(before)
    }

    fn keeps_mark(&self) -> bool {
        self.database.keeps_mark()
    }

    fn mark(&self, raise: bool) -> StoreFuture<'_, ()> {
        self.database.mark(raise)
    }

    fn outage(&self) -> Option<Arc<Outage>> {
        self.database.outage()
    }

    fn retire(&self) -> BoxFuture<'_, ()> {
        self.database.retire()
    }
}

impl<C: OwnConnection> TransactionsOn<C> for EncryptedDatabase {
    fn transaction<'a>(
        &'a self,
        change: Change,
        step: Step,
        within: Within<'a>,
        work: Work<'a, C, Payload>,
    ) -> Transacting<'a, Unseen> {
        Box::pin(async move {
            let own = self.of(&step.tenant)?;
            let (change, mark) = (own.change(&change), own.row(&step));
            let work = turned(work, move |value| {
                let done = own.row(&Step { value: Some(Stored::Inline(value)), ..step });
                match done.value {
                    Some(Stored::Inline(value)) => value,
                    _ => unreachable!("a value in its row stays in its row"),
                }
            });
            self.transactions()?.transaction(change, mark, within, work).await
        })
    }

    fn sealed<'a>(
        &'a self,
        mark: &'a Change,
        within: Within<'a>,
        work: Work<'a, C, Change>,
    ) -> Transacting<'a, (Unseen, Change)> {
        Box::pin(async move {
            let tenant = mark.record.as_ref().map_or_else(Tenant::ledger, |record| record.tenant.clone());
            let own = self.of(&tenant)?;
            let mark = own.change(mark);
            // The caller goes on with the change as it made it.
            let made = Arc::new(Mutex::new(None));
            let work = turned(work, {
                let made = made.clone();
                move |change| {
                    let written = own.change(&change);
                    *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(change);
                    written
                }
            });
            let (value, written) = self.transactions()?.sealed(&mark, within, work).await?;
            let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
            Ok((value, made.unwrap_or(written)))
        })
    }

    fn process<'a>(
        &'a self,
        delivery: &'a Delivery,
        within: Within<'a>,
        work: Work<'a, C, Payload>,
    ) -> Transacting<'a, Result<Unseen, Known>> {
        Box::pin(async move {
            let own = self.of(&delivery.tenant)?;
            let written = delivery.encrypted(&own);
            let work = turned(work, {
                let delivery = written.clone();
                move |mut result| {
                    own.turn(|pass| delivery.result(pass, &mut result));
                    result
                }
            });
            let processed = self.transactions()?.process(&written, within, work).await?;
            Ok(match processed {
                Ok(value) => Ok(value),
                Err(known) => Err(self.known(delivery, known)?),
            })
        })
    }
}
