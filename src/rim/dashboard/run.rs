//! One run: its state, its timeline, what it was given and what it returned, its questions, and the commands to it.

use axum::Extension;
use axum::Form;
use axum::extract::rejection::{FormRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::figure::figure;
use super::gate::see;
use super::layout::{Shown, page, secret};
use super::pieces::{evidence_link, next_page, run_link, span, state, table, time, value};
use super::questions::listed;
use super::session::{Cookies, add};
use super::site::{Site, escaped};
use super::timeline::{Past, Timeline};
use crate::exec::Evidence;
use crate::flow::{PastTurn, RunHandle, RunState, RunStatus, Sent, TenantClient};
use crate::id::{checked, client_key};
use crate::payload::Stored;
use crate::rim::api::{After, Caller, Failed, Limit, Role, history_page};
use crate::store::{self, Question, Store as _};

/// The number of calls whose attempts one page draws.
const DRAWN: usize = 60;
/// The number of open questions that one page shows.
const ASKED: u32 = 50;
/// The part of the run's history that one page shows. A run without loops is one turn, however long it is.
const SHOWN: Limit = Limit { turns: 100, entries: 500 };

/// The place in the run's history behind which the page begins.
#[derive(Deserialize)]
pub(super) struct Asked {
    after: Option<String>,
}

/// The run that a path names.
fn named(
    client: &TenantClient,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<RunHandle<Value>, Failed> {
    let Path((_, run)) = path.map_err(Failed::malformed)?;
    Ok(client.handle(run.parse()?))
}

pub(super) async fn show(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<Asked>, QueryRejection>,
) -> Shown {
    let Query(Asked { after }) = query.map_err(Failed::malformed)?;
    let after = after.as_deref().map(After::read).transpose()?;
    let run = named(&client, path)?;
    let (row, status) = (run.row().await?, run.status().await?);
    let shown = history_page(&run, after.clone(), SHOWN).await?;
    let (turns, next) = (shown.items, shown.next);
    let calls = evidence(&client, &turns).await?;
    let (core, tenant) = client.core();
    let questions = core.group.escalation_open_about(&tenant, run.id(), ASKED).await?;
    let title = format!("{} {}", status.workflow, run.id());
    let next = next.map(|last| site.of_tenant(&format!("/runs/{}?after={}", run.id(), escaped(&last))));
    let past = Past { run: &status, turns: &turns, calls: &calls, questions: &questions, now: site.now };
    let events = site.of_tenant(&format!("/runs/{}/events", run.id()));
    let body = html! {
        h1 { (status.workflow) @if let Some(key) = &status.key { " " span.key { (key) } } }
        div #live data-events=(events) {
            (facts(&site, &status))
            @if !questions.is_empty() { (asked(&site, &questions)) }
            h2 { "Timeline" }
            @if let Some(after) = &after { (begins(after)) }
            (drawn(&site, &Timeline::of(&past)))
            @if turns.iter().map(|turn| turn.calls.len()).sum::<usize>() > DRAWN {
                p.hint { "The attempts of the first " (DRAWN) " calls are shown." }
            }
            (next_page(next.as_deref()))
            h2 { "Input and result" }
            (stored(&run, "Input", &row.input).await)
            @if let store::RunState::Succeeded { output } = &row.state { (stored(&run, "Result", output).await) }
        }
        (commands(&site, &status.state))
    };
    Ok(page(&site, &title, &body))
}

/// The place at which a page behind the first one begins, in words.
fn begins(after: &After) -> Markup {
    html! {
        @match after {
            After::Turn(turn) => { p.hint { "From behind turn " (turn) " on." } }
            After::Entry(turn, _) => { p.hint { "Continued in turn " (turn) ", by the kinds and names of its checkpoints." } }
        }
    }
}

/// The evidence of the first calls of these turns.
async fn evidence(client: &TenantClient, turns: &[PastTurn]) -> Result<Vec<Evidence>, Failed> {
    let mut found = Vec::new();
    for call in turns.iter().flat_map(|turn| &turn.calls).take(DRAWN) {
        found.extend(client.evidence(call.key.as_str()).await?);
    }
    Ok(found)
}

fn facts(site: &Site, run: &RunStatus) -> Markup {
    html! {
        dl.facts {
            dt { "State" } dd { (state(run.state.name())) " " (said(&run.state)) }
            dt { "Run" } dd { code { (run.id) } " of " (run.workflow) " version " (run.version) }
            @if let Some(parent) = run.parent { dt { "Parent" } dd { (run_link(site, parent)) } }
            dt { "Started" } dd { (time(site, run.started_at)) }
            dt { "Last change" } dd { (time(site, run.updated_at)) }
            @if let Some(at) = run.deadline { dt { "Deadline" } dd { (time(site, at)) } }
            @if run.turn > 0 { dt { "Turn" } dd { (run.turn) } }
            @if let Some(queue) = &run.queue {
                dt { "Queue" }
                dd {
                    (queue.name) @if let Some(key) = &queue.key { ", key " (key) } ", priority " (queue.priority)
                    @match queue.admitted_at { Some(at) => { ", has a place since " (time(site, at)) } None => { ", has no place" } }
                }
            }
            @if run.recovery_attempts > 0 {
                dt { "Deaths" } dd { "A process died " (run.recovery_attempts) " times while it carried the run out." }
            }
        }
    }
}

/// What a state says beyond its name.
fn said(state: &RunState) -> Markup {
    let words = state.to_string();
    let more = words.strip_prefix(state.name()).unwrap_or_default().trim_start_matches(':').trim();
    html! { (more) }
}

fn asked(site: &Site, questions: &[Question]) -> Markup {
    let rows: Vec<_> = questions.iter().map(|asked| listed(site, asked)).collect();
    html! {
        h2 { "Open questions" }
        (table(&["Question", "Kind", "Opened", "Run"], &rows, ""))
        @if questions.len() >= ASKED as usize {
            p.hint { "The " (ASKED) " oldest are shown. " a href=(site.of_tenant("/questions")) { "All open questions" } }
        }
    }
}

/// The timeline as a figure, and as a table.
fn drawn(site: &Site, timeline: &Timeline) -> Markup {
    let rows: Vec<_> = timeline
        .in_order()
        .into_iter()
        .map(|(lane, mark)| {
            html! { tr {
                td { (time(site, mark.from)) }
                td.number { @if let Some(to) = mark.to { (span(to.0.saturating_sub(mark.from.0))) } }
                td { (mark.sort.name()) }
                td { @match &lane.key { Some(key) => { (evidence_link(site, key)) } None => { (lane.label) } } }
                td.text { (mark.words) }
            } }
        })
        .collect();
    html! {
        (figure(timeline))
        details { summary { "The timeline as a table" } (table(&["When", "How long", "What", "Of", "Details"], &rows, "")) }
    }
}

async fn stored(run: &RunHandle<Value>, title: &str, stored: &Stored) -> Markup {
    let shown = match run.value(stored).await {
        Ok(payload) => payload.value().map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    html! {
        details {
            summary { (title) }
            @match &shown { Ok(shown) => { (value(shown)) } Err(error) => { p.trouble { (error) } } }
        }
    }
}

/// A command to a run, and its consequence.
struct Possible {
    name: &'static str,
    words: &'static str,
    consequence: &'static str,
}

/// The commands that a run in this state takes.
fn possible(state: &RunState) -> Vec<Possible> {
    let pause = ("pause", "Pause", "The run stops where it is durable, until somebody lets it go on.");
    let resume = ("resume", "Resume", "A paused run goes on.");
    let cancel = ("cancel", "Cancel", "The run ends as failed. Its effects are undone, or asked about.");
    let retry = ("retry", "Retry", "The run goes on from its last failure. What it has done is kept.");
    let fork = ("fork", "Fork", "A new run begins with what this run has done.");
    let all = match state {
        RunState::Blocked { .. } => vec![resume, retry, cancel, fork],
        RunState::Failed { .. } => vec![retry, fork],
        RunState::Succeeded => vec![fork],
        RunState::Expired { .. } => vec![],
        _ => vec![pause, cancel, fork],
    };
    all.into_iter().map(|(name, words, consequence)| Possible { name, words, consequence }).collect()
}

fn commands(site: &Site, state: &RunState) -> Markup {
    let possible = possible(state);
    html! {
        // A part of its own, which is there in every state: the script replaces it when the run takes other commands.
        div #commands { @if site.allows(Role::Operate) && !possible.is_empty() {
            h2 { "Commands" }
            div.choices {
                @for Possible { name, words, consequence } in possible {
                    form.card method="post" action=(site.here()) {
                        h3 { (words) }
                        p { (consequence) }
                        (secret(site))
                        input type="hidden" name="command" value=(name);
                        input type="hidden" name="key" value=(client_key());
                        label for=(format!("{name}-reason")) { "Reason" }
                        input #(format!("{name}-reason")) name="reason" required maxlength="2000" autocomplete="off";
                        button.main { (words) }
                    }
                }
            }
        } }
    }
}

