//! The evidence of a call, by its key.

use axum::Extension;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{Shown, page};
use super::pieces::{run_link, state, table, time};
use super::site::Site;
use crate::exec::{CallHistory, Evidence, PastAttempt, PastLookup};
use crate::flow::TenantClient;
use crate::id::checked;
use crate::ledger::{ErrorKind, Key};
use crate::rim::api::{Failed, Problem};
use crate::store::ContactResult;

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
    let body = html! {
        h1 { "Evidence" }
        form.filter method="get" action=(site.of_tenant("/evidence")) role="search" aria-label="Key" {
            p.grow { label for="key" { "Key of the call" } input #key name="key" value=(key) required; }
            p { button { "Show" } }
        }
        @if let Some(evidence) = &found { div #live data-events=(site.of_tenant("/events")) { (told(&site, evidence)) } }
        @else { p.hint { "The key stands in the question about a call, on the page of its run, and in the log." } }
    };
    Ok(page(&site, "Evidence", &body))
}

fn told(site: &Site, evidence: &Evidence) -> Markup {
    html! {
        h2.key { (evidence.key) " " (state(evidence.outcome.state)) }
        dl.facts {
            dt { "Tool" } dd { (evidence.tool) " (" (evidence.effect) ")" }
            dt { "Search the provider by" } dd { code { (evidence.wire_key) } }
            dt { "Provider's id" }
            dd { @match &evidence.outcome.external_ref { Some(id) => { code { (id) } } None => { "unknown" } } }
            dt { "Asked" }
            dd {
                (time(site, evidence.asked_by.at))
                @if let Some(run) = evidence.asked_by.run { ", by " (run_link(site, run)) }
                @if let Some(step) = &evidence.asked_by.step { ", step " (step) }
            }
            @if !evidence.used_by.is_empty() {
                dt { "Used by" } dd { @for run in &evidence.used_by { (run_link(site, *run)) " " } }
            }
            @if let Some(approval) = &evidence.approval { dt { "Approved" } dd { pre.plain { (approval) } } }
            dt { "Outcome" } dd { (outcome(site, evidence)) }
            dt { "Kept" }
            dd { @match evidence.kept_until { Some(until) => { "until " (time(site, until)) } None => { "for ever" } } }
        }
        (contacts(site, &evidence.history))
        @if !evidence.late_answers.is_empty() {
            h3 { "Late answers" }
            ul { @for late in &evidence.late_answers { li { (late) } } }
        }
        @if !evidence.questions.is_empty() {
            h3 { "Questions" }
            ul {
                @for asked in &evidence.questions {
                    li {
                        a href=(site.of_tenant(&format!("/questions/{}", asked.id))) { (asked.question) }
                        " " (state(asked.kind.name())) " " (time(site, asked.opened_at))
                        @if let Some(answer) = &asked.answer {
                            ", answered " (answer.resolution.name()) " by " (answer.by)
                        }
                    }
                }
            }
        }
        details { summary { "As text" } pre tabindex="0" { (evidence) } }
    }
}

fn outcome(site: &Site, evidence: &Evidence) -> Markup {
    let outcome = &evidence.outcome;
    html! {
        (state(outcome.state))
        @if let Some(basis) = outcome.basis { " by " (basis) }
        ", " (time(site, outcome.settled_at.unwrap_or(outcome.updated_at)))
        @if let Some(failure) = &outcome.failure { ", " (failure.kind.name()) ": " (failure.message) }
        @if let Some(reason) = &outcome.abandoned { ", " (reason) }
        @match outcome.undone { Some(true) => { ", undone" } Some(false) => { ", undone in part" } None => {} }
    }
}

/// The attempts and lookups of a call.
pub(super) fn contacts(site: &Site, history: &CallHistory) -> Markup {
    let attempts: Vec<_> = history.attempts.iter().map(|attempt| attempt_row(site, attempt)).collect();
    let lookups: Vec<_> = history.lookups.iter().map(|lookup| lookup_row(site, lookup)).collect();
    let heads = ["Number", "Worker", "Began", "Ended", "Result", "Details"];
    html! {
        h3 { "Attempts" }
        (table(&heads, &attempts, "Nothing was sent."))
        @if history.attempts_left_out > 0 { p.hint { (history.attempts_left_out) " attempts between are not kept." } }
        @if !lookups.is_empty() {
            h3 { "Lookups" }
            (table(&heads, &lookups, ""))
            @if history.lookups_left_out > 0 { p.hint { (history.lookups_left_out) " lookups between are not kept." } }
        }
    }
}

fn attempt_row(site: &Site, attempt: &PastAttempt) -> Markup {
    let result = attempt.result.map_or("no answer yet", ContactResult::name);
    html! { tr {
        td.number { (attempt.number) }
        td.number { (attempt.worker) }
        td { @match attempt.began { Some(at) => { (time(site, at)) } None => { "not known" } } }
        td { @if let Some(at) = attempt.ended { (time(site, at)) } }
        td { (state(result)) }
        td { (details(attempt.error.map(ErrorKind::name), attempt.message.as_deref(), attempt.external_ref.as_deref())) }
    } }
}

fn lookup_row(site: &Site, lookup: &PastLookup) -> Markup {
    html! { tr {
        td.number { (lookup.number) }
        td.number { (lookup.worker) }
        td { @match lookup.began { Some(at) => { (time(site, at)) } None => { "not known" } } }
        td { (time(site, lookup.ended)) }
        td { (state(lookup.result.name())) }
        td { (details(lookup.error.map(ErrorKind::name), lookup.message.as_deref(), lookup.external_ref.as_deref())) }
    } }
}

fn details(error: Option<&str>, message: Option<&str>, id: Option<&str>) -> Markup {
    html! {
        @if let Some(error) = error { (error) " " }
        @if let Some(message) = message { (message) " " }
        @if let Some(id) = id { "id " code { (id) } }
    }
}
