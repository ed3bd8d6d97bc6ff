//! Approvals: the list, and one with its content and the forms that decide about it.

use axum::Extension;
use axum::Form;
use axum::extract::rejection::{FormRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::gate::see;
use super::layout::{Shown, page, secret};
use super::pieces::{evidence_link, next_page, run_link, state, table, time, value};
use super::session::{Cookies, add};
use super::site::{Site, escaped};
use crate::flow::TenantClient;
use crate::guard::approval::OpenReview;
use crate::id::checked;
use crate::ledger::{Key, ReviewOutcome, diff};
use crate::payload::Payload;
use crate::rim::api::{Caller, Failed, Problem, Role};

/// The number of approvals on a page.
const PAGE: u32 = 50;

/// The place in the list behind which the page begins.
#[derive(Deserialize)]
pub(super) struct Asked {
    after: Option<String>,
}

pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    query: Result<Query<Asked>, QueryRejection>,
) -> Shown {
    let Query(Asked { after }) = query.map_err(Failed::malformed)?;
    if let Some(after) = &after {
        checked("cursor", after, Key::MAX_BYTES)?;
    }
    let (open, next) = client.approvals().page(after.as_deref(), PAGE).await?;
    let next = next.map(|last| site.of_tenant(&format!("/approvals?after={}", escaped(&last))));
    let rows: Vec<_> = open.iter().map(|open| row(&site, open)).collect();
    let heads = ["What", "For", "Asked", "Votes", "Run"];
    let none = if next.is_some() { "None on this page." } else { "Nothing waits for an approval." };
    let body = html! {
        h1 { "Approvals" }
        div #live data-events=(site.of_tenant("/events")) { (table(&heads, &rows, none)) }
        (next_page(next.as_deref()))
    };
    Ok(page(&site, "Approvals", &body))
}

fn row(site: &Site, open: &OpenReview) -> Markup {
    let OpenReview { id, version, review, since, .. } = open;
    html! { tr {
        td.text {
            a href=(site.of_tenant(&format!("/approvals/{}", escaped(id)))) { (review.what) }
            @if *version > 1 { " version " (version) }
        }
        td { (review.for_whom.as_deref().unwrap_or_default()) }
        td { (time(site, *since)) }
        td { (review.approvals()) " of " (review.quorum) }
        td { @if let Some(run) = review.run { (run_link(site, run)) } }
    } }
}

/// The review that a path names.
fn named(path: Result<Path<(String, String)>, PathRejection>) -> Result<String, Failed> {
    let Path((_, id)) = path.map_err(Failed::malformed)?;
    checked("approval", &id, Key::MAX_BYTES)?;
    Ok(id)
}

pub(super) async fn show(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Shown {
    let unknown = || Failed::of(Problem::NotFound, "There is no such approval of this tenant.");
    let open = client.review(&named(path)?).await?.ok_or_else(unknown)?;
    let title = format!("Approval: {}", open.review.what);
    let body = html! {
        h1 { (title) }
        div #live data-events=(site.of_tenant("/events")) {
            (facts(&site, &open))
            h2 { "Content" }
            (value(&open.review.content))
            @if let Some(before) = &open.review.before { (changes(before, &open.review.content)) }
            (votes(&site, &open))
            @if open.review.outcome.is_none() { (forms(&site, &open)) }
        }
    };
    Ok(page(&site, &title, &body))
}

fn facts(site: &Site, open: &OpenReview) -> Markup {
    let OpenReview { id, version, review, since, .. } = open;
    let people = if review.reviewers.is_empty() {
        "everybody whom the host allows".to_owned()
    } else {
        review.people()
    };
    html! {
        dl.facts {
            dt { "State" } dd { (outcome(review.outcome.as_ref())) }
            dt { "Approval" } dd { code { (id) } ", version " (version) }
            @if let Some(whom) = &review.for_whom { dt { "For" } dd { (whom) } }
            dt { "Asked" }
            dd { (time(site, *since)) @if let Some(by) = &review.requested_by { ", by " (by) } }
            @if let Some(run) = review.run { dt { "Run" } dd { (run_link(site, run)) } }
            dt { "Who decides" } dd { (review.quorum) " of: " (people) }
            @if let Some(at) = review.expires_at { dt { "Open until" } dd { (time(site, at)) } }
            @if let Some(key) = &review.used_by { dt { "Used by" } dd { (evidence_link(site, key)) } }
        }
    }
}

