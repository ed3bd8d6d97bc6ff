//! The evidence of a call as a part of a page: with links on the dashboard, and without them in a file.

use maud::{Markup, html};

use crate::clock::Timestamp;
use crate::exec::{CallHistory, Evidence, PastAttempt, PastLookup};
use crate::id::{QuestionId, RunId};
use crate::ledger::ErrorKind;
use crate::page::alone::page;
use crate::page::pieces::{state, table};
use crate::store::ContactResult;

/// What a page makes of the instants and the names in the evidence.
pub(in crate::rim) trait Around {
    /// An instant.
    fn time(&self, at: Timestamp) -> Markup;
    /// A run, by its name.
    fn run(&self, run: RunId) -> Markup;
    /// A question, by its words.
    fn question(&self, id: QuestionId, words: &str) -> Markup;
}

/// A file: instants are exact, and there is nothing to link to.
struct File;

impl Around for File {
    fn time(&self, at: Timestamp) -> Markup {
        let exact = at.to_string();
        html! { time datetime=(exact) { (exact) } }
    }

    fn run(&self, run: RunId) -> Markup {
        html! { code { (run) } }
    }

    fn question(&self, id: QuestionId, words: &str) -> Markup {
        html! { (words) " " code { (id) } }
    }
}

impl Evidence {
    /// The evidence as one page of HTML, in the look of the dashboard. The page loads nothing, has no script and no links,
    /// and shows the text of others as text.
    ///
    /// ```no_run
    /// # async fn page(executor: counterfoil::Executor) -> Result<(), Box<dyn std::error::Error>> {
    /// let acme = counterfoil::Tenant::new("acme")?;
    /// if let Some(evidence) = executor.evidence(&acme, "payment.charge:order-7").await? {
    ///     std::fs::write("order-7.html", evidence.html())?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn html(&self) -> String {
        let body = html! {
            h1 { "Evidence" }
            p.hint { "Tenant " (self.tenant) ", as of " (File.time(self.as_of)) }
            (told(&File, self))
        };
        page(&format!("Evidence of {}", self.key), &body)
    }
}

/// Everything that the ledger knows about a call.
pub(in crate::rim) fn told(around: &impl Around, evidence: &Evidence) -> Markup {
    html! {
        h2.key { (evidence.key) " " (state(evidence.outcome.state)) }
        dl.facts {
            dt { "Tool" } dd { (evidence.tool) " (" (evidence.effect) ")" }
            dt { "Search the provider by" } dd { code { (evidence.wire_key) } }
            dt { "Provider's id" }
            dd { @match &evidence.outcome.external_ref { Some(id) => { code { (id) } } None => { "unknown" } } }
            dt { "Asked" }
            dd {
                (around.time(evidence.asked_by.at))
                @if let Some(run) = evidence.asked_by.run { ", by " (around.run(run)) }
                @if let Some(step) = &evidence.asked_by.step { ", step " (step) }
            }
            @for (name, value) in &evidence.labels { dt { "Label" } dd { (name) "=" (value) } }
            @if !evidence.used_by.is_empty() {
                dt { "Used by" } dd { @for run in &evidence.used_by { (around.run(*run)) " " } }
            }
            @if let Some(approval) = &evidence.approval { dt { "Approved" } dd { pre.plain { (approval) } } }
            dt { "Outcome" } dd { (outcome(around, evidence)) }
            dt { "Kept" }
            dd { @match evidence.kept_until { Some(until) => { "until " (around.time(until)) } None => { "for ever" } } }
        }
        (contacts(around, &evidence.history))
        @if !evidence.late_answers.is_empty() {
            h3 { "Late answers" }
            ul { @for late in &evidence.late_answers { li { (late) } } }
        }
        @if !evidence.questions.is_empty() {
            h3 { "Questions" }
            ul {
                @for asked in &evidence.questions {
                    li {
                        (around.question(asked.id, &asked.question))
                        " " (state(asked.kind.name())) " " (around.time(asked.opened_at))
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

fn outcome(around: &impl Around, evidence: &Evidence) -> Markup {
    let outcome = &evidence.outcome;
    html! {
        (state(outcome.state))
        @if let Some(basis) = outcome.basis { " by " (basis) }
        ", " (around.time(outcome.settled_at.unwrap_or(outcome.updated_at)))
        @if let Some(failure) = &outcome.failure { ", " (failure.kind.name()) ": " (failure.message) }
        @if let Some(reason) = &outcome.abandoned { ", " (reason) }
        @match outcome.undone { Some(true) => { ", undone" } Some(false) => { ", undone in part" } None => {} }
    }
}

/// The attempts and lookups of a call.
pub(in crate::rim) fn contacts(around: &impl Around, history: &CallHistory) -> Markup {
    let attempts: Vec<_> = history.attempts.iter().map(|attempt| attempt_row(around, attempt)).collect();
    let lookups: Vec<_> = history.lookups.iter().map(|lookup| lookup_row(around, lookup)).collect();
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

fn attempt_row(around: &impl Around, attempt: &PastAttempt) -> Markup {
    let result = attempt.result.map_or("no answer yet", ContactResult::name);
    html! { tr {
        td.number { (attempt.number) }
        td.number { (attempt.worker) }
        td { @match attempt.began { Some(at) => { (around.time(at)) } None => { "not known" } } }
        td { @if let Some(at) = attempt.ended { (around.time(at)) } }
        td { (state(result)) }
        td { (details(attempt.error.map(ErrorKind::name), attempt.message.as_deref(), attempt.external_ref.as_deref())) }
    } }
}

fn lookup_row(around: &impl Around, lookup: &PastLookup) -> Markup {
    html! { tr {
        td.number { (lookup.number) }
        td.number { (lookup.worker) }
        td { @match lookup.began { Some(at) => { (around.time(at)) } None => { "not known" } } }
        td { (around.time(lookup.ended)) }
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
