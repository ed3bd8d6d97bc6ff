//! Pieces that several pages are made of: times, states, values, lists.

use maud::{Markup, html};
use serde_json::Value;

use super::site::{Site, escaped};
use crate::clock::Timestamp;
use crate::id::RunId;
pub(super) use crate::page::pieces::{ago, count, span, state, table};

/// The longest value that a page shows, in bytes.
const VALUE: usize = 16 * 1024;

/// An instant, exactly and from now.
pub(super) fn time(site: &Site, at: Timestamp) -> Markup {
    let exact = at.to_string();
    html! {
        time datetime=(exact) title=(exact) { (exact[..10]) " " (exact[11..19]) " UTC" }
        " " span.ago { (ago(at, site.now)) }
    }
}

/// An instant, if there is one.
pub(super) fn some_time(site: &Site, at: Option<Timestamp>) -> Markup {
    html! { @match at { Some(at) => { (time(site, at)) } None => { span.none { "never" } } } }
}

/// A link to a run.
pub(super) fn run_link(site: &Site, run: RunId) -> Markup {
    html! { a.run href=(site.of_tenant(&format!("/runs/{run}"))) { (run) } }
}

/// A link to the evidence of a call.
pub(super) fn evidence_link(site: &Site, key: &str) -> Markup {
    html! { a.key href=(site.of_tenant(&format!("/evidence?key={}", escaped(key)))) { (key) } }
}

/// A value, in lines. The end of a long one is left out, and the page says so.
pub(super) fn value(value: &Value) -> Markup {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let shown = &text[..text.floor_char_boundary(VALUE)];
    html! {
        pre tabindex="0" { (shown) }
        @if shown.len() < text.len() { p.hint { "This is the beginning. The value has " (text.len()) " bytes." } }
    }
}

/// The link to the next page of a list.
pub(super) fn next_page(address: Option<&str>) -> Markup {
    html! { @if let Some(address) = address { p.next { a rel="next" href=(address) { "Next page" } } } }
}
