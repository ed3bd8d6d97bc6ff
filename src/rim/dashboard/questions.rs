//! Questions: the list, and one with its evidence and the forms that answer it.

use axum::Extension;
use axum::Form;
use axum::extract::rejection::{FormRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use super::gate::see;
use super::layout::{Shown, page, secret};
use super::pieces::{evidence_link, next_page, run_link, state, table, time, value};
use super::session::{Cookies, add};
use super::site::Site;
use crate::exec::{QuestionAnswer, QuestionCall, QuestionView};
use crate::flow::TenantClient;
use crate::id::{QuestionId, checked};
use crate::payload;
use crate::rim::api::{Caller, Failed, Problem, Role, answered};
use crate::rim::evidence_page::contacts;
use crate::store::{PossibleAnswer, Question, QuestionKind, Resolution};

/// The number of questions on a page.
const PAGE: u32 = 50;
/// The number of open questions among which a page of what was set aside is looked for: their kind has no index.
const LOOKED_AT: u32 = 1000;
/// The kinds of questions about something that was set aside.
const SET_ASIDE: [QuestionKind; 3] =
    [QuestionKind::Unpublished, QuestionKind::Unprocessed, QuestionKind::Unread];

/// The questions to be listed.
#[derive(Deserialize)]
pub(super) struct Asked {
    after: Option<String>,
    #[serde(default)]
    answered: bool,
}

pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    query: Result<Query<Asked>, QueryRejection>,
) -> Shown {
    let Query(asked) = query.map_err(Failed::malformed)?;
    let after = asked.after.map_or(Ok(QuestionId(i64::MIN)), |after| after.parse())?;
    let all = if asked.answered { client.answered_questions() } else { client.questions() };
    let questions = all.after(after).limit(PAGE).await?;
    let last = questions.last().filter(|_| questions.len() == PAGE as usize).map(|asked| asked.id);
    let next = last.map(|last| {
        site.of_tenant(&format!("/questions?answered={answered}&after={last}", answered = asked.answered))
    });
    let rows: Vec<_> = questions.iter().map(|asked| listed(&site, asked)).collect();
    let (title, none) = if asked.answered {
        ("Answered questions", "No question was answered.")
    } else {
        ("Open questions", "No question is open.")
    };
    let body = html! {
        h1 { (title) }
        p {
            @if asked.answered { a href=(site.of_tenant("/questions")) { "Open questions" } }
            @else { a href=(site.of_tenant("/questions?answered=true")) { "Answered questions" } }
        }
        div #live data-events=(site.of_tenant("/events")) { (table(&["Question", "Kind", "Opened", "Run"], &rows, none)) }
        (next_page(next.as_deref()))
    };
    Ok(page(&site, title, &body))
}

/// Events, messages and signals that were set aside, each an open question.
pub(super) async fn set_aside(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    query: Result<Query<Asked>, QueryRejection>,
) -> Shown {
    let Query(Asked { after, .. }) = query.map_err(Failed::malformed)?;
    let after = after.map_or(Ok(QuestionId(i64::MIN)), |after| after.parse())?;
    let (questions, last) = first_set_aside(client.questions().after(after).limit(LOOKED_AT).await?);
    let next = last.map(|last| site.of_tenant(&format!("/set-aside?after={last}")));
    let rows: Vec<_> = questions.iter().map(|asked| listed(&site, asked)).collect();
    let none = if next.is_some() { "Nothing on this page." } else { "Nothing is set aside." };
    let body = html! {
        h1 { "Set aside" }
        p.lead {
            "Events that could not be published, messages that could not be processed, and signals that their runs could not \
             read. Later ones of the same aggregate wait behind an event."
        }
        div #live data-events=(site.of_tenant("/events")) {
            (table(&["Question", "Kind", "Opened", "Run"], &rows, none))
        }
        (next_page(next.as_deref()))
    };
    Ok(page(&site, "Set aside", &body))
}

