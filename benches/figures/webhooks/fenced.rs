//! The storm behind a fence on Redis, which answers what the ledger has decided.

use std::convert::Infallible;
use std::time::Duration;

use counterfoil::Executor;
use counterfoil::fence::{Fenced, FencedAnswer, LedgerDecision, RedisFence};
use counterfoil::webhook::Webhook;
use sqlx::sqlite::SqliteConnection;

use super::{Books, Copies, Delivery, Door, findings, measure};
use crate::options::Options;
use crate::place::{Database, Home};
use crate::report::Finding;
use crate::server::{self, Daemon};
use crate::speed::multi_thread;
use crate::subject::TENANT;

/// The time limits of the fence. A measuring machine is busy, and late answers would count as questions to the ledger.
const PATIENT: Duration = Duration::from_secs(10);

/// Sends a delivery that the fence may answer.
pub(super) async fn through(fenced: &Fenced, webhook: &Webhook, delivery: Delivery) -> bool {
    let Delivery { event, request } = delivery;
    let decide = || async {
        let done = webhook.receive(request).await.status() == 200;
        Ok::<_, Infallible>(if done {
            LedgerDecision::settled(true, "received")
        } else {
            LedgerDecision::open(false)
        })
    };
    let Ok(answer) = fenced.through(&format!("{TENANT}/shop/{event}"), event.as_bytes(), decide).await;
    match answer {
        FencedAnswer::Sealed(_) => true,
        FencedAnswer::InProgress => false,
        FencedAnswer::Ledger(done) => done,
    }
}

fn behind<C: Books + Send>(
    options: &Options,
    database: Database,
    name: &'static str,
) -> Result<Vec<Finding>, String> {
    let mut found = Vec::new();
    for (copies, order) in Copies::BOTH {
        let home = Home::of(database, options)?;
        let measured = multi_thread().block_on(async {
            let redis = Daemon::start(server::redis).await;
            let url = format!("redis://127.0.0.1:{}/", redis.port());
            let opens = |executor: &Executor| {
                let fence = RedisFence::new(&url).expect("a URL").time_limit(PATIENT);
                let fenced = Fenced::new(executor, fence).time_limit(PATIENT).patience(PATIENT);
                Door { fenced: Some(fenced), ..Door::new::<C>(executor) }
            };
            measure::<C>(&home.place("storm"), options.rounds, copies, &opens).await
        });
        found.extend(findings(name, &format!("copies {order}, behind the fence"), measured, 1.0, 0.1));
    }
    Ok(found)
}

pub(crate) fn sqlite(options: &Options) -> Result<Vec<Finding>, String> {
    behind::<SqliteConnection>(options, Database::Sqlite, "webhook-fenced")
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres(options: &Options) -> Result<Vec<Finding>, String> {
    behind::<sqlx::PgConnection>(options, Database::Postgres, "postgres-webhook-fenced")
}
