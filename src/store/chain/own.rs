//! Transactions that the user's own tables share with the ledger: the changes that they write carry links, too.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;

use super::writer::{Linked, Writer};
use crate::clock::Timestamp;
use crate::id::QuestionId;
use crate::ledger::Origin;
use crate::payload::Payload;
use crate::store::inbox::Inbox;
use crate::store::outage::Outage;
use crate::store::own::{
    OwnConnection, OwnDatabase, Transacting, TransactionsOn, Unseen, Within, Work, turned,
};
use crate::store::{Aside, Change, Delivery, Known, Step, StoreError, StoreFuture};

/// A database of the user's own that also holds a ledger with a chain of evidence.
pub(super) struct ChainedDatabase {
    pub(super) database: Arc<dyn OwnDatabase>,
    pub(super) writer: Arc<Writer>,
}

impl ChainedDatabase {
    fn transactions<C: OwnConnection>(&self) -> Result<&dyn TransactionsOn<C>, StoreError> {
        let other = || StoreError::Io { detail: "the database has another kind of connections".into() };
        C::of(&*self.database).ok_or_else(other)
    }

    /// The change with its link, if evidence rests on it.
    fn linked(&self, change: &Change) -> Option<Linked> {
        self.writer.linked(std::slice::from_ref(change))
    }
}

// What is written with a message are runs and signals, on which no evidence rests.
impl Inbox for ChainedDatabase {
    fn inbox_known<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>> {
        self.database.inbox_known(delivery)
    }

    fn inbox_count<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>> {
        self.database.inbox_count(delivery)
    }

    fn inbox_uncount<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, ()> {
        self.database.inbox_uncount(delivery)
    }

    fn inbox_failed<'a>(&'a self, delivery: &'a Delivery, detail: &'a str) -> StoreFuture<'a, i64> {
        self.database.inbox_failed(delivery, detail)
    }

    fn inbox_set_aside<'a>(
        &'a self,
        delivery: &'a Delivery,
        aside: &'a Aside,
        question: QuestionId,
    ) -> StoreFuture<'a, Option<QuestionId>> {
        self.database.inbox_set_aside(delivery, aside, question)
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

impl OwnDatabase for ChainedDatabase {
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

impl<C: OwnConnection> TransactionsOn<C> for ChainedDatabase {
    fn transaction<'a>(
        &'a self,
        change: Change,
        step: Step,
        within: Within<'a>,
        work: Work<'a, C, Payload>,
    ) -> Transacting<'a, Unseen> {
        Box::pin(async move {
            let Some(mut linked) = self.linked(&change) else {
                return self.transactions()?.transaction(change, step, within, work).await;
            };
            let change = linked.changes.remove(0);
            let value = self.transactions()?.transaction(change, step, within, work).await?;
            linked.durable();
            Ok(value)
        })
    }

    fn sealed<'a>(
        &'a self,
        mark: &'a Change,
        within: Within<'a>,
        work: Work<'a, C, Change>,
    ) -> Transacting<'a, (Unseen, Change)> {
        Box::pin(async move {
            let first = self.linked(mark);
            let mark = first.as_ref().map_or(mark, |linked| &linked.changes[0]);
            let last = Arc::new(Mutex::new(None));
            let work = turned(work, {
                let (writer, last) = (self.writer.clone(), last.clone());
                move |change| {
                    let Some(linked) = writer.linked(std::slice::from_ref(&change)) else { return change };
                    let change = linked.changes[0].clone();
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(linked);
                    change
                }
            });
            let sealed = self.transactions()?.sealed(mark, within, work).await?;
            let last: Option<Linked> = last.lock().unwrap_or_else(PoisonError::into_inner).take();
            [first, last].into_iter().flatten().for_each(Linked::durable);
            Ok(sealed)
        })
    }

    fn process<'a>(
        &'a self,
        delivery: &'a Delivery,
        within: Within<'a>,
        work: Work<'a, C, Payload>,
    ) -> Transacting<'a, Result<Unseen, Known>> {
        Box::pin(async move { self.transactions()?.process(delivery, within, work).await })
    }
}