/// The first of these open questions that are about something set aside, and the question behind which the next page begins.
fn first_set_aside(mut questions: Vec<Question>) -> (Vec<Question>, Option<QuestionId>) {
    let is_full = questions.len() == LOOKED_AT as usize;
    let mut last = questions.last().map(|asked| asked.id).filter(|_| is_full);
    questions.retain(|asked| SET_ASIDE.contains(&asked.kind));
    if questions.len() > PAGE as usize {
        questions.truncate(PAGE as usize);
        last = questions.last().map(|asked| asked.id);
    }
    (questions, last)
}

/// A question as a row of a list.
pub(super) fn listed(site: &Site, asked: &Question) -> Markup {
    let text = &asked.question;
    let cut = text.char_indices().nth(160).map_or(text.len(), |(end, _)| end);
    html! { tr {
        td.text {
            a href=(site.of_tenant(&format!("/questions/{}", asked.id))) {
                (text[..cut]) @if cut < text.len() { "…" }
            }
        }
        td { (state(asked.kind.name())) }
        td { (time(site, asked.opened_at)) }
        td { @if let Some(run) = asked.run { (run_link(site, run)) } }
    } }
}

/// The question that a path names.
fn named(path: Result<Path<(String, String)>, PathRejection>) -> Result<QuestionId, Failed> {
    let Path((_, question)) = path.map_err(Failed::malformed)?;
    Ok(question.parse()?)
}

async fn found(client: &TenantClient, id: QuestionId) -> Result<QuestionView, Failed> {
    let unknown = || Failed::of(Problem::NotFound, format!("There is no {id} of this tenant."));
    client.question(id).await?.ok_or_else(unknown)
}

pub(super) async fn show(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Shown {
    let view = found(&client, named(path)?).await?;
    let title = format!("Question: {}", view.kind.name());
    let body = html! {
        h1 { (title) }
        div #live data-events=(site.of_tenant("/events")) {
            p.lead { (view.question) }
            dl.facts {
                dt { "Question" } dd { code { (view.id) } " " (state(if view.answer.is_some() { "answered" } else { "open" })) }
                dt { "Opened" } dd { (time(&site, view.opened_at)) }
                @if let Some(run) = &view.run {
                    dt { "Run" }
                    dd {
                        (run_link(&site, run.id)) " of " (run.workflow) " version " (run.version) " " (state(run.state))
                        @if let Some(key) = &run.key { " key " code { (key) } }
                    }
                }
            }
            @if let Some(answer) = &view.answer { (given(&site, "Answered", answer)) }
            @if let Some(answer) = &view.waiting { (given(&site, "An answer that takes effect later", answer)) }
            @if view.answer.is_none() { (answers(&site, &view.answers)) }
            @if let Some(call) = &view.call { (about(&site, call)) }
        }
    };
    Ok(page(&site, &title, &body))
}

/// An answer that was given.
fn given(site: &Site, title: &str, answer: &QuestionAnswer) -> Markup {
    html! {
        h2 { (title) }
        dl.facts {
            dt { "Answer" } dd { (words(answer.resolution.name())) }
            dt { "By" } dd { (answer.by) ", " (time(site, answer.at)) }
            @if let Some(because) = &answer.because { dt { "Reason" } dd { (because) } }
            @if let Some(misfit) = &answer.misfit { dt { "It does not count" } dd { (misfit) } }
        }
    }
}

/// An answer in the words of a button.
fn words(name: &str) -> String {
    match name {
        "happened" => "It happened".to_owned(),
        "did_not_happen" => "It did not happen: send it again".to_owned(),
        "look_now" => "Look now".to_owned(),
        "undone" => "It was undone by hand".to_owned(),
        "deliver" => "Deliver a value".to_owned(),
        "again" => "Once more".to_owned(),
        name => {
            let mut words = name.replace('_', " ");
            words.get_mut(..1).map(str::make_ascii_uppercase);
            words
        }
    }
}

/// A form for each answer that the question takes.
fn answers(site: &Site, possible: &[PossibleAnswer]) -> Markup {
    html! {
        h2 { "Answers" }
        @if !site.allows(Role::Decide) {
            p.hint { "You may look, and not answer: this needs the role decide." }
        }
        div.choices {
            @for answer in possible {
                section.card {
                    h3 { (words(answer.name)) }
                    p { (sentence(answer.consequence)) }
                    @if site.allows(Role::Decide) { (form(site, answer)) }
                }
            }
        }
    }
}

