//! The server as the user's own database: what the files of each subject have for its transactions and messages.

use futures_util::future::BoxFuture;
use sqlx::postgres::PgConnection;

use super::Postgres;
use crate::id::EscalationId;
use crate::ledger::Origin;
use crate::payload::Payload;
use crate::store::own::{OwnDatabase, Transacting, TransactionsOn, Unseen, Within, Work};
use crate::store::{Asked, Change, Delivery, Known, SetAside, Step};

impl OwnDatabase for Postgres {
    fn on_postgres(&self) -> Option<&dyn TransactionsOn<PgConnection>> {
        Some(self)
    }

    fn continuity<'a>(
        &'a self,
        before: Option<&'a Origin>,
    ) -> Asked<'a, (Option<&'static str>, Option<Origin>)> {
        Box::pin(async move {
            let origin = self.origin().await?.map(|origin| origin.or_as_it_was(before));
            let doubt = origin.as_ref().zip(before).and_then(|(origin, before)| origin.doubt(before));
            Ok((doubt, origin))
        })
    }

    fn retire(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.retire())
    }

    fn inbox_known<'a>(&'a self, delivery: &'a Delivery) -> Asked<'a, Option<Known>> {
        Box::pin(self.inbox_known(delivery))
    }

    fn inbox_count<'a>(&'a self, delivery: &'a Delivery) -> Asked<'a, Option<Known>> {
        Box::pin(self.inbox_count(delivery))
    }

    fn inbox_failed<'a>(&'a self, delivery: &'a Delivery, detail: &'a str) -> Asked<'a, i64> {
        Box::pin(self.inbox_failed(delivery, detail))
    }

    fn inbox_set_aside<'a>(
        &'a self,
        delivery: &'a Delivery,
        tries: i64,
        why: &'a SetAside,
        question: EscalationId,
    ) -> Asked<'a, Option<EscalationId>> {
        Box::pin(self.inbox_set_aside(delivery, tries, why, question))
    }

    fn inbox_again<'a>(&'a self, delivery: &'a Delivery, question: EscalationId) -> Asked<'a, ()> {
        Box::pin(self.inbox_again(delivery, question))
    }
}

impl TransactionsOn<PgConnection> for Postgres {
    fn transaction<'a>(
        &'a self,
        change: Change,
        step: Step,
        Within { limit, clock }: Within<'a>,
        work: Work<'a, PgConnection, Payload>,
    ) -> Transacting<'a, Unseen> {
        Box::pin(self.transaction(change, step, limit, clock, work))
    }

    fn sealed<'a>(
        &'a self,
        mark: &'a Change,
        Within { limit, clock }: Within<'a>,
        work: Work<'a, PgConnection, Change>,
    ) -> Transacting<'a, (Unseen, Change)> {
        Box::pin(self.sealed(mark, limit, clock, work))
    }

    fn process<'a>(
        &'a self,
        delivery: &'a Delivery,
        Within { limit, clock }: Within<'a>,
        work: Work<'a, PgConnection, Payload>,
    ) -> Transacting<'a, Result<Unseen, Known>> {
        Box::pin(self.process(delivery, limit, clock, work))
    }
}