fn outcome(outcome: Option<&ReviewOutcome>) -> Markup {
    html! {
        @match outcome {
            None => { (state("open")) }
            Some(ReviewOutcome::Approved { .. }) => { (state("approved")) }
            Some(ReviewOutcome::Rejected { by, reason }) => { (state("rejected")) " by " (by) ": " (reason) }
            Some(ReviewOutcome::Expired) => { (state("expired")) }
            Some(ReviewOutcome::Withdrawn) => { (state("withdrawn")) }
        }
    }
}

/// What has changed since the version before, place by place.
fn changes(before: &Value, content: &Value) -> Markup {
    let diff = Payload::of(before).and_then(|before| diff(&before, &Payload::of(content)?));
    let patch = diff.map(|diff| diff.0).unwrap_or_default();
    let rows: Vec<_> =
        patch.as_array().into_iter().flatten().map(|change| change_row(before, change)).collect();
    html! {
        h2 { "Changed since the version before" }
        (table(&["Place", "Before", "Now"], &rows, "Nothing: the content is the same."))
    }
}

/// One change, as JSON Patch has it.
fn change_row(before: &Value, change: &Value) -> Markup {
    let place = change["path"].as_str().unwrap_or_default();
    let old = before.pointer(place).filter(|_| change["op"] != "add");
    html! { tr {
        td.key { @if place.is_empty() { "the whole" } @else { (place) } }
        td.text { @if let Some(old) = old { del { (old) } } }
        td.text { @if let Some(new) = change.get("value") { ins { (new) } } }
    } }
}

fn votes(site: &Site, open: &OpenReview) -> Markup {
    let rows: Vec<_> = open
        .review
        .votes
        .iter()
        .map(|vote| {
            html! { tr {
                td { (vote.by) }
                td { (state(if vote.approves { "approved" } else { "rejected" })) }
                td { (vote.reason) }
                td { (time(site, vote.at)) }
            } }
        })
        .collect();
    html! { h2 { "Votes" } (table(&["Who", "Vote", "Reason", "When"], &rows, "Nobody has voted yet.")) }
}

fn forms(site: &Site, open: &OpenReview) -> Markup {
    html! {
        h2 { "Decide" }
        @if site.allows(Role::Decide) {
            p { "Your decision is about version " (open.version) ", as you see it here. It cannot be taken back." }
            div.choices {
                (form(site, open, true, "Approve"))
                (form(site, open, false, "Reject"))
            }
        } @else {
            p.hint { "You may look, and not decide: this needs the role decide." }
        }
    }
}

fn form(site: &Site, open: &OpenReview, approve: bool, words: &str) -> Markup {
    let id = words.to_lowercase();
    html! {
        form.card method="post" action=(site.here()) {
            h3 { (words) }
            (secret(site))
            input type="hidden" name="version" value=(open.version);
            input type="hidden" name="approve" value=(approve);
            label for=(id) { "Comment" }
            input #(id) name="reason" required maxlength="2000" autocomplete="off";
            button.main { (words) }
        }
    }
}

/// The decision of a person about a version.
#[derive(Deserialize)]
pub(super) struct Decision {
    version: u32,
    approve: bool,
    reason: String,
}

pub(super) async fn decide(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    Extension(caller): Extension<Caller>,
    Extension(cookies): Extension<Cookies>,
    path: Result<Path<(String, String)>, PathRejection>,
    form: Result<Form<Decision>, FormRejection>,
) -> Result<Response, Failed> {
    let id = named(path)?;
    let Form(Decision { version, approve, reason }) = form.map_err(Failed::malformed)?;
    checked("reason", &reason, 4096)?;
    let decision = client.decide(&id, version);
    if approve {
        decision.approve(&caller.name).because(&reason).await?;
    } else {
        decision.reject(&caller.name, &reason).await?;
    }
    tracing::info!(by = caller.name, action = "decide", subject = id, "write of the dashboard taken");
    let mut response = see(&site.here());
    add(response.headers_mut(), cookies.tell("decision"));
    Ok(response)
}