/// A clause as a sentence.
fn sentence(clause: &str) -> String {
    let mut sentence = format!("{clause}.");
    sentence.get_mut(..1).map(str::make_ascii_uppercase);
    sentence
}

fn form(site: &Site, answer: &PossibleAnswer) -> Markup {
    let id = |field: &str| format!("{}-{field}", answer.name);
    let needs_value = answer.with.filter(|with| *with != "a reason");
    html! {
        form method="post" action=(site.here()) {
            (secret(site))
            input type="hidden" name="answer" value=(answer.name);
            @if let Some(with) = needs_value {
                label for=(id("with")) { (sentence(with).trim_end_matches('.')) ", as JSON" }
                textarea #(id("with")) name="with" rows="3" required spellcheck="false" {}
            }
            label for=(id("reason")) { "Reason" }
            input #(id("reason")) name="reason" required maxlength="2000" autocomplete="off";
            button.main { (words(answer.name)) }
        }
    }
}

/// The call that a question is about.
fn about(site: &Site, call: &QuestionCall) -> Markup {
    html! {
        h2 { "The call" }
        dl.facts {
            dt { "Tool" } dd { (call.tool) " (" (call.effect) ") " (state(call.state)) }
            dt { "Key" } dd { (evidence_link(site, &call.key)) }
            dt { "Search the provider by" } dd { code { (call.wire_key) } }
            dt { "Provider's id" } dd { @match &call.external_ref { Some(id) => { code { (id) } } None => { "unknown" } } }
            dt { "Recorded" } dd { (time(site, call.created_at)) }
            dt { "Last change" } dd { (time(site, call.updated_at)) }
            @for (name, value) in &call.labels { dt { "Label" } dd { (name) "=" (value) } }
            @if let Some(approval) = &call.approval { dt { "Approved" } dd { (approval) } }
            @if let Some(failure) = &call.failure { dt { "Failure" } dd { (failure.kind.name()) ": " (failure.message) } }
        }
        (contacts(site, &call.history))
        @if !call.evidence.is_empty() {
            h3 { "Late answers" }
            ul { @for late in &call.evidence { li { (late) } } }
        }
        @if let Some(request) = &call.request { h3 { "Request" } (value(request)) }
    }
}

/// The answer that a person gives.
#[derive(Deserialize)]
pub(super) struct Given {
    answer: String,
    #[serde(default)]
    with: String,
    reason: String,
}

impl Given {
    fn resolution(&self) -> Result<Resolution, Failed> {
        let name = self.answer.as_str();
        let form = match (name, self.with.trim()) {
            ("send_without_looking", _) => json!({ name: { "reason": self.reason } }),
            (name, "") => json!(name),
            (name, with) => {
                let read: Value = payload::parse(with).map_err(|error| {
                    Failed::malformed(format!("The value is no JSON: {error}. A text needs quotes."))
                })?;
                json!({ name: read })
            }
        };
        let unknown =
            |_| Failed::malformed(format!("{name:?} is no answer, or lacks its value. Nothing was done."));
        serde_json::from_value(form).map_err(unknown)
    }
}

pub(super) async fn answer(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    Extension(caller): Extension<Caller>,
    Extension(cookies): Extension<Cookies>,
    path: Result<Path<(String, String)>, PathRejection>,
    form: Result<Form<Given>, FormRejection>,
) -> Result<Response, Failed> {
    let id = named(path)?;
    let Form(given) = form.map_err(Failed::malformed)?;
    checked("reason", &given.reason, 4096)?;
    let resolution = given.resolution()?;
    answered(&client, id, &resolution, (&caller.name, &given.reason)).await?;
    tracing::info!(by = caller.name, action = "answer", subject = %id, "write of the dashboard taken");
    let mut response = see(&site.here());
    let told = if resolution == Resolution::LookNow { "look" } else { "answer" };
    add(response.headers_mut(), cookies.tell(told));
    Ok(response)
}