/// A command of a person. The key was made with the form, so a form that is sent twice is one command.
#[derive(Deserialize)]
pub(super) struct Given {
    command: String,
    key: String,
    reason: String,
}

pub(super) async fn command(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    Extension(caller): Extension<Caller>,
    Extension(cookies): Extension<Cookies>,
    path: Result<Path<(String, String)>, PathRejection>,
    form: Result<Form<Given>, FormRejection>,
) -> Result<Response, Failed> {
    let run = named(&client, path)?;
    let Form(Given { command, key, reason }) = form.map_err(Failed::malformed)?;
    checked("reason", &reason, 4096)?;
    let (by, mut shown) = (&caller.name, run.id());
    let (sent, code) = match command.as_str() {
        "pause" => (run.pause(by, &reason).key(&key).await?, "pause"),
        "resume" => (run.resume(by, &reason).key(&key).await?, "resume"),
        "cancel" => (run.cancel(by, &reason).key(&key).await?, "cancel"),
        "retry" => (run.retry(by, &reason).key(&key).await?, "retry"),
        "fork" => {
            shown = run.fork(by, &reason).key(&key).await?.id();
            (Sent::New, "fork")
        }
        _ => return Err(Failed::malformed("There is no such command. Nothing was done.")),
    };
    tracing::info!(by, action = code, subject = %run.id(), "write of the dashboard taken");
    let code = if sent == Sent::New { code } else { "again" };
    let mut response = see(&site.of_tenant(&format!("/runs/{shown}")));
    add(response.headers_mut(), cookies.tell(code));
    Ok(response)
}
