//! The evidence of a call, by its key.

use axum::Extension;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{Shown, page};
use super::pieces::{run_link, time};
use super::site::Site;
use crate::clock::Timestamp;
use crate::flow::TenantClient;
use crate::id::{QuestionId, RunId, checked};
use crate::ledger::Key;
use crate::rim::api::{Failed, Problem};
use crate::rim::evidence_page::{Around, told};

/// The key that is asked about.
#[derive(Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    key: String,
}

pub(super) async fn show(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    query: Result<Query<Asked>, QueryRejection>,
) -> Shown {
    let Query(Asked { key }) = query.map_err(Failed::malformed)?;
    let key = key.trim();
    let found = if key.is_empty() {
        None
    } else {
        checked("key", key, Key::MAX_BYTES)?;
        let unknown = || Failed::of(Problem::NotFound, "This tenant has no call with that key.");
        Some(client.evidence(key).await?.ok_or_else(unknown)?)
    };
    // The stream of a run tells of its calls. Of a call without a run, the stream of the tenant tells the questions.
    let events = match found.as_ref().and_then(|evidence| evidence.asked_by.run) {
        Some(run) => site.of_tenant(&format!("/runs/{run}/events")),
        None => site.of_tenant("/events"),
    };
    let body = html! {
        h1 { "Evidence" }
        form.filter method="get" action=(site.of_tenant("/evidence")) role="search" aria-label="Key" {
            p.grow { label for="key" { "Key of the call" } input #key name="key" value=(key) required; }
            p { button { "Show" } }
        }
        @if let Some(evidence) = &found { div #live data-events=(events) { (told(&site, evidence)) } }
        @else { p.hint { "The key stands in the question about a call, on the page of its run, and in the log." } }
    };
    Ok(page(&site, "Evidence", &body))
}

impl Around for Site {
    fn time(&self, at: Timestamp) -> Markup {
        time(self, at)
    }

    fn run(&self, run: RunId) -> Markup {
        run_link(self, run)
    }

    fn question(&self, id: QuestionId, words: &str) -> Markup {
        html! { a href=(self.of_tenant(&format!("/questions/{id}"))) { (words) } }
    }
}
