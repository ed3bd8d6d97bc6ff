//! The inbox in a simulation: the rows and the statements of the embedded store, in the [tables](super::database) of
//! the user.
//!
//! Each write to the inbox takes place when its slip is durable, and goes through the disk like every other write: it
//! takes time, may fail, and may have taken place although the answer was lost. In the simulation the count of a try
//! waits for the disk, too: a power failure does not undo a count.

use sqlx::sqlite::SqliteConnection;

use super::database::{Database, Held, Mark, Open, standing_still};
use crate::id::QuestionId;
use crate::payload::Payload;
use crate::store::own::{OwnDatabase, Transacted, TransactionsOn, Unseen, Within, Work};
use crate::store::sqlite::inbox;
use crate::store::{
    Aside, Change, Counting, Delivery, Inbox, Known, OutboxEvent, StoreError, StoreFuture, TransactionError,
    Verdict,
};

impl OwnDatabase for Database {
    fn on_sqlite(&self) -> Option<&dyn TransactionsOn<SqliteConnection>> {
        Some(self)
    }
}

impl Inbox for Database {
    fn inbox_known<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>> {
        Box::pin(async {
            let mut held = self.hold().await;
            standing_still(async {
                let open = self.begin(&mut held).await?;
                inbox::known(&mut open.connection, delivery).await
            })
            .await
        })
    }

    fn inbox_count<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>> {
        Box::pin(async {
            let mut held = self.hold().await;
            self.count(&mut held, delivery).await
        })
    }

    fn inbox_uncount<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut held = self.hold().await;
            let written = standing_still(async {
                let open = self.begin(&mut held).await?;
                inbox::uncount(&mut open.connection, delivery).await?;
                Ok::<_, StoreError>(open)
            });
            self.keep(written.await?, delivery, Vec::new()).await
        })
    }

    fn inbox_failed<'a>(&'a self, delivery: &'a Delivery, detail: &'a str) -> StoreFuture<'a, i64> {
        Box::pin(async move {
            let mut held = self.hold().await;
            let written = standing_still(async {
                let open = self.begin(&mut held).await?;
                let tries = inbox::failed(&mut open.connection, delivery, detail).await?;
                Ok::<_, StoreError>((open, tries))
            });
            let (open, tries) = written.await?;
            self.keep(open, delivery, Vec::new()).await?;
            Ok(tries)
        })
    }

    fn inbox_set_aside<'a>(
        &'a self,
        delivery: &'a Delivery,
        aside: &'a Aside,
        question: QuestionId,
    ) -> StoreFuture<'a, Option<QuestionId>> {
        Box::pin(async move {
            let mut held = self.hold().await;
            let written = standing_still(async {
                let open = self.begin(&mut held).await?;
                let asked = inbox::set_aside(&mut open.connection, delivery, aside, question).await?;
                Ok::<_, StoreError>((open, asked))
            });
            let (open, asked) = written.await?;
            self.keep(open, delivery, Vec::new()).await?;
            Ok(asked)
        })
    }

    fn inbox_again<'a>(&'a self, delivery: &'a Delivery, question: QuestionId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut held = self.hold().await;
            let written = standing_still(async {
                let open = self.begin(&mut held).await?;
                inbox::again(&mut open.connection, delivery, question).await?;
                Ok::<_, StoreError>(open)
            });
            self.keep(written.await?, delivery, Vec::new()).await
        })
    }
}

impl Database {
    /// Processes a message as the real store does: a worker that was taken for dead may process it, if no other has.
    pub(super) async fn process_message(
        &self,
        delivery: &Delivery,
        within: Within<'_>,
        work: Work<'_, SqliteConnection, Payload>,
    ) -> Transacted<Result<Unseen, Known>> {
        // The tables are held from the count to the end: a second delivery finds the outcome of the first.
        let mut held = self.hold().await;
        let counted = match delivery.counting {
            Counting::Before => self.count(&mut held, delivery).await?,
            Counting::Done => self.tried(&mut held, delivery).await?,
            _ => None,
        };
        let known = if counted.is_some() { counted } else { self.take(&mut held, delivery).await? };
        if let Some(known) = known {
            return Ok(Err(known));
        }
        let processed = standing_still(async {
            let open = held.open()?;
            let connection = &mut open.connection;
            let taken = inbox::Taken { delivery, end: inbox::END };
            let processed = inbox::process_in(connection, taken, within, work).await?;
            let events = open.events(within.clock).await?;
            Ok::<_, TransactionError<Unseen>>((open, processed, events))
        });
        let (open, processed, events) = processed.await?;
        let along = delivery.along.as_deref().filter(|_| processed.is_ok());
        match self.kept(open, delivery, events, along).await? {
            Verdict::Admitted => Ok(processed),
            Verdict::Refused(refusal) => Err(TransactionError::Refused(refusal)),
        }
    }

    /// Begins the transaction of a message. Returns the outcome instead, if the message has one.
    async fn take(&self, held: &mut Held<'_>, delivery: &Delivery) -> Result<Option<Known>, StoreError> {
        standing_still(async {
            let open = self.begin(held).await?;
            let is_taken = inbox::take(&mut open.connection, inbox::TAKE, delivery).await?;
            if is_taken { Ok(None) } else { inbox::became(&mut open.connection, delivery).await }
        })
        .await
    }

    /// The outcome of a message that is not to be tried. Counts nothing.
    async fn tried(&self, held: &mut Held<'_>, delivery: &Delivery) -> Result<Option<Known>, StoreError> {
        standing_still(async {
            let open = self.begin(held).await?;
            inbox::became(&mut open.connection, delivery).await
        })
        .await
    }

    /// Counts a try. Returns the outcome of a message that is not to be tried.
    async fn count(&self, held: &mut Held<'_>, delivery: &Delivery) -> Result<Option<Known>, StoreError> {
        let counted = standing_still(async {
            let open = self.begin(held).await?;
            let counted = inbox::count(&mut open.connection, delivery).await?;
            Ok::<_, StoreError>((open, counted))
        });
        let (open, counted) = counted.await?;
        self.keep(open, delivery, Vec::new()).await?;
        Ok(counted)
    }

    /// Makes the open transaction durable by a slip. A dead process gets no further than here.
    async fn keep(
        &self,
        open: &mut Open,
        delivery: &Delivery,
        events: Vec<OutboxEvent>,
    ) -> Result<(), StoreError> {
        match self.kept(open, delivery, events, None).await? {
            Verdict::Admitted => Ok(()),
            Verdict::Refused(_) => Err(StoreError::Closed), // not the message's fault
        }
    }

    /// Makes the open transaction durable by a slip, with the ledger's own changes in that transaction.
    async fn kept(
        &self,
        open: &mut Open,
        delivery: &Delivery,
        events: Vec<OutboxEvent>,
        along: Option<&Change>,
    ) -> Result<Verdict, StoreError> {
        open.slips += 1;
        let unreadable = |_| StoreError::Io { detail: "a slip is a number".to_owned() };
        let slip = Payload::of(&("slip", open.slips)).map_err(unreadable)?;
        let fence = (!events.is_empty()).then_some(delivery.by); // the disk accepts events only from a worker
        // A single change, which the disk admits or refuses as a whole.
        let mut change = along.cloned().unwrap_or_else(|| Change { fence, ..Change::default() });
        change.payloads.push((delivery.tenant.clone(), slip.clone()));
        change.events.extend(events);
        self.commit(open, Mark::Slip(delivery.tenant.clone(), slip), &[change]).await
    }
}
