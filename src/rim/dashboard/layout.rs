//! The frame of a page: its head, the navigation, and what the last form has done.

use axum::response::Html;
use maud::{DOCTYPE, Markup, html};

use super::assets::{ICON, SCRIPT, STYLE};
use super::site::Site;
use crate::id::Tenant;
use crate::page::harmless::harmless;
use crate::rim::api::Failed;

/// The answer with a page.
pub(super) type Shown = Result<Html<String>, Failed>;

/// The field of a form that holds the secret of the session.
pub(super) const SECRET: &str = "form";

/// What a form has done, by the code that its redirection carries.
const TOLD: [(&str, &str); 9] = [
    ("answer", "The answer is recorded."),
    ("look", "The provider is asked now. Unless that tells the outcome, the question stays open."),
    ("decision", "The decision is recorded."),
    ("pause", "The run is told to pause. It stops where it is durable."),
    ("resume", "The run goes on."),
    ("cancel", "The run is cancelled. Its effects are undone or asked about."),
    ("retry", "The run begins once more."),
    ("fork", "This is the new run."),
    ("again", "This was done before, by the same form. Nothing was done twice."),
];

/// A whole page. Text of others in it is escaped by the templates; what could hide it, such as marks that turn the direction of
/// writing, is shown here.
pub(super) fn page(site: &Site, title: &str, body: &Markup) -> Html<String> {
    let told = site.told.as_deref();
    let told = TOLD.iter().find_map(|(code, words)| (told == Some(*code)).then_some(*words));
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · counterfoil" }
                link rel="icon" href=(site.at(&format!("/assets/{}", ICON.name)));
                link rel="stylesheet" href=(site.at(&format!("/assets/{}", STYLE.name)));
                script defer src=(site.at(&format!("/assets/{}", SCRIPT.name))) {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                (head(site))
                main #main tabindex="-1" {
                    @if let Some(words) = told { p.told role="status" { (words) } }
                    (body)
                }
            }
        }
    };
    Html(harmless(&whole.into_string()))
}

fn head(site: &Site) -> Markup {
    html! {
        header {
            a.brand href=(site.at("/")) { "counterfoil" }
            @if let Some(caller) = &site.caller {
                @if let Some(tenant) = &site.tenant { span.tenant { "tenant " strong { (tenant) } } }
                nav aria-label="Pages" { ul { (links(site)) } }
                form.out method="post" action=(site.at("/sign-out")) {
                    (secret(site))
                    span.who { (caller.name) " (" (caller.role) ")" }
                    button.quiet { "Sign out" }
                }
            }
        }
    }
}

fn links(site: &Site) -> Markup {
    let of_tenant: &[(&str, &str)] = if site.tenant.is_some() {
        &[
            ("", "Overview"),
            ("/runs", "Runs"),
            ("/questions", "Questions"),
            ("/approvals", "Approvals"),
            ("/set-aside", "Set aside"),
            ("/evidence", "Evidence"),
            #[cfg(feature = "schedule")]
            ("/schedules", "Schedules"),
        ]
    } else {
        &[]
    };
    let whole: &[(&str, &str)] = if site.sees_all() {
        &[("/tenants", "All tenants"), ("/queues", "Queues"), ("/workers", "Workers")]
    } else {
        &[]
    };
    let root = site.tenant.as_ref().map_or("", Tenant::as_str);
    let root = format!("/t/{}", super::site::escaped(root));
    html! {
        @for (path, name) in of_tenant { (link(site, &format!("{root}{path}"), name, path.is_empty())) }
        @for (path, name) in whole { (link(site, path, name, false)) }
    }
}

/// A link to a page, which says if it is this one (`page`), or one above it (`true`).
fn link(site: &Site, path: &str, name: &str, is_exact: bool) -> Markup {
    let below = site.path.strip_prefix(path);
    let current = match below {
        Some("") => Some("page"),
        Some(below) if !is_exact && below.starts_with('/') => Some("true"),
        _ => None,
    };
    html! { li { a href=(site.at(path)) aria-current=[current] { (name) } } }
}

/// The hidden field that each form has.
pub(super) fn secret(site: &Site) -> Markup {
    html! { input type="hidden" name=(SECRET) value=(site.form_secret); }
}
