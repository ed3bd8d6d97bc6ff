//! The first page of a tenant: what is stuck, and what waits for a person.

use std::collections::BTreeMap;

use axum::Extension;
use axum::response::Response;
use maud::{Markup, html};

use super::chart::charts;
use super::gate::see;
use super::layout::{Shown, page};
use super::pieces::{ago, count, run_link, state, table, time};
use super::questions::listed;
use super::site::{Site, escaped};
use crate::flow::TenantClient;
use crate::rim::api::{Caller, TenantScope};
use crate::rim::figures::{DAYS, figures};
use crate::store::QuestionCount;

/// The number of items of each list.
const FEW: u32 = 10;
/// The number of runs that are counted by their states: a page of the list.
const COUNTED: usize = 1000;

/// Leads a person to the tenant, or to the list of tenants.
pub(super) fn home(caller: Caller, site: &Site) -> Response {
    match caller.tenants {
        TenantScope::One(tenant) => see(&site.at(&format!("/t/{}", escaped(tenant.as_str())))),
        TenantScope::All => see(&site.at("/tenants")),
    }
}

pub(super) async fn tenant(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
) -> Shown {
    let questions = client.questions().limit(FEW).await?;
    let kinds = client.count_questions().await?;
    let reviews = client.reviews(None).await?;
    let runs = client.runs(None).await?;
    let figures = figures(&client, site.now).await?;
    let mut states = BTreeMap::<_, u64>::new();
    for run in &*runs {
        *states.entry(run.state.name()).or_default() += 1;
    }
    let rows: Vec<_> = questions.iter().map(|asked| listed(&site, asked)).collect();
    let open = kinds.iter().map(|kind| kind.open).sum::<u64>();
    let waiting: Vec<_> = reviews
        .iter()
        .take(FEW as usize)
        .map(|open| {
            html! { tr {
                td { a href=(site.of_tenant(&format!("/approvals/{}", escaped(&open.id)))) { (open.review.what) } }
                td { (time(&site, open.since)) }
                td { (open.review.approvals()) " of " (open.review.quorum) }
                td { @if let Some(run) = open.review.run { (run_link(&site, run)) } }
            } }
        })
        .collect();
    let body = html! {
        h1 { "What is stuck" }
        div #live data-events=(site.of_tenant("/events")) {
            (stuck(&site, open, questions.first().map(|asked| ago(asked.opened_at, site.now)), reviews.len()))
            h2 { "Open questions" @if open > 0 { " (" (open) ")" } }
            (by_kind(&kinds))
            (table(&["Question", "Kind", "Opened", "Run"], &rows, "No question is open."))
            @if open > u64::from(FEW) { p.next { a href=(site.of_tenant("/questions")) { "All open questions" } } }
            h2 { "Approvals" }
            (table(&["What", "Asked", "Votes", "Run"], &waiting, "Nothing waits for an approval."))
            @if runs.len() < COUNTED {
                h2 { "Runs by state" }
                (by_state(&site, &states))
            }
            h2 { "The last " (DAYS) " days" }
            (charts(&figures))
        }
    };
    Ok(page(&site, "What is stuck", &body))
}

/// The state of the tenant in a sentence.
fn stuck(site: &Site, open: u64, oldest: Option<String>, reviews: usize) -> Markup {
    let reviews = u64::try_from(reviews).unwrap_or(u64::MAX);
    html! {
        p.lead {
            @match oldest {
                None if reviews == 0 => { (state("succeeded")) " Nothing waits for a person." }
                None => { "No question is open." }
                Some(oldest) => {
                    (count(open, "question waits", "questions wait")) " for an answer, the oldest since " (oldest) "."
                }
            }
            @if reviews > 0 {
                " " a href=(site.of_tenant("/approvals")) { (count(reviews, "approval", "approvals")) } " to decide."
            }
        }
    }
}

fn by_kind(kinds: &[QuestionCount]) -> Markup {
    html! {
        @if kinds.iter().any(|kind| kind.open > 0) {
            ul.counts {
                @for kind in kinds.iter().filter(|kind| kind.open > 0) {
                    li { strong { (kind.open) } " " (kind.kind.name()) }
                }
            }
        }
    }
}

fn by_state(site: &Site, states: &BTreeMap<&'static str, u64>) -> Markup {
    html! {
        @if states.is_empty() { p.none { "There are no runs yet." } }
        ul.counts {
            @for (name, number) in states {
                li { a href=(site.of_tenant(&format!("/runs?state={name}"))) { strong { (number) } " " (name) } }
            }
        }
    }
}
