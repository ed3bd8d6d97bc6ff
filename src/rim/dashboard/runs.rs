//! The runs of a tenant, by filters and page by page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::Extension;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use maud::{Markup, html};
use serde_json::json;

use super::layout::page;
use super::pieces::{next_page, run_link, state, table, time};
use super::site::{Site, escaped};
use crate::flow::{RunCursor, RunPage, RunState, RunStatus, TenantClient};
use crate::rim::api::Failed;
use crate::rim::run_filter::RunConditions;

/// The number of runs on a page.
const PAGE: u32 = 50;

/// What was typed into the fields of the filter, by their names.
type Typed = BTreeMap<String, String>;

pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    query: Result<Query<Typed>, QueryRejection>,
) -> Result<Response, Failed> {
    let Query(mut typed) = query.map_err(Failed::malformed)?;
    typed.retain(|_, text| !text.trim().is_empty());
    let after = typed.remove("after").map(|after| after.parse::<RunCursor>()).transpose()?;
    let conditions: RunConditions = match serde_json::from_value(json!(typed)) {
        Ok(conditions) => conditions,
        Err(error) => return Ok(unreadable(&site, &typed, &error)),
    };
    let filter = conditions.filter().newest_first();
    after.as_ref().map_or(Ok(()), |after| after.fits(&filter)).map_err(Failed::malformed)?;
    let RunPage { runs, next, .. } = client.list_runs(&filter, after.as_ref(), PAGE).await?;
    let next = next.map(|last| {
        let mut address = site.of_tenant(&format!("/runs?after={}", escaped(&last.to_string())));
        for (name, text) in &typed {
            let _ = write!(address, "&{}={}", escaped(name), escaped(text)); // into a string: this cannot fail
        }
        address
    });
    let rows: Vec<_> = runs.iter().map(|run| row(&site, run)).collect();
    let none = if next.is_some() { "None of the runs of this page." } else { "There are no such runs." };
    let body = html! {
        h1 { "Runs" }
        (fields(&site, &typed))
        div #live data-events=(site.of_tenant("/events")) { (table(&["Run", "Workflow", "Key", "State", "Started", "Last change"], &rows, none)) }
        (next_page(next.as_deref()))
    };
    Ok(page(&site, "Runs", &body).into_response())
}

/// The page of a filter that cannot be read. Its fields keep what was typed.
fn unreadable(site: &Site, typed: &Typed, error: &serde_json::Error) -> Response {
    let body = html! {
        h1 { "Runs" }
        p.trouble role="alert" { (error) }
        (fields(site, typed))
    };
    (StatusCode::BAD_REQUEST, page(site, "Runs", &body)).into_response()
}

fn row(site: &Site, run: &RunStatus) -> Markup {
    html! { tr {
        td { (run_link(site, run.id)) }
        td { (run.workflow) }
        td.key { (run.key.as_deref().unwrap_or_default()) }
        td { (state(run.state.name())) (reason(&run.state)) }
        td { (time(site, run.started_at)) }
        td { (time(site, run.updated_at)) }
    } }
}

/// What a state says beyond its name, in a line.
fn reason(state: &RunState) -> Markup {
    let words = state.to_string();
    let more = words.strip_prefix(state.name()).unwrap_or_default().trim_start_matches(':').trim();
    let cut = more.char_indices().nth(120).map_or(more.len(), |(end, _)| end);
    html! { @if !more.is_empty() { " " span.more { (more[..cut]) @if cut < more.len() { "…" } } } }
}

fn fields(site: &Site, typed: &Typed) -> Markup {
    let text = |name: &str| typed.get(name).map_or("", String::as_str);
    html! {
        form.filter method="get" action=(site.of_tenant("/runs")) role="search" aria-label="Filter" {
            p { label for="state" { "State" }
                select #state name="state" {
                    option value="" { "any" }
                    @for name in RunState::NAMES {
                        option value=(name) selected[text("state") == name] { (name) }
                    }
                } }
            p { label for="workflow" { "Workflow" } input #workflow name="workflow" value=(text("workflow")); }
            p { label for="key" { "Key begins with" } input #key name="key" value=(text("key")); }
            p { label for="label" { "Label" }
                input #label name="label" value=(text("label")) placeholder="customer=c-7"; }
            p { label for="since" { "Started since (UTC)" }
                input #since name="since" value=(text("since")) placeholder="2026-11-26T09:30"; }
            p { label for="before" { "Started before" } input #before name="before" value=(text("before")); }
            p { button { "Filter" } " " a href=(site.of_tenant("/runs")) { "All runs" } }
        }
    }
}
