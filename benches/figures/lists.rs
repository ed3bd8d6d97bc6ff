//! The row about lists of runs: a page of fifty out of the million that have ended, beside the read of one row by its index.

use std::time::Instant;

use counterfoil::flow::{RunFilter, RunStateName, TenantClient};
use counterfoil::{Engine, RunId, Timestamp};

use crate::finished::{self, Filled};
use crate::messages::Own;
use crate::options::Options;
use crate::place::{Database, Home};
use crate::report::{Finding, Values, p99};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};

/// The number of pages that a round reads of each list.
const PAGES: u32 = 200;
/// The number of runs of a page.
const PAGE: u32 = 50;

pub(crate) fn sqlite(options: &Options) -> Result<Vec<Finding>, String> {
    listed::<sqlx::SqliteConnection>(options, Database::Sqlite, "lists")
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres(options: &Options) -> Result<Vec<Finding>, String> {
    listed::<sqlx::PgConnection>(options, Database::Postgres, "postgres-lists")
}

/// A list by one condition, whose value is another one for each page.
type List = (&'static str, fn(u32, u32) -> RunFilter);

const LISTS: [List; 7] = [
    ("tenant", |_, _| RunFilter::new().newest_first()),
    ("workflow", |_, _| RunFilter::new().workflow("guarded").newest_first()),
    ("state", |_, _| RunFilter::new().state(RunStateName::Succeeded)),
    ("key prefix", |nth, runs| RunFilter::new().key(format!("start {}", 1 + nth * (runs / PAGES)))),
    ("label", |nth, _| RunFilter::new().label("customer", format!("c-{nth}"))),
    ("label and state", |nth, _| {
        RunFilter::new().label("customer", format!("c-{nth}")).state(RunStateName::Succeeded)
    }),
    ("time", |nth, runs| {
        RunFilter::new().since(Timestamp(finished::BEGAN + i64::from(nth * (runs / PAGES))))
    }),
];

fn listed<C: Own>(options: &Options, database: Database, row: &'static str) -> Result<Vec<Finding>, String> {
    let home = Home::of(database, options)?;
    let place = home.place("full");
    let runs = options.number(finished::FINISHED);
    let (mut pages, mut rows) = (LISTS.map(|_| Vec::new()), Vec::new());
    multi_thread().block_on(async {
        Filled::with(runs).fill::<C>(&place).await;
        let engine: Engine = subject::engine(&place).await;
        let tenant = engine.tenant(TENANT).expect("a tenant");
        for round in 0..=options.rounds {
            let row = p99_of_rows(&tenant, runs).await;
            for ((_, filter), pages) in LISTS.iter().zip(&mut pages) {
                let page = p99_of_pages(&tenant, |nth| filter(nth, runs)).await;
                if round > 0 {
                    pages.push(page);
                }
            }
            if round > 0 {
                rows.push(row);
            }
        }
        engine.shutdown(subject::DRAIN).await;
    });
    let findings = LISTS.iter().zip(pages).map(|((by, _), pages)| {
        let measure = format!("p99 of {PAGE} runs out of {runs} by {by} ÷ p99 of one run by its id");
        let (pages, rows) = (Values::new("µs", pages), Values::new("µs", rows.clone()));
        Finding::ratio(row, measure, pages, rows).at_most(40.0, 15.0)
    });
    Ok(findings.collect())
}

async fn p99_of_pages(tenant: &TenantClient, filter: impl Fn(u32) -> RunFilter) -> f64 {
    let mut took = Vec::new();
    for nth in 0..PAGES {
        let filter = filter(nth);
        let start = Instant::now();
        let page = tenant.list_runs(&filter, None, PAGE).await.expect("a page");
        took.push(start.elapsed().as_secs_f64() * 1e6);
        assert!(!page.runs.is_empty(), "a list without runs measures nothing");
    }
    p99(took)
}

async fn p99_of_rows(tenant: &TenantClient, runs: u32) -> f64 {
    let mut took = Vec::new();
    for nth in 0..PAGES {
        let id = RunId(i64::from(1 + nth * (runs / PAGES)));
        let start = Instant::now();
        tenant.handle::<usize>(id).status().await.expect("a run");
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    p99(took)
}
